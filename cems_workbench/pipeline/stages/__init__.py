"""The stages in pipeline order, one module per stage: texts, formula, function, switches, record."""

from collections.abc import Mapping

from cems_workbench.config import PipelineConfig
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
from cems_workbench.pipeline.stages.recorded import recorded_stages
from cems_workbench.pipeline.stages.rerank import RERANK
from cems_workbench.pipeline.stages.stage import AnyStage
from cems_workbench.pipeline.stages.supersession import SUPERSESSION
from cems_workbench.pipeline.stages.threshold import THRESHOLD
from cems_workbench.pipeline.table import CandidateTable

STAGES: tuple[AnyStage, ...] = (
    QUERY,
    EXPANSION,
    LISTS,
    THRESHOLD,
    FUSION,
    FILTER,
    RERANK,
    ADJUST,
    SUPERSESSION,
    GAP,
    DEDUP,
    ABSTAIN,
    ASSEMBLY,
    JUDGE,
)
"""The stages of every trace, and their only list: a stage added here is run, drawn, described and ablated.

They are in the order of most configs; `stages_in_order` has that of a given one.
"""

BY_NAME: Mapping[str, AnyStage] = {stage.name: stage for stage in STAGES}

RANKING_STAGES = tuple(stage for stage in STAGES if stage.works_on == "ranking")
"""Stages after which candidates have a rank; the ranks after the last are those of the results."""

CANDIDATE_STAGES = tuple(stage for stage in STAGES if stage.works_on in ("lists", "ranking"))
"""Stages that can drop a memory."""


def _rerank_after_dedup() -> tuple[AnyStage, ...]:
    # Supersession follows the reranker, which would undo what it did.
    others = [stage for stage in STAGES if stage not in (RERANK, SUPERSESSION)]
    place = others.index(DEDUP) + 1
    return (*others[:place], RERANK, SUPERSESSION, *others[place:])


_ORDERS: Mapping[str, tuple[AnyStage, ...]] = {"before_adjust": STAGES, "returned": _rerank_after_dedup()}


def stages_in_order(config: PipelineConfig) -> tuple[AnyStage, ...]:
    """All stages in the order in which they run under a config: `rerank.position` moves two, if the reranker is on."""
    return STAGES if config.rerank.backend == "none" else _ORDERS[config.rerank.position]


def stages_of(table: CandidateTable, config: PipelineConfig) -> tuple[AnyStage, ...]:
    """The stages of these queries, and the only place that decides them: the recorded ones of external traces, else
    those of the config. A run and a trace have them as `stages`; what goes through stages reads them there."""
    return stages_in_order(config) if table.recorded is None else recorded_stages(table.recorded.heads)


def ranking_stages(config: PipelineConfig) -> tuple[AnyStage, ...]:
    """`RANKING_STAGES` in the order of a config."""
    return tuple(stage for stage in stages_in_order(config) if stage.works_on == "ranking")


def candidate_stages(config: PipelineConfig) -> tuple[AnyStage, ...]:
    """`CANDIDATE_STAGES` in the order of a config."""
    return tuple(stage for stage in stages_in_order(config) if stage.works_on in ("lists", "ranking"))
