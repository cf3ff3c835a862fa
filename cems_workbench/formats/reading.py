"""Choosing the reader of a file, and reading a file or a directory of files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cems_workbench.errors import InputError, nearest
from cems_workbench.formats.lines import take_sample
from cems_workbench.formats.reader import FORMATS, Reader
from cems_workbench.progress import Progress, silent
from cems_workbench.records import ParsedInput


def detect(path: Path) -> str:
    """The name of the format of a file, by what is in it and, when that says nothing, by its name.

    Raises InputError for a file that cannot be read or that no format recognises, listing the known ones.
    """
    path = Path(path)
    sample = take_sample(path)
    for reader in sorted(FORMATS.values(), key=lambda reader: reader.breadth):
        if reader.sniff(sample):
            return reader.name
    name, suffix = path.stem.lower(), path.suffix.lower()
    named = [r for r in FORMATS.values() if name.startswith(r.name.split("-")[0]) and suffix in r.suffixes]
    if len(named) == 1:
        return named[0].name
    raise InputError(f"{path}: the format is not recognised; pass one of {', '.join(sorted(FORMATS))}")


def read(path: Path, format: str = "auto", progress: Progress = silent) -> ParsedInput:
    """Read one file. `format` is a name in FORMATS or "auto". Raises InputError when the file is unusable."""
    path = Path(path)
    reader = _reader(format) if format != "auto" else None
    reader = reader or FORMATS[detect(path)]
    return reader.read(path, progress)


def read_path(path: Path, format: str = "auto", progress: Progress = silent) -> list[ParsedInput]:
    """Read a file, or every file of a directory that a reader knows, memories before what refers to them.

    A folder that is one data set in a known form (BEIR) is read as one, be it `path` itself or in it; no other
    directory is descended into. What is skipped is named, with the reason, in the notes of the first input.
    Raises InputError when there is nothing to read.
    """
    path = Path(path)
    if not path.is_dir():
        return [read(path, format, progress)]
    wanted = None if format == "auto" else _reader(format)
    parsed: list[ParsedInput] = []
    notes: list[str] = []
    for place, reader in _sources(path, notes):
        if wanted in (None, reader):
            parsed.append(reader.read(place, progress))
        else:
            notes.append(f"skipped {place.name}: it is {reader.name}")
    if not parsed:
        raise InputError(f"{path} has no file to read; known formats are {', '.join(sorted(FORMATS))}")
    parsed.sort(key=_order)
    return [replace(parsed[0], notes=(*notes, *parsed[0].notes)), *parsed[1:]]


def _order(parsed: ParsedInput) -> int:
    """When an input can be imported: by the kind of rows it brings, after what such rows refer to."""
    kinds = (parsed.memories, parsed.relations, parsed.queries, parsed.judgments)
    first = next((order for order, rows in enumerate(kinds) if rows), 0)
    return max(first, FORMATS[parsed.format].order)


def _sources(directory: Path, notes: list[str]) -> Iterator[tuple[Path, Reader]]:
    """What a directory holds to be read, by name; hidden entries are left out and what is not known is noted."""
    whole = _as_folder(directory)
    if whole is not None:
        yield directory, whole[0]
    for entry in _entries(directory):
        if entry.name.startswith(".") or (whole is not None and entry.name in whole[1]):
            continue
        if entry.is_dir():
            inner = _as_folder(entry)
            if inner is not None:
                yield entry, inner[0]
            else:
                notes.append(f"skipped {entry.name}: it is a directory")
            continue
        try:
            yield entry, FORMATS[detect(entry)]
        except InputError as error:
            notes.append(f"skipped {entry.name}: {_without_path(error, entry)}")


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError as error:
        raise InputError(f"{directory} cannot be read: {error.strerror or error}") from None


def _as_folder(directory: Path) -> tuple[Reader, frozenset[str]] | None:
    """The reader that reads the directory as one, and which of its entries that takes in."""
    for reader in FORMATS.values():
        if names := reader.folder(directory):
            return reader, names
    return None


def _without_path(error: InputError, file: Path) -> str:
    return str(error).removeprefix(str(file)).lstrip(": ")


def _reader(name: str) -> Reader:
    if name in FORMATS:
        return FORMATS[name]
    near = nearest(name, FORMATS)
    hint = f"; did you mean {near}?" if near else ""
    raise InputError(f"format: {name!r} is not one of auto, {', '.join(sorted(FORMATS))}{hint}")
