"""What a query asks for, from its words alone, and where `auto` routes it.

    simple and no reasoning -> vector;   everything else -> hybrid            (CEMS, route_to_strategy)

CEMS asks an LLM for complexity, reasoning and domains. Without one they come from features: a query of at most three words without
a signal is simple, one of more than twelve words or of several clauses is complex; temporal and aggregation signals, and
words that ask for a reason or a comparison, need reasoning. Routing a bare identifier to vectors alone is a known
mistake of that rule, and is shown as such.

Source: CEMS retrieval guide (retrieval.py:1129); PIPELINE.md, "query".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cems_workbench.config.understanding import QueryConfig
from cems_workbench.models import prompts
from cems_workbench.pipeline.asking import Asker
from cems_workbench.pipeline.stages.query import detect

SIMPLE_WORDS = 3
COMPLEX_WORDS = 12
_CLAUSE = re.compile(r"[;:]|,\s|\b(?:and|or|but|because|while|whereas)\b", re.IGNORECASE)
_REASONING = re.compile(r"\b(?:why|how|compare|compared|versus|vs|difference|which|whether|instead)\b", re.IGNORECASE)

Complexity = Literal["simple", "moderate", "complex"]


@dataclass(frozen=True, slots=True)
class Intent:
    """Complexity, whether reasoning is needed, the route, and why, in words."""

    complexity: Complexity
    reasoning: bool
    route: Literal["vector", "hybrid"]
    reason: str


def understand(query: str, config: QueryConfig, llm: Asker | None = None) -> tuple[Intent, list[str]]:
    """The intent of a query and its route under `query.mode`, and what has to be said; only `auto` asks the LLM."""
    complexity, reasoning = _complexity(query), _reasoning(query, config)
    if config.mode != "auto":
        return Intent(complexity, reasoning, config.mode, f"mode is {config.mode}"), []
    said: list[str] = []
    told = llm.or_none(prompts.understanding(query), "the intent comes from the words", said.append) if llm else None
    if told is None:
        return _routed(complexity, reasoning, "from the words, no LLM was asked"), said
    return _routed(told.complexity, told.reasoning, f"says {llm.chat.label}" if llm else "", told.domains), said


def _routed(complexity: Complexity, reasoning: bool, source: str, domains: Sequence[str] = ()) -> Intent:
    """Simple and no reasoning goes to vector, everything else to hybrid: more than two domains too, as CEMS has it."""
    about = f", {len(domains)} domains" if domains else ""
    reason = f"{complexity}, {'reasoning' if reasoning else 'no reasoning'}{about}; {source}"
    if complexity == "simple" and not reasoning:
        return Intent(complexity, reasoning, "vector", reason)
    return Intent(complexity, reasoning, "hybrid", reason)


def _complexity(query: str) -> Complexity:
    words = len(query.split())
    if words > COMPLEX_WORDS or len(_CLAUSE.findall(query)) > 1:
        return "complex"
    return "simple" if words <= SIMPLE_WORDS and not _CLAUSE.search(query) else "moderate"


def _reasoning(query: str, config: QueryConfig) -> bool:
    signals = {match.detector for match in detect(query, config.detectors)}
    return bool(signals & {"temporal", "aggregation"}) or bool(_REASONING.search(query))
