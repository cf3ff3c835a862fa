"""What a search maximises, and what it must not lose.

The first objective decides; further ones make a Pareto front. A guard is a measure on some queries that may not fall below the
baseline by more than its tolerance. The cost is how many candidates of a query the reranker reads, as replay counts them: what earlier
stages drop is not sent, and a query that is not reranked costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cems_workbench.errors import InputError
from cems_workbench.evaluation.metrics import MEASURES, Measure, parse_measure
from cems_workbench.pipeline.table import Bools, Floats

RERANKED = "reranked"
"""How the cost is written among the objectives; `candidates` says the same, and a minus before either is allowed."""
_COST = re.compile(r"-?(reranked|candidates)")
_GUARD = re.compile(r"(?:(?P<type>[^:]+):)?(?P<measure>[^:\s]+?)(?:\s*-\s*(?P<tolerance>[0-9.]+))?")


@dataclass(frozen=True, slots=True)
class RerankedCost:
    """Candidates of a query that the reranker reads: scored like a measure, negated, so that larger is better."""

    def __str__(self) -> str:
        return RERANKED


Scored = Measure | RerankedCost
"""What is scored per query."""


@dataclass(frozen=True, slots=True)
class Guard:
    """A measure, on the queries of one type or on all, that stays at the baseline's mean, less a tolerance."""

    measure: Measure
    query_type: str | None = None
    tolerance: float = 0.0

    def __str__(self) -> str:
        about = f"{self.query_type} " if self.query_type else ""
        less = f" − {self.tolerance:g}" if self.tolerance else ""
        return f"{about}{self.measure} not below the baseline{less}"


@dataclass(frozen=True)
class Goal:
    """Objectives, the deciding one first, the guards, and whether fewer reranked candidates are an objective too."""

    objectives: tuple[Measure, ...]
    guards: tuple[Guard, ...] = ()
    fewer_reranked: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The objectives in the order of what a trial reached."""
        return tuple(map(str, self._wanted))

    @property
    def measures(self) -> tuple[Scored, ...]:
        """Everything that has to be scored, the objectives first, each once."""
        return tuple(dict.fromkeys([*self._wanted, *(guard.measure for guard in self.guards)]))

    @property
    def _wanted(self) -> list[Scored]:
        return [*self.objectives, *([RerankedCost()] if self.fewer_reranked else [])]

    def reached(self, values: Floats) -> Floats:
        """(objectives) the means of (Q, M) scores, larger is better; the cost, negated, last."""
        means: Floats = values[:, : len(self._wanted)].mean(axis=0)
        return means

    def broken(self, values: Floats, baseline: Floats, types: Sequence[str | None]) -> list[Guard]:
        """The guards that (Q, M) scores break against the baseline's on the same queries."""
        return [guard for guard in self.guards if self._falls(guard, values, baseline, types)]

    def _falls(self, guard: Guard, values: Floats, baseline: Floats, types: Sequence[str | None]) -> bool:
        column = self.measures.index(guard.measure)
        asked: Bools = np.array([guard.query_type in (None, kind) for kind in types], dtype=bool)
        if not asked.any():
            return False
        return bool((values[asked, column] - baseline[asked, column]).mean() < -guard.tolerance - 1e-12)


def parse_goal(objectives: Sequence[str], guards: Sequence[str] = (), grade: int = 1) -> Goal:
    """A goal of written objectives, such as `nDCG@10` and `reranked`, and of written guards; `grade` is the lowest relevant one.

    Raises InputError.
    """
    costs = [text for text in objectives if _COST.fullmatch(text.strip())]
    measures = tuple(dict.fromkeys(_per_query(text, grade, "--metric") for text in objectives if text not in costs))
    if not measures:
        raise InputError(
            f"--metric {costs[0]}: a cost alone is least where nothing is reranked; name a measure too"
            if costs
            else "--metric: name a measure"
        )
    return Goal(measures, tuple(parse_guard(text, grade) for text in guards), bool(costs))


def parse_guard(text: str, grade: int = 1) -> Guard:
    """`hit@5`, `temporal:hit@5` or `temporal:hit@5-0.01`. Raises InputError."""
    match = _GUARD.fullmatch(text.strip())
    if match is None:
        raise InputError(f"--guard {text}: expected MEASURE, TYPE:MEASURE or TYPE:MEASURE-TOLERANCE")
    tolerance = float(match["tolerance"] or 0) if (match["tolerance"] or "0").count(".") < 2 else -1.0
    if tolerance < 0:
        raise InputError(f"--guard {text}: {match['tolerance']} is not a number")
    return Guard(_per_query(match["measure"], grade, "--guard"), match["type"], tolerance)


def _per_query(text: str, grade: int, option: str) -> Measure:
    """A measure that a search can score part of the queries by. Raises InputError."""
    measure = parse_measure(text, grade)
    if MEASURES[measure.family].resampled is not None:
        raise InputError(f"{option}: {measure} is of all queries together, and a search scores one query at a time")
    return measure
