"""Reading a text file line by line, or a JSON list item by item, so that a bad one costs only itself."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.reader import SAMPLE_LINES, Sample, open_file, parse_json, read_document
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


def read_records(
    path: Path, errors: list[RowError], progress: Progress = silent
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON-lines file by line number; of a .json file with a list of them, by record number."""
    if path.suffix.lower() != ".json":
        yield from read_objects(path, errors, progress)
        return
    document = read_document(path)
    if isinstance(document, dict):
        document = [document]
    if not isinstance(document, list):
        raise InputError(f"{path}: must be a list of objects, found {type_name(document)}")
    if not document:
        raise InputError(f"{path} is an empty list")
    for number, row in enumerate(document, start=1):
        if isinstance(row, dict):
            yield number, row
        else:
            errors.append(RowError(str(path), number, f"must be a JSON object, found {type_name(row)}"))


def take_sample(path: Path) -> Sample:
    """The beginning of a file, for recognising it; of a .json file all of it. Raises InputError."""
    if open_file(path).suffix.lower() == ".json":
        return Sample(path, document=read_document(path))
    ignored: list[RowError] = []
    lines = tuple(line for _, line in islice(read_lines(path, ignored), SAMPLE_LINES))
    objects: list[dict[str, Any]] = []
    for line in lines:
        try:
            row = parse_json(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            objects.append(row)
    return Sample(path, lines, tuple(objects))


def type_name(value: Any) -> str:
    """JSON's name for the type of a parsed value."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", int: "a number"}
    return "null" if value is None else names.get(type(value), "a number")
