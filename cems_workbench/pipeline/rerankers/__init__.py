"""Rerankers: models that score (query, text) pairs, and their fallbacks.

A reranker is a module here that declares `RERANKER = Reranker(...)` and has its name in `rerank.backend`, or an entry point of another
package in the group `cems_workbench.rerankers`. They are discovered: the config reads the names of modules and entry points, RERANKERS
loads them.

A cross-encoder whose weights are missing or do not load falls back to the packaged one, workbench/minilm-judge, and that, in a checkout
without it, to late interaction; the trace gives the reason. A server has no fallback: its failed candidates are flagged one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cems_workbench import extensions
from cems_workbench.config.sections import RerankConfig
from cems_workbench.errors import ModelError
from cems_workbench.models.protocol import PairScorer
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent

Result = TypeVar("Result")
MakeScorer = Callable[[], PairScorer]


@dataclass(frozen=True, slots=True)
class ScorerRequest:
    """Request for a scorer: the model, None for the backend's default, and the resources to make it of. Instruction,
    timeout and concurrency of servers are in `config`."""

    model: str | None
    config: RerankConfig
    resources: Resources
    progress: Progress = silent


def _nothing_else(request: ScorerRequest) -> Sequence[MakeScorer]:
    return ()


@dataclass(frozen=True, slots=True)
class Reranker:
    """A backend that scores (query, text) pairs. `make` returns its scorer, which may load its weights at the first
    use, and raises ModelError if there is none. `instead` returns the fallbacks, best first; none by default.
    `description` is one line for documents."""

    name: str
    description: str
    make: Callable[[ScorerRequest], PairScorer]
    instead: Callable[[ScorerRequest], Sequence[MakeScorer]] = _nothing_else


RERANKERS = extensions.Registry(extensions.RERANKERS, Reranker, "cems_workbench.pipeline.rerankers", "RERANKER")
"""Every reranker by its name in `rerank.backend`."""


def score_with(
    backend: str, request: ScorerRequest, use: Callable[[PairScorer], Result]
) -> tuple[PairScorer, str | None, Result]:
    """The scorer, a line to show if it is a fallback, and the result of `use`; the next fallback if `use` raises
    ModelError. Weights load at the first use, so that only then a failure shows. Raises ModelError with every
    reason."""
    if backend not in RERANKERS:
        raise ModelError(f"rerank.backend: {backend} is not here; `doctor` says why")
    reranker = RERANKERS[backend]
    reasons: list[str] = []
    with RERANKERS.guarded(backend, ModelError):
        for make in (lambda: reranker.make(request), *reranker.instead(request)):
            try:
                made = make()
                result = use(made)
            except ModelError as error:
                reasons.append(str(error))
                continue
            return made, f"{'; '.join(reasons)}; {made.label} takes its place" if reasons else None, result
    raise ModelError("; ".join(reasons))
