"""What is written as one file or folder, and what became of it.

What a form cannot hold, found by reading back what is written of a record and comparing it with the record.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import TypeVar

from cems_workbench.errors import InputError
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, Memory, Query, Relation

Record = TypeVar("Record", Memory, Query, Judgment, Relation)
KINDS = {Memory: "memories", Query: "queries", Judgment: "judgments", Relation: "relations"}


@dataclass
class Losses:
    """What is left out of a file as a whole, a line each, and which fields are not kept of how many records."""

    left_out: list[str] = field(default_factory=list)
    held: int = 0
    """Places that are held by empty turns or questions, so that those after them keep their ids and times."""
    _changed: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)

    def leave_out(self, name: str, reason: str) -> None:
        """Say that a record is not in the file."""
        self.left_out.append(f"{name}: {reason}")

    def compare(self, name: str, before: Record, after: Record) -> None:
        """Count the fields of a record that are read back otherwise."""
        if before == after:
            return
        for one in dataclass_fields(before):
            if getattr(before, one.name) != getattr(after, one.name):
                key = (KINDS[type(before)], one.name)
                count, example = self._changed.get(key, (0, name))
                self._changed[key] = (count + 1, example)

    def not_kept(self) -> tuple[str, ...]:
        """A line for each field that does not come back, with the number of records and one of them."""
        order = list(KINDS.values())
        ranked: Sequence[tuple[tuple[str, str], tuple[int, str]]] = sorted(
            self._changed.items(), key=lambda item: (order.index(item[0][0]), -item[1][0], item[0][1])
        )
        return tuple(f"{name} of {count} {kind}, e.g. {example}" for (kind, name), (count, example) in ranked)


def judged(judgment: Judgment) -> str:
    """A judgment's name in a message."""
    return f"{judgment.qid} {judgment.memory_id} by {judgment.judge}"


@dataclass(frozen=True, slots=True)
class DataSet:
    """Memories with the queries and judgments about them. `memories` is gone through once; `total` is how many there are."""

    memories: Iterable[Memory]
    total: int = 0
    relations: Iterable[Relation] = ()
    queries: Sequence[Query] = ()
    judgments: Sequence[Judgment] = ()

    def counted(self, progress: Progress, name: str) -> Iterator[Memory]:
        """The memories, with progress."""
        number = 0
        for number, memory in enumerate(self.memories, start=1):
            if number % 1_000 == 1:
                progress(f"writing {name}", number - 1, max(self.total, number))
            yield memory
        progress(f"writing {name}", number, number)


@dataclass(frozen=True, slots=True)
class Exported:
    """How many rows of each kind were written, what was left out and what of the rest does not come back when it is read."""

    rows: dict[str, int]
    left_out: tuple[str, ...] = ()
    not_kept: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @classmethod
    def of(cls, rows: dict[str, int], losses: Losses, *notes: str) -> Exported:
        """The outcome with these losses."""
        held = (f"{losses.held} places are held by empty turns or questions, which reading reports",)
        return cls(rows, tuple(losses.left_out), losses.not_kept(), (*notes, *(held if losses.held else ())))


@contextmanager
def finished(path: Path, folder: bool = False) -> Iterator[Path]:
    """A place to write to that takes the name `path` when the block ends; a failure leaves what was there as it was.

    Raises InputError when it cannot be written, or when a folder would take the place of something.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        if folder and path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise InputError(f"{path} is there already; name a new or an empty directory")
        if not folder and path.is_dir():
            raise InputError(f"{path} is a directory; name a file in it")
        _remove(part)
        part.mkdir() if folder else part.touch()
        yield part
        if folder and path.exists():
            path.rmdir()
        os.replace(part, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        _remove(part)


def _remove(part: Path) -> None:
    if part.is_dir():
        shutil.rmtree(part, ignore_errors=True)
    else:
        part.unlink(missing_ok=True)
