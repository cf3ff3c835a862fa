"""What late interaction saw in a text: each token of the query, the token of the text it met, and what that adds to the score.

adds(t) = idf(t) * cosine(t) / sum of all idf        their sum is the raw score
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from cems_workbench.pipeline.evidence import ModelScore
from cems_workbench.ui.kit.templates import render

INSIDE = "##"
"""Begins a wordpiece that goes on within a word."""
COLUMNS = {
    "query": "A token of the query, in bold; the rest of its word is muted",
    "met": "The token of the text that is nearest to it; … before it: it goes on within a word",
    "cosine": "How near the two are, in their context: 1 is the same",
    "idf": "How rare the token is among the memories of this store; a rare one counts more",
    "adds": "idf × cosine / sum of idf: what it adds to the raw score",
}


@dataclass(frozen=True, slots=True)
class Met:
    """A query token between the rest of its word, the token it met (as the model writes it), and the numbers."""

    before: str
    piece: str
    after: str
    text: str
    cosine: float
    idf: float
    adds: float
    written: str
    """The query token as the model writes it."""

    @property
    def inside(self) -> bool:
        """Does the token it met go on within a word?"""
        return goes_on(self.text)

    @property
    def shown(self) -> str:
        """The token it met, without the sign of that."""
        return joined(self.text)

    @property
    def width(self) -> str:
        """The cosine as a share of the bar in percent."""
        return f"{100 * max(0.0, min(self.cosine, 1.0)):.0f}"


def alignment(score: ModelScore | None) -> list[Mapping[str, Any]]:
    """What is kept of the tokens of a pair; empty where nothing is, or nothing that can be read."""
    kept = score.detail.get("alignment") if score is not None and score.detail else None
    return [entry for entry in kept if _readable(entry)] if isinstance(kept, (list, tuple)) else []


def _readable(entry: Any) -> bool:
    """Evidence may come from a file."""
    if not isinstance(entry, Mapping):
        return False
    numbers = [entry.get(name) for name in ("idf", "cosine")]
    finite = all(isinstance(value, (int, float)) and math.isfinite(value) for value in numbers)
    return finite and all(isinstance(entry.get(name), str) for name in ("query", "text"))


def met_tokens(entries: Sequence[Mapping[str, Any]]) -> list[Met]:
    """The tokens in the order of the query, each with the rest of the word it belongs to, and what it adds to the score."""
    total = sum(entry["idf"] for entry in entries)
    tokens = []
    for i, entry in enumerate(entries):
        start, end = i, i + 1
        while start and entries[start]["query"].startswith(INSIDE):
            start -= 1
        while end < len(entries) and entries[end]["query"].startswith(INSIDE):
            end += 1
        pieces = [joined(other["query"]) for other in entries[start:end]]
        tokens.append(
            Met(
                "".join(pieces[: i - start]),
                pieces[i - start],
                "".join(pieces[i - start + 1 :]),
                entry["text"],
                entry["cosine"],
                entry["idf"],
                entry["idf"] * entry["cosine"] / total if total > 0 else 0.0,
                entry["query"],
            )
        )
    return tokens


def joined(token: str) -> str:
    """A wordpiece without the sign that it goes on within a word."""
    return token.removeprefix(INSIDE) if goes_on(token) else token


def goes_on(token: str) -> bool:
    """Does a wordpiece go on within a word? The sign alone is a word."""
    return token.startswith(INSIDE) and len(token) > len(INSIDE)


def alignment_html(tokens: Sequence[Met], raw: float | None, *, numbered: bool = False) -> Markup:
    """A row per query token; the bar is its cosine, the numbers stand beside it, and the last row is their sum.

    `numbered` puts the place of each query token before it, as the tokens of a heat map refer to it.
    """
    return render(
        "inspect/alignment.html",
        columns=COLUMNS,
        tokens=tokens,
        raw=raw,
        numbered=numbered,
        idf=f"{sum(token.idf for token in tokens):.2f}",
        adds=f"{sum(token.adds for token in tokens):.4f}",
    )
