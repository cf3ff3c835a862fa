"""Health of a model's scores: what share failed, and whether the rest can tell candidates apart.

Nothing here changes a ranking; it is the account that `rerank` gives of its model.

Source: PIPELINE.md, "rerank" (health).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from cems_workbench.pipeline.table import Bools, Floats, ModelTable

NARROW = 0.05
"""A spread of unit scores below this cannot tell candidates apart in practice."""

_RANGE = {"divide_by_10": (0.0, 10.0), "identity": (0.0, 1.0)}


def health_fields(model: ModelTable, head: Bools, raw: Floats, scale: str, q: int) -> dict[str, Any]:
    """Counts over the head of query q: scored, failed by cause, not scored, out of the scale's range, spread."""
    inside = head[q]
    good = raw[q, inside & ~np.isnan(raw[q])]
    failed = np.flatnonzero(inside & (model.state[q] == 2))
    causes = Counter(cause(model.errors[q].get(int(c), "")) for c in failed)
    low, high = _RANGE.get(scale, (-np.inf, np.inf))
    return {
        "head": int(inside.sum()),
        "scored": len(good),
        "failed": len(failed),
        "causes": dict(sorted(causes.items())),
        "not_scored": int(inside.sum()) - len(good) - len(failed),
        "out_of_range": int(((good < low) | (good > high)).sum()),
        "all_equal": bool(len(good) > 1 and good.min() == good.max()),
        "min": float(good.min()) if len(good) else None,
        "max": float(good.max()) if len(good) else None,
    }


def health_warnings(model: ModelTable, head: Bools, raw: Floats, scale: str, q: int) -> list[str]:
    """One line per thing that makes these scores doubtful."""
    health = health_fields(model, head, raw, scale, q)
    found = []
    if health["failed"]:
        causes = ", ".join(f"{count} {cause}" for cause, count in health["causes"].items())
        found.append(f"{health['failed']} of {health['head']} scores failed ({causes})")
    if health["out_of_range"]:
        found.append(
            f"{health['out_of_range']} raw scores lie outside the range that {scale} expects; they are clamped"
        )
    if health["all_equal"]:
        found.append("every raw score is the same: the reranker tells nothing apart")
    elif health["scored"] > 1 and scale in _RANGE:
        spread = (health["max"] - health["min"]) / _RANGE[scale][1]
        if spread < NARROW:
            found.append(
                f"raw scores span only {spread:.3f} of the unit range: the reranker hardly tells candidates apart"
            )
    return found


def cause(error: str) -> str:
    """Why a score is none: what its error says before the first colon. Looking for words in it would take a reply that
    mentions a finance team for "nan"."""
    return error.split(":")[0].strip() or "unknown"
