"""What a format is: a name, a way to recognise its files, a way to read one. Each format's module registers its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput

SAMPLE_LINES = 50


@dataclass(frozen=True, slots=True)
class Sample:
    """The beginning of a file, for recognising it: its first lines that are not empty, and the JSON in it.

    `objects` are the lines that are JSON objects; `document` is the whole file when its name ends in .json.
    """

    path: Path
    lines: tuple[str, ...] = ()
    objects: tuple[dict[str, Any], ...] = ()
    document: Any = None

    @property
    def rows(self) -> tuple[dict[str, Any], ...]:
        """The first objects of the file, be they lines, the items of a list, or the one object of a document."""
        items = self.document if isinstance(self.document, list) else [self.document]
        return self.objects or tuple(item for item in items[:SAMPLE_LINES] if isinstance(item, dict))


def _no_folder(directory: Path) -> frozenset[str]:
    return frozenset()


@dataclass(frozen=True, slots=True)
class Reader:
    """One format.

    `order` says when its rows can be imported: after the formats of lower order they refer to. `breadth` says how
    easily `sniff` says yes: the narrower formats are asked first. `folder` gives the names in a directory that the
    format reads as one, none when the directory is not such a folder; `read` is then called with the directory.
    """

    name: str
    description: str
    order: int
    sniff: Callable[[Sample], bool]
    read: Callable[[Path, Progress], ParsedInput]
    suffixes: tuple[str, ...] = field(default=(".jsonl", ".ndjson"))
    breadth: int = 0
    folder: Callable[[Path], frozenset[str]] = _no_folder


FORMATS: dict[str, Reader] = {}
"""Every known format by name."""


def register(reader: Reader) -> Reader:
    """Add a format; to be called once by the module that implements it."""
    FORMATS[reader.name] = reader
    return reader


def parse_json(text: str | bytes) -> Any:
    """`json.loads` whose every failure is a ValueError with a short message."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg} at column {error.colno}") from None
    except ValueError as error:  # A number too long to convert, or bytes that are no UTF.
        raise ValueError(f"cannot be read as JSON: {error}") from None


def open_file(path: Path) -> Path:
    """Check that `path` is a readable file with something in it; raises InputError otherwise."""
    try:
        if path.is_dir():
            raise InputError(f"{path} is a directory, not a file")
        with path.open("rb") as file:
            head = file.read(64)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    if not head:
        raise InputError(f"{path} is empty")
    # The mark alone may be a broken first line; text in UTF-16 has zero bytes too.
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") and b"\0" in head:
        raise InputError(f"{path} is UTF-16; save it as UTF-8")
    return path


def read_document(path: Path) -> Any:
    """The whole file as one JSON document; raises InputError with line and column when it is none."""
    raw = open_file(path).read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: is not UTF-8 (byte {raw[error.start]:#04x})") from None
    if not text.strip():
        raise InputError(f"{path} is empty")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}: is not JSON: {error.msg} at column {error.colno}") from None
    except (RecursionError, ValueError) as error:
        reason = "is nested too deeply" if isinstance(error, RecursionError) else f"cannot be read as JSON: {error}"
        raise InputError(f"{path}: {reason}") from None
