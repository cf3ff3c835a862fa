"""A reranker without a model: the share of the query's words that a text has."""

from __future__ import annotations

from collections.abc import Sequence

from cems_workbench.models.protocol import PairScore, PairScorer
from cems_workbench.pipeline.rerankers import Reranker, ScorerRequest
from cems_workbench.records import JudgeScale


class SharedWords:
    """Scores from 0 to 1."""

    batch = 64
    scale: JudgeScale | None = None
    label = "shared words"

    def cache_model(self, query: str) -> str:
        """One name: a score depends on query and text alone."""
        return "shared-words/1"

    def score(self, query: str, texts: Sequence[str]) -> list[PairScore]:
        """The share of the query's words in each text."""
        words = set(query.lower().split())
        return [PairScore(len(words & set(text.lower().split())) / max(1, len(words))) for text in texts]


def make(request: ScorerRequest) -> PairScorer:
    """The scorer; it needs nothing."""
    return SharedWords()


RERANKER = Reranker("shared_words", "the share of the query's words that a memory has", make)
