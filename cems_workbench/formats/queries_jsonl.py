"""queries.jsonl: one query of a query set a line, `{qid, query, project?, as_of?, type?}`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cems_workbench.formats import fields
from cems_workbench.formats.lines import read_objects
from cems_workbench.formats.reader import Reader, Sample, register
from cems_workbench.formats.rows import collect
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, Query, RowError

NAME = "queries-jsonl"
KNOWN = ("qid", "query", "project", "as_of", "type")


def parse_query(row: dict[str, Any]) -> Query:
    """One query; raises FieldError."""
    return Query(
        qid=fields.identifier(row, "qid"),
        query=fields.required_text(row, "query"),
        project=fields.text(row, "project"),
        as_of=fields.moment(row, "as_of"),
        type=fields.text(row, "type"),
    )


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the queries of a file; raises InputError when it cannot be read."""
    errors: list[RowError] = []
    objects = read_objects(path, errors, progress)
    found = collect(str(path), objects, parse_query, lambda query: query.qid, "qid", KNOWN, errors)
    return ParsedInput(
        str(path),
        NAME,
        queries=tuple(found.records),
        errors=tuple(errors),
        notes=found.notes,
        extra={"rows": {"queries": found.rows}},
    )


def sniff(sample: Sample) -> bool:
    """Objects with a qid and a query."""
    return any("qid" in row and "query" in row for row in sample.objects)


register(Reader(NAME, "one query a line: {qid, query, project?, as_of?, type?}", 2, sniff, read))
