"""Measures by name: `hit@5`, `recall@10`, `P@3`, `MRR`, `nDCG@10`, `AP`, `Judged@10`, and `hit(rel=2)@5` for another grade.

`R@5` is refused: the CEMS and ACE documents mean hit@5 by it, everybody else recall@5.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cems_workbench.errors import InputError, nearest
from cems_workbench.evaluation.metrics.average_precision import average_precision
from cems_workbench.evaluation.metrics.hits import hit, precision, recall
from cems_workbench.evaluation.metrics.judged import judged_share
from cems_workbench.evaluation.metrics.ndcg import ndcg
from cems_workbench.evaluation.metrics.rankings import GradedRankings
from cems_workbench.evaluation.metrics.reciprocal_rank import reciprocal_rank
from cems_workbench.pipeline.table import Floats

Compute = Callable[[GradedRankings, int | None, int], Floats]


@dataclass(frozen=True, slots=True)
class Family:
    """Measures that differ in cut-off and grade alone. Some need a cut-off, and some read no grade threshold."""

    name: str
    what: str
    compute: Compute
    needs_cutoff: bool = False
    reads_grade: bool = True


FAMILIES = {
    family.name: family
    for family in (
        Family("hit", "is any of the first k relevant? The CEMS and ACE documents call this R@k", hit, True),
        Family("recall", "share of all relevant memories that is among the first k", recall, True),
        Family("P", "share of the first k that is relevant", precision, True),
        Family("MRR", "1 / rank of the first relevant result", reciprocal_rank),
        Family("nDCG", "graded gain, discounted by rank, of the best possible", ndcg, reads_grade=False),
        Family("AP", "precision at the rank of each relevant memory, averaged", average_precision),
        Family("Judged", "share of the first k that anybody judged", judged_share, reads_grade=False),
    )
}
ALIASES = {"success": "hit", "precision": "P", "rr": "MRR", "map": "AP", "ndcg": "nDCG"}
_WRITTEN = re.compile(r"([A-Za-z]+)(?:\(rel=(-?\d{1,6})\))?(?:@(\d{1,6}))?")


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure: a family, a cut-off (None: the whole ranking), and the lowest grade that counts as relevant."""

    family: str
    k: int | None = None
    grade: int = 1

    def __str__(self) -> str:
        written = self.family
        if self.grade != 1 and FAMILIES[self.family].reads_grade:
            written += f"(rel={self.grade})"
        return written if self.k is None else f"{written}@{self.k}"

    def values(self, rankings: GradedRankings) -> Floats:
        """(Q) the measure of each query; NaN for a query with nothing relevant (Judged is defined for every query)."""
        found = FAMILIES[self.family].compute(rankings, self.k, self.grade)
        if self.family == "Judged":
            return found
        least = 1 if self.family == "nDCG" else self.grade
        return np.where(rankings.relevant_count(least) > 0, found, np.nan)


def parse_measure(text: str, grade: int = 1) -> Measure:
    """The measure that a name means; `grade` is what counts as relevant unless the name says. Raises InputError."""
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        raise InputError(f"measure {text!r}: expected a name such as hit@5, nDCG@10 or hit(rel=2)@5")
    name, stated, k = match.groups()
    if name == "R":
        raise InputError(
            f"measure {text}: write hit@{k or 5} (what the CEMS and ACE documents mean) or recall@{k or 5}"
        )
    known = {family.lower(): family for family in FAMILIES} | ALIASES
    if name.lower() not in known:
        close = nearest(name.lower(), known)
        hint = f"; did you mean {known[close]}?" if close else ""
        raise InputError(f"measure {text}: unknown{hint} Known measures: {', '.join(FAMILIES)}")
    family = FAMILIES[known[name.lower()]]
    if k is not None and int(k) < 1:
        raise InputError(f"measure {text}: the cut-off must be at least 1")
    if k is None and family.needs_cutoff:
        raise InputError(f"measure {text}: needs a cut-off, such as {family.name}@5")
    return Measure(family.name, None if k is None else int(k), grade if stated is None else int(stated))


def parse_measures(text: str, grade: int = 1) -> tuple[Measure, ...]:
    """Several measures, separated by spaces or commas, each once. Raises InputError, also when there are none."""
    found = tuple(dict.fromkeys(parse_measure(part, grade) for part in re.split(r"[\s,]+", text.strip()) if part))
    if not found:
        raise InputError("no measure is named; try hit@5 nDCG@10")
    return found


STANDARD = "hit@1 hit@5 hit@10 recall@1 recall@5 recall@10 P@3 MRR nDCG@10 AP Judged@10"
"""The measures of a full report."""


def standard_measures(grade: int = 1) -> Sequence[Measure]:
    """The measures of a full report, with what counts as relevant."""
    return parse_measures(STANDARD, grade)
