"""What the formats of logs share: each row is one asking of a query with what was answered, and becomes a query with its recorded answer.

A query that was asked several times is kept as several queries, one an asking, each with its own moment and answer. One without a
qid gets one of its words, project, moment and how often that stood before, so that the log reads the same when it has grown. One whose
answer was not recorded is kept without an answer: that is no empty answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from cems_workbench.formats.base.fields import FieldError, identifier, required_text, text
from cems_workbench.formats.base.records import derived_id
from cems_workbench.formats.responses import oriented
from cems_workbench.records import ParsedInput, Query, RecordedAnswer, Returned, RowError

TYPE = "log"
"""The type of a query that comes from a log."""
RESULTS = "results"
"""The field of what was returned."""


@dataclass(frozen=True, slots=True)
class Asking:
    """A query that was asked and whose answer was not recorded; the fields are those of `RecordedAnswer`."""

    row: int
    qid: str
    query: str | None
    project: str | None
    asked_at: datetime | None = None


Asked = RecordedAnswer | Asking
Each = TypeVar("Each", RecordedAnswer, Asked)


def not_recorded(queries: int, of: int | None = None) -> str:
    """The line about queries without a recorded answer, `of` so many; the same on page and command line."""
    several = "1 query" if queries == 1 else f"{queries:,} queries"
    return f"{several}{f' of {of:,}' if of and of > 1 else ''}: answer not recorded"


def parsed_log(
    path: Path,
    format: str,
    answers: Iterable[Asked],
    errors: list[RowError],
    notes: Iterable[str] = (),
    id_length: int | None = None,
    results: str = RESULTS,
    named: Mapping[str, bool] | None = None,
) -> ParsedInput:
    """The askings of a log as queries and recorded answers; a qid of "" is derived, and of several with one qid the first is taken.

    `id_length` says to how many characters ids are cut, `results` what the list of results is called in the file. Results that no store
    could hold are reported and left out. `named`: fields of scores of an unknown engine (`responses.oriented`); None: more is nearer.
    """
    asked = distinct(_named(answers), str(path), errors)
    stored = [
        replace(one, returned=_storable(one, str(path), errors, results))
        for one in asked
        if isinstance(one, RecordedAnswer)
    ]
    kept, signs = (stored, ()) if named is None else with_one_sign(stored, named)
    queries = tuple(Query(one.qid, one.query or "", one.project, one.asked_at, TYPE) for one in asked)
    words = Counter((query.query, query.project) for query in queries)
    again = [times for times in words.values() if times > 1]
    several = "1 query was" if len(again) == 1 else f"{len(again)} queries were"
    repeated = [f"{several} asked more than once; each of {sum(again)} askings is kept"] if again else []
    unknown = [not_recorded(len(asked) - len(kept), len(asked))] if len(kept) < len(asked) else []
    rows_of = {"queries": [one.row for one in asked]}
    extra: dict[str, Any] = {"rows": rows_of, "fields": {RESULTS: results}, "signs": signs}
    return ParsedInput(
        str(path),
        format,
        queries=queries,
        answers=tuple(kept),
        errors=tuple(sorted(errors, key=lambda error: error.row)),
        notes=(*notes, *signs, *unknown, *repeated),
        extra=extra if id_length is None else {**extra, "id_length": id_length},
    )


def with_one_sign(
    answers: Sequence[RecordedAnswer], named: Mapping[str, bool]
) -> tuple[list[RecordedAnswer], tuple[str, ...]]:
    """The answers of a file with scores of which more is nearer, and what was turned: `responses.oriented`."""
    turned, said = oriented([answer.returned for answer in answers], named)
    return [replace(one, returned=rows) for one, rows in zip(answers, turned, strict=True)] if said else list(
        answers
    ), said


def askings(queries: Iterable[Query], answers: Iterable[RecordedAnswer]) -> list[Asked]:
    """Every asking of a parsed log in its order, with its answer where that was recorded."""
    known = {answer.qid: answer for answer in answers}
    return [
        known.get(query.qid) or Asking(row, query.qid, query.query, query.project, query.as_of)
        for row, query in enumerate(queries, 1)
    ]


def distinct(answers: Iterable[Each], source: str, errors: list[RowError]) -> tuple[Each, ...]:
    """The first occurrence of each query; repetitions are reported."""
    first: dict[str, Each] = {}
    for answer in answers:
        known = first.setdefault(answer.qid, answer)
        if known is not answer:
            reason = f"{ascii(answer.qid)[:60]} stands already in row {known.row}"
            errors.append(RowError(source, answer.row, reason, "qid"))
    return tuple(first.values())


def _named(answers: Iterable[Asked]) -> Iterator[Asked]:
    before: Counter[tuple[str, ...]] = Counter()
    for answer in answers:
        if answer.qid:
            yield answer
            continue
        moment = answer.asked_at.isoformat() if answer.asked_at else ""
        asking = (answer.query or "", answer.project or "", moment)
        before[asking] += 1
        yield replace(answer, qid=derived_id("asked", *asking, str(before[asking])))


def _storable(answer: RecordedAnswer, source: str, errors: list[RowError], results: str) -> tuple[Returned, ...]:
    kept = []
    for row in answer.returned:
        try:
            if row.memory_id is not None:
                identifier({"id": row.memory_id}, "id")
            else:
                required_text({"content": row.content}, "content")
            text({"content": row.content}, "content")
        except FieldError as error:
            errors.append(RowError(source, answer.row, error.reason, f"{results}[{row.row - 1}].{error.field}"))
        else:
            kept.append(row)
    return tuple(kept)
