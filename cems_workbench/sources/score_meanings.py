"""What the scores of other systems mean: a row for each engine and library, as it answered when it was run.

score_facts.json has what was seen, with the versions: `python -m benchmarks.score_meanings` measures it again, compares and, with --write,
records it. The rows of score_meanings.csv, whose columns are the fields of `ScoreMeaning`, explain it. Facts about stored vectors are the
scores that they have for a query of length 1: the equal one, the orthogonal, the opposite, one of zeros, one twice as long.
docs/reference/scores.md, `connect`, Lists and the help of thresholds read these rows. A system that was not run has none.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

Group = Literal["vector", "lexical", "fused", "order"]
Fact = float | int | str
STORED: tuple[str, ...] = ("equal", "orthogonal", "opposite", "zero", "twice as long")
"""What a stored vector is to the query."""
ROWS = files(__package__) / "score_meanings.csv"
FACTS = files(__package__) / "score_facts.json"
TOLERANCE = 1e-5
"""Relative difference of two numbers that count as the same fact: engines compute in single precision."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a probe saw, and of which distributions."""

    versions: str
    probe: str
    seen: Mapping[str, Fact]


@cache
def recorded() -> Mapping[str, Recorded]:
    """What was seen, by the key of a row."""
    facts = json.loads(FACTS.read_text("utf-8"))
    return {key: Recorded(**values) for key, values in facts.items()}


@dataclass(frozen=True, slots=True)
class ScoreMeaning:
    """A score of a system. `engine` is a name in `SourceInfo.engine` and `distance` its distance (vector lists only),
    where the workbench asks the system for the list `answers`; both are empty for libraries, and for what it never asks
    for."""

    key: str
    group: Group
    system: str
    score: str
    best: Literal["highest", "lowest"]
    range: str
    consequence: str = ""
    threshold: str = ""
    """Where a threshold acts, and what happens to a score that equals it."""
    limit: str = ""
    """What a limit cuts first, where that is not the end of the list."""
    engine: str = ""
    distance: str = ""
    answers: str = "vector"

    @property
    def seen(self) -> Mapping[str, Fact]:
        return recorded()[self.key].seen

    @property
    def how(self) -> str:
        """The distributions that were run, and the function of benchmarks/score_meanings that ran them."""
        return f"{recorded()[self.key].versions}; {recorded()[self.key].probe}"

    @property
    def stored(self) -> dict[str, Fact]:
        """The scores of vectors, by what they are to the query; empty for other scores."""
        return {name: self.seen[name] for name in STORED if name in self.seen}

    @property
    def others(self) -> dict[str, Fact]:
        return {name: fact for name, fact in self.seen.items() if name not in (*STORED, "first")}

    @property
    def words(self) -> str:
        """ "distance: 1 − cosine, lowest first; equal 0, orthogonal 1, opposite 2; …": one line for pages and commands."""
        facts = ", ".join(f"{name} {shown(self.seen[name])}" for name in STORED[:3] if name in self.seen)
        named = (("a threshold", self.threshold), ("a limit", self.limit))
        cuts = [f"{what}: {words}" for what, words in named if words]
        return "; ".join(filter(None, (f"{self.score}, {self.best} is best", facts, *cuts, self.consequence)))


def shown(fact: Fact) -> str:
    """A fact as text: numbers with up to four digits and a proper minus sign."""
    if isinstance(fact, str):
        return fact
    return f"{fact:.4g}".replace("-", "−")


THRESHOLDS = ("threshold.fixed", "assembly.min_vector_score", "abstain.vector")
"""Parameters that cut a score of the vector list."""
EXAMPLES = (
    "chroma_cosine",
    "chroma_l2",
    "pgvector_l2",
    "mem0_chroma",
    "langchain_chroma_l2",
    "langchain_qdrant_cosine",
)
"""Rows that the help of these parameters names."""


def threshold_help() -> str:
    """What an orthogonal memory scores in other systems, for the help of THRESHOLDS."""
    rows = [row for row in MEANINGS if row.key in EXAMPLES]
    named = ", ".join(f"{shown(row.seen['orthogonal'])} in {row.system}" for row in rows)
    return f"An orthogonal memory has 0 as a cosine, {named}; docs/reference/scores.md has all."


def meaning_of(engine: str, distance: str, name: str = "vector") -> ScoreMeaning | None:
    """The row of the list `name` of an engine, by its `SourceInfo`; None if that was not run."""
    for row in MEANINGS:
        if row.engine and row.engine in engine and row.answers == name and row.distance in ("", distance):
            return row
    return None


def differences(measured: Mapping[str, Mapping[str, Fact]]) -> list[str]:
    """A line for each fact that was measured otherwise than the table has it, or that only one of the two has."""
    table = {key: each.seen for key, each in recorded().items()}
    found = [f"{key}: was never recorded" for key in measured if key not in table]
    for key, facts in measured.items():
        for name in dict.fromkeys([*table.get(key, {}), *facts]) if key in table else ():
            mine, now = table[key].get(name), facts.get(name)
            if not _same(mine, now):
                found.append(f"{key}: {name}: the table has {mine!r}, measured {now!r}")
    return found


def _same(mine: Fact | None, now: Fact | None) -> bool:
    if isinstance(mine, str) or isinstance(now, str) or mine is None or now is None:
        return mine == now
    return math.isclose(mine, now, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


MEANINGS: tuple[ScoreMeaning, ...] = tuple(
    ScoreMeaning(**row)  # type: ignore[arg-type]  # the literals, whose values a test compares with what was seen
    for row in csv.DictReader(ROWS.read_text("utf-8").splitlines())
)
"""Every row, in the order of the page."""
