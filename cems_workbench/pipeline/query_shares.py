"""What each query variant gave each candidate: the terms of its own lists in the fused raw score.

    share(variant, candidate) = sum of base + bonus over the variant's lists that hold the candidate

Lists that belong to no variant (recency, access, relations) and bonuses for the best rank or for importance are no variant's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cems_workbench.pipeline.trace import Trace


@dataclass(frozen=True, slots=True)
class QueryShares:
    """Of one candidate: its share by variant (absent: the variant did not find it), and what no variant gave."""

    memory_id: str
    by_variant: dict[int, float]
    decisive: int | None
    """With score_max: the variant whose list alone is the raw score."""
    other: float
    boost: float
    raw: float


def query_shares(trace: Trace) -> list[QueryShares]:
    """The candidates that fusion kept, in its order."""
    variant = {ranked.name: ranked.variant for ranked in trace.evidence.lists}
    largest = trace.stage("fusion").fields["combine"] == "max"
    return [_shares(row, variant, largest) for row in trace.stage("fusion").rows if row["kept"]]


def _shares(row: dict[str, Any], variant: dict[str, int | None], largest: bool) -> QueryShares:
    by_variant: dict[int, float] = {}
    other = row["best_rank_bonus"] + row["importance_bonus"]
    for entry in row["contributions"]:
        gave, which = entry["base"] + entry["bonus"], variant[entry["list"]]
        if which is None:
            other += gave
        elif largest:
            by_variant[which] = max(gave, by_variant.get(which, gave))
        else:
            by_variant[which] = by_variant.get(which, 0.0) + gave
    top = max(row["contributions"], key=lambda entry: entry["base"]) if largest and row["contributions"] else None
    decisive = None if top is None else variant[top["list"]]
    return QueryShares(row["memory_id"], by_variant, decisive, other, row["boost_factor"], row["raw"])
