"""The home of an index that is kept in segments: files that are written once, of which the manifest names those that count.

A change writes a new segment, and beside a segment that has lost memories by it a list of all that it lost; then the manifest is replaced
in one step. Each file has its checksum in the manifest and is proven once, and again when it has another size or time. What no manifest
names was left behind by a process that was killed, and goes with the next change.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cems_workbench.errors import StoreError
from cems_workbench.store.search.directory import column_file
from cems_workbench.store.search.directory.index_directory import (
    EARLIER,
    MANIFEST,
    Found,
    IndexHome,
    Manifest,
    Signature,
    checksum,
    read_manifest,
    write_manifest,
)

SEGMENT, DELETED = ".segment", ".deleted"
"""How names of its files end."""

Known = Callable[[int], str | None]
"""The identity of the store's content at a version; None where the store does not know of it."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment in its home: its file, and that of the numbers of the memories deleted in it, empty where none is."""

    name: str
    deleted: str = ""


class SegmentHome(IndexHome):
    """The home of one index of a store, and the proof of each of its files."""

    def __init__(self, path: Path, tokenizer: str) -> None:
        super().__init__(path, tokenizer)
        self._files: dict[str, tuple[tuple[int, int, int], str]] = {}
        """Of each file its size, time and inode when it was read, and its checksum."""
        self._named: tuple[tuple[int, int, int], list[str]] | None = None
        """Of the manifest its size, time and inode when it was read, and the files that it names."""

    def found_of(self, version: int, identity: str, tokenizer: str, known: Known) -> Found:
        """As `found`; an index of an earlier content is to be brought up to date only where the store has had that content."""
        found = self.found(version, identity, tokenizer)
        manifest = found.manifest
        if manifest is None or manifest.identity in (identity, known(manifest.content_version)):
            return found
        return Found(None, "it was built from other content than the store has had", True)

    def signature(self) -> Signature:
        """Of the manifest and of each file that it names: what tells that one was touched; empty without a manifest."""
        if not self.path.is_dir():
            return ()
        there = _stat(self.path / MANIFEST)
        if self._named is None or self._named[0] != there:
            manifest = read_manifest(self.path)
            self._named = there, [*(manifest.files or ())] if manifest is not None else []
        return ((MANIFEST, *there), *((name, *_stat(self.path / name)) for name in self._named[1]))

    def forget(self) -> None:
        """Prove every file anew when it is asked for next."""
        super().forget()
        self._files = {}

    def _examined(self) -> Found:
        manifest, found = self._manifest()
        if manifest is None or manifest.files is None:
            return found
        if manifest.segments is None:
            return Found(None, EARLIER)
        files = {}
        for name, said in manifest.files.items():
            path = self.path / name
            try:
                files[name] = _stat(path), self._checksum(name, path)
            except OSError as error:
                missing = not path.exists()
                return Found(
                    None, f"{name} is missing" if missing else f"{name} cannot be read ({error.strerror})", True
                )
            if files[name][1] != said:
                return Found(None, f"{name} was changed", True)
        self._files = files
        return found

    def _checksum(self, name: str, path: Path) -> str:
        known = self._files.get(name)
        return known[1] if known is not None and known[0] == _stat(path) else checksum(path)


def _stat(path: Path) -> tuple[int, int, int]:
    """Size, time of change and inode; zeros where there is none."""
    try:
        stat = path.stat()
    except OSError:
        return 0, 0, 0
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def segments_of(manifest: Manifest | None) -> list[Segment]:
    """The segments that a manifest names; none without one."""
    return [Segment(*each) for each in (manifest.segments or ())] if manifest is not None else []


def read_deleted(home: Path, segment: Segment) -> NDArray[np.int64]:
    """The numbers of the memories that are deleted in a segment, ascending. Raises StoreError."""
    if not segment.deleted:
        return np.zeros(0, np.int64)
    try:
        numbers: NDArray[np.int64] = column_file.read(home / segment.deleted)["memories"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"lexical index {home / segment.deleted} is damaged ({error}); doctor --repair builds it anew"
        ) from error
    return numbers


def write_deleted(home: Path, segment: Segment, memories: NDArray[np.int64]) -> Segment:
    """The segment with these memories deleted, all that are. Raises OSError."""
    name = f"{segment.name.removesuffix(SEGMENT)}-{os.urandom(3).hex()}{DELETED}"
    column_file.write(home / name, {"memories": memories})
    return Segment(segment.name, name)


def new_segment() -> Segment:
    """A name for a segment that has not been written."""
    return Segment(f"{os.urandom(6).hex()}{SEGMENT}")


def publish(
    home: Path, content_version: int, tokenizer: str, identity: str, write: Callable[[], tuple[Sequence[Segment], int]]
) -> Manifest:
    """Have `write` put files into `home` and say which segments there are now, and their rows; make that current, remove what was there.

    Raises what `write` raises, and StoreError where it cannot be written; the index before stays current then.
    """
    try:
        if home.exists() and not home.is_dir():
            home.unlink()
        home.mkdir(parents=True, exist_ok=True)
        before = read_manifest(home)
        try:
            segments, rows = write()
            known = before.files or {} if before is not None and before.segments is not None else {}
            names = [name for each in segments for name in (each.name, each.deleted) if name]
            files = {name: known.get(name) or checksum(home / name) for name in names}
            listed = [[each.name, each.deleted] for each in segments]
            label = f"v{content_version}-{os.urandom(3).hex()}"
            manifest = Manifest(label, content_version, tokenizer, rows, identity, files, listed)
            write_manifest(home, manifest)
        except BaseException:
            _clear(home, before)
            raise
        _clear(home, manifest)
    except OSError as error:
        raise StoreError(f"the index {home} cannot be written: {error.strerror or error}") from error
    return manifest


def _clear(home: Path, manifest: Manifest | None) -> None:
    """Remove what a manifest does not name: segments before it, halves of some, and the index of an earlier version."""
    kept = {MANIFEST, *(manifest.files or ())} if manifest is not None and manifest.segments is not None else {MANIFEST}
    if manifest is not None and manifest.segments is None:
        kept.add(manifest.directory)
    with suppress(OSError):
        for path in home.iterdir():
            if path.name in kept:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
