"""Results of a stage: arrays, and the typed rows and fields of a trace, made from them on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from cems_workbench.pipeline.table import Bools, CandidateTable, Floats, ListArrays, Ranking

RowContract = tuple[str, int | None, int | None, float | None, float | None, bool, str | None]
"""The values of a `StageRow`, in its order: what a stage's own row begins with."""


@dataclass(frozen=True, slots=True)
class StageRow:
    """What a stage did to one candidate that entered it; stages with more columns extend it. Ranks are 1-based, None
    before fusion and, on the way out, for a dropped candidate. `score` is that after the stage; `reason` says why the
    candidate was dropped, None for one that leaves."""

    memory_id: str
    rank_in: int | None
    rank_out: int | None
    score_in: float | None
    score: float | None
    kept: bool
    reason: str | None

    def to_json(self, *, contract_only: bool = False) -> dict[str, Any]:
        """The row as plain values; without the stage's own columns if it passed every candidate."""
        return plain_fields(self, _CONTRACT if contract_only else field_names(type(self)))


@dataclass(frozen=True, slots=True)
class StageFields:
    """A stage's data beyond its rows; none for most. A stage with fields extends it."""

    def to_json(self) -> dict[str, Any]:
        """The fields as plain values, by name."""
        return plain_fields(self, field_names(type(self)))


@dataclass(frozen=True, slots=True)
class ScoreNeed:
    """Candidates that a stage's model has never scored, which gathering can have scored."""

    stage: str
    model: str
    memory_ids: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The need as plain values."""
        return plain_fields(self, field_names(type(self)))


def field_names(kind: Any) -> tuple[str, ...]:
    """The names of a dataclass's fields, in order."""
    return tuple(kind.__dataclass_fields__)


_CONTRACT = field_names(StageRow)


def plain_fields(record: Any, names: Iterable[str] | str) -> dict[str, Any]:
    """Some attributes of a record, by names or by names with blank spaces between, as plain values all the way down.
    Records with a `to_json` are what it gives, other dataclasses dicts of their fields, and tuples lists."""
    return {name: _plain(getattr(record, name)) for name in (names.split() if isinstance(names, str) else names)}


_ATOMS = (str, float, int, bool, type(None))


def _plain(value: Any) -> Any:
    if type(value) in _ATOMS:  # nearly everything
        return value
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value) and not isinstance(value, type):
        return plain_fields(value, field_names(type(value)))
    return value


RowT = TypeVar("RowT", bound=StageRow, covariant=True)
FieldsT = TypeVar("FieldsT", bound=StageFields, covariant=True)


@dataclass(frozen=True, slots=True)
class PartColumn:
    """One number that a stage's scores are made of: (C) values, NaN for a candidate without it. `kind` is its name
    within the stage, `list` the list that it is from, if it is from one."""

    kind: str
    list: str | None
    values: Floats


@dataclass(frozen=True, slots=True)
class ScorePart:
    """One number that a candidate's score is made of: its kind, and the list that it is from, if it is from one."""

    kind: str
    list: str | None
    value: float


Column = NDArray[Any] | Callable[[int], Sequence[Any]]
"""(Q, C) numbers or truths, NaN where there is none, or by query the value of each candidate."""


def rows_of(kind: type[RowT], *columns: Column) -> Callable[[int], Callable[[int, RowContract], RowT]]:
    """For `StageArrays.row`: rows of this kind, whose own columns have these values."""

    def row(q: int) -> Callable[[int, RowContract], RowT]:
        values = [optional_numbers(one[q]) if isinstance(one, np.ndarray) else one(q) for one in columns]
        return lambda c, contract: kind(*contract, *[column[c] for column in values])

    return row


def _plain_row(q: int) -> Any:
    return lambda c, contract: StageRow(*contract)


def _no_fields(q: int) -> Any:
    return StageFields()


@dataclass(eq=False, kw_only=True, slots=True)
class StageArrays(Generic[RowT, FieldsT]):
    """What one stage did with Q queries of C candidates: the row contract as arrays, and functions that read the stage's own columns.

    The functions are only called when a trace is read. `row` returns, for a query, the function that makes a candidate's row.
    Treat it as immutable; it is not frozen because every replay makes one per stage, and a frozen one takes twice as long to make.
    """

    entered: Bools
    """(Q, C)"""
    before: Ranking
    after: Ranking
    row: Callable[[int], Callable[[int, RowContract], RowT]] = _plain_row
    fields: Callable[[int], FieldsT] = _no_fields
    reason: Callable[[int, int], str | None] = lambda q, c: None
    past_limit: Callable[[int, int], bool] = lambda q, c: False
    """Whether a dropped candidate had no fault but its rank: the places were taken."""
    warnings: Callable[[int], list[str]] = lambda q: []
    needs: Callable[[int], list[ScoreNeed]] = lambda q: []
    lists: ListArrays | None = None
    """The lists as they leave the stage; None: as they came."""
    parts: Callable[[int], Sequence[PartColumn]] = lambda q: ()
    """The numbers that the scores of query q are made of, which are in its rows too: a table of all rows needs none of them."""
    waiting: Bools | None = None
    """(Q, C) candidates on another branch of a recorded pipeline: not entered here, and not lost; None: there are no branches."""
    passed: bool = False
    """The stage passed every candidate unchanged; its rows have only the columns of the contract."""

    def rows(self, table: CandidateTable, q: int) -> list[RowT]:
        """One row per candidate of query q that entered: the kept in their order, then the dropped in theirs."""
        ids, make, reason = table.ids[q], self.row(q), self.reason
        kept = self.after.alive[q].tolist()
        rank_in, rank_out = self.before.rank[q].tolist(), self.after.rank[q].tolist()
        score_in, score = optional_numbers(self.before.score[q]), optional_numbers(self.after.score[q])
        return [
            make(c, (ids[c], rank_in[c] or None, rank_out[c] or None, score_in[c], score[c], True, None))
            if kept[c]
            else make(c, (ids[c], rank_in[c] or None, None, score_in[c], score[c], False, reason(q, c)))
            for c in self._ordered(q)
        ]

    def _ordered(self, q: int) -> list[int]:
        entered = np.flatnonzero(self.entered[q])
        kept = self.after.alive[q, entered]
        rank = np.where(kept, self.after.rank[q, entered], self.before.rank[q, entered])
        # Dropped rows may have no score; NaN has no place in an order.
        score = np.nan_to_num(self.after.score[q, entered], nan=-np.inf)
        # lexsort takes the last key first: kept, rank, score, then the order of the ids.
        ordered: list[int] = entered[np.lexsort((entered, -score, rank, ~kept))].tolist()
        return ordered


def optional_numbers(values: NDArray[Any]) -> list[Any]:
    """(C) numbers with None for NaN."""
    return [None if value != value else value for value in values.tolist()]


def pass_through(
    ranking: Ranking,
    row: type[RowT],
    fields: Callable[[], FieldsT],
    warnings: Callable[[int], list[str]] = lambda q: [],
) -> StageArrays[RowT, FieldsT]:
    """A stage that does nothing: every candidate leaves as it entered. `row` has the defaults of the stage's own columns."""
    return StageArrays(
        entered=ranking.alive,
        before=ranking,
        after=ranking,
        row=lambda q: lambda c, contract: row(*contract),
        fields=lambda q: fields(),
        warnings=warnings,
        passed=True,
    )


class StageTrace(Generic[RowT, FieldsT]):
    """One stage of one query: `rows`, `warnings`, the stage's `fields`, and `elapsed_ms` (None when not timed)."""

    def __init__(
        self, name: str, arrays: StageArrays[RowT, FieldsT], table: CandidateTable, q: int, elapsed_ms: float | None
    ) -> None:
        self.name = name
        self.elapsed_ms = elapsed_ms
        self._arrays = arrays
        self._table = table
        self._q = q

    @cached_property
    def rows(self) -> tuple[RowT, ...]:
        """One row per candidate that entered: the kept in their order, then the dropped in theirs."""
        return tuple(self._arrays.rows(self._table, self._q))

    @cached_property
    def by_id(self) -> Mapping[str, RowT]:
        """The rows by memory id."""
        return {row.memory_id: row for row in self.rows}

    @cached_property
    def warnings(self) -> list[str]:
        """Warnings of this stage: those of gathering, then those of replay."""
        noted = self._table.notes[self._q].get("warnings", {})
        return [*(str(line) for line in noted.get(self.name, ())), *self._arrays.warnings(self._q)]

    @cached_property
    def fields(self) -> FieldsT:
        """The stage's data beyond its rows, such as the thresholds visited."""
        return self._arrays.fields(self._q)

    @cached_property
    def _parts(self) -> Sequence[PartColumn]:
        return self._arrays.parts(self._q)

    def score_parts(self, memory_id: str) -> tuple[ScorePart, ...]:
        """The numbers that a candidate's score after the stage is made of."""
        c = self._table.ids[self._q].index(memory_id)
        found = ((part, float(part.values[c])) for part in self._parts)
        return tuple(ScorePart(part.kind, part.list, value) for part, value in found if value == value)

    @property
    def candidates_in(self) -> int:
        """How many candidates entered."""
        return int(self._arrays.entered[self._q].sum())

    @property
    def candidates_out(self) -> int:
        """How many left."""
        return int(self._arrays.after.alive[self._q].sum())

    @property
    def kept(self) -> list[RowT]:
        """The rows of those that left, in their order."""
        return [row for row in self.rows if row.kept]

    def to_json(self) -> dict[str, Any]:
        """The stage as plain values."""
        rows = [row.to_json(contract_only=self._arrays.passed) for row in self.rows]
        head = {"name": self.name, "rows": rows, "warnings": self.warnings, "elapsed_ms": self.elapsed_ms}
        return head | {key: value for key, value in self.fields.to_json().items() if key not in head}
