"""judgments.csv: the fields of judgments.jsonl as columns; qid, memory_id and grade are required, an empty cell is absent."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cems_workbench.formats.base import cells
from cems_workbench.formats.base.csv_table import DELIMITERS, columns_of, open_table, read_rows, written
from cems_workbench.formats.base.files import Sample
from cems_workbench.formats.base.format import Format, JudgmentWriter
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
    table = open_table(path, REQUIRED)
    rows = read_rows(table, errors, progress)
    collected = collect_judgments(str(path), rows, _parse, errors)
    unknown = [name for name in table.columns if name.lower() not in KNOWN]
    notes = (f"columns not known and left out: {', '.join(map(ascii, unknown))}",) if unknown else ()
    return collected.parsed(path, NAME, "judgments", errors, notes)


def _parse(row: dict[str, str]) -> Judgment:
    """One judgment; raises FieldError."""
    typed: dict[str, Any] = {column.lower(): cell for column, cell in row.items() if cell.strip()}
    if "grade" in typed:
        typed["grade"] = cells.number(typed["grade"])
    if "kind" in typed:
        typed["kind"] = typed["kind"].strip().lower()
    return parse_judgment(typed)


def sniff(sample: Sample) -> bool:
    """A first line that names qid, memory_id and grade."""
    if not sample.lines:
        return False
    return any(
        set(REQUIRED) <= {name.lower() for name in columns_of(sample.lines[0], delimiter)} for delimiter in DELIMITERS
    )


FORMAT = Format(
    NAME,
    "the fields of judgments.jsonl as CSV",
    order=3,
    sniff=sniff,
    read=read,
    suffixes=(".csv", ".tsv"),
    judgments=JudgmentWriter(lambda judgments, words: write(judgments), place=2),
    place=11,
)
