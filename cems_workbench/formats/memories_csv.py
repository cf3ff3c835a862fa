"""memories.csv: the fields of memories.jsonl as columns, in any order, under a header that names them.

Comma, semicolon or tab between cells; quoted cells may hold line ends. An empty cell is an absent field. `tags` are a
JSON array or separated by `;`, booleans are true/false, yes/no or 1/0. A leading apostrophe that guards against formula
injection is taken off. A row is numbered by its place among the rows below the header; messages give its line too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base import cells
from cems_workbench.formats.base.csv_table import (
    DELIMITERS,
    header_line,
    header_of,
    is_padded,
    read_csv_lines,
    records,
    written,
)
from cems_workbench.formats.base.dataset import DataSet, Exported, write_rows
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.files import Sample
from cems_workbench.formats.base.format import DatasetWriter, Format
from cems_workbench.formats.base.memory_fields import NAMES, TEXTS
from cems_workbench.formats.base.records import MemoryRead, memories_of
from cems_workbench.formats.memories_jsonl import KNOWN, as_row, parse_memory, read_memory, unread
from cems_workbench.progress import Progress
from cems_workbench.records import TIMES, VALIDITY, Memory, ParsedInput, RowError, RowProblem

NAME = "memories-csv"
REQUIRED = ("id", "content")
OTHERS = {"id": ("_id", "uuid"), "content": TEXTS}
"""Names that the two have in other systems."""
_CASE = {name.lower(): name for names in NAMES.values() for name in names}
BEFORE_VALIDITY = tuple(name for name in KNOWN if name not in VALIDITY)
"""The columns of a file none of whose memories has these two: it is then that of earlier versions, byte for byte."""
NUMBERS = ("priority", "access_count", "relevant_count", "noise_count")
TRIMMED = ("importance", "scope", *TIMES)


@dataclass
class _Table:
    """A file being read: its lines and columns, the line of each record, and the rows that hold nothing."""

    source: str
    lines: list[str]
    start: int
    delimiter: str
    columns: list[str]
    padded: bool
    errors: list[RowError] = field(default_factory=list)
    line_of: dict[int, int] = field(default_factory=dict)
    empty: int = 0


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the memories of a file; raises InputError when its header lacks a required column."""
    table = _open(path)
    objects = _objects(table, progress, path.name)
    collected = memories_of(path, objects, _read, unread, table.errors)
    empty = (f"{table.empty} rows have no value in any column and were left out",) if table.empty else ()
    errors = (replace(error, reason=f"{error.reason} (line {table.line_of[error.row]})") for error in table.errors)
    return collected.parsed(path, NAME, "memories", errors, empty)


def _open(path: Path) -> _Table:
    lines = read_csv_lines(path)
    start = header_line(path, lines)
    delimiter, columns = _header(lines[start])
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise InputError(
            f"{path}:{start + 1}: the header has no column {' and no column '.join(missing)}; "
            f"known columns are {', '.join(KNOWN)}"
        )
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise InputError(f"{path}:{start + 1}: the header has the column {ascii(twice[0])[:60]} more than once")
    return _Table(str(path), lines, start + 1, delimiter, columns, is_padded(lines[start], delimiter))


def _header(line: str) -> tuple[str, list[str]]:
    """The delimiter under which a line names the most known columns, and the columns under it, as `KNOWN` and `NAMES` have them."""
    tried = [(delimiter, [_CASE.get(name, name) for name in header_of(line, delimiter)]) for delimiter in DELIMITERS]
    delimiter, columns = max(
        tried, key=lambda under: len(set(under[1]) & {*KNOWN, *_CASE.values(), "id", "_id", "uuid"})
    )
    for required, others in OTHERS.items():
        there = [name for name in others if name in columns]
        if required not in columns and there:
            columns[columns.index(there[0])] = required
    return delimiter, columns


def _objects(table: _Table, progress: Progress, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(record number, non-empty cells by column) of each row as wide as the header; the others are reported."""
    number = 0
    for line, row in records(table.lines, table.start, table.delimiter, table.padded):
        if isinstance(row, list) and not any(cell.strip() for cell in row):
            table.empty += len(row) > 1  # An empty line is no row.
            continue
        number += 1
        table.line_of[number] = line
        if number % 1_000 == 1:
            progress(f"reading {name}", line, len(table.lines))
        if isinstance(row, str):
            table.errors.append(RowError(table.source, number, row))
        elif len(row) != len(table.columns):
            reason = f"has {len(row)} cells, the header has {len(table.columns)}"
            table.errors.append(RowError(table.source, number, reason))
        else:
            known = zip(table.columns, row, strict=True)
            yield number, {column: cell for column, cell in known if cell.strip() or column not in KNOWN}
    progress(f"reading {name}", len(table.lines), len(table.lines))


def _read(row: dict[str, Any]) -> MemoryRead:
    """One memory, and its fields that could not be read; raises FieldError without id or content."""
    typed = _typed(row)
    problems = []
    if "tags" in typed:
        try:
            typed["tags"] = cells.tags("tags", typed["tags"])
        except FieldError as error:
            problems.append(RowProblem(typed.get("id", ""), "tags", error.reason))
            del typed["tags"]
    memory, more = read_memory(typed)
    return memory, [*problems, *more]


def _parse(row: dict[str, Any]) -> Memory:
    """One memory, all of whose fields can be read; raises FieldError."""
    typed = _typed(row)
    if "tags" in typed:
        typed["tags"] = cells.tags("tags", typed["tags"])
    return parse_memory(typed)


def _typed(row: dict[str, Any]) -> dict[str, Any]:
    """The values of cells, but for tags."""
    typed: dict[str, Any] = {column: cells.restored(cell) for column, cell in row.items()}
    typed.update({column: cells.number(typed[column]) for column in NUMBERS if column in typed})
    typed.update({column: typed[column].strip() for column in TRIMMED if column in typed})
    if "pinned" in typed:
        typed["pinned"] = cells.flag(typed["pinned"])
    return typed


def as_cells(memory: Memory, columns: Sequence[str] = KNOWN) -> list[str]:
    """A memory as the cells of columns of memories.jsonl; `csv_table.written` makes a line of them."""
    row = as_row(memory)
    if memory.tags:
        row["tags"] = json.dumps(row["tags"], ensure_ascii=False)
    return ["true" if row.get(name) is True else str(row.get(name, "")) for name in columns]


def parse_cells(row: list[str], columns: Sequence[str] = KNOWN) -> Memory:
    """The memory that such cells are read back as; raises FieldError."""
    return _parse({column: cells.guarded(cell) for column, cell in zip(columns, row, strict=True) if cell.strip()})


def write(dataset: DataSet, path: Path, progress: Progress) -> Exported:
    """Write memories.csv; raises InputError when no memory can be written."""
    columns = KNOWN if dataset.validity else BEFORE_VALIDITY

    def line(memory: Memory) -> tuple[str, Memory]:
        row = as_cells(memory, columns)
        return written([row]).removesuffix("\n"), parse_cells(row, columns)

    return write_rows(dataset.counted(progress, path.name), line, "memories", path, header=written([columns]))


def sniff(sample: Sample) -> bool:
    """A header that names `id` and `content`."""
    return {*REQUIRED} <= {*_header(sample.header)[1]}


FORMAT = Format(
    NAME,
    "the columns of memories.jsonl as CSV",
    order=0,
    sniff=sniff,
    read=read,
    suffixes=(".csv", ".tsv"),
    breadth=1,
    dataset=DatasetWriter(write, ("memories",), place=2),
    place=13,
    shape="a header with the columns id and content",
    needs=(("id",), ("content",)),
)
