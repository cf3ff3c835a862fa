"""How deep the lists go: the configured depth, grown by ACE's coarse fetch and the memory agent's oversampling.

    depth = max(depth, coarse_multiplier * prefetch * limit)     when the coarse multiplier is above 1
    depth = max(depth, ceil(oversample_factor * limit))          when the oversample factor is above 1

Gather fetches this much and replay cuts to it, so that both mean the same list.

Source: ACE stage 1; memory agent RERANKER_OVERSAMPLE; PIPELINE.md, "Parameters".
"""

from __future__ import annotations

import math

from cems_workbench.config.model import PipelineConfig


def list_depths(config: PipelineConfig) -> dict[str, int | None]:
    """Depth of the vector and lexical lists; None is no limit."""
    limit = config.assembly.limit or 0
    depths: dict[str, int | None] = {}
    for source, section in (("vector", config.lists.vector), ("lexical", config.lists.lexical)):
        depth = section.depth
        if depth is not None and config.lists.coarse_multiplier > 1:
            depth = max(depth, config.lists.coarse_multiplier * section.prefetch * limit)
        if depth is not None and config.rerank.oversample_factor > 1:
            depth = max(depth, math.ceil(config.rerank.oversample_factor * limit))
        depths[source] = depth
    return depths


def depth_notes(config: PipelineConfig) -> list[str]:
    """One line per list that goes deeper than its own depth says, and why."""
    limit, oversample, coarse = (
        config.assembly.limit or 0,
        config.rerank.oversample_factor,
        config.lists.coarse_multiplier,
    )
    notes = []
    for source, section in (("vector", config.lists.vector), ("lexical", config.lists.lexical)):
        depth = list_depths(config)[source]
        if not section.enabled or depth is None or depth == section.depth:
            continue
        grown = oversample > 1 and depth == math.ceil(oversample * limit)
        why = (
            f"oversample {oversample:g} × limit {limit}"
            if grown
            else (f"coarse multiplier {coarse} × prefetch {section.prefetch} × limit {limit}")
        )
        notes.append(f"{source} goes {depth} deep: {why}, more than the {section.depth} set")
    return notes
