"""Measures by name: `hit@5`, `recall@10`, `P@3`, `MRR`, `nDCG@10`, `AP`, `Judged@10`, and `hit(rel=2)@5` for another grade.
`AUROC(by=vector)` uses a signal of abstain instead of the first result's score; several are separated by ";".

A family of measures is the `MEASURE` of a module here, or one of several there, or an entry point of another package in the group
`cems_workbench.measures`. `R@5` is refused: the CEMS and ACE documents mean hit@5 by it, everybody else recall@5.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cems_workbench import extensions
from cems_workbench.errors import InputError, nearest
from cems_workbench.evaluation.metrics.rankings import GradedRankings
from cems_workbench.pipeline.stages.abstain import CONFIDENCE_FEATURES
from cems_workbench.pipeline.table import Floats

Compute = Callable[[GradedRankings, int | None, int], Floats]
"""(rankings of Q queries, cut-off or None for the whole ranking, lowest relevant grade) -> (Q) values."""


Resampled = Callable[[GradedRankings, int | None, int, Floats], Floats]
"""(rankings, cut-off, lowest relevant grade, (B, Q) how often each query is drawn) -> (B) the measure of each draw, NaN where undefined."""


@dataclass(frozen=True, slots=True)
class MeasureFamily:
    """Measures that differ in cut-off and grade alone. `description` is one line for help texts.

    `needs_cutoff`: it cannot be written without @k. `reads_grade`: it asks which grades count as relevant. `needs_relevant`: a query
    with nothing relevant has no value. `needs_no_answer`: only a query that nothing answers has one. `lower_is_better`: it measures
    harm. `resampled`: the measure is of all queries together; the values that `compute` gives of each have it as their mean.
    `reads_judgments`: it may be another once more of the results are judged. `reads_first`: of a ranking it reads the first place alone.
    `aliases` are other names it can be written with, in
    lower case.
    """

    name: str
    description: str
    compute: Compute
    needs_cutoff: bool = False
    reads_grade: bool = True
    needs_relevant: bool = True
    needs_no_answer: bool = False
    lower_is_better: bool = False
    resampled: Resampled | None = None
    reads_judgments: bool = True
    reads_first: bool = False
    aliases: tuple[str, ...] = ()
    place: int = extensions.DEFAULT_PLACE


MEASURES = extensions.Registry(extensions.MEASURES, MeasureFamily, "cems_workbench.evaluation.metrics", "MEASURE")
"""Every family of measures by name."""

_WRITTEN = re.compile(r"([A-Za-z]+(?:_[A-Za-z]+)*)(?:\((?:rel=(-?\d{1,6}))?;?(?:by=([a-z]+))?\))?(?:@(\d{1,6}))?")


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure: a family, a cut-off (None: the whole ranking), the lowest grade that counts as relevant, and for a measure of a signal
    which one of abstain it is (empty: the score of the first result).

    The grade also decides the denominator, alike for every family: the queries that have a memory of at least that grade.
    """

    family: str
    k: int | None = None
    grade: int = 1
    signal: str = ""

    def __str__(self) -> str:
        written = self.family
        stated = [f"rel={self.grade}"] if self.grade != 1 and MEASURES[self.family].reads_grade else []
        stated += [f"by={self.signal}"] if self.signal else []
        if stated:
            written += f"({';'.join(stated)})"
        return written if self.k is None else f"{written}@{self.k}"

    @property
    def lower_is_better(self) -> bool:
        """Does it measure harm, so that less of it is better?"""
        return MEASURES[self.family].lower_is_better

    @property
    def direction(self) -> int:
        """1 where more is better, -1 where less is."""
        return -1 if self.lower_is_better else 1

    def resampled(self, rankings: GradedRankings, drawn: Floats) -> Floats | None:
        """(B) the measure where query q counts `drawn[b, q]` times; None where it is a mean over queries, which needs no such thing."""
        compute = MEASURES[self.family].resampled
        return None if compute is None else compute(self._by_signal(rankings), self.k, self.grade, drawn)

    def _by_signal(self, rankings: GradedRankings) -> GradedRankings:
        """The rankings with the signal of this measure instead of the first score."""
        return replace(rankings, chosen=self.signal) if self.signal else rankings

    def values(self, rankings: GradedRankings) -> Floats:
        """(Q) the measure of each query; NaN for a query that it is not of: with nothing relevant where it needs something relevant,
        with an answer where it is of queries without one.

        Raises InputError when the formula of another package fails.
        """
        family = MEASURES[self.family]
        with MEASURES.guarded(self.family, InputError):
            values = family.compute(self._by_signal(rankings), self.k, self.grade)
            if family.needs_no_answer:
                return np.where(rankings.without_answer(self.grade), values, np.nan)
            if not family.needs_relevant:
                return values
            return np.where(rankings.answerable(self.grade), values, np.nan)


def parse_measure(text: str, grade: int = 1) -> Measure:
    """The measure that a name means; `grade` is what counts as relevant unless the name says. Raises InputError."""
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        raise InputError(f"measure {text!r}: expected a name such as hit@5, nDCG@10 or hit(rel=2)@5")
    name, stated, signal, k = match.groups()
    if name == "R":
        raise InputError(
            f"measure {text}: write hit@{k or 5} (what the CEMS and ACE documents mean) or recall@{k or 5}"
        )
    known = _spellings()
    if name.lower() not in known:
        close = nearest(name.lower(), known)
        hint = f"; did you mean {known[close]}?" if close else ""
        raise InputError(f"measure {text}: unknown{hint} Known measures: {', '.join(MEASURES)}")
    family = MEASURES[known[name.lower()]]
    if k is not None and int(k) < 1:
        raise InputError(f"measure {text}: the cut-off must be at least 1")
    if k is None and family.needs_cutoff:
        raise InputError(f"measure {text}: needs a cut-off, such as {family.name}@5")
    if signal is not None and (family.resampled is None or signal not in CONFIDENCE_FEATURES):
        what = (
            f"by is one of {', '.join(CONFIDENCE_FEATURES)}"
            if family.resampled
            else f"{family.name} is not of a signal"
        )
        raise InputError(f"measure {text}: {what}")
    return Measure(family.name, None if k is None else int(k), grade if stated is None else int(stated), signal or "")


def relevance_words(grade: int, counted: int, judged: int, unanswerable: int = 0) -> str:
    """The note next to every measure: the relevance grade, and how many queries the means are of.

    `unanswerable` are those of the `judged` that are known to have no answer.
    """
    left_out = judged - counted - unanswerable
    why = f"; {left_out} without a relevant memory {'is' if left_out == 1 else 'are'} excluded" if left_out else ""
    apart = f"; {unanswerable} without an answer {'counts' if unanswerable == 1 else 'count'} in {', '.join(_of_no_answer())}"
    said = apart if unanswerable else ""
    return f"Relevant from grade {grade}; means of {counted} of {judged} judged queries{why}{said}"


def _of_no_answer() -> list[str]:
    """The families that queries without an answer count in."""
    return [family.name for family in MEASURES.values() if family.needs_no_answer or family.resampled]


def _spellings() -> dict[str, str]:
    """The family that each name and alias in lower case means; a name goes before an alias, and ours before another package's."""
    families = list(MEASURES.values())
    aliases = {alias: family.name for family in reversed(families) for alias in family.aliases}
    return aliases | {family.name.lower(): family.name for family in reversed(families)}


def parse_measures(text: str, grade: int = 1) -> tuple[Measure, ...]:
    """Several measures, separated by spaces or commas, each once. Raises InputError, also when there are none."""
    measures = tuple(dict.fromkeys(parse_measure(part, grade) for part in re.split(r"[\s,]+", text.strip()) if part))
    if not measures:
        raise InputError("no measure is named; try hit@5 nDCG@10")
    return measures


STANDARD = "hit@1 hit@5 hit@10 recall@1 recall@5 recall@10 P@3 MRR nDCG@10 AP Judged@10"
"""The measures of a full report."""


NO_ANSWER = "noise@5 answered refused P AUROC AUPRC AURC@5"
"""Measures of how well queries without an answer are separated from the others."""


def offered_measures(per_query: bool = False) -> list[str]:
    """The measures to choose from, as written: those of a full report, and each family of another package, at 10 if it needs a cut-off.

    `per_query`: without those that are of all queries together.
    """
    added = (MEASURES[name] for name in MEASURES.origins)
    names = [
        *STANDARD.split(),
        *NO_ANSWER.split(),
        "all@5",
        "all@10",
        "stale@10",
        *(f"{family.name}@10" if family.needs_cutoff else family.name for family in added),
    ]
    return [name for name in names if not per_query or MEASURES[parse_measure(name).family].resampled is None]


def measures_help() -> str:
    """What each family measures, a sentence each."""
    return " ".join(f"{family.name}: {family.description}." for family in MEASURES.values())


def standard_measures(grade: int = 1) -> Sequence[Measure]:
    """The measures of a full report, with what counts as relevant."""
    return parse_measures(STANDARD, grade)
