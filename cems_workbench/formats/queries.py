"""Queries of a set: as JSON (`queries-jsonl`) and as a table (`queries-csv`).

JSON     {qid, query, project?, as_of?, type?, answerable?, answer?}, one a line, or a .json file with a list of them. Of a list of right
         answers the first is read. What a recording of another system says may be given too: `searched`, the text that is searched
         instead of the query; `engine_queries`, what the engine of a list got, by list; and `queries`, several wordings, of which the
         first is the query if there is no `query`
a table  the same fields as columns; qid and query are required, an empty cell is absent. The two may have the names of other tools:
         `query_id` and `text` of ir_datasets, `qid` and `query` of PyTerrier, `topic_id` and `question`. Two columns without a header,
         as topics of Anserini and queries of MS MARCO have them, may be memories as well: they are read under `--format queries-csv` alone
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cems_workbench.errors import counted
from cems_workbench.formats.base import csv_table, fields
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.files import Sample, read_records
from cems_workbench.formats.base.format import described, json_line, objects_writer
from cems_workbench.formats.base.names import IGNORED, NAMES, RUN, WORDS, fields_of, names_judgments, plain
from cems_workbench.formats.base.records import collect
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, Query, RowError

REQUIRED = ("qid", "query")
KNOWN = (*REQUIRED, "project", "as_of", "type", "answerable", "searched", "engine_queries", "queries", "answer", "note")
COLUMNS = ("project", "as_of", "type", "answerable", "searched", "answer")
"""Of a table, besides the two that it must have."""
TEXTS = (*WORDS, "question", "text")


def parse_query(row: Mapping[str, Any]) -> Query:
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
        answer=_answer(row.get("answer"))[0],
    )


def _answer(value: Any) -> tuple[str | None, str]:
    """A right answer as text, the first of several, and why there is none: what is wrong with it takes no query out."""
    if isinstance(value, list):
        value = next((one for one in value if one not in (None, "")), None)
    if isinstance(value, bool | int | float):
        value = json.dumps(value)
    try:
        return fields.text({"answer": value}, "answer"), ""
    except FieldError as error:
        return None, f"{error.reason}; the query was taken without it"


def as_row(query: Query) -> dict[str, Any]:
    """The fields of a query as JSON values; what is absent is left out."""
    row: dict[str, Any] = {name: getattr(query, name) for name in (*REQUIRED, *COLUMNS)}
    row |= {
        "as_of": None if query.as_of is None else query.as_of.isoformat(),
        "engine_queries": dict(query.engine_queries) or None,
        "queries": [query.query, *query.wordings] if query.wordings else None,
    }
    return {name: value for name, value in row.items() if value is not None}


def write(queries: Iterable[Query]) -> str:
    """The queries as text, one line each."""
    return "".join(f"{json_line(as_row(query))}\n" for query in queries)


def _read(path: Path, progress: Progress) -> ParsedInput:
    errors: list[RowError] = []
    several = 0

    def objects() -> Iterator[tuple[int, dict[str, Any]]]:
        nonlocal several
        for number, row in read_records(path, errors, progress):
            yield number, row
            if errors and errors[-1].row == number:  # the query was not taken
                continue
            answer = row.get("answer")
            several += isinstance(answer, list) and len(answer) > 1
            if reason := _answer(answer)[1]:
                errors.append(RowError(str(path), number, reason, "answer", taken=True))

    collected = collect(str(path), objects(), parse_query, lambda query: query.qid, "qid", KNOWN, errors)
    notes = [f"{counted(several, 'queries')} with a list as answer: its first was taken"] if several else []
    return collected.parsed(path, "queries-jsonl", "queries", errors, notes)


def _read_csv(path: Path, progress: Progress) -> ParsedInput:
    """Read the queries of a table; raises InputError when its header lacks a required column."""
    errors: list[RowError] = []
    table = _open(path)
    called = table.called

    def parse(row: Mapping[str, str]) -> Query:
        typed: dict[str, Any] = {name: row[name].strip() for name in (*REQUIRED, *COLUMNS) if row.get(name, "").strip()}
        typed |= {"answerable": csv_table.flag(typed["answerable"])} if "answerable" in typed else {}
        try:
            return parse_query(typed)
        except FieldError as error:
            raise FieldError(called.get(error.field, error.field), error.reason) from None

    rows = csv_table.read_rows(table, errors, progress)
    collected = collect(str(path), rows, parse, lambda query: query.qid, called["qid"], table.columns, errors)
    notes = csv_table.left_out(table, (*REQUIRED, *COLUMNS, *IGNORED, ""))
    header = {name: called[name] for name in REQUIRED}
    return collected.parsed(path, "queries-csv", "queries", errors, notes, fields=header)


def _open(path: Path) -> csv_table.CsvTable:
    lines = csv_table.read_csv_lines(path)
    start = csv_table.header_line(path, lines)
    if not any(map(_parts, csv_table.headers(lines[start]))) and len(csv_table.columns_of(lines[start], "\t")) == 2:
        return csv_table.CsvTable(str(path), lines, start, "\t", REQUIRED, header=REQUIRED)
    return csv_table.open_table(path, REQUIRED, columns=_columns)


def _parts(names: Iterable[str]) -> dict[str, str]:
    """Of the names of a header those of the id and of the words of a query, each with its field."""
    names = [*names]
    there = {plain(name): name for name in reversed(names)}
    parts = {"qid": fields_of(names).get("qid"), "query": next((there[each] for each in TEXTS if each in there), None)}
    return {name: field for field, name in parts.items() if name is not None}


def _columns(names: Sequence[str]) -> list[str]:
    """The columns of a header by the field that they are."""
    parts = _parts(names)
    return [parts.get(name) or (plain(name) if plain(name) in COLUMNS else name) for name in names]


def _sniff(sample: Sample) -> bool:
    """Objects with a qid and a query, or several wordings of it, and no results or grade: those are of a log, or judgments."""

    def asks(row: Mapping[str, Any]) -> bool:
        # A recorded answer may have `queries` too, and is not a query.
        worded = isinstance(row.get("queries"), list) and not {"results", "ranked", "lists"} & row.keys()
        return "qid" in row and "results" not in row and ("query" in row or worded) and not names_judgments(row)

    return sample.mostly(asks)


def _sniff_csv(sample: Sample) -> bool:
    """A header that names the id and the words of a query, no document, grade or results, and nothing of a run."""
    return any(
        {*REQUIRED} == {*_parts(names).values()}
        and fields_of(names).keys() == {"qid"}
        and not {*map(plain, names)} & {*RUN, "results"}
        for names in csv_table.headers(sample.header)
    )


FORMAT = (
    described(
        __file__, "queries-jsonl", _sniff, _read, dataset=objects_writer("queries", as_row, parse_query, place=4)
    ),
    described(__file__, "queries-csv", _sniff_csv, _read_csv, needs=(NAMES["qid"], TEXTS)),
)
