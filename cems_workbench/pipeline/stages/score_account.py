"""The account of one model's scores for one query: what failed and why, what came out of the cache, how long it took.

`health` counts what bears on the ranking; this adds what the evidence knows beyond it. Percentiles are interpolated linearly
over the answered pairs that were timed: how soon a server refuses says nothing of the model.

Source: PIPELINE.md, "rerank" (health, outcomes of llama_server).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cems_workbench.pipeline.evidence import ModelScore
from cems_workbench.pipeline.stages.health import NARROW, cause


@dataclass(frozen=True, slots=True)
class ScoreAccount:
    """Counts over the scores there are; `causes` and `outcomes` most frequent first; `seconds` is (p50, p95)."""

    scores: int
    failed: int
    cached: int
    truncated: int
    causes: Mapping[str, int]
    outcomes: Mapping[str, int]
    seconds: tuple[float, float] | None

    @property
    def failed_share(self) -> float:
        """0..1; 0 without scores."""
        return self.failed / self.scores if self.scores else 0.0

    @property
    def cached_share(self) -> float:
        """0..1; 0 without scores."""
        return self.cached / self.scores if self.scores else 0.0


def account(scores: Iterable[ModelScore]) -> ScoreAccount:
    """The account of `scores`, those of the rerank head."""
    every = list(scores)
    details: Sequence[Mapping[str, Any]] = [score.detail or {} for score in every]
    bad = [score for score in every if not score.good]
    timed = [
        float(score.detail["seconds"]) for score in every if score.good and score.detail and "seconds" in score.detail
    ]
    p50, p95 = np.percentile(timed, [50, 95]) if timed else (0.0, 0.0)
    return ScoreAccount(
        scores=len(every),
        failed=len(bad),
        cached=sum(bool(detail.get("cached")) for detail in details),
        truncated=sum(bool(detail.get("truncated")) for detail in details),
        causes=dict(Counter(_cause(score) for score in bad).most_common()),
        outcomes=dict(Counter(str(detail["outcome"]) for detail in details if detail.get("outcome")).most_common()),
        seconds=(float(p50), float(p95)) if timed else None,
    )


def _cause(score: ModelScore) -> str:
    if score.error:
        return cause(score.error)
    return "no score" if score.raw is None else "not finite"


def unit_spread(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """Largest minus smallest unit score of the scored rows of the rerank stage; None with fewer than two."""
    units = [row["unit"] for row in rows if row.get("outcome") == "scored" and row["unit"] is not None]
    return max(units) - min(units) if len(units) > 1 else None


def is_compressed(spread: float | None) -> bool:
    """Is the spread of unit scores too narrow to tell candidates apart, without being none at all?"""
    return spread is not None and 0 < spread < NARROW
