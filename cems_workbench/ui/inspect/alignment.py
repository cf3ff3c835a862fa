"""Late interaction (MaxSim) alignment: each query token, its best match in the text, and its contribution to the score.

adds(t) = idf(t) * cosine(t) / sum of all idf        their sum is the raw score
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from cems_workbench.pipeline.evidence import ModelScore
from cems_workbench.ui.kit.html import render

CONTINUATION = "##"
"""Prefix of a wordpiece that continues a word."""
COLUMNS = {
    "query": "Query token in bold; the rest of its word is muted",
    "met": "Most similar token of the text; … before it: continues a word",
    "cosine": "Similarity of the two contextual token vectors; 1: identical",
    "idf": "Rarity of the token in this store’s memories; rare tokens count more",
    "adds": "Contribution to the raw score: idf × cosine / sum of idf",
}


def alignment(score: ModelScore | None) -> list[Mapping[str, Any]]:
    """The saved token alignment of a pair; empty if missing or unreadable."""
    kept = score.detail.get("alignment") if score is not None and score.detail else None
    return [entry for entry in kept if _readable(entry)] if isinstance(kept, (list, tuple)) else []


def _readable(entry: Any) -> bool:
    """Whether an entry has the expected form; evidence may come from an untrusted file."""
    if not isinstance(entry, Mapping):
        return False
    numbers = [entry.get(name) for name in ("idf", "cosine")]
    finite = all(isinstance(value, (int, float)) and math.isfinite(value) for value in numbers)
    return finite and all(isinstance(entry.get(name), str) for name in ("query", "text"))


def token_matches(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tokens in query order, each with the rest of its word (`before`, `after`) and what it `adds` to the score."""
    total = sum(entry["idf"] for entry in entries)
    tokens = []
    for i, entry in enumerate(entries):
        start, end = i, i + 1
        while start and entries[start]["query"].startswith(CONTINUATION):
            start -= 1
        while end < len(entries) and entries[end]["query"].startswith(CONTINUATION):
            end += 1
        pieces = [joined(other["query"]) for other in entries[start:end]]
        word = {
            "before": "".join(pieces[: i - start]),
            "piece": pieces[i - start],
            "after": "".join(pieces[i - start + 1 :]),
        }
        adds = entry["idf"] * entry["cosine"] / total if total > 0 else 0.0
        inside = continues_word(entry["text"])
        tokens.append({**entry, **word, "adds": adds, "inside": inside, "met": joined(entry["text"])})
    return tokens


def joined(token: str) -> str:
    """A wordpiece without the continuation prefix."""
    return token.removeprefix(CONTINUATION) if continues_word(token) else token


def continues_word(token: str) -> bool:
    """Whether a wordpiece continues a word. The prefix alone is a word."""
    return token.startswith(CONTINUATION) and len(token) > len(CONTINUATION)


def alignment_html(score: ModelScore) -> Markup:
    """One row per query token: a bar for the cosine, and the numbers; the last row is their sum."""
    return render("inspect/alignment.html", columns=COLUMNS, tokens=token_matches(alignment(score)), raw=score.raw)
