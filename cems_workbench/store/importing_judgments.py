"""The judgments of one input: which can be kept, what is wrong with the others, and what is already said here.

A row is held against the store first (its query, its memory, its grade on the scale) and against the other rows of its file after
that, so that a bad row never takes the place of a good one. Of several good grades of one judge for a pair the first is kept. What
other judges of the same kind say here of a pair stays, and is told where it differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cems_workbench.records import GradeScale, Judgment, ParsedInput, RowError
from cems_workbench.store import judgment_rows, memory_rows, query_rows, query_set_rows
from cems_workbench.store.reports import RowCounts

if TYPE_CHECKING:
    import duckdb

MAX_NOTES = 20
Numbered = Sequence[tuple[int, Judgment]]


@dataclass
class _Import:
    """An input whose judgments are being held against the store and against each other."""

    source: str
    names: Mapping[str, str]
    problems: list[RowError]
    repeated: list[str] = field(default_factory=list)
    kept: dict[judgment_rows.Key, tuple[int, Judgment]] = field(default_factory=dict)

    def report(self, row: int, judgment: Judgment, field: str, reason: str) -> None:
        self.problems.append(RowError(self.source, row, reason, self.named(judgment, field)))

    def named(self, judgment: Judgment, field: str) -> str:
        """What a field is called in the file; in a book a grade stands in the column of its judge."""
        return self.names.get(field, field) or judgment.judge


def put(
    cursor: duckdb.DuckDBPyConnection, parsed: ParsedInput, problems: list[RowError], when: datetime
) -> tuple[RowCounts, list[str]]:
    """Import the judgments of `parsed`, adding what is left out to `problems`; returns the counts and the notes."""
    numbers = parsed.extra.get("rows", {}).get("judgments") or range(1, len(parsed.judgments) + 1)
    rows = list(zip(numbers, parsed.judgments, strict=True))
    if not rows:
        return RowCounts(), []
    place = parsed.extra.get("sources", {}).get("judgments", parsed.source)
    state = _Import(place, parsed.extra.get("fields", {}), problems)
    for number, judgment in _possible(cursor, rows, state):
        _take(state, number, judgment)
    wanted, unchanged = _not_given_here(cursor, state)
    if not wanted and not unchanged:
        return RowCounts(), _capped(state.repeated, "more rows repeat earlier ones")
    differing = _capped(_differing(cursor, state, wanted), "more grades differ from those of other judges")
    source = Path(parsed.source).name
    counts, replaced = judgment_rows.upsert(cursor, wanted, source, when) if wanted else (RowCounts(), list[str]())
    notes = [*_capped(state.repeated, "more rows repeat earlier ones"), *differing, *replaced]
    return RowCounts(counts.added, counts.updated, counts.unchanged + unchanged), notes


def _possible(cursor: duckdb.DuckDBPyConnection, rows: Numbered, state: _Import) -> Numbered:
    """The rows whose query and memory the store has and whose grade is on a scale of the query's."""
    memories = memory_rows.known_ids(cursor, list({row.memory_id for _, row in rows}))
    asked = list({row.qid for _, row in rows})
    qids, scales = query_rows.known_qids(cursor, asked), query_set_rows.scales_of(cursor, asked)
    good: list[tuple[int, Judgment]] = []
    for number, judgment in rows:
        if judgment.qid not in qids:
            state.report(number, judgment, "qid", f"no query {judgment.qid!r} in the store; import it first")
        elif judgment.memory_id not in memories:
            reason = f"no memory {judgment.memory_id!r} in the store; import it first"
            state.report(number, judgment, "memory_id", reason)
        elif (problem := off_scale(judgment.grade, scales.get(judgment.qid, {}))) is not None:
            state.report(number, judgment, "grade", problem)
        else:
            good.append((number, judgment))
    return good


def off_scale(grade: int, scales: Mapping[str, GradeScale]) -> str | None:
    """What is wrong with a grade that is on none of these scales (by set name); None where there is no scale to be on."""
    if not scales or any(grade in scale for scale in scales.values()):
        return None
    name, scale = next(iter(scales.items()))
    return f"grade {grade} is not on the scale of query set {name}, which has {scale}"


def _take(state: _Import, number: int, judgment: Judgment) -> None:
    """Keep a good row, unless its judge has graded the pair in an earlier one."""
    before, first = state.kept.setdefault(judgment_rows.key(judgment), (number, judgment))
    if first is judgment:
        return
    if first.grade != judgment.grade:
        by = "" if (judgment.judge, judgment.kind) == ("human", "human") else f" by {judgment.judge}"
        reason = f"{judgment.qid} {judgment.memory_id} has grade {first.grade}{by} in row {before}, which is kept"
        state.report(number, judgment, "grade", reason)
    else:
        more = "" if first == judgment else "; its time and note are left out"
        state.repeated.append(f"row {number} repeats row {before}{more}")


def _not_given_here(cursor: duckdb.DuckDBPyConnection, state: _Import) -> tuple[list[Judgment], int]:
    """The judgments to write, and how many were given here just so; those that contradict a label given here are reported."""
    given = judgment_rows.given_here(cursor, [judgment for _, judgment in state.kept.values()])
    wanted, same = [], 0
    for key, (number, judgment) in state.kept.items():
        if key not in given:
            wanted.append(judgment)
        elif given[key] == judgment.grade:
            same += 1
        else:
            reason = f"{judgment.judge} gave {judgment.qid} {judgment.memory_id} grade {given[key]} here, which is kept"
            state.report(number, judgment, "grade", reason)
    return wanted, same


def _differing(cursor: duckdb.DuckDBPyConnection, state: _Import, wanted: Sequence[Judgment]) -> list[str]:
    """A line for each grade that somebody of the same kind, whose label the file does not change, contradicts in the store."""
    changing = {judgment_rows.key(judgment) for judgment in wanted}
    lines = []
    others = judgment_rows.of_others(cursor, [judgment for _, judgment in state.kept.values()])
    for key, (number, judgment) in state.kept.items():
        said = [one for one in others.get(key, ()) if (*key[:2], one[0], key[3]) not in changing]
        if said:
            there = ", ".join(f"{judge} {grade}" for judge, grade in said)
            field = state.named(judgment, "grade")
            lines.append(
                f"row {number}: {field}: {judgment.judge} says {judgment.grade} of {judgment.qid} "
                f"{judgment.memory_id}, in the store: {there}; all are kept"
            )
    return lines


def _capped(lines: list[str], rest: str) -> list[str]:
    return lines if len(lines) <= MAX_NOTES else [*lines[:MAX_NOTES], f"{len(lines) - MAX_NOTES} {rest}"]
