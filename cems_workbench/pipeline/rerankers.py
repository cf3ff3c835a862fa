"""The model that scores pairs for a config, and what takes its place when it cannot be had.

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
    return scorer(config.backend, config.model, config, resources, progress)


def scorer(
    backend: str, model: str | None, config: RerankConfig, resources: Resources, progress: Progress = silent
) -> tuple[PairScorer, str | None]:
    """As `reranker`, for any backend and model; instruction, timeout and concurrency of servers are those of `config`."""
    if backend == "late_interaction":
        return _late_interaction(model, resources, progress), None
    if backend == "cross_encoder":
        asked = model or resources.servers.cross_encoder
        try:
            return resources.shared(("cross_encoder", asked), lambda: CrossEncoderReranker(asked)), None
        except ModelError as error:
            instead = resources.late_interaction(progress)
            return instead, f"{error}; {instead.label} takes its place"
    raise ModelError(f"the backend {backend} is not available in this version")


def _late_interaction(model: str | None, resources: Resources, progress: Progress) -> PairScorer:
    if model not in (None, resources.embedder.model_id):
        raise ModelError(
            f"model {model}: late interaction reads the token vectors of the embedder, {resources.embedder.model_id}; "
            "leave the model empty"
        )
    return resources.late_interaction(progress)
