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
    EARLIER_VERSION,
    MANIFEST,
    DirectoryState,
    IndexDirectory,
    Manifest,
    Signature,
    checksum,
    read_manifest,
    write_manifest,
)

SEGMENT, DELETED = ".segment", ".deleted"
"""How names of its files end."""

IdentityLookup = Callable[[int], str | None]
"""The identity of the store's content at a version; None where the store does not know of it."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment in its home: its file, and that of the numbers of the memories deleted in it, empty where none is."""

    name: str
    deleted: str = ""


class SegmentDirectory(IndexDirectory):
    """The home of one index of a store, and the proof of each of its files."""

    def __init__(self, path: Path, tokenizer: str) -> None:
        super().__init__(path, tokenizer)
        self._verified_files: dict[str, tuple[tuple[int, int, int], str]] = {}
        """Of each file its size, time and inode when it was read, and its checksum."""
        self._manifest_files: tuple[tuple[int, int, int], list[str]] | None = None
        """Of the manifest its size, time and inode when it was read, and the files that it names."""

    def refreshable_state(
        self, version: int, identity: str, tokenizer: str, identity_at: IdentityLookup
    ) -> DirectoryState:
        """As `found`; an index of an earlier content is to be brought up to date only where the store has had that content."""
        state = self.state(version, identity, tokenizer)
        manifest = state.manifest
        if manifest is None or manifest.identity in (identity, identity_at(manifest.content_version)):
            return state
        return DirectoryState(None, "it was built from other content than the store has had", True)

    def signature(self) -> Signature:
        """Of the manifest and of each file that it names: what tells that one was touched; empty without a manifest."""
        if not self.path.is_dir():
            return ()
        manifest_stat = _stat(self.path / MANIFEST)
        if self._manifest_files is None or self._manifest_files[0] != manifest_stat:
            manifest = read_manifest(self.path)
            self._manifest_files = manifest_stat, [*(manifest.files or ())] if manifest is not None else []
        return ((MANIFEST, *manifest_stat), *((name, *_stat(self.path / name)) for name in self._manifest_files[1]))

    def invalidate(self) -> None:
        """Prove every file anew when it is asked for next."""
        super().invalidate()
        self._verified_files = {}

    def _verify(self) -> DirectoryState:
        manifest, state = self._read_manifest()
        if manifest is None or manifest.files is None:
            return state
        if manifest.segments is None:
            return DirectoryState(None, EARLIER_VERSION)
        files = {}
        for name, expected in manifest.files.items():
            path = self.path / name
            try:
                files[name] = _stat(path), self._checksum(name, path)
            except OSError as error:
                missing = not path.exists()
                return DirectoryState(
                    None, f"{name} is missing" if missing else f"{name} cannot be read ({error.strerror})", True
                )
            if files[name][1] != expected:
                return DirectoryState(None, f"{name} was changed", True)
        self._verified_files = files
        return state

    def _checksum(self, name: str, path: Path) -> str:
        known = self._verified_files.get(name)
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


def read_deleted(directory: Path, segment: Segment) -> NDArray[np.int64]:
    """The numbers of the memories that are deleted in a segment, ascending. Raises StoreError."""
    if not segment.deleted:
        return np.zeros(0, np.int64)
    try:
        numbers: NDArray[np.int64] = column_file.read(directory / segment.deleted)["memories"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"lexical index {directory / segment.deleted} is damaged ({error}); doctor --repair builds it anew"
        ) from error
    return numbers


def write_deleted(directory: Path, segment: Segment, memories: NDArray[np.int64]) -> Segment:
    """The segment with these memories deleted, all that are. Raises OSError."""
    name = f"{segment.name.removesuffix(SEGMENT)}-{os.urandom(3).hex()}{DELETED}"
    column_file.write(directory / name, {"memories": memories})
    return Segment(segment.name, name)


def new_segment() -> Segment:
    """A name for a segment that has not been written."""
    return Segment(f"{os.urandom(6).hex()}{SEGMENT}")


def publish(
    directory: Path,
    content_version: int,
    tokenizer: str,
    identity: str,
    write: Callable[[], tuple[Sequence[Segment], int]],
) -> Manifest:
    """Have `write` put files into `home` and say which segments there are now, and their rows; make that current, remove what was there.

    Raises what `write` raises, and StoreError where it cannot be written; the index before stays current then.
    """
    try:
        if directory.exists() and not directory.is_dir():
            directory.unlink()
        directory.mkdir(parents=True, exist_ok=True)
        before = read_manifest(directory)
        try:
            segments, rows = write()
            known_files = before.files or {} if before is not None and before.segments is not None else {}
            names = [name for each in segments for name in (each.name, each.deleted) if name]
            files = {name: known_files.get(name) or checksum(directory / name) for name in names}
            listed = [[each.name, each.deleted] for each in segments]
            label = f"v{content_version}-{os.urandom(3).hex()}"
            manifest = Manifest(label, content_version, tokenizer, rows, identity, files, listed)
            write_manifest(directory, manifest)
        except BaseException:
            _remove_unlisted(directory, before)
            raise
        _remove_unlisted(directory, manifest)
    except OSError as error:
        raise StoreError(f"the index {directory} cannot be written: {error.strerror or error}") from error
    return manifest


def _remove_unlisted(directory: Path, manifest: Manifest | None) -> None:
    """Remove what a manifest does not name: segments before it, halves of some, and the index of an earlier version."""
    keep = {MANIFEST, *(manifest.files or ())} if manifest is not None and manifest.segments is not None else {MANIFEST}
    if manifest is not None and manifest.segments is None:
        keep.add(manifest.directory)
    with suppress(OSError):
        for path in directory.iterdir():
            if path.name in keep:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
