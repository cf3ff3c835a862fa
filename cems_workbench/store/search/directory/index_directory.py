"""Directory of an index that is rebuilt for each content version, published atomically.

Each build goes to a new subdirectory; `manifest.json`, replaced atomically, names the current one. A crash at any moment leaves the
old index or the new one.

The manifest names the store and content of the index and has checksums of each file and of the manifest. An index is used only if it is
complete and belongs to this store; that is verified once, and again when a file's size or time changes.

A column file has named arrays in one memory-mapped file: the first line is JSON with the type, shape and offset of each array, which start
at multiples of 64 bytes, in native byte order. It has no checksum; the manifest that names it has.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cems_workbench.errors import StoreError

Column = NDArray[Any]
ALIGNMENT_BYTES = 64
MAX_HEADER_BYTES = 1_000_000


def create_columns(path: Path, columns: Mapping[str, tuple[DTypeLike, Sequence[int]]]) -> dict[str, Column]:
    """Create a file for these columns (type and shape); returns writable arrays mapped onto it.

    Raises OSError if the disk is full.
    """
    specs = {name: (np.dtype(kind), tuple(shape)) for name, (kind, shape) in columns.items()}
    offsets: dict[str, int] = {}
    header = b""
    for _ in range(8):  # the offsets depend on the header's length, and vice versa
        offset = _align(len(header))
        before = dict(offsets)
        for name, (kind, shape) in specs.items():
            offsets[name] = offset
            offset = _align(offset + kind.itemsize * int(np.prod(shape, dtype=np.int64)))
        layout = {name: [kind.str, list(shape), offsets[name]] for name, (kind, shape) in specs.items()}
        header = json.dumps(layout, separators=(",", ":")).encode() + b"\n"
        if offsets == before:
            break
    with path.open("w+b") as file:
        if hasattr(os, "posix_fallocate"):
            # A disk that is full only at a later write through the map would kill the process (SIGBUS).
            os.posix_fallocate(file.fileno(), 0, offset)
        else:
            file.truncate(offset)
        file.write(header)
        file.flush()
        mapped = mmap.mmap(file.fileno(), offset)
    return {name: _array(mapped, kind, shape, offsets[name]) for name, (kind, shape) in specs.items()}


def write_columns(path: Path, columns: Mapping[str, Column]) -> None:
    """Write these arrays to a file. Raises OSError."""
    arrays = create_columns(path, {name: (column.dtype, column.shape) for name, column in columns.items()})
    for name, column in columns.items():
        arrays[name][...] = column


def read_columns(path: Path) -> dict[str, Column]:
    """The arrays of a file, read-only. Raises OSError, and ValueError for a file of another format."""
    with path.open("rb") as file:
        header = file.readline(MAX_HEADER_BYTES)
        layout = json.loads(header)
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if not isinstance(layout, dict):
        raise ValueError("it has no header")
    return {
        str(name): _array(mapped, np.dtype(kind), tuple(shape), int(offset))
        for name, (kind, shape, offset) in layout.items()
    }


def _array(mapped: mmap.mmap, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int) -> Column:
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return np.zeros(shape, dtype)
    return np.frombuffer(mapped, dtype, count, offset).reshape(shape)


def _align(offset: int) -> int:
    return -(-offset // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def as_bytes(text: str) -> Column:
    """A text as a column."""
    return np.frombuffer(text.encode(), np.uint8)


def compact(numbers: Column) -> Column:
    """These non-negative numbers in the smallest type that fits."""
    return numbers.astype(smallest_dtype(int(numbers.max(initial=0))))


def smallest_dtype(maximum: int) -> np.dtype[Any]:
    """The smallest type for numbers from 0 to `maximum`."""
    return np.min_scalar_type(maximum)


MANIFEST = "manifest.json"
CHECKSUM_KEY = "check"

FileSignature = tuple[str, int, int, int]
"""Name, size, time of the last change in nanoseconds, inode."""
Signature = tuple[FileSignature, ...]
"""Name, size, time of change and inode of each file."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The current index: its directory's name, content version, tokenizer version and number of rows.

    `identity` identifies the content (`meta.content_identity`); `files` has the size and SHA-256 of each file. `segments` are
    those of a segmented index (segment_directory.py); its `directory` is only a label.
    """

    directory: str
    content_version: int
    tokenizer: str
    rows: int
    identity: str
    files: Mapping[str, str]
    segments: Sequence[Sequence[str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """The state of an index directory: its manifest, or None with the reason why it cannot be used.

    `damage`: files were changed or lost, which the user is notified of.
    """

    manifest: Manifest | None
    problem: str = ""
    damage: bool = False


class IndexDirectory:
    """The directory of one index of a store, with verification of its files."""

    def __init__(self, path: Path, tokenizer: str) -> None:
        """`tokenizer` is the default version of the tokenizer in `state`."""
        self.path = path
        self._tokenizer = tokenizer
        self._verified: tuple[Signature, DirectoryState] | None = None

    def state(self, version: int, identity: str, tokenizer: str = "") -> DirectoryState:
        """The state for a store of this content version and identity; an index of an earlier content version is usable.

        `tokenizer`: the required version, which depends on the store's language.
        """
        signature = self.signature()
        if self._verified is None or self._verified[0] != signature:
            self._verified = signature, self._verify()
        state = self._verified[1]
        if state.manifest is not None and state.manifest.tokenizer != (tokenizer or self._tokenizer):
            return DirectoryState(None, "built by another tokenizer version")
        if state.manifest is None or state.manifest.identity == identity:
            return state
        if state.manifest.identity.partition(":")[0] != identity.partition(":")[0]:
            return DirectoryState(None, "it belongs to another store", True)
        if state.manifest.content_version >= version:
            return DirectoryState(None, "it was built from other content than the store has", True)
        return state

    def _verify(self) -> DirectoryState:
        """The state of the files, independent of the store."""
        manifest, state = self._read_manifest()
        if manifest is None:
            return state
        problem = mismatch(self.path / manifest.directory, manifest.files)
        return DirectoryState(None, problem, True) if problem else state

    def _read_manifest(self) -> tuple[Manifest | None, DirectoryState]:
        """The manifest, and the state if its files match it."""
        try:
            has_files = any(self.path.iterdir())
        except OSError:
            return None, DirectoryState(None)
        manifest = read_manifest(self.path)
        if manifest is None:
            problem = "is damaged" if (self.path / MANIFEST).exists() else "is missing"
            return None, DirectoryState(None, f"its manifest {problem}", True) if has_files else DirectoryState(None)
        return manifest, DirectoryState(manifest)

    def invalidate(self) -> None:
        """Verify the files again on next use."""
        self._verified = None

    def signature(self) -> Signature:
        """Names, sizes, times and inodes of the files; empty without any."""
        try:
            return directory_signature(self.path)
        except OSError:
            return ()

    def verified_signature(self) -> Signature | None:
        """The signature at the last verification; None before the first."""
        return None if self._verified is None else self._verified[0]


def directory_signature(directory: Path) -> Signature:
    """The signature of every file in a directory tree, sorted by name. Raises OSError."""
    files = []
    for name, path in sorted(files_in(directory).items()):
        stat = path.stat()
        files.append((name, stat.st_size, stat.st_mtime_ns, stat.st_ino))
    return tuple(files)


def files_in(directory: Path) -> dict[str, Path]:
    """The files in a directory tree by relative name; none if it does not exist. Raises OSError."""
    return {path.relative_to(directory).as_posix(): path for path in directory.rglob("*") if not path.is_dir()}


def checksum(path: Path) -> str:
    """Size and SHA-256 of a file. Raises OSError, also for a path that is not a regular file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file")
    with path.open("rb") as file:
        return f"{os.fstat(file.fileno()).st_size} {hashlib.file_digest(file, 'sha256').hexdigest()}"


def checksums(directory: Path) -> dict[str, str]:
    """The checksum of every file in a directory tree. Raises OSError."""
    return {name: checksum(path) for name, path in files_in(directory).items()}


def mismatch(directory: Path, expected: Mapping[str, str]) -> str:
    """The first difference between a directory and these checksums; empty if there is none."""
    try:
        files = files_in(directory)
        missing = sorted(expected.keys() - files.keys())
        if missing:
            return f"{missing[0]} is missing"
        added = sorted(files.keys() - expected.keys())
        if added:
            return f"{added[0]} was added"
        changed = next((name for name, value in sorted(expected.items()) if checksum(files[name]) != value), None)
    except OSError as error:
        return f"it cannot be read ({error.strerror or error})"
    return f"{changed} was changed" if changed else ""


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


def publish(
    directory: Path, content_version: int, tokenizer: str, write: Callable[[Path], int], identity: str = ""
) -> Manifest:
    """Let `write` fill a new subdirectory (it returns the number of rows), make it current and remove the previous one.

    Raises what `write` raises, and StoreError if it cannot be written; the previous index then stays current.
    """
    target = directory / f"v{content_version}-{os.urandom(3).hex()}"
    try:
        if directory.exists() and not directory.is_dir():
            directory.unlink()
        target.mkdir(parents=True)
        rows = write(target)
        manifest = Manifest(target.name, content_version, tokenizer, rows, identity, checksums(target))
        write_manifest(directory, manifest)
    except OSError as error:
        shutil.rmtree(target, ignore_errors=True)
        raise StoreError(f"the index {directory} cannot be written: {error.strerror or error}") from error
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    # Only now: until the manifest is replaced the previous index is the current one.
    for old in directory.iterdir():
        if old.is_dir() and old != target:
            shutil.rmtree(old, ignore_errors=True)
    return manifest


def discard(directory: Path) -> None:
    """Delete the index, if there is one; the manifest first, so that a partial index is never used."""
    if directory.is_dir():
        (directory / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(directory, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON in UTF-8."""
    path.write_text(json.dumps(value, ensure_ascii=False), "utf-8")
