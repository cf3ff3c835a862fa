"""lists: which gathered lists take part, cut to their depth, with scores made comparable.

A list takes part when its source is enabled and its query variant is not switched off. It is cut to its depth first and
normalised after. Only lexical scores are normalised: `max` divides by the list's largest score (the CEMS documents
call it min-max; it is not, and the first hit is always 1.0), `minmax` is (s - min) / (max - min) with all equal -> 1.0,
`saturating` is s / (1 + s). Cosines are kept as they are, negative ones too.

Source: CEMS plan, phase 2; PIPELINE.md, "lists".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from cems_workbench.config.sections.gathering import ListsConfig
from cems_workbench.pipeline.evidence import SOURCES
from cems_workbench.pipeline.table import Bools, CandidateTable, Floats, ListArrays, StageArrays, remembered, unranked

LEXICAL = SOURCES.index("lexical")
NOT_SEARCHED = np.array([source in ("recency", "access") for source in SOURCES] + [False])


def apply_lists(
    table: CandidateTable, config: ListsConfig, depths: Mapping[str, int | None], switched_off: Collection[int] = ()
) -> ListArrays:
    """Select, cut and normalise the gathered lists.

    `depths` are those of `config.list_depths`; `switched_off` are indices of query variants to leave out. Weights and ties
    are fusion's, so that most configs share their lists, which are kept with the table.
    """
    enabled = tuple(getattr(config, source).enabled for source in SOURCES)
    key = (enabled, config.lexical.normalization, tuple(sorted(depths.items())), frozenset(switched_off))
    return remembered(table.memo, "lists", key, lambda: _prepared(table, config, depths, switched_off))


def _prepared(
    table: CandidateTable, config: ListsConfig, depths: Mapping[str, int | None], switched_off: Collection[int]
) -> ListArrays:
    lists = table.lists
    enabled = np.array([getattr(config, source).enabled for source in SOURCES] + [False])
    active = enabled[lists.source]
    if switched_off:
        active = active & ~np.isin(lists.variant, list(switched_off))
    depth = np.array(
        [np.inf if depths.get(source) is None else depths[source] for source in SOURCES] + [0], dtype=float
    )
    gathered = lists.position > 0
    present = gathered & active[:, :, None] & (lists.position <= depth[lists.source][:, :, None])
    score = np.where(present, lists.raw, 0.0)
    lexical = (lists.source == LEXICAL)[:, :, None] & present
    if lexical.any() and config.lexical.normalization != "none":
        score = np.where(lexical, _normalised(lists.raw, lexical, config.lexical.normalization), score)
    best = np.where(present, score, -np.inf).max(axis=1, initial=-np.inf)
    alive: Bools = np.any(present, axis=1)
    anywhere: Bools = np.any(gathered, axis=1)
    stage = StageArrays(
        "lists",
        entered=anywhere,
        before=unranked(anywhere, np.full(best.shape, np.nan)),
        after=unranked(alive, np.where(alive, best, np.nan)),
        reason=_reason(table, active, depth),
        columns={"lists": _membership(table, present, score)},
        warnings=_warnings(table, config, active, present),
        fields=_fields(table, active, present),
    )
    return ListArrays(present, score, stage)


def _normalised(raw: Floats, mask: Bools, method: str) -> Floats:
    normalised: Floats
    if method == "saturating":
        safe = np.where(mask & (raw > 0), raw, 0.0)
        normalised = safe / (1 + safe)
        return normalised
    high = np.where(mask, raw, -np.inf).max(axis=2, keepdims=True, initial=-np.inf)
    if method == "max":
        normalised = np.divide(raw, high, out=raw.copy(), where=np.isfinite(high) & (high > 0))
        return normalised
    low = np.where(mask, raw, np.inf).min(axis=2, keepdims=True, initial=np.inf)
    spread = np.where(high > low, high - low, 0.0)
    normalised = np.divide(raw - np.where(mask, low, 0.0), spread, out=np.ones_like(raw), where=spread > 0)
    return normalised


def _reason(table: CandidateTable, active: Bools, depth: Floats) -> Callable[[int, int], str | None]:
    def reason(q: int, c: int) -> str:
        parts = []
        for i, name in enumerate(table.lists.names[q]):
            place = table.lists.position[q, i, c]
            if place:
                cut = f"rank {place} is past the depth {depth[table.lists.source[q, i]]:g}"
                parts.append(f"{name}: {cut if active[q, i] else 'list is off'}")
        return "; ".join(parts)

    return reason


def _membership(table: CandidateTable, present: Bools, score: Floats) -> Callable[[int, int], list[dict[str, Any]]]:
    def read(q: int, c: int) -> list[dict[str, Any]]:
        lists = table.lists
        return [
            {
                "list": name,
                "rank": int(lists.position[q, i, c]),
                "raw": float(lists.raw[q, i, c]),
                "normalized": float(score[q, i, c]) if present[q, i, c] else None,
                "kept": bool(present[q, i, c]),
            }
            for i, name in enumerate(lists.names[q])
            if lists.position[q, i, c]
        ]

    return read


def _warnings(table: CandidateTable, config: ListsConfig, active: Bools, present: Bools) -> Callable[[int], list[str]]:
    def warnings(q: int) -> list[str]:
        found = []
        for i, name in enumerate(table.lists.names[q]):
            if not active[q, i]:
                continue
            size = int(present[q, i].sum())
            source = SOURCES[table.lists.source[q, i]]
            if size == 0:
                found.append(f"{name} is empty")
            elif size == 1 and source == "lexical" and config.lexical.normalization in ("max", "minmax"):
                found.append(
                    f"{name} has one hit, which {config.lexical.normalization} scales to 1.0 however weak it is"
                )
            negative = int((present[q, i] & (table.lists.raw[q, i] < 0)).sum()) if source == "vector" else 0
            if negative:
                found.append(f"{name} has {negative} negative cosine{'s' if negative > 1 else ''}, shown raw")
        searched = NOT_SEARCHED[table.lists.source[q]]
        stray = int((present[q].any(axis=0) & ~present[q, ~searched].any(axis=0)).sum())
        if stray:
            found.append(
                f"{stray} candidates stand only in recency or access lists, gathered for deeper lists than these"
            )
        return found

    return warnings


def _fields(table: CandidateTable, active: Bools, present: Bools) -> Callable[[int], dict[str, Any]]:
    def fields(q: int) -> dict[str, Any]:
        lists = table.lists
        return {
            "lists": [
                {
                    "name": name,
                    "source": SOURCES[lists.source[q, i]],
                    "variant": int(lists.variant[q, i]) if lists.variant[q, i] >= 0 else None,
                    "active": bool(active[q, i]),
                    "gathered": int((lists.position[q, i] > 0).sum()),
                    "used": int(present[q, i].sum()),
                }
                for i, name in enumerate(lists.names[q])
            ]
        }

    return fields
