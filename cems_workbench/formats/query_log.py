"""A log of queries that were asked, `{time?, query, results?, project?}`, as JSON lines or CSV: what a query set is sampled from.

`results` are memory ids, best first: in JSON a list of ids or of objects with `id` or `memory_id`, in CSV a JSON list or ids separated
by semicolons. `timestamp` and `created_at` are read as time, `q` and `text` as query. A log is not imported as it is: most of it is
repetition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base import fields
from cems_workbench.formats.base.csv_table import open_table, read_rows
from cems_workbench.formats.base.files import parse_json, read_records
from cems_workbench.progress import Progress, silent
from cems_workbench.records import RowError

TIMES = ("time", "timestamp", "created_at")
QUERIES = ("query", "q", "text")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One query that was asked: its words, when, in which project, and the ids of what came back, best first."""

    query: str
    time: datetime | None = None
    results: tuple[str, ...] = ()
    project: str | None = None


def read(path: Path, progress: Progress = silent) -> tuple[list[LogEntry], list[RowError]]:
    """The entries of a log in their order, and the rows that are none. Raises InputError when it cannot be read."""
    errors: list[RowError] = []
    entries = []
    rows = (
        _csv(path, errors, progress)
        if path.suffix.lower() in (".csv", ".tsv")
        else read_records(path, errors, progress)
    )
    for number, row in rows:
        try:
            entries.append(_entry(row))
        except fields.FieldError as error:
            errors.append(RowError(str(path), number, error.reason, error.field))
    return entries, sorted(errors, key=lambda error: error.row)


def _csv(path: Path, errors: list[RowError], progress: Progress) -> Iterator[tuple[int, dict[str, Any]]]:
    table = open_table(path, (), (*QUERIES, *TIMES, "results", "project"))
    if not {name.lower() for name in table.columns} & set(QUERIES):
        raise InputError(f"{path}: the header has no column {', '.join(QUERIES)}")
    for line, row in read_rows(table, errors, progress):
        typed: dict[str, Any] = {name.lower(): cell for name, cell in row.items() if cell.strip()}
        if "results" in typed:
            try:
                typed["results"] = _cell(typed["results"])
            except ValueError as error:
                errors.append(RowError(str(path), line, str(error), "results"))
                continue
        yield line, typed


def _cell(cell: str) -> list[Any]:
    if cell.lstrip().startswith("["):
        items = parse_json(cell)
        if isinstance(items, list):
            return items
    return [name.strip() for name in cell.split(";") if name.strip()]


def _entry(row: Mapping[str, Any]) -> LogEntry:
    """One entry; raises FieldError."""
    words = next((name for name in QUERIES if row.get(name) is not None), QUERIES[0])
    when = next((name for name in TIMES if row.get(name) is not None), TIMES[0])
    results = row.get("results")
    if results is not None and not isinstance(results, list):
        raise fields.FieldError("results", "must be a list of memory ids")
    returned = []
    for result in results or []:
        given = result.get("memory_id", result.get("id")) if isinstance(result, dict) else result
        returned.append(fields.identifier({"results": given}, "results"))
    return LogEntry(
        fields.required_text(row, words),
        fields.moment(row, when),
        tuple(dict.fromkeys(returned)),
        fields.text(row, "project"),
    )
