"""The home of an index that is built anew for each content version, and how a new one takes the place of the one before.

A build goes to a directory of its own; `manifest.json`, replaced in one step, names the current one. A crash at any
moment leaves the old index or the new one, never half of either.

The manifest says of which store and content the index is, and has a checksum of each file and of itself: an index is used only when it
is whole and belongs to the store it lies in. That is proven once, and again when a file has another size or time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cems_workbench.errors import StoreError

MANIFEST = "manifest.json"
CHECKSUM_KEY = "check"
EARLIER_VERSION = "built by an earlier version"

FileSignature = tuple[str, int, int, int]
"""Name, size, time of the last change in nanoseconds, inode."""
Signature = tuple[FileSignature, ...]
"""Name, size, time of change and inode of each file."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The current index: its directory's name, the content it was built from, the tokenizer, the rows in it.

    `identity` says whose content that is (`meta.content_identity`); `files` has size and SHA-256 of each of its files, None where an
    earlier version built it. `segments`: of an index that is kept in some (segment_home.py), whose `directory` is but a name then.
    """

    directory: str
    content_version: int
    tokenizer: str
    rows: int
    identity: str = ""
    files: Mapping[str, str] | None = None
    segments: Sequence[Sequence[str]] | None = None


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """What stands in an index's home: its manifest, None where there is none to use, and why not.

    `damage`: that is not as it was left, which somebody should hear of.
    """

    manifest: Manifest | None
    problem: str = ""
    damage: bool = False


class IndexDirectory:
    """The home of one index of a store, and the proof of what is in it."""

    def __init__(self, path: Path, tokenizer: str) -> None:
        """`tokenizer` is the version of what cuts texts and queries into terms, where `found` is not told another."""
        self.path = path
        self._tokenizer = tokenizer
        self._verified: tuple[Signature, DirectoryState] | None = None

    def state(self, version: int, identity: str, tokenizer: str = "") -> DirectoryState:
        """What is there, for a store of this content version and identity. An index of an earlier content is none the worse for it.

        `tokenizer`: the version wanted now, which follows the store's language.
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
        """What is there, of whatever store."""
        manifest, state = self._read_manifest()
        if manifest is None or manifest.files is None:
            return state
        problem = mismatch(self.path / manifest.directory, manifest.files)
        return DirectoryState(None, problem, True) if problem else state

    def _read_manifest(self) -> tuple[Manifest | None, DirectoryState]:
        """The manifest, and what there is if its files are as it says."""
        try:
            has_files = any(self.path.iterdir())
        except OSError:
            return None, DirectoryState(None)
        manifest = read_manifest(self.path)
        if manifest is None:
            problem = "is damaged" if (self.path / MANIFEST).exists() else "is missing"
            return None, DirectoryState(None, f"its manifest {problem}", True) if has_files else DirectoryState(None)
        return manifest, DirectoryState(None, EARLIER_VERSION) if manifest.files is None else DirectoryState(manifest)

    def invalidate(self) -> None:
        """Prove it anew when it is asked for next."""
        self._verified = None

    def signature(self) -> Signature:
        """What tells that a file was touched; empty without any."""
        try:
            return directory_signature(self.path)
        except OSError:
            return ()

    def verified_signature(self) -> Signature | None:
        """The signature that the last proof was of; None before the first."""
        return None if self._verified is None else self._verified[0]


def directory_signature(directory: Path) -> Signature:
    """Of every file below a folder, in the order of their names. Raises OSError."""
    files = []
    for name, path in sorted(files_in(directory).items()):
        stat = path.stat()
        files.append((name, stat.st_size, stat.st_mtime_ns, stat.st_ino))
    return tuple(files)


def files_in(directory: Path) -> dict[str, Path]:
    """The files below a folder by their names relative to it; none where it is not there. Raises OSError."""
    return {path.relative_to(directory).as_posix(): path for path in directory.rglob("*") if not path.is_dir()}


def checksum(path: Path) -> str:
    """Size and SHA-256 of a file. Raises OSError, also for what is no regular file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file")
    with path.open("rb") as file:
        return f"{os.fstat(file.fileno()).st_size} {hashlib.file_digest(file, 'sha256').hexdigest()}"


def checksums(directory: Path) -> dict[str, str]:
    """The checksum of every file below a folder. Raises OSError."""
    return {name: checksum(path) for name, path in files_in(directory).items()}


def mismatch(directory: Path, expected: Mapping[str, str]) -> str:
    """What of a folder is not as these checksums say, in words; empty where all is."""
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
    """The manifest in `home` as it was written; None where it is not there, or not as it was written."""
    try:
        values = json.loads((directory / MANIFEST).read_text("utf-8"))
        check = values.pop(CHECKSUM_KEY, None)
        manifest = Manifest(**values)
        if manifest.files is not None and check != _manifest_checksum(values):
            return None
        return manifest if isinstance(manifest.directory, str) else None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Make this the manifest in `home`, in one step. Raises OSError."""
    values = asdict(manifest)
    draft = directory / f"{MANIFEST}.new"
    draft.write_text(json.dumps({**values, CHECKSUM_KEY: _manifest_checksum(values)}), "utf-8")
    os.replace(draft, directory / MANIFEST)


def _manifest_checksum(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def publish(
    directory: Path, content_version: int, tokenizer: str, write: Callable[[Path], int], identity: str = ""
) -> Manifest:
    """Have `write` fill a new directory (it returns the rows), make that current and remove what was there.

    Raises what `write` raises, and StoreError where it cannot be written; the index before stays current then.
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
    for old in directory.iterdir():
        if old.is_dir() and old != target:
            shutil.rmtree(old, ignore_errors=True)
    return manifest


def discard(directory: Path) -> None:
    """Remove the index, if there is one: its manifest first, so that no half of it is ever taken for an index."""
    if directory.is_dir():
        (directory / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(directory, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    """`value` as JSON, in UTF-8."""
    path.write_text(json.dumps(value, ensure_ascii=False), "utf-8")
