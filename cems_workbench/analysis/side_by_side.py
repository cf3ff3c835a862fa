"""Side by side: a row for each candidate, a column for each list and stage that did something, the final rank last.

Every number is the trace's: a cell has what the stage's own row of the candidate says. Columns are read from the stages' arrays, and cells
and words are made when they are read, because a moved slider makes a new table of all candidates. A stage has a column if it dropped a
candidate or changed a rank, a score or a hit; fusion always has one, as it makes the first ranks.

It reads the trace's stages and no list of the shipped ones, so stages that say nothing but rank and score are columns too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from cems_workbench.analysis.ranks import stage_words
from cems_workbench.analysis.supersession import stale_badges, stale_words
from cems_workbench.errors import one_line
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.list_sources import list_label, ordinal
from cems_workbench.pipeline.stages import result
from cems_workbench.pipeline.stages.adjust import ADJUST
from cems_workbench.pipeline.stages.assembly import ASSEMBLY
from cems_workbench.pipeline.stages.fusion import FUSION
from cems_workbench.pipeline.stages.judge import JUDGE
from cems_workbench.pipeline.stages.lists import LISTS, shown_only
from cems_workbench.pipeline.stages.rerank import RERANK
from cems_workbench.pipeline.stages.stage import AnyStage
from cems_workbench.pipeline.table import Bools, Floats, Ints, ListArrays, memoized

ColumnKind = Literal["list", "fusion", "rerank", "factors", "judge", "rank", "stage"]

FIRST_WORDS_CHARS = 100
FINAL = "rank"
"""The key of the last column."""
RESERVED = (FINAL, "final", "memory")
"""Keys that no list or stage gets: those of the columns that a page adds."""

_KINDS: Mapping[str, ColumnKind] = {
    FUSION.name: "fusion",
    RERANK.name: "rerank",
    ADJUST.name: "factors",
    JUDGE.name: "judge",
    ASSEMBLY.name: "rank",
}


@dataclass(frozen=True, slots=True)
class Part:
    """One of the numbers in the cells of a column: its label, its kind within the stage, and the list that it is from,
    if from one. The parts of fusion add up to the score; the kind `base` and the bonuses of a list are separate. The
    others are what the score was made of."""

    label: str
    kind: str
    list: str | None = None


@dataclass(frozen=True, eq=False)
class Column:
    """A list, a stage, or the final rank (`rank`, the last one). `stage` is the traced stage that its numbers are from.
    `there` says who of the rows has a cell; `ranks`, `scores`, and `values` of each part are in the order of the
    rows."""

    key: str
    stage: str
    title: str
    kind: ColumnKind
    list: str | None
    """The name of a list."""
    parts: tuple[Part, ...]
    """The numbers that at least one of its cells has."""
    there: Sequence[bool]
    ranks: Sequence[int | None]
    scores: Sequence[float | None]
    values: Sequence[Sequence[float | None]]

    def to_json(self) -> dict[str, Any]:
        """The column as plain values, without its cells."""
        return result.plain_fields(self, "key stage title kind list parts")


@dataclass(frozen=True, slots=True)
class Cell:
    """A candidate in one list or after one stage. `rank` is 1-based, None before fusion and for one that was dropped
    there. `score` is the one after the stage: of a list the normalised one, of the judge its own. `parts` are (label,
    value) as in `Column.parts`; `words` say what happened to it."""

    rank: int | None
    score: float | None
    parts: tuple[tuple[str, float], ...]
    words: str

    def to_json(self) -> dict[str, Any]:
        return {"rank": self.rank, "score": self.score, "parts": dict(self.parts), "words": self.words}


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate. `cells` are by column key, in the order of the columns; a list or stage that it never entered has none.

    `former_rank` is its rank after fusion, or in the results of the trace that this one is compared with; `move` the places gained from
    there, negative if lost; None unless it has both ranks. `first_words` are untrusted like every text.
    """

    memory_id: str
    title: str | None
    first_words: str
    grade: int | None
    stale: str | None
    """What supersedes it and where that one is, or when it expired; None if neither."""
    final_rank: int | None
    former_rank: int | None
    move: int | None
    dropped_by: str | None
    """The stage that dropped it; None for a result."""
    dropped_words: str | None
    cells: Mapping[str, Cell]
    moved_from: str

    @property
    def moved_words(self) -> str:
        """ "up 2 from 3rd after fusion"; empty without a final rank."""
        if self.final_rank is None:
            return ""
        where = self.moved_from
        if self.former_rank is None or self.move is None:
            return f"had no rank {where}"
        if self.move == 0:
            return f"as {where}"
        return f"{'up' if self.move > 0 else 'down'} {abs(self.move)} from {ordinal(self.former_rank)} {where}"

    def to_json(self) -> dict[str, Any]:
        return result.plain_fields(self, ROW_FIELDS) | {
            "cells": {key: cell.to_json() for key, cell in self.cells.items()}
        }


ROW_FIELDS = result.field_names(Row)[:-2]
"""What is in a row besides its cells."""


class SideBySide:
    """The table: rows by final rank, then the dropped ones by how far they came. `compared_with` names the config of
    `former_rank`. `moved_from` says in words where memories had their former rank: "after fusion". Use `rows` to read
    it, `to_columns` to draw it."""

    def __init__(
        self,
        trace: Trace,
        columns: Sequence[Column],
        order: Ints,
        ends: _Ends,
        grades: Mapping[str, int],
        previous: Trace | None,
    ) -> None:
        self.trace = trace
        self.compared_with = None if previous is None else previous.config.name
        self.moved_from = ends.ranked_by if previous is None else f"in the results of {previous.config.name}"
        self.columns = tuple(columns)
        self._places = order.tolist()
        self._ends = ends
        self._grades = grades
        self._previous = previous

    def __len__(self) -> int:
        return len(self._places)

    @cached_property
    def rows(self) -> Sequence[Row]:
        return [self._row(place) for place in range(len(self))]

    def row(self, memory_id: str) -> Row | None:
        """The row of a memory; None if it is no candidate."""
        return self._row(self.memory_ids.index(memory_id)) if memory_id in self.memory_ids else None

    def _row(self, place: int) -> Row:
        said = {name: column[place] for name, column in self.fields.items()}
        memory_id = self.memory_ids[place]
        cells = {}
        for column in self.columns:
            if column.there[place]:
                given = zip(column.parts, column.values, strict=True)
                parts = tuple((part.label, value) for part, numbers in given if (value := numbers[place]) is not None)
                words = _words(self.trace, column, memory_id)
                cells[column.key] = Cell(column.ranks[place], column.scores[place], parts, words)
        return Row(**said | {"stale": stale_words(self.trace, memory_id)}, cells=cells, moved_from=self.moved_from)

    def column(self, key: str) -> Column:
        """The column of a key. StopIteration without one."""
        return next(column for column in self.columns if column.key == key)

    @cached_property
    def memory_ids(self) -> Sequence[str]:
        """The candidates, in the order of the rows."""
        ids = self.trace.table.ids[0]
        return [ids[c] for c in self._places]

    @cached_property
    def fields(self) -> Mapping[str, Sequence[Any]]:
        """By the names of `ROW_FIELDS`, the values of the rows; `stale` is a badge, without where the successor is."""
        places, ends, table, ids = self._places, self._ends, self.trace.table, self.memory_ids
        badges = stale_badges(self.trace)
        # Title and first words of a candidate are the same for every config.
        texts = memoized(
            table.memo,
            "first words",
            None,
            lambda: [(memory.title, first_words(memory.content)) for memory in table.memories[0]],
        )
        final, former = _optional(ends.final[places]), _optional(ends.first[places])
        if self._previous is not None:
            former = [self._previous.ranks.get(memory_id) for memory_id in ids]
        stages = list(self.trace.run.items())
        dropped = [
            (stages[at], c) if at >= 0 else None for at, c in zip(ends.dropped_at[places].tolist(), places, strict=True)
        ]
        return {
            "memory_id": ids,
            "title": [texts[c][0] for c in places],
            "first_words": [texts[c][1] for c in places],
            "grade": [self._grades.get(memory_id) for memory_id in ids],
            "stale": [badges.get(memory_id) for memory_id in ids],
            "final_rank": final,
            "former_rank": former,
            "move": [None if a is None or b is None else a - b for a, b in zip(former, final, strict=True)],
            "dropped_by": [one and one[0][0] for one in dropped],
            "dropped_words": [one and (one[0][1].reason(0, one[1]) or "") for one in dropped],
        }

    def to_json(self) -> dict[str, Any]:
        """The table as plain values, a row for each memory."""
        return {
            "compared_with": self.compared_with,
            "moved_from": self.moved_from,
            "columns": [column.to_json() for column in self.columns],
            "rows": [row.to_json() for row in self.rows],
        }

    def to_table(self) -> tuple[list[str], list[list[Any]]]:
        """The table as headings and rows of plain values: the fields of a row, then rank, score and parts of each column."""
        fields = self.fields
        headings, columns = [name.replace("_", " ") for name in fields], list(fields.values())
        for column in self.columns:
            if column.kind != "rank":  # the final rank is one of the fields
                headings.append(f"{column.key} rank")
                columns.append(column.ranks)
            headings.append(f"{column.key} score" if column.kind != "rank" else "final score")
            columns.append(column.scores)
            headings += [f"{column.key}: {part.label}" for part in column.parts]
            columns += column.values
        return headings, [list(row) for row in zip(*columns, strict=True)]

    def to_columns(self) -> dict[str, Any]:
        """The table as plain values, a list for each field and column: quick, without the words of cells, `stale` as a
        badge. A column has `rank` and `score`, and `values`: for each of its parts a list."""
        columns = [
            column.to_json() | {"rank": column.ranks, "score": column.scores, "values": column.values}
            for column in self.columns
        ]
        head = {"compared_with": self.compared_with, "moved_from": self.moved_from}
        return {**head, "columns": columns, **self.fields}


def parts_words(kind: ColumnKind, parts: Sequence[tuple[str, float]]) -> str:
    """ "vector:0 base 0.0164 + lexical:0 base 0.0161" of fusion, "time decay × 0.98" of factors, "raw 8.2000, normalised 0.8200"."""
    if kind == "factors":
        return ", ".join(f"{label} × {value:.2f}" for label, value in parts)
    return (" + " if kind == "fusion" else ", ").join(f"{label} {value:.4f}" for label, value in parts)


def first_words(content: str) -> str:
    """The beginning of a text, on one line."""
    return one_line(content[: 4 * FIRST_WORDS_CHARS], FIRST_WORDS_CHARS)


def _words(trace: Trace, column: Column, memory_id: str) -> str:
    if column.kind != "list":
        return stage_words(trace, trace.record(column.stage), memory_id)
    row = trace.stage(LISTS).by_id[memory_id]
    entry = next(entry for entry in row.lists if entry.list == column.list)
    chunk = "" if entry.chunk is None else f", by its {ordinal(entry.chunk + 1)} chunk"
    return f"{ordinal(entry.rank)} in {list_label(entry.list)}{chunk}"


@dataclass(frozen=True, eq=False)
class _Ends:
    """(C) per candidate: the number of the stage that dropped it and of the last that it entered, -1 for none; the first rank that a stage
    gave it and the final one, 0 for none."""

    dropped_at: Ints
    reached: Ints
    first: Ints
    final: Ints
    ranked_by: str
    """Where the first ranks are from: "after fusion"."""


Arrays = result.StageArrays[result.StageRow, result.StageFields]


def side_by_side(trace: Trace, grades: Mapping[str, int] | None = None, previous: Trace | None = None) -> SideBySide:
    """The ranking of a trace side by side.

    Args:
        trace: any trace, of a replay or of a pipeline that was traced.
        grades: by memory id, for the query.
        previous: what ranks moved from; None: the ranks after fusion.
    """
    stages = list(trace.run.items())
    lists = _recorded_lists(trace) if trace.external else _lists(trace)
    ends = _ends(stages)
    order = _order(lists, stages, ends)
    columns = []
    for one in (one for one in lists if one.present[order].any()):
        parts = [] if one.raw is None else [result.PartColumn("raw", None, one.raw)]
        own = _column(LISTS.name, list_label(one.name), "list", one.present, one.rank, one.score, parts, order, one)
        columns.append(own)
    columns = _with_own_keys([*columns, *_stage_columns(trace, stages, order)])
    return SideBySide(trace, columns, order, ends, grades or {}, previous)


def _with_own_keys(columns: Sequence[Column]) -> list[Column]:
    """The columns with unique keys: a traced pipeline may name a stage as it names a list, or as a page names its own columns."""
    taken, found = set(RESERVED), []
    for column in columns:
        key = column.key
        if key in taken and column.kind != "rank":
            key = f"{key} ({'stage' if column.list is None else 'list'})"
        taken.add(key)
        found.append(replace(column, key=key))
    return found


@dataclass(frozen=True, eq=False)
class _List:
    """A list of C candidates: who is in it and takes part, ranks (0: not in it), scores, and raw scores if they are others (NaN: none)."""

    name: str
    present: Bools
    rank: Ints
    score: Floats
    raw: Floats | None = None


def _lists(trace: Trace) -> list[_List]:
    found = trace.run.of(LISTS).lists
    if found is None:
        return []
    places, lists = found.places, []
    for i, name in enumerate(trace.table.lists.names[0]):
        present, score = found.present[0, i], found.score[0, i]
        if shown_only(trace.config.lists, name.partition(":")[0]):
            present, score = places.position[0, i] > 0, places.raw[0, i]
        lists.append(_List(name, present, places.position[0, i], score, places.raw[0, i]))
    return lists


def _recorded_lists(trace: Trace) -> list[_List]:
    table, width = trace.table.recorded, trace.table.shape[1]
    made: list[_List] = []
    if table is None:
        return made
    for one in table.lists[0]:
        rank, score = np.zeros(width, np.int64), np.full(width, np.nan)
        for c, (place, value) in one.rank.items():
            rank[c], score[c] = place, np.nan if value is None else value
        made.append(_List(one.name, (rank > 0) & table.kept[0], rank, score))
    return made


def _ends(stages: Sequence[tuple[str, Arrays]]) -> _Ends:
    width = stages[0][1].entered.shape[1]
    dropped, reached, final = np.full(width, -1), np.full(width, -1), np.zeros(width, np.int64)
    first: Ints | None = None
    ranked_by = ""
    for number, (name, arrays) in enumerate(stages):
        if arrays.passed:
            continue
        entered, alive = arrays.entered[0], arrays.after.alive[0]
        dropped = np.where(entered, np.where(alive, -1, number), dropped)
        reached = np.where(entered, number, reached)
        if first is None and arrays.before.rank[0].any():
            first, ranked_by = arrays.before.rank[0], "in the list"  # a single one, which nothing fuses
        if first is None and arrays.after.rank[0].any():
            first, ranked_by = arrays.after.rank[0], f"after {name}"
    for _, arrays in reversed(stages):
        if first is not None and not arrays.passed:
            final = np.where(dropped < 0, arrays.after.rank[0], 0)
            break
    return _Ends(dropped, reached, final if first is None else first, final, ranked_by)


def _order(lists: Sequence[_List], stages: Sequence[tuple[str, Arrays]], ends: _Ends) -> Ints:
    """Candidate indices: results by rank, then the dropped ones, those of the last stage first, by the rank that they
    entered it with. Before fusion that is the best rank in a list."""
    there = np.flatnonzero(ends.reached >= 0)
    rank = np.where(ends.final > 0, ends.final, 0)
    for number, (_, arrays) in enumerate(stages):
        here = ends.dropped_at == number
        if here.any():
            rank = np.where(here, arrays.before.rank[0], rank)
    best = np.full(rank.shape, np.iinfo(np.int64).max)
    for one in lists:
        best = np.where(one.rank > 0, np.minimum(best, one.rank), best)
    rank = np.where(rank > 0, rank, best)
    how_far = np.where(ends.final > 0, len(stages), ends.reached)
    order: Ints = there[np.lexsort((there, rank[there], -how_far[there]))]
    return order


def _stage_columns(trace: Trace, stages: Sequence[tuple[str, Arrays]], order: Ints) -> Iterator[Column]:
    lists: ListArrays | None = None
    ranked = False
    kinds = _kinds(trace)
    last = trace.run.last.name
    for name, arrays in stages:
        # What the assembly does is the final rank.
        shown = name != LISTS.name and not (name == last and kinds.get(name) == "rank")
        if shown and _did_something(arrays, lists, trace.record(name).works_on == "results", first=not ranked):
            yield _stage_column(trace.record(name), arrays, kinds.get(name, "stage"), order)
        lists = arrays.lists or lists
        ranked = ranked or (not arrays.passed and bool(arrays.after.rank[0].any()))
    yield replace(_stage_column(trace.run.last, trace.run.results, "rank", order), key=FINAL, title="Final rank")


def _kinds(trace: Trace) -> Mapping[str, ColumnKind]:
    """The kind of a stage's column by its name; `rank` for one that chooses the results."""
    if trace.table.recorded is None:
        return _KINDS
    recorded: Mapping[str, ColumnKind] = {"fusion": "fusion", "rerank": "rerank", "assembly": "rank"}
    return {head.name: recorded.get(head.kind, "stage") for head in trace.table.recorded.heads}


def _did_something(arrays: Arrays, lists: ListArrays | None, notes: bool, first: bool) -> bool:
    """Whether a stage dropped or added a candidate, or changed a rank, a score or a hit, or said something of a result
    (`notes`). `first`: no stage before it made ranks."""
    if arrays.passed:
        return False
    if notes:
        return any(not np.isnan(part.values[arrays.entered[0]]).all() for part in arrays.parts(0))
    entered, before, after = arrays.entered[0], arrays.before, arrays.after
    if first and arrays.after.rank[0].any():
        return True
    if (before.alive[0] != after.alive[0]).any() or (before.rank[0] != after.rank[0]).any():
        return True
    was, now = before.score[0][entered], after.score[0][entered]
    if not np.array_equal(was, now, equal_nan=True):
        return True
    return arrays.lists is not None and lists is not None and bool((arrays.lists.present != lists.present)[0].any())


def _stage_column(stage: AnyStage, arrays: Arrays, kind: ColumnKind, order: Ints) -> Column:
    after = arrays.after
    ranks = np.where(after.alive[0], after.rank[0], 0)
    return _column(stage.name, stage.title, kind, arrays.entered[0], ranks, after.score[0], arrays.parts(0), order)


def _column(
    stage: str,
    title: str,
    kind: ColumnKind,
    there: Bools,
    ranks: Ints,
    scores: Floats,
    parts: Sequence[result.PartColumn],
    order: Ints,
    of: _List | None = None,
) -> Column:
    """The column of arrays (C) in the order of the rows, with the parts that a cell has."""
    there = there[order]
    labels, values = [], []
    for part in parts:
        numbers = np.where(there, part.values[order], np.nan)
        if not np.isnan(numbers).all():
            words = part.kind.replace("_", " ")
            label = words if part.list is None else f"{list_label(part.list)} {words}"
            labels.append(Part(label, part.kind, part.list))
            values.append(result.optional_numbers(numbers))
    after = values[0] if kind == "judge" else result.optional_numbers(np.where(there, scores[order], np.nan))
    name = None if of is None else of.name
    own = _optional(np.where(there, ranks[order], 0))
    return Column(name or stage, stage, title, kind, name, tuple(labels), there.tolist(), own, after, values)


def _optional(ranks: Ints) -> list[int | None]:
    """Ranks with None for 0."""
    return [rank or None for rank in ranks.tolist()]
