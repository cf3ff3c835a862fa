"""Choosing the reader of a file, and reading a file or a directory of files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError, nearest
from cems_workbench.formats.lines import read_lines
from cems_workbench.formats.reader import FORMATS, SAMPLE_LINES, Reader, Sample, open_file, parse_json, read_document
from cems_workbench.progress import Progress, silent
from cems_workbench.records import ParsedInput, RowError


def detect(path: Path) -> str:
    """The name of the format of a file, by what is in it and, when that says nothing, by its name.

    Raises InputError for a file that cannot be read or that no format recognises, listing the known ones.
    """
    path = Path(path)
    sample = _sample(open_file(path))
    for reader in FORMATS.values():
        if reader.sniff(sample):
            return reader.name
    named = [r for r in FORMATS.values() if path.stem.lower().startswith(r.name.split("-")[0])]
    if len(named) == 1 and path.suffix.lower() in named[0].suffixes:
        return named[0].name
    raise InputError(f"{path}: the format is not recognised; pass one of {', '.join(FORMATS)}")


def read(path: Path, format: str = "auto", progress: Progress = silent) -> ParsedInput:
    """Read one file. `format` is a name in FORMATS or "auto". Raises InputError when the file is unusable."""
    path = Path(path)
    reader = _reader(format) if format != "auto" else None
    reader = reader or FORMATS[detect(path)]
    return reader.read(path, progress)


def read_path(path: Path, format: str = "auto", progress: Progress = silent) -> list[ParsedInput]:
    """Read a file, or every file of a directory that a reader knows, memories before what refers to them.

    Files in a directory that are skipped are named, with the reason, in the notes of the first input.
    Raises InputError when there is nothing to read.
    """
    path = Path(path)
    if not path.is_dir():
        return [read(path, format, progress)]
    wanted = None if format == "auto" else _reader(format)
    chosen: list[tuple[int, Path, Reader]] = []
    notes: list[str] = []
    for file in _files(path, notes):
        try:
            reader = FORMATS[detect(file)]
        except InputError as error:
            notes.append(f"skipped {file.name}: {_without_path(error, file)}")
            continue
        if wanted in (None, reader):
            chosen.append((reader.order, file, reader))
        else:
            notes.append(f"skipped {file.name}: it is {reader.name}")
    parsed = [reader.read(file, progress) for _, file, reader in sorted(chosen, key=lambda c: (c[0], c[1].name))]
    if not parsed:
        raise InputError(f"{path} has no file to read; known formats are {', '.join(FORMATS)}")
    return [replace(parsed[0], notes=(*notes, *parsed[0].notes)), *parsed[1:]]


def _files(directory: Path, notes: list[str]) -> Iterator[Path]:
    """The files of a directory by name, hidden ones left out; directories in it are noted."""
    for entry in sorted(directory.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            notes.append(f"skipped {entry.name}: it is a directory")
        else:
            yield entry


def _without_path(error: InputError, file: Path) -> str:
    return str(error).removeprefix(str(file)).lstrip(": ")


def _reader(name: str) -> Reader:
    if name in FORMATS:
        return FORMATS[name]
    near = nearest(name, FORMATS)
    hint = f"; did you mean {near}?" if near else ""
    raise InputError(f"format: {name!r} is not one of auto, {', '.join(FORMATS)}{hint}")


def _sample(path: Path) -> Sample:
    """The beginning of a file; of a .json file all of it."""
    if path.suffix.lower() == ".json":
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
