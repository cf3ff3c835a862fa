"""A CSV under a header: its columns by name, each row as text by column, and the lines they stand in.

Comma, semicolon or tab between cells. A leading apostrophe that guards against formula injection is taken off. Rows are
numbered by the line they begin in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cems_workbench.errors import InputError
from cems_workbench.formats import cells
from cems_workbench.formats.csv_records import names_of, read_csv_lines, records
from cems_workbench.progress import Progress
from cems_workbench.records import RowError

DELIMITERS = (",", ";", "\t")
_QUOTED = re.compile(r'[",;\t\r\n]|^\s|\s$|^$')


@dataclass(frozen=True, slots=True)
class CsvTable:
    """A CSV that was opened: where it is, its lines, where its rows begin (0-based line), its delimiter and columns."""

    source: str
    lines: list[str]
    start: int
    delimiter: str
    columns: tuple[str, ...]


def open_table(path: Path, required: Sequence[str], known: Sequence[str] = ()) -> CsvTable:
    """Read the header of a CSV; raises InputError when it lacks one of the `required` columns or names one twice.

    The delimiter is the one under which the header names the most of `required` and `known` columns.
    """
    lines = read_csv_lines(path)
    start = next((n for n, line in enumerate(lines) if line.strip()), None)
    if start is None:
        raise InputError(f"{path} is empty")
    tried = [(delimiter, columns_of(lines[start], delimiter)) for delimiter in DELIMITERS]
    delimiter, columns = max(tried, key=lambda found: len({name.lower() for name in found[1]} & {*required, *known}))
    there = [name.lower() for name in columns]
    missing = [name for name in required if name not in there]
    if missing:
        raise InputError(f"{path}:{start + 1}: the header has no column {' and no column '.join(missing)}")
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise InputError(f"{path}:{start + 1}: the header has the column {ascii(twice[0])[:60]} more than once")
    return CsvTable(str(path), lines, start + 1, delimiter, tuple(columns))


def columns_of(line: str, delimiter: str) -> list[str]:
    """The names in a header line, guards taken off."""
    return [cells.restored(name) for name in names_of(line, delimiter)]


def read_rows(table: CsvTable, errors: list[RowError], progress: Progress) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, cells by column) of each row as wide as the header; the others are reported, empty ones passed over."""
    name = Path(table.source).name
    for number, (line, row) in enumerate(records(table.lines, table.start, table.delimiter)):
        if number % 1_000 == 0:
            progress(f"reading {name}", line, len(table.lines))
        if isinstance(row, str):
            errors.append(RowError(table.source, line, row))
        elif not any(cell.strip() for cell in row):
            continue
        elif len(row) != len(table.columns):
            errors.append(RowError(table.source, line, f"has {len(row)} cells, the header has {len(table.columns)}"))
        else:
            yield line, {column: cells.restored(cell) for column, cell in zip(table.columns, row, strict=True)}
    progress(f"reading {name}", len(table.lines), len(table.lines))


def written(rows: Iterable[Sequence[str | int]]) -> str:
    """Rows as CSV that no spreadsheet takes for formulas; `read_rows` gives the same cells again. Numbers stay bare."""
    return "".join(f"{','.join(map(_cell, row))}\n" for row in rows)


def _cell(value: str | int) -> str:
    """A cell, quoted where it has to be; csv.writer leaves a carriage return unquoted, at which a reader ends the row."""
    guarded = cells.guarded(value) if isinstance(value, str) else str(value)
    return '"{}"'.format(guarded.replace('"', '""')) if _QUOTED.search(guarded) else guarded
