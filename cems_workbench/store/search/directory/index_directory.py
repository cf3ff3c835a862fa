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
CHECK = "check"
EARLIER = "built by an earlier version"

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
class Found:
    """What stands in an index's home: its manifest, None where there is none to use, and why not.

    `damage`: that is not as it was left, which somebody should hear of.
    """

    manifest: Manifest | None
    problem: str = ""
    damage: bool = False


class IndexHome:
    """The home of one index of a store, and the proof of what is in it."""

    def __init__(self, path: Path, tokenizer: str) -> None:
        """`tokenizer` is the version of what cuts texts and queries into terms, where `found` is not told another."""
        self.path = path
        self._tokenizer = tokenizer
        self._proven: tuple[Signature, Found] | None = None

    def found(self, version: int, identity: str, tokenizer: str = "") -> Found:
        """What is there, for a store of this content version and identity. An index of an earlier content is none the worse for it.

        `tokenizer`: the version wanted now, which follows the store's language.
        """
        signature = self.signature()
        if self._proven is None or self._proven[0] != signature:
            self._proven = signature, self._examined()
        found = self._proven[1]
        if found.manifest is not None and found.manifest.tokenizer != (tokenizer or self._tokenizer):
            return Found(None, "built by another tokenizer version")
        if found.manifest is None or found.manifest.identity == identity:
            return found
        if found.manifest.identity.partition(":")[0] != identity.partition(":")[0]:
            return Found(None, "it belongs to another store", True)
        if found.manifest.content_version >= version:
            return Found(None, "it was built from other content than the store has", True)
        return found

    def _examined(self) -> Found:
        """What is there, of whatever store."""
        manifest, found = self._manifest()
        if manifest is None or manifest.files is None:
            return found
        problem = difference(self.path / manifest.directory, manifest.files)
        return Found(None, problem, True) if problem else found

    def _manifest(self) -> tuple[Manifest | None, Found]:
        """The manifest, and what there is if its files are as it says."""
        try:
            left = any(self.path.iterdir())
        except OSError:
            return None, Found(None)
        manifest = read_manifest(self.path)
        if manifest is None:
            lost = "is damaged" if (self.path / MANIFEST).exists() else "is missing"
            return None, Found(None, f"its manifest {lost}", True) if left else Found(None)
        return manifest, Found(None, EARLIER) if manifest.files is None else Found(manifest)

    def forget(self) -> None:
        """Prove it anew when it is asked for next."""
        self._proven = None

    def signature(self) -> Signature:
        """What tells that a file was touched; empty without any."""
        try:
            return signature_of(self.path)
        except OSError:
            return ()

    def proven_signature(self) -> Signature | None:
        """The signature that the last proof was of; None before the first."""
        return None if self._proven is None else self._proven[0]


def signature_of(folder: Path) -> Signature:
    """Of every file below a folder, in the order of their names. Raises OSError."""
    found = []
    for name, path in sorted(files_below(folder).items()):
        stat = path.stat()
        found.append((name, stat.st_size, stat.st_mtime_ns, stat.st_ino))
    return tuple(found)


def files_below(folder: Path) -> dict[str, Path]:
    """The files below a folder by their names relative to it; none where it is not there. Raises OSError."""
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}


def checksum(path: Path) -> str:
    """Size and SHA-256 of a file. Raises OSError, also for what is no regular file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file")
    with path.open("rb") as file:
        return f"{os.fstat(file.fileno()).st_size} {hashlib.file_digest(file, 'sha256').hexdigest()}"


def checksums(folder: Path) -> dict[str, str]:
    """The checksum of every file below a folder. Raises OSError."""
    return {name: checksum(path) for name, path in files_below(folder).items()}


def difference(folder: Path, said: Mapping[str, str]) -> str:
    """What of a folder is not as these checksums say, in words; empty where all is."""
    try:
        there = files_below(folder)
        missing = sorted(said.keys() - there.keys())
        if missing:
            return f"{missing[0]} is missing"
        added = sorted(there.keys() - said.keys())
        if added:
            return f"{added[0]} was added"
        changed = next((name for name, expected in sorted(said.items()) if checksum(there[name]) != expected), None)
    except OSError as error:
        return f"it cannot be read ({error.strerror or error})"
    return f"{changed} was changed" if changed else ""


def read_manifest(home: Path) -> Manifest | None:
    """The manifest in `home` as it was written; None where it is not there, or not as it was written."""
    try:
        values = json.loads((home / MANIFEST).read_text("utf-8"))
        check = values.pop(CHECK, None)
        manifest = Manifest(**values)
        if manifest.files is not None and check != _check(values):
            return None
        return manifest if isinstance(manifest.directory, str) else None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None


def write_manifest(home: Path, manifest: Manifest) -> None:
    """Make this the manifest in `home`, in one step. Raises OSError."""
    values = asdict(manifest)
    draft = home / f"{MANIFEST}.new"
    draft.write_text(json.dumps({**values, CHECK: _check(values)}), "utf-8")
    os.replace(draft, home / MANIFEST)


def _check(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def publish(
    home: Path, content_version: int, tokenizer: str, write: Callable[[Path], int], identity: str = ""
) -> Manifest:
    """Have `write` fill a new directory (it returns the rows), make that current and remove what was there.

    Raises what `write` raises, and StoreError where it cannot be written; the index before stays current then.
    """
    target = home / f"v{content_version}-{os.urandom(3).hex()}"
    try:
        if home.exists() and not home.is_dir():
            home.unlink()
        target.mkdir(parents=True)
        rows = write(target)
        manifest = Manifest(target.name, content_version, tokenizer, rows, identity, checksums(target))
        write_manifest(home, manifest)
    except OSError as error:
        shutil.rmtree(target, ignore_errors=True)
        raise StoreError(f"the index {home} cannot be written: {error.strerror or error}") from error
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    for old in home.iterdir():
        if old.is_dir() and old != target:
            shutil.rmtree(old, ignore_errors=True)
    return manifest


def discard(home: Path) -> None:
    """Remove the index, if there is one: its manifest first, so that no half of it is ever taken for an index."""
    if home.is_dir():
        (home / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(home, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    """`value` as JSON, in UTF-8."""
    path.write_text(json.dumps(value, ensure_ascii=False), "utf-8")
