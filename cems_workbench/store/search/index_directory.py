"""The home of an index that is built anew for each content version, and how a new one takes the place of the one before.

A build goes to a directory of its own; `manifest.json`, replaced in one step, names the current one. A crash at any
moment leaves the old index or the new one, never half of either.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The current index: its directory's name, the content it was built from, the tokenizer, the rows in it."""

    directory: str
    content_version: int
    tokenizer: str
    rows: int


def read_manifest(home: Path, needed: str) -> Manifest | None:
    """The manifest in `home`, None when there is no index with the file `needed`."""
    try:
        manifest = Manifest(**json.loads((home / MANIFEST).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return manifest if (home / manifest.directory / needed).exists() else None


def publish(home: Path, content_version: int, tokenizer: str, write: Callable[[Path], int]) -> Manifest:
    """Have `write` fill a new directory (it returns the rows), make that current and remove what was there.

    Raises what `write` raises; the index before stays current then.
    """
    home.mkdir(parents=True, exist_ok=True)
    target = home / f"v{content_version}-{os.urandom(3).hex()}"
    target.mkdir()
    try:
        rows = write(target)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    manifest = Manifest(target.name, content_version, tokenizer, rows)
    draft = home / f"{MANIFEST}.new"
    draft.write_text(json.dumps(asdict(manifest)), "utf-8")
    os.replace(draft, home / MANIFEST)
    for old in home.iterdir():
        if old.is_dir() and old != target:
            shutil.rmtree(old, ignore_errors=True)
    return manifest


def discard(home: Path) -> None:
    """Remove the index, if there is one: its manifest first, so that no half of it is ever taken for an index."""
    (home / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(home, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    """`value` as JSON, in UTF-8."""
    path.write_text(json.dumps(value, ensure_ascii=False), "utf-8")
