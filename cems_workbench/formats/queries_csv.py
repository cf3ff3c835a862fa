"""queries.csv: the fields of queries.jsonl as columns; qid and query are required, an empty cell is absent.

The two may have the names of other tools: `query_id` and `text` of ir_datasets, `qid` and `query` of PyTerrier, `topic_id` and `question`.
Two columns without a header, as topics of Anserini and queries of MS MARCO have them, may be memories as well: they are read under
`--format queries-csv` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base.csv_table import (
    DELIMITERS,
    CsvTable,
    columns_of,
    header_line,
    open_table,
    read_csv_lines,
    read_rows,
)
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.files import Sample
from cems_workbench.formats.base.format import Format
from cems_workbench.formats.base.judgment_names import IGNORED, NAMES, RUN, WORDS, fields_of, plain
from cems_workbench.formats.base.records import collect
from cems_workbench.formats.queries_jsonl import parse_query
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, Query, RowError

NAME = "queries-csv"
TEXTS = (*WORDS, "question", "text")
KNOWN = ("project", "as_of", "type", "answerable", "searched")
ANSWERS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the queries of a table; raises InputError when its header lacks a required column."""
    errors: list[RowError] = []
    table = _open(path)
    header = _parts(table.columns)
    fields = {column: field for field, column in header.items()}
    fields |= {column: plain(column) for column in table.columns if plain(column) in KNOWN}
    rows = read_rows(table, errors, progress)
    collected = collect(
        str(path), rows, lambda row: _parse(row, fields), lambda query: query.qid, header["qid"], table.columns, errors
    )
    unread = [name for name in table.columns if name and name not in fields and plain(name) not in IGNORED]
    notes = (f"columns not known and left out: {', '.join(map(ascii, unread))}",) if unread else ()
    return collected.parsed(path, NAME, "queries", errors, notes, fields=header)


def _open(path: Path) -> CsvTable:
    lines = read_csv_lines(path)
    start = header_line(path, lines)
    tried = {mark: columns_of(lines[start], mark) for mark in DELIMITERS}
    found = max(map(_parts, tried.values()), key=len)
    missing = [name for name in ("qid", "query") if name not in found]
    if not missing:
        return open_table(path, [name.lower() for name in found.values()])
    if not found and len(tried["\t"]) == 2:
        return CsvTable(str(path), lines, start, "\t", ("qid", "query"))
    raise InputError(f"{path}:{start + 1}: the header has no column {' and no column '.join(missing)}")


def _parts(names: Iterable[str]) -> dict[str, str]:
    """The name in the file of the id and of the words of a query, where they are there."""
    names = [*names]
    there = {plain(name): name for name in reversed(names)}
    parts = {"qid": fields_of(names).get("qid"), "query": next((there[each] for each in TEXTS if each in there), None)}
    return {field: name for field, name in parts.items() if name is not None}


def _parse(row: Mapping[str, str], fields: Mapping[str, str]) -> Query:
    """One query; raises FieldError."""
    typed: dict[str, Any] = {field: row[column].strip() for column, field in fields.items() if row[column].strip()}
    if "answerable" in typed:
        answer = ANSWERS.get(typed["answerable"].lower())
        if answer is None:
            raise FieldError("answerable", f"must be true or false, found {ascii(typed['answerable'])[:60]}")
        typed["answerable"] = answer
    try:
        return parse_query(typed)
    except FieldError as error:
        column = next((column for column, field in fields.items() if field == error.field), error.field)
        raise FieldError(column, error.reason) from None


def sniff(sample: Sample) -> bool:
    """A header that names the id and the words of a query, no document, grade or results, and nothing of a run."""
    tried = [columns_of(sample.header, mark) for mark in DELIMITERS]
    return any(
        _parts(names).keys() == {"qid", "query"}
        and fields_of(names).keys() == {"qid"}
        and not {*map(plain, names)} & {*RUN, "results"}
        for names in tried
    )


FORMAT = Format(
    NAME,
    "the fields of queries.jsonl as CSV",
    order=2,
    sniff=sniff,
    read=read,
    suffixes=(".csv", ".tsv"),
    breadth=1,
    place=5,
    shape="a header with qid and query, under any of their names, and no document, grade or results",
    needs=(NAMES["qid"], TEXTS),
)
