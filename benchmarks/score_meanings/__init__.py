"""What the scores of engines and libraries mean, measured by running each: the probes behind docs/reference/scores.md.

    python -m benchmarks.score_meanings [PROBE …] [--json | --write]

A probe is a function of one of these modules that writes a few rows into its library and asks for them. It returns facts by the key of a
row of `cems_workbench.sources.score_meanings`: numbers, and words for what was seen. Probes whose package this Python lacks are left out,
so run it again in an environment that has another library. Exits 1 where a fact differs from the recorded one; --write records it.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

Facts = dict[str, Any]
Scores = Iterable[tuple[str, float]]

VECTORS: Mapping[str, tuple[float, float]] = {
    "orthogonal": (0.0, 1.0),
    "zero": (0.0, 0.0),
    "opposite": (-1.0, 0.0),
    "equal": (1.0, 0.0),
    "twice as long": (2.0, 0.0),
}
"""Stored vectors by what they are to QUERY, in the order in which they are written."""
QUERY = (1.0, 0.0)
TIED = 6
"""Rows with equal scores."""


@dataclass(frozen=True)
class Probe:
    """What measures some rows: its package, on whose version the facts depend, others that it needs, and the function."""

    name: str
    package: str
    needs: tuple[str, ...]
    run: Callable[[], dict[str, Facts]]

    @property
    def lacking(self) -> list[str]:
        """The distributions that this Python has not."""
        return [name for name in (self.package, *self.needs) if name and not _installed(name)]

    @property
    def versions(self) -> str:
        """Distributions and versions that the facts are of."""
        named = [f"{name} {metadata.version(name)}" for name in (self.package, *self.needs) if name]
        return ", ".join(named) or f"SQLite {sqlite3.sqlite_version}"


PROBES: dict[str, Probe] = {}


def probe(package: str, *needs: str) -> Callable[[Callable[[], dict[str, Facts]]], Callable[[], dict[str, Facts]]]:
    """Register a function as the probe of its name."""

    def register(run: Callable[[], dict[str, Facts]]) -> Callable[[], dict[str, Facts]]:
        PROBES[run.__name__] = Probe(run.__name__, package, needs, run)
        return run

    return register


def _installed(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def of_vectors(scores: Scores) -> Facts:
    """The score of each of VECTORS in an answer to QUERY, "absent" for one that did not come, and which came first."""
    found = list(scores)
    by_name = {name: number(score) for name, score in found}
    facts: Facts = {name: by_name.get(name, "absent") for name in VECTORS}
    # Of equal scores the order may change from call to call, so all of them are named.
    best = {name for name, score in found if number(score) == number(found[0][1])}
    facts["first"] = " and ".join(name for name in VECTORS if name in best) or "none"
    return facts


def number(score: float | None) -> float | str:
    """A score that can be compared: rounded, NaN and None as words."""
    if score is None:
        return "none"
    value = float(score)
    return "NaN" if math.isnan(value) else round(value, 6) + 0.0


def tie_order(places: Sequence[int]) -> str:
    """In which order rows with equal scores came, by the order in which they were written."""
    if list(places) == sorted(places):
        return "written first"
    if list(places) == sorted(places, reverse=True):
        return "written last"
    return "neither order of writing"


def threshold_rule(passes: Callable[[float], Sequence[str]], score: float, below: float, above: float) -> str:
    """What a threshold keeps: `passes(t)` are the names that pass t, among them "tied" with `score`; the others differ from it."""
    at = "tied" in passes(score)
    if "tied" in passes(below) and "tied" not in passes(above):
        return "score ≥ threshold" if at else "score > threshold"
    if "tied" in passes(above) and "tied" not in passes(below):
        return "score ≤ threshold" if at else "score < threshold"
    return "no effect"
