"""queries.jsonl: one query of a query set a line, `{qid, query, project?, as_of?, type?}`."""

from __future__ import annotations

import json
from collections.abc import Iterable
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


def as_row(query: Query) -> dict[str, Any]:
    """The fields of a query as JSON values; what is absent is left out."""
    as_of = None if query.as_of is None else query.as_of.isoformat()
    row = {"qid": query.qid, "query": query.query, "project": query.project, "as_of": as_of, "type": query.type}
    return {name: value for name, value in row.items() if value is not None}


def write(queries: Iterable[Query]) -> str:
    """The queries as text, one line each."""
    rows = map(as_row, queries)
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


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
