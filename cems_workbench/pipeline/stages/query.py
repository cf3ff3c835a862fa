"""query: preference, temporal and aggregation signals in the words of the query.

`substring` matching is CEMS's own: it calls "restart elasticsearch" temporal, for the "last" inside. `word` matches whole
words only. The matched spans are in the trace.

Source: CEMS retrieval guide (retrieval.py:65, 90, 119); PIPELINE.md, "query".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from cems_workbench.config.understanding import Detectors

SIGNALS: dict[str, tuple[str, ...]] = {
    "preference": (
        "recommend", "suggest", "advice", "resources", "tools", "accessories", "what should", "would you",
        "based on my", "given my",
    ),
    "temporal": (
        "first", "last", "before", "after", "when", "how many days", "how long", "earliest", "latest", "most recent",
        "happened first",
    ),
    "aggregation": (
        "how many", "how much", "total", "combined", "all the times", "how often", "different", "various",
        "all the different",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Match:
    """One signal found in the query: characters start..end of it."""

    detector: str
    signal: str
    start: int
    end: int


@lru_cache(maxsize=4096)
def detect(query: str, config: Detectors) -> tuple[Match, ...]:
    """Every signal found in the query, by detector and position; empty when detectors are off."""
    if not config.enabled:
        return ()
    edge = r"\b" if config.matching == "word" else ""
    return tuple(
        Match(detector, signal, found.start(), found.end())
        for detector, signals in SIGNALS.items()
        for signal in signals
        for found in re.finditer(f"{edge}{re.escape(signal)}{edge}", query, re.IGNORECASE)
    )


def is_aggregation(query: str, config: Detectors) -> bool:
    """Does the query ask for several memories at once?"""
    return any(match.detector == "aggregation" for match in detect(query, config))


def cuts_a_word(query: str, match: Match) -> bool:
    """Did the match start or end inside a word, as "last" does in "elasticsearch"?"""
    before = query[match.start - 1 : match.start]
    after = query[match.end : match.end + 1]
    return before.isalnum() or after.isalnum()
