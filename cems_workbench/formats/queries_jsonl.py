"""queries.jsonl: one query of a query set a line, `{qid, query, project?, as_of?, type?, answerable?}`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cems_workbench.formats.base import fields
from cems_workbench.formats.base.dataset import DataSet, Exported, json_line, write_rows
from cems_workbench.formats.base.files import Sample, read_objects
from cems_workbench.formats.base.format import DatasetWriter, Format
from cems_workbench.formats.base.records import collect
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, Query, RowError

NAME = "queries-jsonl"
KNOWN = ("qid", "query", "project", "as_of", "type", "answerable", "note")


def parse_query(row: dict[str, Any]) -> Query:
    """One query; raises FieldError."""
    return Query(
        qid=fields.identifier(row, "qid"),
        query=fields.required_text(row, "query"),
        project=fields.text(row, "project"),
        as_of=fields.moment(row, "as_of"),
        type=fields.text(row, "type"),
        answerable=fields.said(row, "answerable"),
    )


def as_row(query: Query) -> dict[str, Any]:
    """The fields of a query as JSON values; what is absent is left out."""
    as_of = None if query.as_of is None else query.as_of.isoformat()
    row = {
        "qid": query.qid,
        "query": query.query,
        "project": query.project,
        "as_of": as_of,
        "type": query.type,
        "answerable": query.answerable,
    }
    return {name: value for name, value in row.items() if value is not None}


def write(queries: Iterable[Query]) -> str:
    """The queries as text, one line each."""
    return "".join(f"{json_line(as_row(query))}\n" for query in queries)


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the queries of a file; raises InputError when it cannot be read."""
    errors: list[RowError] = []
    objects = read_objects(path, errors, progress)
    collected = collect(str(path), objects, parse_query, lambda query: query.qid, "qid", KNOWN, errors)
    return collected.parsed(path, NAME, "queries", errors)


def write_queries(dataset: DataSet, path: Path, progress: Progress) -> Exported:
    """Write queries.jsonl; raises InputError when there are none."""
    return write_rows(dataset.queries, _line, "queries", path)


def _line(query: Query) -> tuple[str, Query]:
    row = as_row(query)
    return json_line(row), parse_query(row)


def sniff(sample: Sample) -> bool:
    """Objects with a qid and a query."""
    return any("qid" in row and "query" in row for row in sample.objects)


FORMAT = Format(
    NAME,
    "one query a line: {qid, query, project?, as_of?, type?, answerable?}",
    order=2,
    sniff=sniff,
    read=read,
    dataset=DatasetWriter(write_queries, ("queries",), place=4),
    place=4,
)
