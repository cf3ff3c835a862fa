"""Faults of one parameter: somebody set it, and it loses memories."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.planted_faults import Fault, Planted, Right

PLAIN = {"rerank.backend": "none"}
"""Most faults do not need the reranker, which costs most of the time."""


def fault(
    name: str,
    broken: str,
    changes: Mapping[str, Any],
    stages: str,
    *,
    parameters: tuple[str, ...] = (),
    words: str = "",
    preset: str = "workbench",
    healthy: Mapping[str, Any] = PLAIN,
) -> Fault:
    """A fault whose changes are the broken parameters; the first of them has to be named, or one of `parameters`."""

    def plant(store: Path, folder: Path) -> Planted:
        return Planted(store, preset, changes)

    accepted = frozenset("" if stage == "-" else stage for stage in stages.split())
    return Fault(name, broken, Right(accepted, (*list(changes)[:1], *parameters), words), plant, healthy)


FAULTS = [
    fault(
        "rerank-depth",
        "the reranker reads as few candidates as there are results, and the rest is dropped",
        {"rerank.depth": 5, "rerank.below_depth": "drop", "assembly.limit": 5},
        "rerank fusion lists",
        healthy={"assembly.limit": 5},
        words=r"rerank depth of 5",
    ),
    fault(
        "rerank-share",
        "the reranker's judgment has no share in the score",
        {"rerank.bands": [{"max_rank": None, "retrieval": 1.0}]},
        "rerank fusion lists",
        parameters=("rerank.bands.",),
        healthy={},
    ),
    fault(
        "vector-depth",
        "the vector list is three deep",
        {"lists.vector.depth": 3, "lists.lexical.depth": 3},
        "lists -",
        words=r"past the depth of 3",
    ),
    fault(
        "vector-off",
        "the vector list is off",
        {"lists.vector.enabled": False},
        "lists fusion -",
        words=r"vector:0: (the )?list is off|vector list is off",
    ),
    fault(
        "vector-weight",
        "the vector list weighs next to nothing",
        {"lists.vector.weight": 0.02},
        "fusion",
        parameters=("lists.lexical.weight",),
    ),
    fault(
        "lexical-weight",
        "one list drowns the other",
        {"lists.lexical.weight": 20.0},
        "fusion",
        parameters=("lists.vector.weight",),
    ),
    fault(
        "threshold-scale",
        "a floor for min-max scores cuts raw cosines",
        {"threshold.fixed": 0.75, "threshold.mode": "fixed", "threshold.applies_to": ["vector"]},
        "threshold",
        parameters=("threshold.mode", "threshold.applies_to"),
        healthy={**PLAIN, "lists.vector.normalization": "none", "lists.lexical.enabled": False},
        words=r"below (the )?(fixed )?threshold (of )?0\.75",
    ),
    fault(
        "score-floor",
        "a least score that most answers do not reach",
        {"filter.min_score": 0.97},
        "filter",
        words=r"below the minimum 0\.97",
    ),
    fault(
        "percentile",
        "only the best twentieth of the candidates passes",
        {"filter.percentile": 97.0},
        "filter",
        words=r"97(th|\.0)? percentile|percentile",
    ),
    fault(
        "vector-floor",
        "results with a low cosine are dropped after the limit",
        {"assembly.min_vector_score": 0.6},
        "assembly",
        words=r"vector floor|below (the )?floor|0\.6",
    ),
    fault(
        "gap",
        "what is not as good as the first is dropped",
        {"gap.ratio": 0.9, "gap.keep": 1},
        "gap",
        words=r"below 0\.9 × the top",
    ),
    fault(
        "recency",
        "a half-life of three days on memories of a year",
        {"adjust.time_decay.half_life_days": 1.0},
        "adjust filter",
        parameters=("adjust.time_decay.mode",),
        preset="cems",
        healthy={},
        words=r"decay|half-life|days old",
    ),
    fault(
        "dedup",
        "memories that are merely alike count as duplicates",
        {"dedup.similarity": 0.25, "dedup.enabled": True},
        "dedup",
        words=r"duplicates m\d|0\.25",
    ),
    fault("budget", "the context holds 60 tokens", {"assembly.max_tokens": 60}, "assembly", words=r"budget|tokens"),
    fault(
        "limit",
        "two results are returned",
        {"assembly.limit": 2},
        "assembly lists fusion",
        words=r"limit of 2|first 2|result limit",
    ),
    fault(
        "abstain",
        "nothing is returned unless the best cosine is 0.7",
        {"abstain.vector": 0.7, "abstain.rule": "any"},
        "abstain",
        words=r"abstain",
    ),
    fault(
        "all-words",
        "every word of the question has to occur",
        {"lists.fts5.match": "all"},
        "- lists",
        healthy={
            **PLAIN,
            "query.mode": "hybrid",
            "lists.fts5.enabled": True,
            "lists.vector.enabled": False,
            "lists.lexical.enabled": False,
        },
        words=r"all \d+ words",
    ),
    fault(
        "mmr",
        "diversity counts, relevance does not",
        {"assembly.mmr_lambda": 0.02, "assembly.strategy": "mmr"},
        "assembly",
        parameters=("assembly.strategy",),
        words=r"mmr|diversity",
    ),
    fault(
        "candidates-from",
        "only keyword hits may become results",
        {"fusion.candidates_from": ["lexical"]},
        "fusion",
        words=r"cannot enter",
    ),
]
