"""Measures by name: `hit@5`, `recall@10`, `P@3`, `MRR`, `nDCG@10`, `AP`, `Judged@10`, and `hit(rel=2)@5` for another grade; and
rank-biased overlap of two rankings. `AUROC(by=vector)` uses a signal of abstain instead of the first result's score, `ms(by=vector)` is
the time of that list; several are separated by ";".

A family of measures is the `MEASURE` of a module here, or one of several there, or an entry point of another package in the group
`cems_workbench.measures`. `R@5` is refused: the CEMS and ACE documents mean hit@5 by it, everybody else recall@5.

Input of measures: Q rankings as the grade at each rank, and all judged grades.

A query is answerable where a memory was judged relevant for it, and unanswerable if it is marked as having no answer and nothing was
judged relevant. It is neither while all that was judged is irrelevant and nobody said so: what was not looked at may answer it.

Rank-biased overlap says how alike two rankings are, the top counting most:

    RBO_ext = (1-p)/p * [ sum_{d=1..l} X_d/d * p^d + sum_{d=s+1..l} X_s (d-s)/(s d) * p^d ] + [ (X_l - X_s)/l + X_s/s ] * p^l

X_d is how many memories the first d of both have in common, s and l the lengths of the shorter and the longer ranking; the depths
beyond them are extrapolated. 1 for equal rankings, 0 for rankings with nothing in common, or when one alone is empty.

Source: Webber, Moffat & Zobel, A similarity measure for indefinite rankings, 2010, equation 32.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cems_workbench import extensions
from cems_workbench.config.fields import packaged
from cems_workbench.errors import InputError, nearest
from cems_workbench.pipeline.list_sources import TIMED
from cems_workbench.pipeline.stages.abstain import CONFIDENCE_FEATURES
from cems_workbench.pipeline.table import Bools, Floats, Ints

NO_GRADE = np.iinfo(np.int64).min
"""Stands where `ideal` has no further grade: below every threshold, and no gain."""


@dataclass(frozen=True, eq=False)
class GradedRankings:
    """Q rankings of at most R results. A result that nobody judged has grade 0 and is not `judged`."""

    grade: Ints
    """(Q, R) grade of the result at each rank, 0 where unjudged or past the end."""
    judged: Bools
    """(Q, R) is the result at this rank judged?"""
    filled: Bools
    """(Q, R) is there a result at this rank?"""
    ideal: Ints
    """(Q, J) every grade given for the query, highest first, then NO_GRADE."""
    unanswerable: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """(Q) is the query marked as having no answer? Empty if none is."""
    score: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """(Q, R) final score of the result at each rank, NaN past the end; empty where scores are not known."""
    signals: Callable[[str], Floats] | None = None
    """(Q) of a signal of abstain, by its name, NaN where a query has none; None where they are not known."""
    stale: Bools = field(default_factory=lambda: np.zeros((0, 0), dtype=bool))
    """(Q, R) has the result at this rank expired, or is it superseded by memories of which none is ranked above it? Empty where that is
    not known of any query."""
    stale_known: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """(Q) whether it is known; empty where it is of none."""
    tokens: Ints = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    """(Q, R) tokens of the result at each rank, its characters / 4, 0 past the end; empty where they are not known."""
    ms: Mapping[str, Floats] = field(default_factory=dict)
    """(Q) milliseconds that gathering took, by what of it (`list_sources.TIMED`), NaN where a query has no record; of nothing else."""
    chosen: str = ""
    """Which of the signals says how sure a ranking is, or what is timed; empty: the score of the first result, or the whole gathering."""

    def relevant(self, grade: int) -> Bools:
        """(Q, R) judged results of at least this grade."""
        relevant: Bools = self.judged & (self.grade >= grade)
        return relevant

    def relevant_count(self, grade: int) -> Ints:
        """(Q) judged memories of at least this grade, found or not."""
        count: Ints = (self.ideal >= grade).sum(axis=1)
        return count

    def answerable(self, grade: int) -> Bools:
        """(Q) is a memory of at least this grade known?"""
        known: Bools = self.relevant_count(grade) > 0
        return known

    def without_answer(self, grade: int) -> Bools:
        """(Q) was it said that nothing answers the query, and is no memory of at least this grade known? A judgment wins."""
        said = self.unanswerable if len(self.unanswerable) else np.zeros(len(self.filled), dtype=bool)
        without: Bools = said & ~self.answerable(grade)
        return without

    def signal(self) -> Floats:
        """(Q) how sure the ranking is of an answer: the score of the first result, -inf without results or scores; or the chosen
        signal, NaN where a query has none."""
        if self.chosen:
            return self.signals(self.chosen) if self.signals is not None else np.full(len(self.filled), np.nan)
        if not self.score.shape[1]:
            return np.full(len(self.filled), -np.inf)
        return np.where(self.filled[:, 0] & ~np.isnan(self.score[:, 0]), self.score[:, 0], -np.inf)

    def of_queries(self, rows: Ints) -> GradedRankings:
        """Those of some queries, by their numbers."""
        signals = self.signals
        always = {name: getattr(self, name)[rows] for name in ("grade", "judged", "filled", "ideal")}
        known = {name: getattr(self, name) for name in ("unanswerable", "score", "stale", "stale_known", "tokens")}
        of_rows = always | {name: values[rows] if len(values) else values for name, values in known.items()}
        of_rows |= {"ms": {name: values[rows] for name, values in self.ms.items()}}
        return replace(self, **of_rows, signals=None if signals is None else lambda name: signals(name)[rows])


def graded(
    rankings: Sequence[Sequence[str]],
    grades: Sequence[Mapping[str, int]],
    unanswerable: Sequence[bool] = (),
    scores: Sequence[Sequence[float]] = (),
) -> GradedRankings:
    """From rankings of memory ids, best first, and the grades of each query by memory id.

    `unanswerable` marks the queries without an answer, none if it is empty; `scores` are those of the results.
    """
    depth = max((len(ranking) for ranking in rankings), default=0)
    grade = np.zeros((len(rankings), depth), dtype=np.int64)
    judged, filled = (np.zeros(grade.shape, dtype=bool) for _ in range(2))
    for q, ranking in enumerate(rankings):
        filled[q, : len(ranking)] = True
        judged[q, : len(ranking)] = [key in grades[q] for key in ranking]
        grade[q, : len(ranking)] = [grades[q].get(key, 0) for key in ranking]
    score = np.full(grade.shape, np.nan) if len(scores) else np.zeros((0, 0))
    for q, given in enumerate(scores):
        score[q, : len(given)] = given
    ideal = ideal_grades([list(of_query.values()) for of_query in grades])
    return GradedRankings(grade, judged, filled, ideal, np.array(unanswerable, dtype=bool), score)


def ideal_grades(grades: Sequence[Sequence[int]]) -> Ints:
    """(Q, J) the grades of each query, highest first, padded with NO_GRADE."""
    out = np.full((len(grades), max((len(row) for row in grades), default=0)), NO_GRADE, dtype=np.int64)
    for q, row in enumerate(grades):
        out[q, : len(row)] = sorted(row, reverse=True)
    return out


def discounts(depth: int) -> Floats:
    """(depth) 1 / log2(1 + rank) of ranks 1, 2, ..."""
    weights: Floats = 1 / np.log2(np.arange(2, depth + 2))
    return weights


PERSISTENCE = 0.9
"""The first ten ranks have 86 % of the weight."""


def rbo(first: Ints, second: Ints, p: float = PERSISTENCE) -> Floats:
    """(Q) overlap of Q pairs of rankings: (Q, R) items as numbers that mean the same in both, best first, -1 past the end."""
    depth = max(first.shape[1], second.shape[1])
    if not depth or not len(first):
        return np.ones(len(first))
    a, b = (first[:, :, None], second[:, None, :])
    place = np.maximum(np.arange(1, first.shape[1] + 1)[:, None], np.arange(1, second.shape[1] + 1)[None, :])
    met = np.where((a == b) & (a >= 0), place, 0).reshape(len(first), -1)  # the depth from which on a memory is in both
    lengths = (first >= 0).sum(axis=1), (second >= 0).sum(axis=1)
    short, long = np.minimum(*lengths), np.maximum(*lengths)
    rows = np.arange(len(first))
    at = np.bincount((rows[:, None] * (depth + 1) + met).ravel(), minlength=len(first) * (depth + 1))
    common = np.cumsum(at.reshape(len(first), depth + 1)[:, 1:], axis=1).astype(float)
    at_short = np.where(short > 0, common[rows, short - 1], 0.0)
    at_long = np.where(long > 0, common[rows, long - 1], 0.0)
    d = np.arange(1, depth + 1)[None, :]
    weight = np.where(d <= long[:, None], p**d, 0.0)
    agreed = (common / d * weight).sum(axis=1)
    beyond = np.where(d > short[:, None], at_short[:, None] * (d - short[:, None]) / (short[:, None].clip(1) * d), 0.0)
    rest = (at_long - at_short) / long.clip(1) + at_short / short.clip(1)
    overlap: Floats = (1 - p) / p * (agreed + (beyond * weight).sum(axis=1)) + rest * p**long
    return np.where(long == 0, 1.0, overlap)


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
    `timed`: it is time of gathering, `by` a stage. `aliases` are other names it can be written with, in lower case.
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
    timed: bool = False
    aliases: tuple[str, ...] = ()
    place: int = extensions.DEFAULT_PLACE


_ABOUT = packaged("evaluation/measures.json")


def families(**formulas: Compute | tuple[Compute, Resampled]) -> tuple[MeasureFamily, ...]:
    """The families with these formulas; a pair has that of all queries together too. measures.json has what does not run."""
    found = []
    for name, formula in formulas.items():
        compute, resampled = formula if isinstance(formula, tuple) else (formula, None)
        about: dict[str, Any] = {
            field: tuple(said) if isinstance(said, list) else said for field, said in _ABOUT[name].items()
        }
        found.append(MeasureFamily(name, compute=compute, resampled=resampled, **about))
    return tuple(found)


MEASURES = extensions.Registry(extensions.MEASURES, MeasureFamily, "cems_workbench.evaluation.metrics", "MEASURE")
"""Every family of measures by name."""

_NAME = extensions.PATTERNS[extensions.MEASURES]
_WRITTEN = re.compile(rf"({_NAME})(?:\((?:rel=(-?\d{{1,6}}))?;?(?:by=([a-z0-9_]+))?\))?(?:@(\d{{1,6}}))?")


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure: a family, a cut-off (None: the whole ranking), the lowest grade that counts as relevant, and for a measure of a signal
    which one of abstain it is (empty: the score of the first result), for one of time which stage (empty: all).

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
        hint = f"; did you mean {known[close]}?" if close else "."
        raise InputError(f"measure {text}: unknown{hint} Known measures: {', '.join(MEASURES)}")
    family = MEASURES[known[name.lower()]]
    if k is not None and int(k) < 1:
        raise InputError(f"measure {text}: the cut-off must be at least 1")
    if k is None and family.needs_cutoff:
        raise InputError(f"measure {text}: needs a cut-off, such as {family.name}@5")
    named = TIMED if family.timed else CONFIDENCE_FEATURES if family.resampled else ()
    if signal is not None and signal not in named:
        allowed = f"by is one of {', '.join(named)}" if named else f"{family.name} is not of a signal"
        raise InputError(f"measure {text}: {allowed}")
    return Measure(family.name, None if k is None else int(k), grade if stated is None else int(stated), signal or "")


def relevance_words(grade: int, counted: int, judged: int, unanswerable: int = 0, successors: bool = False) -> str:
    """The note next to every measure: the relevance grade, and how many queries the means are of.

    `unanswerable` are those of the `judged` that are known to have no answer; `successors`: whether these are credited.
    """
    left_out = judged - counted - unanswerable
    why = f"; {left_out} without a relevant memory {'is' if left_out == 1 else 'are'} excluded" if left_out else ""
    families = [family.name for family in MEASURES.values() if family.needs_no_answer or family.resampled]
    apart = f"; {unanswerable} without an answer {'counts' if unanswerable == 1 else 'count'} in {', '.join(families)}"
    said = apart if unanswerable else ""
    credit = "; a relevant memory counts as found where its successor is returned" if successors else ""
    return f"Relevant from grade {grade}; means of {counted} of {judged} judged queries{why}{said}{credit}"


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

    `per_query`: those to tune by, without those of all queries together, and time, which no config changes that is replayed.
    """
    added = (MEASURES[name] for name in MEASURES.origins)
    names = [
        *STANDARD.split(),
        *NO_ANSWER.split(),
        "all@5",
        "all@10",
        "stale@10",
        "tokens",
        "tokens_relevant",
        "ms",
        *(f"{family.name}@10" if family.needs_cutoff else family.name for family in added),
    ]
    of = {name: MEASURES[parse_measure(name).family] for name in names}
    return [name for name, family in of.items() if not (per_query and (family.resampled or family.timed))]


def measures_help() -> str:
    """What each family measures, a sentence each."""
    return " ".join(f"{family.name}: {family.description}." for family in MEASURES.values())


def standard_measures(grade: int = 1) -> Sequence[Measure]:
    """The measures of a full report, with what counts as relevant."""
    return parse_measures(STANDARD, grade)
