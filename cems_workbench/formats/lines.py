"""Reading a text file line by line so that a bad line costs only itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.reader import open_file, parse_json
from cems_workbench.progress import Progress, silent
from cems_workbench.records import RowError

BOM = b"\xef\xbb\xbf"


def read_lines(path: Path, errors: list[RowError], progress: Progress = silent) -> Iterator[tuple[int, str]]:
    """(1-based number, text) of each line that is not blank; CRLF and a byte order mark are taken off.

    A line that is not UTF-8 is added to `errors`. Raises InputError when the file cannot be read or is blank.
    """
    size = open_file(path).stat().st_size
    done = 0
    blank = True
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if number % 1_000 == 1:
                progress(f"reading {path.name}", done, size)
            done += len(raw)
            text = _decode(raw.removeprefix(BOM) if number == 1 else raw, path, number, errors)
            if text is None:
                blank = False
            elif text.strip():
                blank = False
                yield number, text
    if blank:
        raise InputError(f"{path} is empty")
    progress(f"reading {path.name}", size, size)


def _decode(raw: bytes, path: Path, number: int, errors: list[RowError]) -> str | None:
    try:
        return raw.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 (byte {raw[error.start]:#04x} at position {error.start + 1})"
        errors.append(RowError(str(path), number, reason))
        return None


def read_objects(
    path: Path, errors: list[RowError], progress: Progress = silent
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of each line of a JSON-lines file that holds a JSON object; others go to `errors`."""
    for number, text in read_lines(path, errors, progress):
        try:
            row = parse_json(text)
        except ValueError as error:
            errors.append(RowError(str(path), number, str(error)))
            continue
        if isinstance(row, dict):
            yield number, row
        else:
            errors.append(RowError(str(path), number, f"must be a JSON object, found {type_name(row)}"))


def type_name(value: Any) -> str:
    """JSON's name for the type of a parsed value."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", int: "a number"}
    return "null" if value is None else names.get(type(value), "a number")
