"""`PipelineConfig`: the whole pipeline as one frozen, hashable, validated value.

Field order and defaults are those of docs/internals/specification.md; a missing key takes the default. Everything that shows or maps
parameters (sliders, CLI help, docs table, exports) derives from this model through `field_specs`.

`list_depths`: the depth of each list, which ACE's first stage and the memory agent's oversampling may raise.

    depth = max(depth, first_stage_factor * its own first_stage_factor * limit)     if the product of the factors is above 1
    depth = max(depth, ceil(oversample_factor * limit))                             if it is above 1; not ts_rank and added lists

Gather fetches this much and replay cuts to it, so that both mean the same list. `candidate_set_size` grows in the same way.

Source: ACE stage 1; memory agent RERANKER_OVERSAMPLE; docs/reference/parameters.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal, cast

from pydantic import BaseModel, Field

from cems_workbench.config.fields import FieldSpec, Section, specs
from cems_workbench.config.sections import (
    ADDED_LISTS,
    AbstainConfig,
    AdjustConfig,
    AssemblyConfig,
    DedupConfig,
    ExpansionConfig,
    FilterConfig,
    FusionConfig,
    GapConfig,
    JudgeConfig,
    ListsConfig,
    QueryConfig,
    RerankConfig,
    SupersessionConfig,
    ThresholdConfig,
    VariantWeights,
)

VERSION: Literal[2] = 2
"""Of the config files that are written."""


class PipelineConfig(Section):
    """Every parameter of the pipeline. Equal configs hash equal; sections are named after the stages."""

    version: Literal[2] = VERSION
    name: str = Field("cems", min_length=1)
    query: QueryConfig = QueryConfig()
    expansion: ExpansionConfig = ExpansionConfig()
    lists: ListsConfig = ListsConfig()
    variants: VariantWeights = VariantWeights()
    threshold: ThresholdConfig = ThresholdConfig()
    fusion: FusionConfig = FusionConfig()
    filter: FilterConfig = FilterConfig()
    rerank: RerankConfig = RerankConfig()
    adjust: AdjustConfig = AdjustConfig()
    supersession: SupersessionConfig = SupersessionConfig()
    gap: GapConfig = GapConfig()
    dedup: DedupConfig = DedupConfig()
    abstain: AbstainConfig = AbstainConfig()
    assembly: AssemblyConfig = AssemblyConfig()
    judge: JudgeConfig = JudgeConfig()

    def get(self, path: str) -> Any:
        """The value at a dotted path such as `fusion.top_rank_bonus.rank1`; KeyError when there is none."""
        value: Any = self
        for segment in path.split("."):
            name = attribute_name(segment)
            if not isinstance(value, Section) or name not in type(value).model_fields:
                raise KeyError(path)
            value = getattr(value, name)
        return value


def attribute_name(key: str) -> str:
    """The attribute behind a YAML key (`validate` would shadow a pydantic method)."""
    return "validate_" if key == "validate" else key


def changed(config: PipelineConfig, path: str, value: Any) -> PipelineConfig:
    """A copy with one value replaced, without validation: callers pass thousands of valid values."""
    return cast(PipelineConfig, _changed(config, path.split("."), value))


def _changed(section: Section, segments: Sequence[str], value: Any) -> Section:
    name = attribute_name(segments[0])
    new = value if len(segments) == 1 else _changed(getattr(section, name), segments[1:], value)
    return section.model_copy(update={name: new})


@cache
def field_specs() -> tuple[FieldSpec, ...]:
    """Every parameter of `PipelineConfig` with its metadata, in the order of docs/internals/specification.md."""
    return tuple(specs(PipelineConfig))


@cache
def field_spec(path: str) -> FieldSpec:
    """The metadata of one parameter; KeyError when there is none at this path."""
    return {spec.path: spec for spec in field_specs()}[path]


DEEP_LISTS = tuple(
    name
    for name, info in ListsConfig.model_fields.items()
    if isinstance(info.annotation, type)
    and issubclass(info.annotation, BaseModel)
    and {"depth", "first_stage_factor"} <= info.annotation.model_fields.keys()
)
"""The lists that the first stage may deepen: all that have a depth but the hybrid, which replay cuts where it is made."""
_NOT_OVERSAMPLED = frozenset({"ts_rank", "source_hybrid", *ADDED_LISTS})


def list_depths(config: PipelineConfig) -> dict[str, int | None]:
    """Depth, in memories, of each of `DEEP_LISTS`; None is no limit."""
    lists, limit, oversample = config.lists, config.assembly.limit or 0, config.rerank.oversample_factor
    depths: dict[str, int | None] = {}
    for source in DEEP_LISTS:
        section = getattr(lists, source)
        depth = section.depth
        if depth is not None:
            factor = lists.first_stage_factor * section.first_stage_factor
            if factor > 1:
                depth = max(depth, factor * limit)
            if oversample > 1 and source not in _NOT_OVERSAMPLED:
                depth = max(depth, math.ceil(oversample * limit))
        depths[source] = depth
    return depths


def depth_paths(source: str) -> tuple[str, ...]:
    """What `list_depths` reads for a list."""
    own = f"lists.{source}"
    return (
        "lists.first_stage_factor",
        f"{own}.depth",
        f"{own}.first_stage_factor",
        "assembly.limit",
        "rerank.oversample_factor",
    )


def asks_source(config: PipelineConfig) -> bool:
    """Whether a gather asks the running system that the memories are from."""
    return config.lists.answered_by == "source" or config.lists.source_hybrid.enabled


def candidate_set_size(config: PipelineConfig) -> int:
    """Newest memories in the candidate set: max(size, size_factor * limit)."""
    chosen = config.lists.candidate_set
    return max(chosen.size, chosen.size_factor * (config.assembly.limit or 0))


def depth_notes(config: PipelineConfig) -> list[str]:
    """One line per list that goes deeper than its own depth says, and why."""
    limit, oversample = config.assembly.limit or 0, config.rerank.oversample_factor
    first_stage = config.lists.first_stage_factor
    notes = []
    for source, depth in list_depths(config).items():
        section = getattr(config.lists, source)
        if not section.enabled or depth is None or depth == section.depth:
            continue
        grown = oversample > 1 and source not in _NOT_OVERSAMPLED and depth == math.ceil(oversample * limit)
        why = (
            f"oversample {oversample:g} × limit {limit}"
            if grown
            else f"first-stage factor {first_stage} × {section.first_stage_factor} of the list × limit {limit}"
        )
        notes.append(f"{source} goes {depth} deep: {why}, more than the {section.depth} set")
    return notes
