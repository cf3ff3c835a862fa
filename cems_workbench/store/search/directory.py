"""The directory of a derived index: immutable segment files, with a manifest that lists the current ones.

A change writes a new segment and, for each segment that lost memories, a new list of its deleted memories; then `manifest.json` is replaced
atomically, so a crash at any moment leaves the old index or the new one. Files that the manifest does not list were left by a killed
process and are removed by the next change.

The manifest names the store and content of the index and has checksums of each file and of itself. An index is used only if it is complete
and belongs to this store. A file is read and compared with its checksum once (`verified.json` has its size, times and inode then), again
when one of these changes, and when `doctor` reads every file.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cems_workbench.errors import StoreError
from cems_workbench.store.rows import content_identity, earlier_identity, read_content_version
from cems_workbench.store.search.columns import create_columns, read_columns

if TYPE_CHECKING:
    import duckdb

MANIFEST, PROOF = "manifest.json", "verified.json"
CHECKSUM_KEY = "check"
SEGMENT, DELETED = ".segment", ".deleted"
"""Suffixes of its files."""

Stat = tuple[int, int, int]
"""Size, time of the last change in nanoseconds, and inode of a file; zeros if it does not exist."""
Signature = tuple[tuple[str, int, int, int], ...]
"""Name and Stat of each file."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The current index: its label, content version, tokenizer version, number of rows and segments. `identity`
    identifies the content (`rows.content_identity`); `files` has the size and SHA-256 of each file."""

    directory: str
    content_version: int
    tokenizer: str
    rows: int
    identity: str
    files: Mapping[str, str]
    segments: Sequence[Sequence[str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """The state of an index directory: its manifest, or None with the reason why it cannot be used. `damage`: files
    were changed or lost, which the user is notified of."""

    manifest: Manifest | None
    problem: str = ""
    damage: bool = False


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment: its file name, and that of its list of deleted memories (empty: none)."""

    name: str
    deleted: str = ""


class SegmentDirectory:
    """The directory of one index of a store, with verification of each file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._verified: tuple[Signature, DirectoryState] | None = None
        self._verified_files: dict[str, tuple[Stat, str]] = {}
        """Each file's Stat when it was read, with its checksum."""
        self._trust_proof = True
        """Whether a file that did not change since another process read it is trusted."""
        self._manifest_files: tuple[Stat, list[str]] | None = None
        """The manifest's Stat when it was read, with the files that it lists."""

    def state(self, cursor: duckdb.DuckDBPyConnection, tokenizer: str) -> DirectoryState:
        """The state for the store's present content and this version of the tokenizer. An index of an earlier content
        version is usable if this store once had that content."""
        signature = self.signature()
        if self._verified is None or self._verified[0] != signature:
            self._verified = signature, self._verify()
        state = self._verified[1]
        manifest, identity = state.manifest, content_identity(cursor)
        if manifest is None:
            return state
        if manifest.tokenizer != tokenizer:
            return DirectoryState(None, "built by another tokenizer version")
        if manifest.identity == identity:
            return state
        if manifest.identity.partition(":")[0] != identity.partition(":")[0]:
            problem = "it belongs to another store"
        elif manifest.content_version >= read_content_version(cursor):
            problem = "it was built from other content than the store has"
        elif manifest.identity != earlier_identity(cursor, manifest.content_version):
            problem = "it was built from other content than the store has had"
        else:
            return state
        return DirectoryState(None, problem, True)

    def signature(self) -> Signature:
        """The signature of the manifest and of the files that it lists; empty without a manifest."""
        if not self.path.is_dir():
            return ()
        manifest_stat = _stat(self.path / MANIFEST)
        if self._manifest_files is None or self._manifest_files[0] != manifest_stat:
            manifest = read_manifest(self.path)
            self._manifest_files = manifest_stat, [*manifest.files] if manifest is not None else []
        return ((MANIFEST, *manifest_stat), *((name, *_stat(self.path / name)) for name in self._manifest_files[1]))

    def verified_signature(self) -> Signature | None:
        """The signature at the last verification; None before the first."""
        return None if self._verified is None else self._verified[0]

    def invalidate(self) -> None:
        """Read every file again on next use."""
        self._verified, self._verified_files, self._trust_proof = None, {}, False

    def manifest(self) -> Manifest | None:
        """The current manifest, its files not verified."""
        return read_manifest(self.path)

    def intact_segments(self) -> list[Segment]:
        """The segments whose files match their checksums."""
        manifest = self.manifest()
        files = manifest.files if manifest is not None else {}

        def intact(name: str) -> bool:
            with suppress(OSError):
                return not name or self._checksum(name, self.path / name) == files.get(name)
            return False

        return [each for each in segments_of(manifest) if intact(each.name) and intact(each.deleted)]

    def _verify(self) -> DirectoryState:
        try:
            has_files = any(self.path.iterdir())
        except OSError:
            return DirectoryState(None)
        manifest = read_manifest(self.path)
        if manifest is None:
            problem = "is damaged" if (self.path / MANIFEST).exists() else "is missing"
            return DirectoryState(None, f"its manifest {problem}" if has_files else "", has_files)
        if manifest.files and not manifest.segments:  # the full-text index of an earlier version
            return DirectoryState(None, "built by another tokenizer version")
        files, stamps = {}, {}
        proven = _read_proof(self.path) if self._trust_proof else {}
        for name, expected in manifest.files.items():
            path = self.path / name
            try:
                # The state before the content: a change during the read is noticed next time.
                stamps[name] = [*_stamp(path), expected]
                files[name] = _stat(path), self._checksum(name, path, proven)
            except OSError as error:
                missing = not path.exists()
                return DirectoryState(
                    None, f"{name} is missing" if missing else f"{name} cannot be read ({error.strerror})", True
                )
            if files[name][1] != expected:
                return DirectoryState(None, f"{name} was changed", True)
        self._verified_files, self._trust_proof = files, True
        if stamps != proven:
            _write_proof(self.path, stamps)
        return DirectoryState(manifest)

    def _checksum(self, name: str, path: Path, proven: Mapping[str, Sequence[object]] = MappingProxyType({})) -> str:
        known = self._verified_files.get(name)
        # Segments are immutable: after a change only the new files are read.
        if known is not None and known[0] == _stat(path):
            return known[1]
        *stamp, value = proven.get(name, ("",))
        return str(value) if stamp and stamp == _stamp(path) else checksum(path)


def _stamp(path: Path) -> list[int]:
    """What changes with a file's content: size, times of modification and of the inode's change, and inode. Raises OSError."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def _read_proof(directory: Path) -> dict[str, list[object]]:
    """By name the stamp of each file when it last matched its checksum, and the checksum; empty if there is none."""
    try:
        proof = json.loads((directory / PROOF).read_text("utf-8"))
        return {str(name): list(values) for name, values in proof.items()}
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return {}


def _write_proof(directory: Path, proof: Mapping[str, Sequence[object]]) -> None:
    """Record files that were read and match their checksums (as `_read_proof`), so that no process reads them again unless they change."""
    # Without it the next process reads every file.
    with suppress(OSError):
        draft = directory / f"{PROOF}.{os.getpid()}"
        draft.write_text(json.dumps(proof), "utf-8")
        os.replace(draft, directory / PROOF)


def _stat(path: Path) -> Stat:
    try:
        stat = path.stat()
    except OSError:
        return 0, 0, 0
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def read_manifest(directory: Path) -> Manifest | None:
    """The manifest in a directory; None if it is missing or damaged."""
    try:
        values = json.loads((directory / MANIFEST).read_text("utf-8"))
        check = values.pop(CHECKSUM_KEY, None)
        manifest = Manifest(**values)
        return manifest if check == _manifest_checksum(values) else None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Replace the manifest in a directory atomically. Raises OSError."""
    values = asdict(manifest)
    draft = directory / f"{MANIFEST}.new"
    draft.write_text(json.dumps({**values, CHECKSUM_KEY: _manifest_checksum(values)}), "utf-8")
    # Atomic: a crash leaves the old manifest or the new one.
    os.replace(draft, directory / MANIFEST)


def _manifest_checksum(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def segments_of(manifest: Manifest | None) -> list[Segment]:
    return [Segment(*each) for each in manifest.segments] if manifest is not None else []


def read_deleted(directory: Path, segment: Segment) -> NDArray[np.int64]:
    """The numbers of a segment's deleted memories, ascending. Raises StoreError."""
    if not segment.deleted:
        return np.zeros(0, np.int64)
    try:
        numbers: NDArray[np.int64] = read_columns(directory / segment.deleted)["memories"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"index {directory / segment.deleted} is damaged ({error}); doctor --repair rebuilds it"
        ) from error
    return numbers


def delete_more(directory: Path, segment: Segment, memories: NDArray[np.int64]) -> Segment:
    """The segment with these memories deleted too. Raises OSError."""
    deleted = read_deleted(directory, segment)
    now = np.union1d(deleted, memories)
    if len(now) == len(deleted):
        return segment
    name = f"{segment.name.removesuffix(SEGMENT)}-{os.urandom(3).hex()}{DELETED}"
    create_columns(directory / name, {"memories": now})
    return Segment(segment.name, name)


def new_segment() -> Segment:
    """A segment with a new name, not yet written."""
    return Segment(f"{os.urandom(6).hex()}{SEGMENT}")


def publish(
    directory: Path,
    content_version: int,
    tokenizer: str,
    identity: str,
    write: Callable[[], tuple[Sequence[Segment], int]],
) -> Manifest:
    """Let `write` add files to `directory` (it returns the segments and their rows), make these current and remove
    unlisted files. Raises what `write` raises, and StoreError if it cannot be written; the previous index then stays
    current."""
    try:
        if directory.exists() and not directory.is_dir():
            directory.unlink()
        directory.mkdir(parents=True, exist_ok=True)
        before = read_manifest(directory)
        try:
            segments, rows = write()
            known_files = before.files if before is not None else {}
            names = [name for each in segments for name in (each.name, each.deleted) if name]
            # Names are never reused, so the checksums of earlier files stay valid.
            files = {name: known_files.get(name) or _durable_checksum(directory / name) for name in names}
            listed = [[each.name, each.deleted] for each in segments]
            label = f"v{content_version}-{os.urandom(3).hex()}"
            manifest = Manifest(label, content_version, tokenizer, rows, identity, files, listed)
            write_manifest(directory, manifest)
            _extend_proof(directory, files, known_files)
        except BaseException:
            _remove_unlisted(directory, before)
            raise
        _remove_unlisted(directory, manifest)
    except OSError as error:
        raise StoreError(f"the index {directory} cannot be written: {error.strerror or error}") from error
    return manifest


def checksum(path: Path) -> str:
    """Size and SHA-256 of a file. Raises OSError, also for a path that is not a regular file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file")
    with path.open("rb") as file:
        return f"{os.fstat(file.fileno()).st_size} {hashlib.file_digest(file, 'sha256').hexdigest()}"


def _durable_checksum(path: Path) -> str:
    """The checksum of a new file, which is on disk before a manifest names it: only then may its size and times vouch for it."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return checksum(path)


def _extend_proof(directory: Path, files: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Add the files that were just written to the proof; of the others only those stay in it that were in it."""
    proof = {name: values for name, values in _read_proof(directory).items() if name in files}
    with suppress(OSError):
        proof |= {name: [*_stamp(directory / name), value] for name, value in files.items() if name not in before}
    _write_proof(directory, proof)


def _remove_unlisted(directory: Path, manifest: Manifest | None) -> None:
    """Remove files that a manifest does not list: old and partial segments."""
    keep = {MANIFEST, PROOF, *(manifest.files if manifest is not None else ())}
    # A file that cannot be removed now is removed by the next change.
    with suppress(OSError):
        for path in directory.iterdir():
            if path.name in keep:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def discard(directory: Path) -> None:
    """Delete the index, if there is one; the manifest first, so that a partial index is never used."""
    if directory.is_dir():
        (directory / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(directory, ignore_errors=True)
