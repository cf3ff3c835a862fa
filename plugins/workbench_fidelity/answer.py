"""Comparison of a production system's answer with the trace of one query, and where the two diverge.

    overlap   memories in common of the first n, n the length of what production returned
    tau, rbo  of production's order and ours cut to n (`why.trial`)

Order up to ties: a recorded order, where results with equal recorded scores may come in any order.

    groups     neighbours of the recorded order with equal recorded scores; a result without a score is a group alone
    at the cut a result of ours that the recording lacks counts as one that it has, if the two have equal scores before the last cut:
               which of them got in was chance; their places among results of other scores do not count

Engines leave equal scores in the order of a heap, a hash map or a hash seed, which may differ from call to call. The scores before the
last cut are those of the recording, where it has them for both, else ours for both: a score of ours that equals a recorded one is no
tie, since every list gives its tenth the same share.

Divergence of a trace from a recorded answer: the first stage that cannot be right.

The two diverge at a stage if it drops a recorded result, or if it is the first after which the recorded results among ours are in
another order up to the end: an order that a later stage corrects does not count. A result of ours that is not in the recording was
dropped in the real system by an unknown stage; it is reported only if there is no other divergence.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cems_workbench.analysis.ranks import RESULTS, dropped, kendall, lists_in_use, loss, ranked_stages, ranks_in, rbo
from cems_workbench.jobs.recorded_answers import Production
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.stages import LISTS, stages_in_order


def equal(one: float, other: float, tolerance: float) -> bool:
    """Do two scores differ by no more than the tolerance?"""
    return abs(one - other) <= tolerance


def tied_groups(order: Sequence[str], scores: Mapping[str, float], tolerance: float = 0.0) -> Iterator[list[str]]:
    """The order as runs of neighbours whose scores are equal to within the tolerance."""
    group: list[str] = []
    for key in order:
        known = group and key in scores and group[0] in scores
        if group and not (known and equal(scores[key], scores[group[0]], tolerance)):
            yield group
            group = []
        group.append(key)
    if group:
        yield group


def same_up_to_ties(
    recorded: Sequence[str],
    ours: Sequence[str],
    scores: Mapping[str, float],
    before_cut: Mapping[str, float],
    our_scores: Mapping[str, float],
    tolerance: float,
) -> bool:
    """Is ours the recorded order, if results with equal scores may be exchanged? `scores` are those of the recorded
    results, `before_cut` and `our_scores` those of memories before the last cut, recorded and ours."""
    missing = [key for key in recorded if key not in set(ours)]
    extra = [key for key in ours if key not in set(recorded)]
    known = dict(scores) | dict(before_cut)
    if not all(key in known for key in extra):
        known = dict(our_scores)
    lost, gained = ([known.get(key, math.nan) for key in keys] for keys in (missing, extra))
    pairs = zip(sorted(lost), sorted(gained), strict=False)
    if len(lost) != len(gained) or not all(equal(one, other, tolerance) for one, other in pairs):
        return False
    kept = [key for key in recorded if key not in set(missing)]
    own = iter(key for key in ours if key not in set(extra))
    groups = tied_groups(kept, scores, tolerance)
    return all(Counter(group) == Counter(next(own, None) for _ in group) for group in groups)


How = Literal["lost", "order", "extra"]


@dataclass(frozen=True, slots=True)
class Divergence:
    """The stage of the divergence, the memory that shows it, and how: it is lost, has another rank, or is only in our results."""

    stage: str
    memory_id: str
    how: How
    reason: str


def first_divergence(trace: Trace, recorded: Sequence[str], ours: Sequence[str] | None = None) -> Divergence | None:
    """The first stage after which the recorded results can no longer be reproduced; None if they are. `ours` are our
    results cut to the recorded length; by default all results of the trace."""
    results = list(trace.ranks if ours is None else ours)
    if list(recorded) == results:
        return None
    found = [*_lost(trace, recorded, results), *_reordered(trace, recorded, results)]
    if found:
        place = {stage.name: number for number, stage in enumerate(stages_in_order(trace.config))}
        # Of one stage: a loss before an order, the best ranked first.
        return min(found, key=lambda one: place[one.stage])
    extra = next(key for key in results if key not in set(recorded))
    return Divergence(RESULTS, extra, "extra", "we return it; the recording does not")


def _lost(trace: Trace, recorded: Sequence[str], results: Sequence[str]) -> list[Divergence]:
    """The recorded memories that are not in our results, each with the stage that dropped it."""
    partings = []
    for memory_id in (key for key in recorded if key not in results):
        if (end := dropped(trace, memory_id)) is not None:
            stage, reason = end.stage, end.reason
        elif memory_id not in trace.stage(LISTS).by_id:
            stage, reason = LISTS.name, "no list returned it"
        else:  # it is a result past the cut
            stage, reason = RESULTS, "it stands further down"
        partings.append(Divergence(stage, memory_id, "lost", reason))
    return partings


def _reordered(trace: Trace, recorded: Sequence[str], results: Sequence[str]) -> list[Divergence]:
    """The first stage from which the common memories stay in another order; None if the final order is the same."""
    common = [memory_id for memory_id in recorded if memory_id in results]
    wrong: Divergence | None = None
    for stage in reversed(ranked_stages(trace)):
        ranks = ranks_in(trace, stage)
        order = sorted((key for key in common if key in ranks), key=lambda key: ranks[key][0])
        first = next((theirs for theirs, own in zip(common, order, strict=False) if theirs != own), None)
        if first is None:
            break
        before = order[common.index(first)]
        reason = f"{before} stands before it; there it stands before {before}"
        wrong = Divergence(stage, first, "order", reason)
    return [wrong] if wrong is not None else []


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of the first `depth`: memories in common, Kendall's tau, rank-biased overlap. `first` is what was cut away beyond."""

    depth: int
    shared: int
    tau: float
    rbo: float

    @property
    def nearness(self) -> float:
        """Closeness of the two rankings, as used by the search for an explanation."""
        return self.rbo


@dataclass(frozen=True, slots=True)
class Placement:
    """A memory of production's answer or of our results: its rank in each, and where our trace lost it, if it did."""

    memory_id: str
    production: int | None
    ours: int | None
    lost_at: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StageSimilarity:
    """Similarity of the order of a list or stage to production's; `shared` of production's memories are in it. `tau` is
    over those, None with fewer than two."""

    name: str
    stage: bool
    shared: int
    tau: float | None
    rbo: float


def agreement(production: Sequence[str], ours: Sequence[str]) -> Agreement:
    """Agreement of our order with production's, both cut to production's length."""
    depth = len(production)
    cut = ours[:depth]
    return Agreement(depth, len(set(production) & set(cut)), kendall(production, cut), rbo(production, cut))


def overlap_at(production: Sequence[str], ours: Sequence[str], depths: Iterable[int]) -> dict[int, int]:
    """Memories in common of the first k, for each k that either order reaches."""
    longest = max(len(production), len(ours))
    return {k: len(set(production[:k]) & set(ours[:k])) for k in depths if k <= longest}


def placements(production: Production, trace: Trace, k: int | None = None) -> list[Placement]:
    """Every memory of production's answer in its order, then those of our results that it lacks; `k` is the target rank of `loss`."""
    ours = trace.ranks
    rows = []
    for memory_id in production.order:
        lost = loss(trace, memory_id, k)
        stage, reason = (lost.stage, lost.reason) if lost else (None, "")
        if memory_id not in ours and lost is None:
            stage, reason = "lists", "no list returned it"
        rows.append(Placement(memory_id, production.ranks[memory_id], ours.get(memory_id), stage, reason))
    return rows + [Placement(key, None, rank) for key, rank in ours.items() if key not in production.ranks]


def stage_similarities(production: Sequence[str], trace: Trace) -> list[StageSimilarity]:
    """Every list that takes part and every stage that ranks, in the order of the pipeline."""
    names = [(name, False) for name in lists_in_use(trace)] + [(name, True) for name in ranked_stages(trace)]
    found = []
    for name, stage in names:
        order = sorted(ranks_in(trace, name).items(), key=lambda item: item[1][0])
        ids = [memory_id for memory_id, _ in order]
        inside = set(ids) & set(production)
        both = ([key for key in ranked if key in inside] for ranked in (production, ids))
        tau = kendall(*both) if len(inside) > 1 else None
        found.append(StageSimilarity(name, stage, len(inside), tau, rbo(production, ids[: len(production)])))
    return found


def most_similar(found: Collection[StageSimilarity]) -> StageSimilarity | None:
    """The list or stage that is most similar to production; of equal ones the last stage, because it includes the earlier ones."""

    def key(one: StageSimilarity) -> tuple[float, float, bool, bool]:
        return round(one.rbo, 9), -2.0 if one.tau is None else one.tau, one.stage, one.name == RESULTS

    return max(found, key=key, default=None)


def half_unit(scores: Iterable[float]) -> float:
    """Half a unit of the last digit that any of the scores has."""
    digits = 0
    for score in scores:
        mantissa, _, exponent = f"{score!r}".partition("e")
        digits = max(digits, len(mantissa.partition(".")[2]) - int(exponent or 0))
    return float(0.5 * 10.0**-digits)
