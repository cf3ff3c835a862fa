"""A log of queries that were asked, `{time?, query, results?, scores?, project?, qid?}`, as JSON lines, a JSON list or CSV.

`results` are what was returned, best first: in JSON a list of ids or of objects as in a search response (`formats.responses`), in CSV a
JSON list or ids separated by semicolons, and an empty cell says that nothing was returned. `scores` are theirs, in the same order, where
the results do not have them. Without `results` the answer was not recorded. `timestamp`, `created_at` and `asked_at` are read as time,
`q` and `text` as query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base import fields, memory_fields
from cems_workbench.formats.base.csv_table import DELIMITERS, columns_of, open_table, read_rows
from cems_workbench.formats.base.files import OBJECTS, TABLES, Sample, parse_json, read_records, take_sample
from cems_workbench.formats.base.format import Format
from cems_workbench.formats.base.logs import RESULTS, Asked, Asking, parsed_log
from cems_workbench.formats.base.names import WANTED, named
from cems_workbench.formats.responses import rows_of_answer
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, RecordedAnswer, RowError

NAME = "query-log"
TIME_FIELDS = ("time", "timestamp", "created_at", "asked_at")
QUERY_FIELDS = ("query", "q", "text")
LIST_FIELDS = ("results", "scores")


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read a log, an answer a row; raises InputError when it cannot be read."""
    errors: list[RowError] = []
    answers = []
    named: dict[str, bool] = {}
    rows = (
        _csv(path, errors, progress)
        if path.suffix.lower() in (".csv", ".tsv") or _is_table(take_sample(path))
        else read_records(path, errors, progress)
    )
    for number, row in rows:
        try:
            answers.append(_answer(number, row, str(path), errors, named))
        except fields.FieldError as error:
            errors.append(RowError(str(path), number, error.reason, error.field))
    return parsed_log(path, NAME, answers, errors, named=named)


def _csv(path: Path, errors: list[RowError], progress: Progress) -> Iterator[tuple[int, dict[str, Any]]]:
    table = open_table(path, (), (*QUERY_FIELDS, *TIME_FIELDS, *LIST_FIELDS, "project", "qid"))
    if not {name.lower() for name in table.columns} & set(QUERY_FIELDS):
        raise InputError(f"{path}: the header has no column {', '.join(QUERY_FIELDS)}")
    for line, row in read_rows(table, errors, progress):
        typed: dict[str, Any] = {
            name.lower(): cell for name, cell in row.items() if cell.strip() or name.lower() == RESULTS
        }
        try:
            for name in typed.keys() & set(LIST_FIELDS):
                typed[name] = _cell(name, typed[name])
        except fields.FieldError as error:
            errors.append(RowError(str(path), line, error.reason, error.field))
            continue
        yield line, typed


def _cell(name: str, cell: str) -> list[Any]:
    """The items of a cell; raises FieldError."""
    if cell.lstrip().startswith("["):
        try:
            items = parse_json(cell)
        except ValueError as error:
            raise fields.FieldError(name, str(error)) from None
        if isinstance(items, list):
            return items
    return [part.strip() for part in cell.split(";") if part.strip()]


def _answer(number: int, row: Mapping[str, Any], source: str, errors: list[RowError], named: dict[str, bool]) -> Asked:
    """One asking; raises FieldError for a row that is none, and reports results that cannot be used."""
    words = next((name for name in QUERY_FIELDS if row.get(name) is not None), QUERY_FIELDS[0])
    when = next((name for name in TIME_FIELDS if row.get(name) is not None), TIME_FIELDS[0])
    qid = "" if row.get("qid") is None else fields.identifier(row, "qid")
    query, moment, project = fields.required_text(row, words), _moment(row, when), fields.text(row, "project")
    if row.get(RESULTS) is None and row.get("scores") is None:
        return Asking(number, qid, query, project, moment)
    returned = rows_of_answer(_scored(row), number, source, errors, named=named)
    return RecordedAnswer(number, qid, query, project, returned, asked_at=moment)


def _moment(row: Mapping[str, Any], name: str) -> datetime | None:
    return None if row.get(name) is None else memory_fields.moment(row, name)


def _scored(row: Mapping[str, Any]) -> list[Any]:
    """The results with the scores of the parallel list; raises FieldError."""
    results, scores = row.get("results"), row.get("scores")
    if results is not None and not isinstance(results, list):
        raise fields.FieldError("results", "must be a list of memory ids, or of objects with an id")
    if scores is None:
        return results or []
    if not isinstance(scores, list) or len(scores) != len(results or []):
        found = len(scores) if isinstance(scores, list) else "no list"
        raise fields.FieldError(
            "scores", f"must be a list of {len(results or [])} numbers, one a result, found {found}"
        )
    return [_with_score(result, score) for result, score in zip(results or [], scores, strict=True)]


def _with_score(result: Any, score: Any) -> Any:
    if isinstance(result, dict):
        return {"score": score, **result}
    return {"id": result, "score": score} if isinstance(result, str | int) and not isinstance(result, bool) else result


def sniff(sample: Sample) -> bool:
    """Rows with the words of a query and a list of results, or a header that names both."""
    if sample.rows:
        return sum(_is_asking(row) for row in sample.rows) * 2 > len(sample.rows)
    return _is_table(sample)


def _is_table(sample: Sample) -> bool:
    columns = [{name.lower() for name in columns_of(sample.header, delimiter)} for delimiter in DELIMITERS]
    return any("results" in names and names & set(QUERY_FIELDS) and not named(names, WANTED) for names in columns)


def _is_asking(row: Mapping[str, Any]) -> bool:
    asked = any(isinstance(row.get(name), str) for name in QUERY_FIELDS)
    return asked and isinstance(row.get("results"), list) and not named(row, WANTED)


FORMAT = Format(
    NAME,
    "what was asked and answered: {time?, query, results, scores?, project?, qid?}",
    order=2,
    sniff=sniff,
    read=read,
    suffixes=(*OBJECTS, *TABLES),
    place=0,
    answers=True,
    shape="rows with a query and a list of results",
    needs=(("query", "q", "text"), ("results",)),
)
