"""The reranker a config asks for, and what takes its place when it cannot be had.

A cross-encoder whose weights are nowhere to be found gives way to late interaction, which needs only the embedder, and the
trace says so. A server that does not answer is not replaced: its candidates are flagged, one by one.
"""

from __future__ import annotations

from cems_workbench.config.ranking import RerankConfig
from cems_workbench.errors import ModelError
from cems_workbench.models.cross_encoder import CrossEncoderReranker
from cems_workbench.models.protocol import PairScorer
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent


def reranker(config: RerankConfig, resources: Resources, progress: Progress = silent) -> tuple[PairScorer, str | None]:
    """The scorer, and a line to show when it is not the one that was asked for. Raises ModelError when there is none."""
    if config.backend == "late_interaction":
        return _late_interaction(config, resources, progress), None
    if config.backend == "cross_encoder":
        asked = config.model or resources.servers.cross_encoder
        try:
            return resources.shared(("cross_encoder", asked), lambda: CrossEncoderReranker(asked)), None
        except ModelError as error:
            scorer = resources.late_interaction(progress)
            return scorer, f"{error}; {scorer.label} takes its place"
    raise ModelError(f"rerank.backend {config.backend} is not available in this version")


def _late_interaction(config: RerankConfig, resources: Resources, progress: Progress) -> PairScorer:
    if config.model not in (None, resources.embedder.model_id):
        raise ModelError(
            f"rerank.model {config.model}: late interaction reads the token vectors of the embedder, "
            f"{resources.embedder.model_id}; leave the model empty"
        )
    return resources.late_interaction(progress)
