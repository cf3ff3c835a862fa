"""Component effects: how much each part of the pipeline moved the ranking of one query, next to its nominal weight.

Leave-one-out: one part is switched off, the query is replayed, and the results are compared with the present ones.

    tau     Kendall's tau of the two result lists (Fagin et al. 2003, p = 1/2): a memory that only one list has ranks below all
            that the other one has; a pair that only one list knows, and in no order in the other, counts half
    turned  (1 - tau) / 2: the share of pairs that change their order, 0 for the same results, 1 for the reverse
    share   of a list: its turned over the sum over all lists; nominal: list weight * variant weight over their sum

Overlapping parts (two lists that agree) each have a small effect: without one, the other still finds the same memories.

Source: leave-one-out ablation; docs/internals/specification.md, "fusion" to "assembly".

Expansion: the candidates that each form of the query adds, and the results without it.

    share(variant, candidate) = sum of base + bonus over the variant's lists that hold the candidate
    share(v)  = sum over the results of v's terms of the fused raw score / sum of those raw scores
    alone(v)  = candidates in v's lists, and in no list of another variant nor of the relations
    without v = the replay with v's lists left out; one that is switched off is switched on instead

Recency, access and relations, and bonuses for the best rank or for importance, belong to no variant.

Of a recorded fusion nothing can be switched off: its scores over a set are fitted as a linear combination of those of its lists, by least
squares on every other query; the weights hold if they give the scores of the rest (R² of at least `FITS`). A list's share is then what its
part of the score differs by within a query, of the sum over the lists: weights alone say nothing where scales differ. Where no combination
fits, or no share is small, the first results are compared with those of each list.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cems_workbench.analysis.ranks import kendall, rbo, target_rank
from cems_workbench.analysis.why.trial import changed
from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.evidence import VariantKind
from cems_workbench.pipeline.list_sources import LIST_SOURCES
from cems_workbench.pipeline.replay import Trace
from cems_workbench.pipeline.stages import candidate_stages
from cems_workbench.pipeline.stages.fusion import FUSION, FusionRow
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.pipeline.table import Floats, Ints


@dataclass(frozen=True)
class Part:
    """One part of the pipeline and its switch: values of the config, or lists that are left out.

    `lists` is one list of one query variant; of a source whose lists belong to no variant, such as relations, it is
    all of them, because no single one is a part. Lists derived from it are unchanged.
    """

    name: str
    stage: str
    off: Mapping[str, Any] = field(default_factory=dict)
    lists: tuple[str, ...] = ()
    weight: float | None = None


@dataclass(frozen=True)
class Effect:
    """The effect of switching one part off on the first k results.

    `nominal` and `share` are of the lists' weights and of their effects, None for what is no list. `entered` come in without
    the part and `left` go. Ranks are those of the first memory judged relevant, None if it is not in the results.
    """

    part: Part
    tau: float
    entered: tuple[str, ...]
    left: tuple[str, ...]
    moved: int
    nominal: float | None
    share: float | None
    rank_now: int | None
    rank_without: int | None

    @property
    def turned(self) -> float:
        """The share of pairs that change their order, 0..1."""
        return (1 - self.tau) / 2


def component_effects(
    evidence: Evidence,
    config: PipelineConfig,
    relevant: Collection[str] = (),
    switched_off: Collection[int] = (),
) -> list[Effect]:
    """The effect of each part that is on, in the order of the pipeline. `relevant` are the ids judged relevant."""
    trace = replay(evidence, config, switched_off=switched_off)
    k = target_rank(config)
    now = _first(trace, k)
    found = []
    for part in parts(trace):
        without = _first(_without(evidence, config, part, switched_off), k)
        found.append(_effect(part, now, without, relevant))
    weights = sum(effect.part.weight or 0.0 for effect in found)
    turned = sum(effect.turned for effect in found if effect.part.lists)
    return [
        replace(
            effect,
            nominal=(effect.part.weight or 0.0) / weights if weights > 0 else None,
            share=effect.turned / turned if turned > 0 else None,
        )
        if effect.part.lists
        else effect
        for effect in found
    ]


def parts(trace: Trace) -> list[Part]:
    """The parts that are on under the trace's config: its lists with a hit, then the switches that are not off already."""
    weights = {entry.list: entry.weight for row in trace.stage(FUSION).rows for entry in row.contributions}
    listed = {entry.name: entry for entry in trace.stage(LISTS).fields.lists if entry.active and entry.used}
    together: dict[str, list[str]] = {}
    for name, entry in listed.items():
        together.setdefault(entry.source if entry.variant is None else name, []).append(name)
    lists = [
        Part(
            names[0] if len(names) == 1 else source,
            LISTS.name,
            lists=tuple(names),
            weight=sum(weights.get(name, 0.0) for name in names),
        )
        for source, names in together.items()
    ]
    switches = [
        Part(switch.words, stage.name, switch.off)
        for stage in candidate_stages(trace.config)
        if stage is not LISTS  # whose lists are left out one by one
        for switch in stage.switches
        if not switch.is_off(trace.config) and not switch.idle(trace.stage(stage).fields)
    ]
    return lists + switches


def _without(evidence: Evidence, config: PipelineConfig, part: Part, switched_off: Collection[int]) -> Trace:
    for path, value in part.off.items():
        config = changed(config, path, value)
    return replay(evidence, config, switched_off=switched_off, lists_off=part.lists)


def _first(trace: Trace, k: int) -> list[str]:
    return [result.memory_id for result in trace.results[:k]]


def _effect(part: Part, now: Sequence[str], without: Sequence[str], helping: Collection[str]) -> Effect:
    ranks = {key: rank for rank, key in enumerate(now)}
    return Effect(
        part=part,
        tau=kendall(now, without),
        entered=tuple(key for key in without if key not in ranks),
        left=tuple(key for key in now if key not in without),
        moved=sum(ranks[key] != rank for rank, key in enumerate(without) if key in ranks),
        nominal=None,
        share=None,
        rank_now=_rank(now, helping),
        rank_without=_rank(without, helping),
    )


def _rank(results: Sequence[str], helping: Collection[str]) -> int | None:
    return next((rank for rank, key in enumerate(results, 1) if key in helping), None)


@dataclass(frozen=True, slots=True)
class VariantContribution:
    """Of one candidate: its share by variant (absent: the variant did not find it), and the rest."""

    memory_id: str
    by_variant: dict[int, float]
    decisive: int | None
    """If the method takes the largest contribution: the variant of its list."""
    other: float
    boost: float
    raw: float


def variant_contributions(trace: Trace) -> list[VariantContribution]:
    """The candidates that fusion kept, in its order; none of an external trace, whose contributions are not recorded."""
    if trace.external:
        return []
    variant = {listed.name: listed.variant for listed in trace.stage(LISTS).fields.lists}
    largest = trace.stage(FUSION).fields.combine == "max"
    return [_shares(row, variant, largest) for row in trace.stage(FUSION).rows if row.kept]


def _shares(row: FusionRow, variant: dict[str, int | None], largest: bool) -> VariantContribution:
    by_variant: dict[int, float] = {}
    other = row.best_rank_bonus + row.importance_bonus + row.importance_floor
    for entry in row.contributions:
        gave, which = entry.base + entry.bonus, variant[entry.list]
        if which is None:
            other += gave
        elif largest:
            by_variant[which] = max(gave, by_variant.get(which, gave))
        else:
            by_variant[which] = by_variant.get(which, 0.0) + gave
    top = max(row.contributions, key=lambda entry: entry.base + entry.bonus) if largest and row.contributions else None
    decisive = None if top is None else variant[top.list]
    return VariantContribution(row.memory_id, by_variant, decisive, other, row.boost_factor, row.raw)


LIST_ORDER = tuple(source.name for source in LIST_SOURCES if source.finds)
"""Sources whose lists find candidates."""


@dataclass(frozen=True, slots=True)
class VariantPart:
    """One variant: candidates in its lists, candidates that only it found, its share (0..1) of the results' fused score."""

    index: int
    text: str
    kind: VariantKind
    on: bool
    found: int
    alone: tuple[str, ...]
    share: float


@dataclass(frozen=True, slots=True)
class VariantToggle:
    """The results with one variant switched the other way: the memories that leave and enter, in their order.

    `unscored`: candidates that the reranker would have to score first; the results may change then.
    """

    index: int
    off: bool
    results: tuple[str, ...]
    left: tuple[str, ...]
    entered: tuple[str, ...]
    tau: float
    rbo: float
    unscored: int


def variant_parts(trace: Trace, switched_off: Collection[int] = ()) -> list[VariantPart]:
    """Every variant in order. `switched_off` as the trace was replayed with."""
    source = {listed.name: (listed.source, listed.variant) for listed in trace.stage(LISTS).fields.lists}
    finders: dict[str, set[int | None]] = {}
    for row in trace.stage(LISTS).rows:
        kept = {source[entry.list] for entry in row.lists if entry.kept}
        finders[row.memory_id] = {variant for name, variant in kept if name in LIST_ORDER}
    shares = _shares_without(trace)
    return [
        VariantPart(
            i,
            variant.text,
            variant.kind,
            i not in switched_off,
            sum(i in found for found in finders.values()),
            tuple(memory_id for memory_id, found in finders.items() if found == {i}),
            shares.get(i, 0.0),
        )
        for i, variant in enumerate(trace.evidence.variants)
    ]


def _shares_without(trace: Trace) -> dict[int, float]:
    """Share by variant of the fused raw scores of all results; empty if these are not positive."""
    shown = {row.memory_id for row in trace.results}
    every = [shares for shares in variant_contributions(trace) if shares.memory_id in shown]
    total = sum(shares.raw for shares in every)
    if total <= 0:
        return {}
    given: dict[int, float] = {}
    for shares in every:
        for variant, part in _terms(shares).items():
            given[variant] = given.get(variant, 0.0) + part * shares.boost
    return {variant: part / total for variant, part in given.items()}


def _terms(shares: VariantContribution) -> dict[int, float]:
    """The terms that make up the raw score: all of them, or the decisive one alone."""
    if shares.decisive is None:
        return shares.by_variant
    return {shares.decisive: shares.by_variant[shares.decisive]}


def leave_one_variant_out(trace: Trace, switched_off: Collection[int] = ()) -> list[VariantToggle]:
    """One replay per variant: without it, or, if it is switched off, with it."""
    off, before = frozenset(switched_off), [row.memory_id for row in trace.results]
    found = []
    for i in range(len(trace.evidence.variants)):
        other = replay(trace.evidence, trace.config, switched_off=off ^ {i})
        after = [row.memory_id for row in other.results]
        left = tuple(key for key in before if key not in set(after))
        entered = tuple(key for key in after if key not in set(before))
        unscored = sum(len(need.memory_ids) for need in other.stage_needs)
        tau, overlap = kendall(before, after), rbo(before, after)
        found.append(VariantToggle(i, i not in off, tuple(after), left, entered, tau, overlap, unscored))
    return found


FITS = 0.99
"""R² on the queries that the weights were not fitted on."""
FEW_QUERIES = 6
SMALL = 0.1
"""A share below this is named."""
FIRST = 10
MAX_QUERIES = 500
"""Queries that are kept."""


OTHER_SCALE = 2.0
"""A weight that is so many times the share that it gives, of scores as they are, says that the lists have different scales."""
RAW = "scores as they are"


def _low(scores: Floats) -> Floats:
    low: Floats = np.fmin.reduce(scores, axis=0)
    return low


def _span(scores: Floats) -> Floats:
    span: Floats = np.fmax.reduce(scores, axis=0) - _low(scores)
    return span


SCALES: Mapping[str, Callable[[Floats, Floats], Floats]] = {
    RAW: lambda scores, ranks: scores,
    "scores from 0 to 1": lambda scores, ranks: (
        (scores - _low(scores)) / np.where(_span(scores) > 0, _span(scores), 1.0)
    ),
    "scores by the highest": lambda scores, ranks: scores / np.fmax.reduce(np.abs(scores), axis=0),
    "1 / (60 + rank)": lambda scores, ranks: 1 / (60 + ranks),
}
"""(N, L) what is added, from scores and ranks that are NaN where a list has not the candidate."""


@dataclass
class FusionShares:
    """One fusion over the queries of a set."""

    names: tuple[str, ...] = ()
    scores: list[Floats] = field(default_factory=list)
    ranks: list[Floats] = field(default_factory=list)
    fused: list[Floats] = field(default_factory=list)
    """Of each query (N, L) scores and ranks in the lists, NaN where not in one, and (N) scores of the fusion, in its order."""
    gains: list[list[float]] = field(default_factory=list)
    """Of each judged query the nDCG of each list."""

    def add(self, lists: Mapping[str, Mapping[int, tuple[int, float | None]]], fused: Ints, scores: Floats) -> None:
        """One query: by list and column rank and score, and the columns that the fusion returned, best first, with their scores.

        Queries in which a list did not run, or the fusion returned less than two, are left out.
        """
        self.names = self.names or tuple(lists)
        if tuple(lists) != self.names or len(lists) < 2 or len(fused) < 2 or len(self.fused) == MAX_QUERIES:
            return
        of = [[one.get(c, (None, None)) for one in lists.values()] for c in fused.tolist()]
        self.ranks.append(np.array([[rank for rank, _ in row] for row in of], dtype=float))
        self.scores.append(np.array([[score for _, score in row] for row in of], dtype=float))
        self.fused.append(scores)

    def _fit(self) -> tuple[str, Floats, Floats] | None:
        """Scale, and of the lists weights and what their scaled scores differ by in a query; None if no combination gives the scores."""
        target = np.concatenate(self.fused)
        if np.isnan(target).any():
            return None
        query = np.repeat(np.arange(len(self.fused)), [len(one) for one in self.fused])
        odd = query % 2 == 1
        spread = float(np.square(target[odd] - target[odd].mean()).sum())
        best: tuple[float, str, Floats, Floats] | None = None
        for scale, scaled in SCALES.items():
            with np.errstate(all="ignore"):
                parts = [scaled(*one) for one in zip(self.scores, self.ranks, strict=True)]
                if any((np.isnan(part) & ~np.isnan(rank)).any() for part, rank in zip(parts, self.ranks, strict=True)):
                    continue
                known = np.nan_to_num(np.concatenate(parts))
                half = np.linalg.lstsq(known[~odd], target[~odd])[0]
                fits = 1 - float(np.square(target[odd] - known[odd] @ half).sum()) / max(spread, 1e-300)
                # Of all queries, so that their order changes no weight.
                weights: Floats = np.asarray(np.linalg.lstsq(known, target)[0], dtype=float)
                ranges: Floats = np.nan_to_num([_span(part) for part in parts]).mean(axis=0)
            if fits >= FITS and (best is None or fits > best[0]):
                best = fits, scale, weights, ranges
        return best and best[1:]

    def _agreement(self) -> list[int]:
        """Of each list in how many queries its first are those of the fusion."""
        return [
            sum(int(np.isfinite(rank[:, i]).sum() >= FIRST and rank[:FIRST, i].max() <= FIRST) for rank in self.ranks)
            for i in range(len(self.names))
        ]

    def words(self) -> str:
        """Which list has next to nothing of the score, or which the first results are of; empty if neither, or if judgments say that
        the list that counts ranks better."""
        count = len(self.fused)
        if count < FEW_QUERIES:
            return ""
        same, fitted = self._agreement(), self._fit()
        leading = int(np.argmax(same))
        follows = f"follows {self.names[leading]}: the same first {FIRST} in {same[leading]} of {count} queries"
        if sorted(same)[-2] * 2 > count or same[leading] < 0.8 * count:
            follows = ""
        if fitted is not None:
            scale, weights, ranges = fitted
            shares = np.abs(weights) * ranges / max(float(np.abs(weights) @ ranges), 1e-300)
            least, most = int(np.argmin(shares)), int(np.argmax(shares))
            stated = abs(float(weights[least])) / max(float(np.abs(weights).sum()), 1e-300)
            apart = scale == RAW and stated >= OTHER_SCALE * shares[least]
            if apart or shares[least] < min(SMALL, 0.5 / len(shares)):
                if apart:
                    by = [
                        f"{self.names[most]} differ by {ranges[most]:.2g}",
                        f"{self.names[least]} by {ranges[least]:.2g}",
                    ]
                    scale += f", on different scales: in a query those of {', of '.join(by)}"
                total = " + ".join(f"{weight:.2g} × {name}" for weight, name in zip(weights, self.names, strict=True))
                judged = self._judged(least, most)
                share = f"{self.names[least]} has {100 * shares[least]:.0f} % of the score"
                return "" if judged is None else f"{total} ({scale}): {share}{judged}"
        if not follows:
            return ""
        judged = self._judged(int(np.argmin(same)), leading)
        return "" if judged is None else f"{follows}{judged}"

    def _judged(self, least: int, most: int) -> str | None:
        """What judgments say for the list that counts little; None if they say that it ranks worse."""
        if not self.gains:
            return ""
        means = np.mean(self.gains, axis=0)
        if means[least] < means[most]:
            return None
        named: Sequence[str] = [f"{self.names[i]} {means[i]:.4f}" for i in (least, most)]
        return f", and ranks the judged memories as well: nDCG@{FIRST} of {', of '.join(named)}"
