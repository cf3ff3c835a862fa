"""Goal of a search: objectives to maximise, and guards that must hold.

The first objective decides; further ones make a Pareto front. A guard is a measure on some queries that must not fall below the baseline by
more than its tolerance, or below a bound. Scores are larger if better: a measure of harm is negated. A query that a measure is not defined
for, such as one without an answer and nDCG, has NaN and is left out of the mean. The cost is the number of candidates of a query
that the reranker reads, as replay counts them: candidates that earlier stages drop are not sent, and a query that is not reranked costs
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cems_workbench.errors import InputError
from cems_workbench.evaluation.metrics import MEASURES, Measure, parse_measure
from cems_workbench.evaluation.statistics import means
from cems_workbench.pipeline.table import Bools, Floats

RERANKED = "reranked"
"""Name of the cost among the objectives; `candidates` is a synonym, and a minus before either is allowed."""
_COST = re.compile(r"-?(reranked|candidates)")
_GUARD = re.compile(
    r"(?:(?P<type>[^:]+):)?(?P<measure>[^:\s<>]+?)(?:\s*-\s*(?P<tolerance>[0-9.]+)|\s*(?P<side>[<>]=)\s*(?P<bound>[0-9.]+))?"
)
GUARD_TOLERANCE = 1e-12
"""Tolerance of a guard: one that is missed by less holds."""


@dataclass(frozen=True, slots=True)
class RerankedCost:
    """Candidates of a query that the reranker reads: scored like a measure of harm."""

    direction = -1

    def __str__(self) -> str:
        return RERANKED


Scored = Measure | RerankedCost
"""A score per query."""


@dataclass(frozen=True, slots=True)
class Guard:
    """A measure, on the queries of one type or on all, whose mean must stay within a tolerance of the baseline's, or
    within a bound. `bound` is the worst allowed mean, with the measure's sign."""

    measure: Measure
    query_type: str | None = None
    tolerance: float = 0.0
    bound: float | None = None

    def __str__(self) -> str:
        about, less = f"{self.query_type} " if self.query_type else "", self.measure.direction < 0
        if self.bound is not None:
            return f"{about}{self.measure} at {'most' if less else 'least'} {self.bound:g}"
        beyond = f" {'+' if less else '−'} {self.tolerance:g}" if self.tolerance else ""
        return f"{about}{self.measure} not {'above' if less else 'below'} the baseline{beyond}"


@dataclass(frozen=True)
class Goal:
    """Objectives, the deciding one first, the guards, and whether fewer reranked candidates are an objective too."""

    objectives: tuple[Measure, ...]
    guards: tuple[Guard, ...] = ()
    fewer_reranked: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the objectives, in the order of `reached`."""
        return tuple(map(str, self._wanted))

    @property
    def measures(self) -> tuple[Scored, ...]:
        """All scores that objectives and guards need, the objectives first, each once."""
        return tuple(dict.fromkeys([*self._wanted, *(guard.measure for guard in self.guards)]))

    @property
    def _wanted(self) -> list[Scored]:
        return [*self.objectives, *([RerankedCost()] if self.fewer_reranked else [])]

    @property
    def of_no_answer(self) -> bool:
        """Whether one of the measures is defined only for queries without an answer."""
        return any(MEASURES[each.family].needs_no_answer for each in self.measures if isinstance(each, Measure))

    @property
    def directions(self) -> Floats:
        """(objectives) 1 if higher is better, -1 if lower is better."""
        return np.array([each.direction for each in self._wanted], dtype=np.float64)

    def reached(self, values: Floats) -> Floats:
        """(objectives) the means of (Q, M) scores, larger is better; the cost last."""
        return means(values[:, : len(self._wanted)])

    def as_measured(self, reached: Floats) -> Floats:
        """(…, objectives) the objectives with the measures' signs, the cost as a count."""
        return reached * self.directions + 0.0  # not -0

    def shortfalls(self, values: Floats, baseline: Floats, types: Sequence[str | None]) -> Floats:
        """(G) by how much (Q, M) scores miss each guard, relative to the baseline's scores on the same queries; 0 if it holds."""
        return np.array([self._shortfall(guard, values, baseline, types) for guard in self.guards])

    def _shortfall(self, guard: Guard, values: Floats, baseline: Floats, types: Sequence[str | None]) -> float:
        column = self.measures.index(guard.measure)
        asked: Bools = np.array([guard.query_type in (None, kind) for kind in types], dtype=bool)
        if not asked.any():
            return 0.0
        there, least = means(np.stack([values[asked, column], baseline[asked, column]], axis=1))
        least = least - guard.tolerance if guard.bound is None else guard.bound * guard.measure.direction
        missed = float(least - there)
        # Rounding of the mean must not break a guard that holds exactly.
        return missed if missed > GUARD_TOLERANCE else 0.0


def parse_goal(objectives: Sequence[str], guards: Sequence[str] = (), grade: int = 1) -> Goal:
    """Parse objectives, such as `nDCG@10` and `reranked`, and guards; `grade` is the lowest relevant grade. Raises
    InputError."""
    costs = [text for text in objectives if _COST.fullmatch(text.strip())]
    measures = tuple(dict.fromkeys(_per_query(text, grade, "--metric") for text in objectives if text not in costs))
    if not measures:
        raise InputError(
            f"--metric {costs[0]}: a cost alone is lowest without reranking; name a measure too"
            if costs
            else "--metric: name a measure"
        )
    if all(measure.family == "tokens" for measure in measures):
        raise InputError(f"--metric {measures[0]}: fewest without results; name another measure too")
    return Goal(measures, tuple(parse_guard(text, grade) for text in guards), bool(costs))


def parse_guard(text: str, grade: int = 1) -> Guard:
    """`hit@5`, `temporal:hit@5`, `temporal:hit@5-0.01`, `nDCG@10>=0.5` or `noise@5<=0.2`. Raises InputError."""
    match = _GUARD.fullmatch(text.strip())
    if match is None:
        raise InputError(
            f"--guard {text}: expected MEASURE, TYPE:MEASURE or TYPE:MEASURE-TOLERANCE, or MEASURE>=NUMBER (<= where less is better)"
        )
    tolerance = float(match["tolerance"] or 0) if (match["tolerance"] or "0").count(".") < 2 else -1.0
    if tolerance < 0:
        raise InputError(f"--guard {text}: {match['tolerance']} is not a number")
    measure = _per_query(match["measure"], grade, "--guard")
    if match["side"] is None:
        return Guard(measure, match["type"], tolerance)
    side = "<=" if measure.direction < 0 else ">="
    if match["side"] != side:
        better = "less" if measure.direction < 0 else "more"
        raise InputError(f"--guard {text}: {better} of {measure} is better: write {measure}{side}{match['bound']}")
    if match["bound"].count(".") > 1 or not match["bound"].strip("."):
        raise InputError(f"--guard {text}: {match['bound']} is not a number")
    return Guard(measure, match["type"], bound=float(match["bound"]))


def _per_query(text: str, grade: int, option: str) -> Measure:
    """Parse a measure that is defined per query, as pruning needs. Raises InputError."""
    measure = parse_measure(text, grade)
    if MEASURES[measure.family].resampled is not None:
        raise InputError(
            f"{option}: {measure} is of all queries together, and a search scores one query at a time; noise@5, answered and refused are "
            "of one"
        )
    return measure
