"""Logs: queries that a real system was asked, each with what it answered; and the form of a log of ours (`query-log`).

Each row is one asking of a query with what was answered, and becomes a query with its recorded answer. A query that was asked several times
is kept as several queries, one an asking, each with its own moment and answer. One without a qid gets one of its words, project, moment and
how often that stood before, so that the log reads the same when it has grown. One whose answer was not recorded is kept without an answer:
that is no empty answer.

    {time?, query, results?, scores?, project?, qid?}, as JSON lines, a JSON list or CSV

`results` are what was returned, best first: in JSON a list of ids or of objects as in a search response (`responses.py`), in CSV a JSON
list or ids separated by semicolons, and an empty cell says that nothing was returned. `scores` are theirs, in the same order, where the
results do not have them. Without `results` the answer was not recorded. `timestamp`, `created_at` and `asked_at` are read as time, `q` and
`text` as query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from cems_workbench.errors import InputError
from cems_workbench.formats.base import fields, memory_fields
from cems_workbench.formats.base.csv_table import DELIMITERS, columns_of, open_table, read_rows
from cems_workbench.formats.base.fields import FieldError, identifier, required_text, text
from cems_workbench.formats.base.files import Sample, read_records, take_sample
from cems_workbench.formats.base.format import described
from cems_workbench.formats.base.names import WANTED, named
from cems_workbench.formats.base.records import derived_id, reported
from cems_workbench.formats.responses import oriented, rows_of_answer
from cems_workbench.progress import Progress
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
    answered = [one for one in asked if isinstance(one, RecordedAnswer)]
    stored = [replace(one, returned=_storable(one, str(path), errors, results)) for one in answered]
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
    return [replace(one, returned=rows) for one, rows in zip(answers, turned, strict=True)], said


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


NAME = "query-log"
TIME_FIELDS = ("time", "timestamp", "created_at", "asked_at")
QUERY_FIELDS = ("query", "q", "text")
LIST_FIELDS = ("results", "scores")


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read a log, an answer a row; raises InputError when it cannot be read."""
    errors: list[RowError] = []
    answers = []
    named: dict[str, bool] = {}
    is_table = path.suffix.lower() in (".csv", ".tsv") or _is_table(take_sample(path))
    for number, row in (_csv if is_table else read_records)(path, errors, progress):
        with reported(errors, str(path), number):
            answers.append(_answer(number, row, str(path), errors, named))
    return parsed_log(path, NAME, answers, errors, named=named)


def _csv(path: Path, errors: list[RowError], progress: Progress) -> Iterator[tuple[int, dict[str, Any]]]:
    table = open_table(path, (), (*QUERY_FIELDS, *TIME_FIELDS, *LIST_FIELDS, "project", "qid"))
    if not {name.lower() for name in table.columns} & set(QUERY_FIELDS):
        raise InputError(f"{path}: the header has no column {', '.join(QUERY_FIELDS)}")
    for line, row in read_rows(table, errors, progress):
        cells = ((name.lower(), cell) for name, cell in row.items())
        typed: dict[str, Any] = {name: cell for name, cell in cells if cell.strip() or name == RESULTS}
        with reported(errors, str(path), line):
            for name in typed.keys() & set(LIST_FIELDS):
                typed[name] = fields.items_in(name, typed[name])
            yield line, typed


def _answer(number: int, row: Mapping[str, Any], source: str, errors: list[RowError], named: dict[str, bool]) -> Asked:
    """One asking; raises FieldError for a row that is none, and reports results that cannot be used."""
    words = next((name for name in QUERY_FIELDS if row.get(name) is not None), QUERY_FIELDS[0])
    when = next((name for name in TIME_FIELDS if row.get(name) is not None), TIME_FIELDS[0])
    qid = "" if row.get("qid") is None else fields.identifier(row, "qid")
    query, moment, project = fields.required_text(row, words), None, fields.text(row, "project")
    if row.get(when) is not None:
        moment = memory_fields.moment(row, when)
    if row.get(RESULTS) is None and row.get("scores") is None:
        return Asking(number, qid, query, project, moment)
    returned = rows_of_answer(_scored(row), number, source, errors, named=named)
    return RecordedAnswer(number, qid, query, project, returned, asked_at=moment)


def _scored(row: Mapping[str, Any]) -> list[Any]:
    """The results with the scores of the parallel list; raises FieldError."""
    results, scores = row.get("results"), row.get("scores")
    if results is not None and not isinstance(results, list):
        raise fields.FieldError("results", "must be a list of memory ids, or of objects with an id")
    if scores is None:
        return results or []
    if not isinstance(scores, list) or len(scores) != len(results or []):
        found = len(scores) if isinstance(scores, list) else "no list"
        wanted = f"must be a list of {len(results or [])} numbers, one a result"
        raise fields.FieldError("scores", f"{wanted}, found {found}")
    scored = []
    for one, score in zip(results or [], scores, strict=True):
        row = {"id": one} if isinstance(one, str | int) and not isinstance(one, bool) else one
        scored.append({"score": score, **row} if isinstance(row, dict) else row)
    return scored


def sniff(sample: Sample) -> bool:
    """Rows with the words of a query and a list of results, or a header that names both."""
    if sample.rows:
        asked = [row for row in sample.rows if any(isinstance(row.get(name), str) for name in QUERY_FIELDS)]
        with_results = [row for row in asked if isinstance(row.get("results"), list) and not named(row, WANTED)]
        return len(with_results) * 2 > len(sample.rows)
    return _is_table(sample)


def _is_table(sample: Sample) -> bool:
    columns = [{name.lower() for name in columns_of(sample.header, delimiter)} for delimiter in DELIMITERS]
    return any("results" in names and names & set(QUERY_FIELDS) and not named(names, WANTED) for names in columns)


FORMAT = described(__file__, NAME, sniff, read)
