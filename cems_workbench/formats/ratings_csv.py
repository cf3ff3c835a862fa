"""Ratings as CSV, `query,docid,rating`: what Quepid exports (with a header) and OpenSearch Search Relevance Workbench takes.

A query is named by its words. Quepid leaves the rating of an unrated document empty; such rows are counted. For OpenSearch the
header is optional and there are exactly these three columns, in this order. https://quepid-docs.dev.o19s.com,
https://docs.opensearch.org/latest/search-plugins/search-relevance/judgments

Formats that name a query by its words and not by an id: what their readers share.

The reader gives such a query the id `q-` and a hash of its words, and says in `extra["queries_by_words"]` that it did; the
store then takes the query it has with these words, if it has exactly one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats import cells
from cems_workbench.formats.csv_table import (
    CsvTable,
    columns_of,
    open_table,
    read_csv_lines,
    read_rows,
    records,
    written,
)
from cems_workbench.formats.fields import FieldError, identifier, required_text
from cems_workbench.formats.reader import Reader, Sample, register
from cems_workbench.formats.rows import Collected, collect_judgments, derived_id
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, ParsedInput, Query, RowError


def graded(row: dict[str, Any], grade: int, judge: str = "human") -> tuple[Judgment, str]:
    """The judgment of a row with `query` and `docid`, and the query's words; raises FieldError."""
    words = required_text(row, "query")
    return Judgment(derived_id("q", words), identifier(row, "docid"), grade, judge), words


def whole_rating(field: str, cell: str) -> int:
    """A rating: a whole number, also written as 3.0; raises FieldError."""
    digits, _, decimals = cell.strip().partition(".")
    sign = digits[:1] if digits[:1] in "+-" else ""
    number = digits.removeprefix(sign)
    whole = number.isascii() and number.isdigit() and len(number) <= 18
    if not whole or decimals.strip("0"):
        raise FieldError(field, f"must be a whole number, found {ascii(cell)[:60]}")
    return int(digits)


def as_input(
    source: str,
    name: str,
    found: Collected[Judgment],
    words: dict[str, str],
    errors: Iterable[RowError],
    notes: Iterable[str] = (),
    grade_column: str = "rating",
) -> ParsedInput:
    """The judgments with the queries they name; `words` are those of each qid, an empty `grade_column` is named by the judge."""
    first: dict[str, int] = {}
    for judgment, row in zip(found.records, found.rows, strict=True):
        first.setdefault(judgment.qid, row)
    return ParsedInput(
        source,
        name,
        queries=tuple(Query(qid, words[qid]) for qid in first),
        judgments=tuple(found.records),
        errors=tuple(errors),
        notes=(*found.notes, *notes),
        extra={
            "rows": {"judgments": found.rows, "queries": list(first.values())},
            "fields": {"qid": "query", "memory_id": "docid", "grade": grade_column},
            "queries_by_words": True,
        },
    )


QUEPID = "quepid-csv"
SRW = "srw-csv"
HEADER = ("query", "docid", "rating")


def write(judgments: Iterable[Judgment], words: Mapping[str, str], header: bool = True) -> str:
    """The judgments as CSV; `words` are those of each qid. The judge is not written: there must be one grade per pair."""
    rows = [(words[judgment.qid], judgment.memory_id, judgment.grade) for judgment in judgments]
    return written([HEADER, *rows] if header else rows)


def read_quepid(path: Path, progress: Progress) -> ParsedInput:
    """Read ratings under a header that names the three columns; raises InputError."""
    return _read(open_table(path, HEADER), QUEPID, progress)


def read_srw(path: Path, progress: Progress) -> ParsedInput:
    """Read ratings of exactly three columns, with or without a header; raises InputError."""
    lines = read_csv_lines(path)
    start = next((n for n, line in enumerate(lines) if line.strip()), None)
    if start is None:
        raise InputError(f"{path} is empty")
    first = [name.lower() for name in columns_of(lines[start], ",")]
    below = start + 1 if first == list(HEADER) else start
    return _read(CsvTable(str(path), lines, below, ",", HEADER), SRW, progress)


def _read(table: CsvTable, name: str, progress: Progress) -> ParsedInput:
    errors: list[RowError] = []
    words: dict[str, str] = {}
    unrated = [0]

    def parse(row: dict[str, str]) -> Judgment:
        row = {column.lower(): cell for column, cell in row.items()}
        judgment, query = graded(row, whole_rating("rating", row["rating"]))
        words[judgment.qid] = query
        return judgment

    def rated(rows: Iterable[tuple[int, dict[str, str]]]) -> Iterator[tuple[int, dict[str, str]]]:
        for line, row in rows:
            if any(column.lower() == "rating" and not cell.strip() for column, cell in row.items()):
                unrated[0] += 1
            else:
                yield line, row

    found = collect_judgments(table.source, rated(read_rows(table, errors, progress)), parse, errors)
    notes = (f"{unrated[0]} rows have no rating",) if unrated[0] else ()
    return as_input(table.source, name, found, words, errors, notes)


def sniff_quepid(sample: Sample) -> bool:
    """A header that names the three columns and nothing else."""
    if not sample.lines:
        return False
    return any({name.lower() for name in columns_of(sample.lines[0], mark)} == set(HEADER) for mark in ",;\t")


def sniff_srw(sample: Sample) -> bool:
    """Three cells that end in a whole number, in most of the first lines."""
    rows = [row for _, row in records([f"{line}\n" for line in sample.lines], 0, ",")]
    return sum(isinstance(row, list) and len(row) == 3 and _is_rating(row[2]) for row in rows) * 2 > max(len(rows), 1)


def _is_rating(cell: str) -> bool:
    try:
        whole_rating("rating", cells.restored(cell))
    except FieldError:
        return False
    return True


register(Reader(QUEPID, "Quepid ratings: query,docid,rating under a header", 3, sniff_quepid, read_quepid, (".csv",)))
register(
    Reader(
        SRW, "OpenSearch judgments: query,docid,rating, header optional", 3, sniff_srw, read_srw, (".csv",), breadth=3
    )
)
