"""How far reviewers agree: weighted kappa of two, Krippendorff's alpha of all, each with a bootstrap interval.

Weighted kappa (Cohen, 1968) of two reviewers on the pairs both graded, with w = |i - j| (linear) or (i - j)² (quadratic) between the
places i and j of two grades on the scale:

    kappa = 1 - sum(w * observed) / sum(w * expected),   expected = outer product of both reviewers' shares

Alpha (Krippendorff, 2011) of any number of reviewers, missing grades allowed, over the coincidences o of grades c and k (a pair
graded by m people adds 1 / (m - 1) for each two of its grades), n of each grade and n of all:

    alpha = 1 - (n - 1) * sum(o[c, k] * d[c, k]) / sum(n[c] * n[k] * d[c, k])

with d = 1 where c and k differ (nominal), (c - k)² (interval), or (sum of n from c to k - (n[c] + n[k]) / 2)² (ordinal). Intervals are
percentiles over queries resampled with replacement, because the pairs of one query are not independent. A coefficient is None where
it is not defined: no pair in common, or only one grade in use.

Where reviewers differ a rule gives one grade per pair: that of the majority (which more than half gave), the strictest, or the one
decided by a named person, which takes precedence over any rule; without one the pair stays open. Raw labels never change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cems_workbench.errors import InputError
from cems_workbench.records import WHOLE_STORE, Judgment
from cems_workbench.store import Decision, Store

Weights = Literal["linear", "quadratic"]
Level = Literal["nominal", "ordinal", "interval"]
Floats = NDArray[np.float64]
RESAMPLES = 1000
INTERVAL_PERCENTILES = (2.5, 97.5)
KAPPA_NAME = "Cohen’s kappa"
ALPHA_NAME = "Krippendorff’s alpha"
KAPPA_READINGS = ((0.8, "almost perfect"), (0.6, "substantial"), (0.4, "moderate"), (0.2, "fair"), (0.0, "slight"))
"""What a kappa above each bound is usually called (Landis and Koch, 1977); one of 0 or less is "none"."""
ALPHA_READINGS = ((0.8, "reliable"), (0.667, "tentative"))
"""What an alpha from each bound on is usually called (Krippendorff, 2004); a lower one is "unreliable"."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A coefficient with its 95% interval, and the number of query-memory pairs it rests on; None: not defined."""

    value: float | None
    low: float | None
    high: float | None
    pairs: int

    def __str__(self) -> str:
        """`0.41 (95 % interval 0.20 to 0.62)`."""
        if self.value is None:
            return "not defined"
        known = self.low is not None and self.high is not None
        return f"{self.value:.2f}" + (f" (95 % interval {self.low:.2f} to {self.high:.2f})" if known else "")


def kappa_reading(kappa: Estimate) -> str:
    """What a kappa is usually called, in brackets its interval's ends where they differ; empty where it is not defined."""
    return _reading(kappa, lambda value: next((name for bound, name in KAPPA_READINGS if value > bound), "none"))


def alpha_reading(alpha: Estimate) -> str:
    """What an alpha is usually called, in the same form."""
    return _reading(alpha, lambda value: next((name for bound, name in ALPHA_READINGS if value >= bound), "unreliable"))


def _reading(estimate: Estimate, name: Callable[[float], str]) -> str:
    if estimate.value is None:
        return ""
    read = name(estimate.value)
    if estimate.low is None or estimate.high is None:
        return read
    low, high = name(estimate.low), name(estimate.high)
    return read if low == high else f"{read} ({low} to {high})"


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A pair whose reviewers gave different grades; `spread` is the highest less the lowest."""

    qid: str
    memory_id: str
    grades: dict[str, int]
    spread: int

    @property
    def pair(self) -> tuple[str, str]:
        """Query and memory."""
        return self.qid, self.memory_id


@dataclass(frozen=True, slots=True)
class LabelTable:
    """Who graded what: `places[reviewer, pair]` is the place of the grade on the scale, -1 where there is none. `query`
    is the number of each pair's query in `qids`; `values` are the grades by their place."""

    reviewers: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    qids: tuple[str, ...]
    query: NDArray[np.intp]
    places: NDArray[np.intp]
    values: Floats


def label_table(judgments: Sequence[Judgment], grades: Sequence[int] = ()) -> LabelTable:
    """The table of some judgments, one judge a row; `grades` are those of the scale, others that occur are added."""
    scale = sorted({*grades, *(judgment.grade for judgment in judgments)})
    reviewers = sorted({judgment.judge for judgment in judgments})
    pairs = sorted({(judgment.qid, judgment.memory_id) for judgment in judgments})
    qids = sorted({qid for qid, _ in pairs})
    row = {judge: n for n, judge in enumerate(reviewers)}
    column = {pair: n for n, pair in enumerate(pairs)}
    number = {qid: n for n, qid in enumerate(qids)}
    places = np.full((len(reviewers), len(pairs)), -1, np.intp)
    for judgment in judgments:
        places[row[judgment.judge], column[judgment.qid, judgment.memory_id]] = scale.index(judgment.grade)
    query = np.array([number[qid] for qid, _ in pairs], np.intp)
    return LabelTable(tuple(reviewers), tuple(pairs), tuple(qids), query, places, np.array(scale, np.float64))


def weighted_kappa(confusion: Floats, weights: Weights = "quadratic") -> Floats:
    """Kappa of each confusion matrix (…, grades, grades), by place on the scale; NaN where it is not defined."""
    place = np.arange(confusion.shape[-1])
    distance = np.abs(place[:, None] - place).astype(np.float64) ** (1 if weights == "linear" else 2)
    total = confusion.sum((-2, -1))
    expected = confusion.sum(-1)[..., :, None] * confusion.sum(-2)[..., None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        kappa = 1 - total * (distance * confusion).sum((-2, -1)) / (distance * expected).sum((-2, -1))
    return np.asarray(np.where(np.isfinite(kappa), kappa, np.nan))


def krippendorff_alpha(coincidences: Floats, values: Floats, level: Level = "ordinal") -> Floats:
    """Alpha of each coincidence matrix (…, grades, grades), `values` being the grades; NaN where it is not defined."""
    n = coincidences.sum(-1)
    distance = _distance(n, values, level)
    total = n.sum(-1)
    expected = (n[..., :, None] * n[..., None, :] * distance).sum((-2, -1))
    with np.errstate(divide="ignore", invalid="ignore"):
        alpha = 1 - (total - 1) * (coincidences * distance).sum((-2, -1)) / expected
    return np.asarray(np.where(np.isfinite(alpha), alpha, np.nan))


def _distance(n: Floats, values: Floats, level: Level) -> Floats:
    if level == "nominal":
        return 1 - np.eye(len(values))
    if level == "interval":
        return np.asarray((values[:, None] - values) ** 2)
    until = np.cumsum(n, -1)
    low = np.minimum.outer(np.arange(len(values)), np.arange(len(values)))
    high = np.maximum.outer(np.arange(len(values)), np.arange(len(values)))
    between = until[..., high] - until[..., low] + n[..., low]
    return np.asarray((between - (n[..., low] + n[..., high]) / 2) ** 2)


def confusions(table: LabelTable, first: int, second: int) -> Floats:
    """How often two reviewers gave each two grades, per query: (queries, grades, grades)."""
    found = np.zeros((len(table.qids), len(table.values), len(table.values)))
    both = (table.places[first] >= 0) & (table.places[second] >= 0)
    np.add.at(found, (table.query[both], table.places[first, both], table.places[second, both]), 1.0)
    return found


def coincidences(table: LabelTable) -> Floats:
    """How often each two grades met in a pair that two or more people graded, per query: (queries, grades, grades)."""
    size = len(table.values)
    given = np.stack([(table.places == place).sum(0) for place in range(size)], -1).astype(np.float64).reshape(-1, size)
    people = given.sum(-1)
    shared = people >= 2
    given, people, query = given[shared], people[shared], table.query[shared]
    met = given[:, :, None] * given[:, None, :] - np.eye(size) * given[:, None, :]
    found = np.zeros((len(table.qids), size, size))
    np.add.at(found, query, met / (people - 1)[:, None, None])
    return found


def pairwise_kappa(
    table: LabelTable, weights: Weights = "quadratic", draws: int = RESAMPLES, seed: int = 0
) -> dict[tuple[str, str], Estimate]:
    """The weighted kappa of every two reviewers, in the order of their names."""
    found = {}
    for first, second in combinations(range(len(table.reviewers)), 2):
        per_query = confusions(table, first, second)
        drawn = resampled(per_query, draws, seed)
        value = weighted_kappa(per_query.sum(0), weights)
        estimate = estimate_of(value, weighted_kappa(drawn, weights), int(per_query.sum()))
        found[table.reviewers[first], table.reviewers[second]] = estimate
    return found


def alpha(table: LabelTable, level: Level = "ordinal", draws: int = RESAMPLES, seed: int = 0) -> Estimate:
    """Krippendorff's alpha of all reviewers."""
    per_query = coincidences(table)
    drawn = krippendorff_alpha(resampled(per_query, draws, seed), table.values, level)
    pairs = int(((table.places >= 0).sum(0) >= 2).sum())
    return estimate_of(krippendorff_alpha(per_query.sum(0), table.values, level), drawn, pairs)


def alpha_by_type(
    judgments: Sequence[Judgment],
    types: Mapping[str, str | None],
    grades: Sequence[int] = (),
    level: Level = "ordinal",
    draws: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Alpha per type of query; `types` gives the type of each qid, and what has none is under ""."""
    groups: dict[str, list[Judgment]] = {}
    for judgment in judgments:
        groups.setdefault(types.get(judgment.qid) or "", []).append(judgment)
    return {name: alpha(label_table(groups[name], grades), level, draws, seed) for name in sorted(groups)}


@dataclass(frozen=True, slots=True)
class NoAnswerAgreement:
    """How many queries people said nothing answers, and of those how many two or more did, and how many have a memory that somebody
    judged above `relevant_from` all the same."""

    queries: int
    by_several: int
    contradicted: int

    def __str__(self) -> str:
        """One line; empty where nobody said it of any."""
        if not self.queries:
            return ""
        said = f"{self.queries} {'query is' if self.queries == 1 else 'queries are'} said to have no answer"
        return f"{said}, {self.by_several} by two people or more; {self.contradicted} with a memory judged relevant, which counts"


def no_answer_agreement(judgments: Sequence[Judgment], relevant_from: Mapping[str, int]) -> NoAnswerAgreement:
    """What people say of whole queries; `relevant_from` is the lowest relevant grade by qid, 1 where it is not named."""
    said: dict[str, set[str]] = {}
    for judgment in judgments:
        if judgment.memory_id == WHOLE_STORE and not judgment.grade:
            said.setdefault(judgment.qid, set()).add(judgment.judge)
    relevant = {
        judgment.qid
        for judgment in judgments
        if judgment.memory_id != WHOLE_STORE and judgment.grade >= relevant_from.get(judgment.qid, 1)
    }
    return NoAnswerAgreement(len(said), sum(len(judges) > 1 for judges in said.values()), len(said.keys() & relevant))


def _by_pair(judgments: Iterable[Judgment]) -> dict[tuple[str, str], dict[str, int]]:
    labels: dict[tuple[str, str], dict[str, int]] = {}
    for judgment in judgments:
        labels.setdefault((judgment.qid, judgment.memory_id), {})[judgment.judge] = judgment.grade
    return labels


def disagreements(judgments: Sequence[Judgment]) -> list[Disagreement]:
    """The pairs that got different grades, the widest spread first, then by query and memory."""
    found = [
        Disagreement(qid, memory_id, grades, max(grades.values()) - min(grades.values()))
        for (qid, memory_id), grades in _by_pair(judgments).items()
        if len(set(grades.values())) > 1
    ]
    return sorted(found, key=lambda pair: (-pair.spread, pair.qid, pair.memory_id))


def undecided(conflicts: Iterable[Disagreement], store: Store) -> list[Disagreement]:
    """Those of these pairs that nobody has decided."""
    decided = {(one.qid, one.memory_id) for one in store.decisions.read()}
    return [one for one in conflicts if one.pair not in decided]


def resampled(per_query: Floats, draws: int, seed: int) -> Floats:
    """The sums of `per_query` (queries, …) over queries drawn with replacement, as many as there are: (draws, …)."""
    queries = len(per_query)
    if not queries:
        return np.zeros((draws, *per_query.shape[1:]))
    random = np.random.default_rng(seed)
    times = random.multinomial(queries, np.full(queries, 1 / queries), draws).astype(np.float64)
    return np.asarray(np.tensordot(times, per_query, 1))


def estimate_of(value: float | Floats | np.floating, drawn: Floats, pairs: int) -> Estimate:
    """A coefficient with the percentiles of its values over resampled queries; not defined where it is NaN."""
    usable = drawn[np.isfinite(drawn)]
    if not np.isfinite(value) or not len(usable):
        return Estimate(None, None, None, pairs)
    low, high = np.percentile(usable, INTERVAL_PERCENTILES)
    return Estimate(float(value), float(low), float(high), pairs)


Rule = Literal["majority", "strictest", "decided"]
RULES: tuple[Rule, ...] = ("majority", "strictest", "decided")
How = Literal["agreed", "majority", "strictest", "decided", "open"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The grade of a pair and how it came about; None while it is open. `labels` are the raw grades by reviewer."""

    qid: str
    memory_id: str
    grade: int | None
    how: How
    labels: dict[str, int]
    decided_by: str | None = None


def adjudicate(judgments: Sequence[Judgment], rule: Rule, decisions: Iterable[Decision] = ()) -> list[Verdict]:
    """The verdict on every judged or decided pair, by query and memory. Raises InputError for another rule."""
    if rule not in RULES:
        raise InputError(f"rule: {rule!r} is not one of {', '.join(RULES)}")
    labels = _by_pair(judgments)
    decided = {(decision.qid, decision.memory_id): decision for decision in decisions if decision.grade is not None}
    return [_verdict(pair, labels.get(pair, {}), rule, decided.get(pair)) for pair in sorted({*labels, *decided})]


def _verdict(pair: tuple[str, str], labels: dict[str, int], rule: Rule, decision: Decision | None) -> Verdict:
    if decision is not None:
        return Verdict(*pair, decision.grade, "decided", labels, decision.decided_by)
    grades = list(labels.values())
    if len(set(grades)) == 1:
        return Verdict(*pair, grades[0], "agreed", labels)
    if rule == "strictest":
        return Verdict(*pair, min(grades), "strictest", labels)
    most = max(grades, key=grades.count)
    if rule == "majority" and grades.count(most) * 2 > len(grades):
        return Verdict(*pair, most, "majority", labels)
    return Verdict(*pair, None, "open", labels)


def settled(verdicts: Iterable[Verdict]) -> list[Judgment]:
    """The verdicts as judgments, one per pair, for metrics and for formats of one grade; open ones are left out, and the
    note of a decided one says so."""
    return [
        Judgment(
            verdict.qid,
            verdict.memory_id,
            verdict.grade,
            verdict.decided_by or verdict.how,
            note=verdict.how if verdict.decided_by else None,
        )
        for verdict in verdicts
        if verdict.grade is not None
    ]


Kind = Literal["human", "model", "all"]
MAX_NAMED = 10


@dataclass(frozen=True, slots=True)
class Chosen:
    """The judgments, and a line for each pair that the rule leaves open."""

    judgments: tuple[Judgment, ...]
    still_open: tuple[str, ...] = ()


def choose_judgments(
    store: Store,
    qids: Collection[str],
    judge: str | None = None,
    kind: str = "human",
    rule: Rule | None = None,
    pairs: Collection[tuple[str, str]] | None = None,
) -> Chosen:
    """The judgments of the queries `qids`, or of these of their pairs; by a rule of adjudication one per pair. Raises InputError for an
    unknown judge or kind."""
    if kind not in get_args(Kind):
        raise InputError(f"kind: {kind!r} is not one of {', '.join(get_args(Kind))}")
    every = store.judgments.read(kind=None if kind == "all" else kind)
    found = [label for label in every if label.qid in qids and judge in (None, label.judge)]
    if pairs is not None:
        found = [label for label in found if (label.qid, label.memory_id) in pairs]
    if judge is not None and not found:
        known = sorted({label.judge for label in store.judgments.read()})
        raise InputError(
            f"judge: no label of {judge!r}; there are labels of {', '.join(known[:MAX_NAMED]) or 'nobody'}"
        )
    if rule is None:
        return Chosen(tuple(found))
    decisions = [
        one
        for one in store.decisions.read()
        if one.qid in qids and (pairs is None or (one.qid, one.memory_id) in pairs)
    ]
    verdicts = adjudicate(found, rule, decisions)
    still_open = tuple(
        f"{one.qid} {one.memory_id}: {', '.join(f'{who} {grade}' for who, grade in one.labels.items())}"
        for one in verdicts
        if one.grade is None
    )
    return Chosen(tuple(settled(verdicts)), still_open)
