"""What a config asks of the evidence that the evidence does not hold.

Gather records the gather parameters it used in `notes["gathered"]`. A gather parameter that differs, or a depth that grew,
is a need: the page fetches it, the CLI says so. Evidence without that record (a bundle from elsewhere) has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cems_workbench.config import PipelineConfig, field_specs, list_depths

NO_NEW_EVIDENCE = frozenset({"rerank.max_concurrent", "rerank.timeout_s", "query.raw"})
"""Gather parameters that change how evidence is fetched, or only what replay does with it, but not the evidence."""

DEEPENING = frozenset(
    {"lists.coarse_multiplier", "lists.vector.prefetch", "lists.lexical.prefetch", "rerank.oversample_factor"}
)
"""Parameters that only make lists deeper, as does the result limit: what counts is the depth they come to."""


@lru_cache(maxsize=512)
def gather_parameters(config: PipelineConfig) -> Mapping[str, Any]:
    """The values of every parameter that decides what is gathered, by path; depths as `list_depths` grows them."""
    values = {
        spec.path: config.get(spec.path)
        for spec in field_specs()
        if spec.kind != "replay" and spec.path not in NO_NEW_EVIDENCE
    }
    return values | {f"lists.{source}.depth": depth for source, depth in list_depths(config).items()}


def unmet(config: PipelineConfig, notes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One entry per parameter that needs a gather: stage, parameter, gathered and wanted value."""
    gathered = notes.get("gathered")
    if not isinstance(gathered, Mapping):
        return []
    kinds = {spec.path: spec.kind for spec in field_specs()}
    needs = []
    for path, wanted in gather_parameters(config).items():
        had = gathered.get(path)
        if path not in gathered or had == wanted or _irrelevant(path, config):
            continue
        if kinds[path] == "growth" and (had is None or (wanted is not None and isinstance(had, int) and wanted <= had)):
            continue
        needs.append({"stage": path.split(".")[0], "parameter": path, "gathered": had, "wanted": wanted})
    return needs


def _irrelevant(path: str, config: PipelineConfig) -> bool:
    """Parameters of something that is off, that act through the depths, or whose unscored candidates rerank reports."""
    if path in ("rerank.backend", "rerank.model", "rerank.input_limit") or path in DEEPENING:
        return True
    if path.startswith("query.conversational.") and path != "query.conversational.enabled":
        return not config.query.conversational.enabled
    if path.startswith("rerank."):
        return config.rerank.backend == "none"
    if path.startswith("judge."):
        return True
    return path == "lists.pool.size" and config.lists.pool.mode == "all"
