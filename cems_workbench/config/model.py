"""`PipelineConfig`: the whole pipeline as one frozen, hashable, validated value.

Field order and defaults are those of PIPELINE.md; a missing key takes the default. Everything that shows or maps
parameters (sliders, CLI help, docs table, exports) derives from this model through `field_specs`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from pydantic import Field

from cems_workbench.config.adjusting import AdjustConfig, AssemblyConfig, DedupConfig, GapConfig, JudgeConfig
from cems_workbench.config.fields import FieldSpec, Section, specs
from cems_workbench.config.gathering import ListsConfig, VariantWeights
from cems_workbench.config.ranking import FilterConfig, FusionConfig, RerankConfig, ThresholdConfig
from cems_workbench.config.understanding import ExpansionConfig, QueryConfig


class PipelineConfig(Section):
    """Every parameter of the pipeline. Equal configs hash equal; sections are named after the stages."""

    version: Literal[1] = 1
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
    gap: GapConfig = GapConfig()
    dedup: DedupConfig = DedupConfig()
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


@cache
def field_specs() -> tuple[FieldSpec, ...]:
    """Every parameter of `PipelineConfig` with its metadata, in the order of PIPELINE.md."""
    return tuple(specs(PipelineConfig))


@cache
def field_spec(path: str) -> FieldSpec:
    """The metadata of one parameter; KeyError when there is none at this path."""
    return {spec.path: spec for spec in field_specs()}[path]
