"""judgments.csv: the fields of judgments.jsonl as columns; qid, memory_id and grade are required, an empty cell is absent.

A row without a grade is a pair to be judged.

The three may have the names of other tools (`base/judgment_names.py`): `qid,docno,label` of PyTerrier, ir_datasets' `query_id`, `doc_id`,
`relevance`. A column `query` has the words of the query, which the store may know under another id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
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
    written,
)
from cems_workbench.formats.base.files import Sample
from cems_workbench.formats.base.format import Format, JudgmentWriter
from cems_workbench.formats.base.judgment_names import IGNORED, NAMES, WORDS, fields_of, names_judgments, plain, renamed
from cems_workbench.formats.base.judgments import WordsBeside
from cems_workbench.formats.base.records import collect_judgments
from cems_workbench.formats.judgments_jsonl import KNOWN, as_row, parse_judgment
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, ParsedInput, RowError

NAME = "judgments-csv"
REQUIRED = ("qid", "memory_id", "grade")


def write(judgments: Iterable[Judgment]) -> str:
    """The judgments as CSV under a header."""
    rows = (as_row(judgment) for judgment in judgments)
    return written([KNOWN, *([row.get(name, "") for name in KNOWN] for row in rows)])


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the judgments of a file; raises InputError when its header lacks a required column."""
    errors: list[RowError] = []
    table = _open(path)
    rows = read_rows(table, errors, progress)
    beside = WordsBeside()
    unrated: list[tuple[str, str]] = []
    places = fields_of(table.columns)

    def rated() -> Iterator[tuple[int, dict[str, str]]]:
        for number, row in rows:
            qid, document, grade = (row[places[name]].strip() for name in REQUIRED)
            if grade or not (qid and document):
                yield number, row
            else:
                unrated.append((qid, document))

    collected = collect_judgments(str(path), rated(), lambda row: _parse(row, beside), errors)
    read = {*fields_of(table.columns).values()}
    unknown = [name for name in table.columns if name not in read and plain(name) not in (*KNOWN, *IGNORED, *WORDS)]
    notes = (f"columns not known and left out: {', '.join(map(ascii, unknown))}",) if unknown else ()
    parsed = beside.parsed(collected.parsed(path, NAME, "judgments", errors, notes, fields=places))
    return replace(parsed, extra={**parsed.extra, "pairs": tuple(unrated)}) if unrated else parsed


def _open(path: Path) -> CsvTable:
    """The table under the delimiter with which its header names the most parts of a judgment; raises InputError."""
    lines = read_csv_lines(path)
    start = header_line(path, lines)
    columns = max(
        (columns_of(lines[start], delimiter) for delimiter in DELIMITERS), key=lambda names: len(fields_of(names))
    )
    missing = [name for name in REQUIRED if name not in fields_of(columns)]
    if missing:
        raise InputError(f"{path}:{start + 1}: the header has no column {' and no column '.join(missing)}")
    return open_table(path, [fields_of(columns)[name].lower() for name in REQUIRED])


def _parse(row: dict[str, str], beside: WordsBeside) -> Judgment:
    """One judgment; raises FieldError."""
    typed: dict[str, Any] = {column.strip().lower(): cell for column, cell in renamed(row).items() if cell.strip()}
    if "kind" in typed:
        typed["kind"] = typed["kind"].strip().lower()
    return parse_judgment(beside.identified(typed))


def sniff(sample: Sample) -> bool:
    """A first line that names the three parts of a judgment, under any of their names."""
    return any(names_judgments(columns_of(sample.header, mark)) for mark in DELIMITERS)


FORMAT = Format(
    NAME,
    "the fields of judgments.jsonl as CSV",
    order=3,
    sniff=sniff,
    read=read,
    suffixes=(".csv", ".tsv"),
    breadth=1,
    judgments=JudgmentWriter(lambda judgments, words: write(judgments), place=2),
    place=11,
    shape="a header with qid, memory_id and grade, under any of their names",
    needs=tuple(NAMES.values()),
)
