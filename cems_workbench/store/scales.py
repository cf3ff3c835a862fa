"""The grade scale of a query set as an import states it: `--scale -2..3`, `--relevant-from 2`.

A stated scale is that of the set that receives the import's queries. If the store has all of them already, it is that of the one set whose
queries are judged; of several, the import has to name one. Changing a scale makes a new version of the set, and every judgment of the
set's queries must be on the new one. Meanings of grades and the lowest relevant grade are kept where the new scale has them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from cems_workbench.errors import InputError
from cems_workbench.records import DEFAULT_SCALE, WHOLE_STORE, GradeScale
from cems_workbench.store import query_sets
from cems_workbench.store.query_sets import QuerySet
from cems_workbench.store.team import Session

MAX_GRADES = 11


@dataclass(frozen=True, slots=True)
class StatedScale:
    """What an import states of a set's scale: its grades, the lowest relevant grade, or both."""

    scale: GradeScale | None = None
    relevant_from: int | None = None

    def __str__(self) -> str:
        grades = [] if self.scale is None else [grade for grade, _ in self.scale.grades]
        options = [f"--scale {grades[0]}..{grades[-1]}"] if grades else []
        options += [] if self.relevant_from is None else [f"--relevant-from {self.relevant_from}"]
        return " ".join(options)


def parse_scale(text: str) -> GradeScale:
    """The scale of `LOW..HIGH`; raises InputError. 0 means the same on each, the other grades of the default only if 3
    is the highest: on 1..10 a 3 does not answer the question."""
    low, _, high = text.partition("..")
    try:
        grades = range(int(low), int(high) + 1)
    except ValueError:
        grades = range(0)
    if not grades:
        raise InputError(f"--scale: {text!r} is not LOW..HIGH, such as 0..4")
    if not 2 <= len(grades) <= MAX_GRADES:
        said = f"--scale: {text} has {len(grades)} grades; 2 to {MAX_GRADES} are possible"
        raise InputError(f"{said}: --grade makes fewer of them, such as --grade 0..50=0 --grade 50..100=1")
    default = dict(DEFAULT_SCALE.grades)
    meanings = default if grades[-1] == max(default) else {0: default[0]}
    return GradeScale(tuple((grade, meanings.get(grade, f"Grade {grade}")) for grade in grades))


def with_these(name: str, scale: GradeScale, grades: Iterable[int]) -> str:
    """The options of an import that would take grades off the scale of a set."""
    every = {*grades, *(grade for grade, _ in scale.grades)}
    if max(every) - min(every) < MAX_GRADES:
        return f"--scale {min(every)}..{max(every)} --query-set {name} gives it this grade"
    return f"--grade makes it one of them, such as --grade {max(every)}={scale.grades[-1][0]}, or a range of values"


def settled(session: Session, name: str, stated: StatedScale) -> GradeScale:
    """The scale of a set, known or new, after an import. Raises InputError if it does not fit itself or the set's judgments."""
    known = query_sets.get(session, name)
    present = known.scale if known else DEFAULT_SCALE
    wanted = stated.scale or present
    # A meaning that nobody gave does not replace one of the set.
    given = {*DEFAULT_SCALE.grades, *((grade, f"Grade {grade}") for grade, _ in wanted.grades)}
    meanings = dict(wanted.grades) | {
        grade: text for grade, text in present.grades if (grade, dict(wanted.grades).get(grade)) in given
    }
    grades = tuple((grade, meanings[grade]) for grade, _ in wanted.grades)
    relevant_from = stated.relevant_from
    if relevant_from is None:
        default = DEFAULT_SCALE.relevant_from
        kept = present.relevant_from if present.relevant_from <= grades[-1][0] else default
        relevant_from = wanted.relevant_from if wanted.relevant_from != default else kept
    scale = GradeScale(grades, relevant_from)
    if stated.relevant_from is not None and (relevant_from not in scale or relevant_from < 1):
        raise InputError(f"--relevant-from: {relevant_from} is no grade of {scale} that is 1 or higher")
    if known and scale != present:
        _check_judgments(session, name, scale)
    return scale


def _check_judgments(session: Session, name: str, scale: GradeScale) -> None:
    values = [grade for grade, _ in scale.grades]
    off = session.rows(
        "SELECT j.qid, j.memory_id, j.judge, j.grade FROM judgments AS j JOIN query_set_members AS m ON m.qid = j.qid "
        "WHERE m.set_name = ? AND m.version = (SELECT max(version) FROM query_sets WHERE name = ?) "
        f"AND j.memory_id <> '{WHOLE_STORE}' AND j.grade NOT IN (SELECT unnest(?::bigint[])) "
        "ORDER BY j.qid, j.memory_id, j.judge",
        [name, name, values],
    )
    if not off:
        return
    qid, memory_id, judge, grade = off[0]
    every = {*values, *(row[3] for row in off)}
    fits = f"; --scale {min(every)}..{max(every)} has them all" if max(every) - min(every) < MAX_GRADES else ""
    raise InputError(
        f"--scale {values[0]}..{values[-1]}: query set {name} has {len(off):,} judgments with other grades, such as {grade} of {qid} "
        f"{memory_id} by {judge}{fits}"
    )


def judged_set(session: Session, qids: Collection[str], named: str | None, stated: StatedScale) -> str:
    """The set of known queries that a stated scale is meant for. Raises InputError unless it is one, or the one that is named."""
    sets = sorted({name for of_sets in query_sets.scales_of(session, list(qids)).values() for name in of_sets})
    if named in sets:
        return str(named)
    there = ", ".join(sets)
    if not sets:
        raise InputError(f"{stated}: the judged queries are in no query set; import them with --query-set first")
    if named is not None:
        raise InputError(
            f"{stated}: query set {named} has none of the judged queries; they are in {there}: --query-set {sets[0]}"
        )
    if len(sets) > 1:
        raise InputError(f"{stated}: the judged queries are in the sets {there}; --query-set says whose scale it is")
    return sets[0]


def change(session: Session, name: str, stated: StatedScale, when: datetime) -> QuerySet:
    """Give a known set the stated scale. Raises InputError as `settled`."""
    return query_sets.put(session, name, {}, when, settled(session, name, stated))


def remarks(name: str, scale: GradeScale) -> list[str]:
    """What to know of a set's scale: whether all of its grades count as relevant, or none."""
    if scale.grades[0][0] >= scale.relevant_from:
        said = f"query set {name}: every grade of {scale} counts as relevant, {scale.grades[0][0]} too"
        return [f"{said}; --relevant-from N sets the lowest relevant grade"]
    if scale.grades[-1][0] < scale.relevant_from:
        return [
            f"query set {name}: no grade of {scale} counts as relevant: relevant grades begin at {scale.relevant_from}"
        ]
    return []
