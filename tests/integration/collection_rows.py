"""What the tests of Chroma and of Qdrant as sources share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from cems_workbench.sources.source import Batch, Source, TakenMemory


def vectors(rows: int, dimension: int) -> np.ndarray:
    """The same at every call, shape (rows, dimension)."""
    return np.random.default_rng(7).normal(size=(rows, dimension)).astype(np.float32)


def all_new(ids: Sequence[str], markers: Sequence[str]) -> Sequence[str]:
    return ids


def taken(source: Source, changed: Callable[[Sequence[str], Sequence[str]], Sequence[str]] = all_new) -> list[Batch]:
    """The batches of a snapshot."""
    with source.snapshot() as snapshot:
        return list(snapshot.batches(changed))


def memories(batches: Sequence[Batch]) -> dict[str, TakenMemory]:
    """What was taken, by id."""
    return {each.memory.id: each for batch in batches for each in batch.taken}


def files_of(directory: Path) -> dict[str, tuple[str, int]]:
    """Digest and time of change of every file."""
    files = [file for file in directory.rglob("*") if file.is_file()]
    return {str(file): (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns) for file in files}
