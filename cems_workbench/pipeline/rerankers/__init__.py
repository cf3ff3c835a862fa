"""Which model scores pairs for a config, and what takes its place when it cannot be had.

A reranker is a module here that declares `RERANKER = Reranker(...)` and is called as `rerank.backend` calls it, or an entry point of
another package in the group `cems_workbench.rerankers`. Nothing lists them: the config takes the names of the modules and the entry
points, and RERANKERS finds them.

A cross-encoder whose weights are nowhere to be found, or do not load, gives way to the packaged one, workbench/minilm-judge, and
that to late interaction in a checkout without it; the trace says so, and why. A server that does not answer is not replaced: its
candidates are flagged, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cems_workbench import extensions
from cems_workbench.config.sections.ranking import RerankConfig
from cems_workbench.errors import ModelError
from cems_workbench.models.protocol import PairScorer
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent

Result = TypeVar("Result")
MakeScorer = Callable[[], PairScorer]


@dataclass(frozen=True, slots=True)
class ScorerRequest:
    """What a scorer is asked for: the model that is named, None for the backend's own, and what there is to make it of.

    Instruction, timeout and concurrency of servers are those of `config`.
    """

    model: str | None
    config: RerankConfig
    resources: Resources
    progress: Progress = silent


def _nothing_else(request: ScorerRequest) -> Sequence[MakeScorer]:
    return ()


@dataclass(frozen=True, slots=True)
class Reranker:
    """A backend that scores (query, text) pairs.

    `make` gives its scorer, which may load its weights when it first scores, and raises ModelError when there is none. `instead` gives
    what takes its place when it cannot be had, best first; nothing does unless it says so. `description` is one line for documents.
    """

    name: str
    description: str
    make: Callable[[ScorerRequest], PairScorer]
    instead: Callable[[ScorerRequest], Sequence[MakeScorer]] = _nothing_else


RERANKERS = extensions.Registry(extensions.RERANKERS, Reranker, "cems_workbench.pipeline.rerankers", "RERANKER")
"""Every reranker by the name that `rerank.backend` calls it."""


def scorer(backend: str, request: ScorerRequest) -> tuple[PairScorer, str | None]:
    """The scorer, and a line to show when it is not the one that was asked for; it may still fail to load when it scores.

    Raises ModelError when there is none.
    """
    made, line, _ = score_with(backend, request, lambda made: made)
    return made, line


def score_with(
    backend: str, request: ScorerRequest, use: Callable[[PairScorer], Result]
) -> tuple[PairScorer, str | None, Result]:
    """The scorer as in `scorer`, its line, and what `use` makes of it; the next in line where `use` raises ModelError.

    Weights load when they first score, so that only then it shows whether they can. Raises ModelError with every reason.
    """
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
