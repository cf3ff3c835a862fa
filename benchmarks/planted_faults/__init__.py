"""Faults that are planted in a healthy store or pipeline, one at a time: each module has a `FAULTS` list of `Fault`.

A fault says what is broken and what a right answer names. It never says how the product should find out.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOMENT = "2026-09-01T00:00:00+00:00"
Pair = tuple[str, str]
"""A query and the memory that it should return."""


@dataclass(frozen=True)
class Right:
    """What a right answer says: the place, and what is broken there.

    `stages` are the accepted values of `lost_at` ("" for a memory that no list returned); empty accepts any, for faults of the set.
    One of `parameters` has to be named by the cause, a known mistake or the fix, or `words` (a regular expression, any case) has to match
    what was read.
    """

    stages: frozenset[str] = frozenset()
    parameters: tuple[str, ...] = ()
    words: str = ""


@dataclass(frozen=True)
class Planted:
    """A broken store or pipeline, as its user has it."""

    store: Path
    preset: str = "workbench"
    changes: Mapping[str, Any] = field(default_factory=dict)
    """The config that the user runs, beside the preset."""
    options: tuple[str, ...] = ()
    """More options of `why`, such as --project."""
    evidence: str | None = None
    """The name of an imported trace set; None where the pipeline is the product's own."""
    pairs: Sequence[Pair] = ()
    """The pairs to ask; empty: judged pairs that the healthy config returns and this one does not."""
    said: str = ""
    """What the commands that made it printed: import, connect."""
    ask: tuple[tuple[str, ...], ...] = ()
    """More commands whose output an engineer would read, such as ("doctor",)."""
    query: Callable[[str], str] = str
    """How the user's query differs from the judged one."""


@dataclass(frozen=True)
class Fault:
    """One kind of fault: `plant` makes it in an empty folder, from the healthy store."""

    name: str
    broken: str
    right: Right
    plant: Callable[[Path, Path], Planted]
    healthy: Mapping[str, Any] = field(default_factory=dict)
    """What the healthy config has beside the preset."""


def all_faults() -> list[Fault]:
    """The faults of every module here, in the order of the modules."""
    found: list[Fault] = []
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        found += importlib.import_module(f"{__name__}.{module.name}").FAULTS
    return found


def named(names: Iterable[str]) -> list[Fault]:
    """The faults with these names, all when there are none."""
    wanted = set(names)
    return [fault for fault in all_faults() if not wanted or fault.name in wanted]
