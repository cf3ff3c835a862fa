"""Reading CSV so that a row with a broken quote, or with bytes that are not UTF-8, costs only itself."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from cems_workbench.formats.reader import open_file

MAX_CELL = 2**31 - 1
LONGEST_HEADER = 100_000
REREAD = 20
"""How many times its own length a file is read again at most, looking for rows behind broken quotes."""


def read_csv_lines(path: Path) -> list[str]:
    """The lines with their ends; a byte that is not UTF-8 is kept as a lone surrogate. Raises InputError."""
    with open_file(path).open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        return file.readlines()


def header_of(line: str, delimiter: str) -> list[str]:
    """The column names of a header line in lower case, `column N` for one without a name; none if it is no CSV."""
    return [name.lower() or f"column {number}" for number, name in enumerate(names_of(line, delimiter), start=1)]


def names_of(line: str, delimiter: str) -> list[str]:
    """The column names of a header line as they are written, without the blanks around them; none if it is no CSV.

    A line that is longer than any header is none either: looking for names in ten megabytes of text takes seconds.
    """
    if len(line) > LONGEST_HEADER:
        return []
    try:
        names = next(csv.reader([re.split("[\r\n]", line, maxsplit=1)[0]], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []
    return [name.strip() for name in names]


def records(lines: list[str], start: int, delimiter: str) -> Iterator[tuple[int, list[str] | str]]:
    """(1-based line, cells) of each record from `lines[start]` on, or (line, what is wrong with it).

    A quote that is never closed, or closed in the middle of a cell, would take the rows after it into its cell; so
    the line it stands in is given up and reading goes on with the next.
    """
    csv.field_size_limit(max(csv.field_size_limit(), MAX_CELL))
    patience = REREAD * len(lines)
    while start < len(lines):
        reader = csv.reader((lines[n] for n in range(start, len(lines))), delimiter=delimiter, strict=True)
        used = 0
        try:
            for row in reader:
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
