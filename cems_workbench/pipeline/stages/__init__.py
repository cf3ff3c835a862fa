"""The stages in pipeline order, one module per stage: texts, formula, function, switches, record."""

from collections.abc import Mapping

from cems_workbench.pipeline.stages.abstain import ABSTAIN
from cems_workbench.pipeline.stages.adjust import ADJUST
from cems_workbench.pipeline.stages.assembly import ASSEMBLY
from cems_workbench.pipeline.stages.dedup import DEDUP
from cems_workbench.pipeline.stages.expansion import EXPANSION
from cems_workbench.pipeline.stages.filter import FILTER
from cems_workbench.pipeline.stages.fusion import FUSION
from cems_workbench.pipeline.stages.gap import GAP
from cems_workbench.pipeline.stages.judge import JUDGE
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.pipeline.stages.query import QUERY
from cems_workbench.pipeline.stages.rerank import RERANK
from cems_workbench.pipeline.stages.stage import AnyStage
from cems_workbench.pipeline.stages.threshold import THRESHOLD

__all__ = [
    "ABSTAIN",
    "ADJUST",
    "ASSEMBLY",
    "BY_NAME",
    "CANDIDATE_STAGES",
    "DEDUP",
    "EXPANSION",
    "FILTER",
    "FUSION",
    "GAP",
    "JUDGE",
    "LISTS",
    "QUERY",
    "RANKING_STAGES",
    "RERANK",
    "STAGES",
    "THRESHOLD",
]

STAGES: tuple[AnyStage, ...] = (
    QUERY,
    EXPANSION,
    LISTS,
    THRESHOLD,
    FUSION,
    FILTER,
    RERANK,
    ADJUST,
    GAP,
    DEDUP,
    ABSTAIN,
    ASSEMBLY,
    JUDGE,
)
"""The stages of every trace, and their only list: a stage added here is run, drawn, described and ablated."""

BY_NAME: Mapping[str, AnyStage] = {stage.name: stage for stage in STAGES}

RANKING_STAGES = tuple(stage for stage in STAGES if stage.works_on == "ranking")
"""Stages after which candidates have a rank; the ranks after the last are those of the results."""

CANDIDATE_STAGES = tuple(stage for stage in STAGES if stage.works_on in ("lists", "ranking"))
"""Stages that can drop a memory."""
