"""queries.jsonl: one query of a query set a line, `{qid, query, project?, as_of?, type?, answerable?}`.

What a recording of another system says may be given too: `searched`, the text that is searched instead of the query; `engine_queries`,
what the engine of a list got, by list; and `queries`, several wordings, of which the first is the query if there is no `query`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cems_workbench.formats.base import fields
from cems_workbench.formats.base.dataset import DataSet, Exported, json_line, write_rows
from cems_workbench.formats.base.files import Sample, read_records
from cems_workbench.formats.base.format import DatasetWriter, Format
from cems_workbench.formats.base.judgment_names import names_judgments
from cems_workbench.formats.base.records import collect
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, Query, RowError

NAME = "queries-jsonl"
GIVEN = ("searched", "engine_queries", "queries")
KNOWN = ("qid", "query", "project", "as_of", "type", "answerable", *GIVEN, "note")


def parse_query(row: dict[str, Any]) -> Query:
    """One query; raises FieldError."""
    wordings = fields.texts(row, "queries")
    if row.get("query") is None and wordings:
        query, *others = wordings
    else:
        query = fields.required_text(row, "query")
        others = [text for text in wordings if text.strip() != query.strip()]
    return Query(
        qid=fields.identifier(row, "qid"),
        query=query,
        project=fields.text(row, "project"),
        as_of=fields.moment(row, "as_of"),
        type=fields.text(row, "type"),
        answerable=fields.said(row, "answerable"),
        searched=fields.text(row, "searched"),
        engine_queries=fields.texts_by_name(row, "engine_queries"),
        wordings=tuple(dict.fromkeys(others)),
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
        "searched": query.searched,
        "engine_queries": dict(query.engine_queries) or None,
        "queries": [query.query, *query.wordings] if query.wordings else None,
    }
    return {name: value for name, value in row.items() if value is not None}


def write(queries: Iterable[Query]) -> str:
    """The queries as text, one line each."""
    return "".join(f"{json_line(as_row(query))}\n" for query in queries)


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the queries of a file; raises InputError when it cannot be read."""
    errors: list[RowError] = []
    objects = read_records(path, errors, progress)
    collected = collect(str(path), objects, parse_query, lambda query: query.qid, "qid", KNOWN, errors)
    return collected.parsed(path, NAME, "queries", errors)


def write_queries(dataset: DataSet, path: Path, progress: Progress) -> Exported:
    """Write queries.jsonl; raises InputError when there are none."""
    return write_rows(dataset.queries, _line, "queries", path)


def _line(query: Query) -> tuple[str, Query]:
    row = as_row(query)
    return json_line(row), parse_query(row)


def sniff(sample: Sample) -> bool:
    """Objects with a qid and a query, or several wordings of it, and no results or grade: those are of a log, or judgments."""
    return sample.mostly(
        lambda row: (
            "qid" in row
            and "results" not in row
            and ("query" in row or _wordings_alone(row))
            and not names_judgments(row)
        )
    )


def _wordings_alone(row: Mapping[str, Any]) -> bool:
    # A recorded answer may have `queries` too, and is not a query.
    return isinstance(row.get("queries"), list) and not {"results", "ranked", "lists"} & row.keys()


FORMAT = Format(
    NAME,
    "one query a line: {qid, query, project?, as_of?, type?, answerable?, searched?, engine_queries?, queries?}",
    order=2,
    sniff=sniff,
    read=read,
    suffixes=(".jsonl", ".ndjson", ".json"),
    dataset=DatasetWriter(write_queries, ("queries",), place=4),
    place=4,
    shape="objects with qid and query, without results",
    needs=(("qid",), ("query", "queries")),
)
