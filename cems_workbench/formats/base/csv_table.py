"""CSV, read so that a row with a broken quote or with bytes that are not UTF-8 costs only itself, and written; and what a cell stands for.

A table is the lines of a file under a header that names its columns; comma, semicolon or tab stand between cells. Rows are numbered by the
line they begin in.

A spreadsheet runs a cell that begins with = + - @ (or their full-width forms), a tab or a line end as a formula. `guarded` puts an
apostrophe before such text and `restored` takes it off. Text that begins with apostrophes followed by one of these is guarded too, so
that restored(guarded(text)) is the text, always (OWASP, "CSV Injection").
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base.files import is_comment, open_file
from cems_workbench.formats.base.names import plain
from cems_workbench.progress import Progress
from cems_workbench.records import RowError

BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_FORMULA = re.compile(r"'*[=+\-@＝＋－＠\t\r\n]")
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")


BLANK = " "
"""The guard of Quepid, which it and the Search Relevance Workbench cut off when they read."""


def guarded(text: str, guard: str = "'") -> str:
    """The text as a cell that no spreadsheet takes for a formula."""
    return f"{guard}{text}" if _FORMULA.match(text) else text


def restored(cell: str, guard: str = "'") -> str:
    """The text that `guarded` made the cell from."""
    return cell[1:] if cell.startswith(guard) and _FORMULA.match(cell, 1) else cell


def number(cell: str) -> Any:
    """A number where the cell is one, else the cell itself, for the check of its field to refuse."""
    cell = cell.strip()
    if _WHOLE.fullmatch(cell):
        return int(cell)
    return float(cell) if _DECIMAL.fullmatch(cell) else cell


def flag(cell: str) -> Any:
    """true, false, 1, 0, yes or no in any case, else the cell itself."""
    return BOOLEANS.get(cell.strip().lower(), cell)


MAX_CELL = 2**31 - 1
MAX_HEADER_CHARS = 100_000
DELIMITERS = (",", ";", "\t")
_QUOTED = re.compile(r'[",;\t\r\n]|^\s|\s$|^$')
MAX_REREAD_FACTOR = 20
"""Limit on rereading a file for rows behind broken quotes, as a multiple of its length."""


def read_csv_lines(path: Path) -> list[str]:
    """The lines with their ends; a byte that is not UTF-8 is kept as a lone surrogate. Raises InputError."""
    with open_file(path).open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        return file.readlines()


def header_line(path: Path, lines: Sequence[str]) -> int:
    """The 0-based line of the header: the first that is neither blank nor a comment. Raises InputError when there is none."""
    start = next((n for n, line in enumerate(lines) if line.strip() and not is_comment(line)), None)
    if start is None:
        raise InputError(f"{path} is empty" + (" but for comments" if any(map(str.strip, lines)) else ""))
    return start


def names_of(line: str, delimiter: str) -> list[str]:
    """The column names of a header line as they are written, without the blanks around them; none if it is no CSV. A
    line that is longer than any header is none either: looking for names in ten megabytes of text takes seconds."""
    if len(line) > MAX_HEADER_CHARS:
        return []
    try:
        first = [re.split("[\r\n]", line, maxsplit=1)[0]]
        names = next(csv.reader(first, delimiter=delimiter, strict=True, skipinitialspace=True), [])
    except csv.Error:
        return []
    return [name.strip() for name in names]


def records(
    lines: list[str], start: int, delimiter: str, padded: bool = False
) -> Iterator[tuple[int, list[str] | str]]:
    """(1-based line, cells) of each record from `lines[start]` on, or (line, what is wrong with it); `padded`: without
    blanks around them. A quote that is never closed, or closed in the middle of a cell, would take the rows after it
    into its cell; so its line is dropped and reading continues with the next."""
    csv.field_size_limit(max(csv.field_size_limit(), MAX_CELL))
    patience = MAX_REREAD_FACTOR * len(lines)
    while start < len(lines):
        below = (lines[n] for n in range(start, len(lines)))
        reader = csv.reader(below, delimiter=delimiter, strict=True, skipinitialspace=padded)
        used = 0
        try:
            for row in reader:
                row = [cell.strip(" ") for cell in row] if padded else row
                yield start + used + 1, _not_utf8(row) or row
                used = reader.line_num
            return
        except csv.Error:
            first, span = start + used + 1, reader.line_num - used
        patience -= span
        if span == 1:
            yield first, "has a quote within a quoted cell that is not doubled, or a quote that is not closed"
        elif patience > 0:
            yield (
                first,
                "has a quote that is not closed as it should be; the lines after it were read as rows of their own",
            )
            span = 1
        else:
            yield first, f"has a quote that is not closed as it should be; {span} lines were left out with it"
        start = first - 1 + span


def _not_utf8(row: list[str]) -> str | None:
    """What to say of a row with a byte that was not UTF-8."""
    try:
        "".join(row).encode()
    except UnicodeEncodeError as error:
        return f"is not UTF-8 (byte {ord(error.object[error.start]) - 0xDC00:#04x})"
    return None


@dataclass(frozen=True, slots=True)
class CsvTable:
    """A CSV that was opened: where it is, its lines, where its rows begin (0-based line), its delimiter and columns.
    `padded`: blanks stand around its names, and so around its cells, which are read without them. `header` has its
    columns as they are called in the file."""

    source: str
    lines: list[str]
    start: int
    delimiter: str
    columns: tuple[str, ...]
    padded: bool = False
    header: tuple[str, ...] = ()

    @property
    def called(self) -> dict[str, str]:
        """By column its name in the file."""
        return dict(zip(self.columns, self.header, strict=True))


def open_table(
    path: Path,
    required: Sequence[str],
    known: Iterable[str] = (),
    unique: bool = True,
    columns: Callable[[list[str]], Sequence[str]] = tuple,
    hint: str = "",
) -> CsvTable:
    """Read the header of a CSV; raises InputError when it lacks one of the `required` columns or, where they are
    `unique`, has one twice. The delimiter is the one under which the header names the most of `required` and `known`
    columns; `columns` says what the names of a header mean. `hint` ends the error for one that lacks a column."""
    lines = read_csv_lines(path)
    start = header_line(path, lines)
    wanted = {name.lower() for name in (*required, *known)}
    tried = [(mark, names, columns(names)) for mark, names in zip(DELIMITERS, headers(lines[start]), strict=True)]
    delimiter, header, named = max(tried, key=lambda under: len({name.lower() for name in under[2]} & wanted))
    there = [name.lower() for name in named]
    missing = [name for name in required if name not in there]
    if missing:
        raise InputError(f"{path}:{start + 1}: the header has no column {' and no column '.join(missing)}{hint}")
    twice = sorted({header[named.index(name)] for name in named if named.count(name) > 1})
    if twice and unique:
        raise InputError(f"{path}:{start + 1}: the header has the column {ascii(twice[0])[:60]} more than once")
    padded = is_padded(lines[start], delimiter)
    return CsvTable(str(path), lines, start + 1, delimiter, tuple(named), padded, tuple(header))


def is_padded(header: str, delimiter: str) -> bool:
    """Whether a header has blanks around its names, as in `query, docid, rating`."""
    return any(name != name.strip(" ") for name in header.strip("\r\n").split(delimiter))


def columns_of(line: str, delimiter: str) -> list[str]:
    """The names in a header line, guards taken off."""
    return [restored(name) for name in names_of(line, delimiter)]


def headers(line: str) -> list[list[str]]:
    """The names in a header line under each of DELIMITERS, guards taken off."""
    return [columns_of(line, mark) for mark in DELIMITERS]


def read_rows(
    table: CsvTable, errors: list[RowError], progress: Progress, shorter: bool = False, empty: list[int] | None = None
) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, cells by column) of each row as wide as the header; the others are reported, empty ones passed over.
    `shorter`: a row may end early, the cells that it lacks are empty. `empty` gets the lines of rows whose cells are
    all empty."""
    name = Path(table.source).name
    for number, (line, row) in enumerate(records(table.lines, table.start, table.delimiter, table.padded)):
        if number % 1_000 == 0:
            progress(f"reading {name}", line, len(table.lines))
        if isinstance(row, str):
            errors.append(RowError(table.source, line, row))
        elif not any(cell.strip() for cell in row):
            if empty is not None and len(row) > 1:  # An empty line is no row.
                empty.append(line)
        elif len(row) > len(table.columns) or (len(row) < len(table.columns) and not shorter):
            errors.append(RowError(table.source, line, f"has {len(row)} cells, the header has {len(table.columns)}"))
        else:
            cells = zip_longest(table.columns, row, fillvalue="")
            yield line, {column: restored(cell) for column, cell in cells}
    progress(f"reading {name}", len(table.lines), len(table.lines))


def left_out(table: CsvTable, known: Iterable[str]) -> tuple[str, ...]:
    """A note of the columns that are none of the `known`; names are compared as those of judgments are."""
    known = {*known}
    unknown = [name for column, name in table.called.items() if plain(column) not in known]
    return (f"columns not known and left out: {', '.join(map(ascii, unknown))}",) if unknown else ()


def written(rows: Iterable[Sequence[str | int]]) -> str:
    """Rows as CSV that no spreadsheet takes for formulas; `read_rows` gives the same cells again. Numbers stay bare."""
    return "".join(f"{','.join(map(_cell, row))}\n" for row in rows)


def _cell(value: str | int) -> str:
    """A cell, quoted where it has to be; csv.writer leaves a carriage return unquoted, at which a reader ends the row."""
    cell = guarded(value) if isinstance(value, str) else str(value)
    return '"{}"'.format(cell.replace('"', '""')) if _QUOTED.search(cell) else cell
