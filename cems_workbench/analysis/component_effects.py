"""Component effects: how much each part of the pipeline moved the ranking of one query, next to its nominal weight.

Leave-one-out: one part is switched off, the query is replayed, and the results are compared with the present ones.

    tau     Kendall's tau of the two result lists (Fagin et al. 2003, p = 1/2): a memory that only one list has ranks below all
            that the other one has; a pair that only one list knows, and in no order in the other, counts half
    turned  (1 - tau) / 2: the share of pairs that change their order, 0 for the same results, 1 for the reverse
    share   of a list: its turned over the sum over all lists; nominal: list weight * variant weight over their sum

Overlapping parts (two lists that agree) each have a small effect: without one, the other still finds the same memories.

Source: leave-one-out ablation; docs/internals/specification.md, "fusion" to "assembly".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cems_workbench.analysis.ranks import kendall
from cems_workbench.analysis.why.trial import changed
from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.replay import Trace
from cems_workbench.pipeline.stages import candidate_stages
from cems_workbench.pipeline.stages.fusion import FUSION
from cems_workbench.pipeline.stages.lists import LISTS

NO_LIMIT_K = 10
"""Number of results compared if the config has no limit."""


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
    k = config.assembly.limit or NO_LIMIT_K
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
