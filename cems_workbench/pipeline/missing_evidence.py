"""Missing evidence: what a config needs and the evidence lacks.

Gather records the gather parameters it used in `notes["gathered"]`. A gather parameter that differs, or a depth that grew,
is a need: the page fetches it, the CLI says so. Evidence without that record (a bundle from elsewhere) has none. A parameter that the
record does not have, as of a retriever installed since, had its default. Evidence in which nobody looked for superseded candidates cannot
show what `supersession.mode` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cems_workbench.config import PipelineConfig, field_specs, list_depths
from cems_workbench.config.fields import as_tuple
from cems_workbench.config.model import DEEP_LISTS, candidate_set_size
from cems_workbench.config.sections import ADDED_LISTS, ENGINE_LISTS
from cems_workbench.pipeline.stages.rerank import RERANK, model_key
from cems_workbench.pipeline.stages.result import ScoreNeed, field_names, plain_fields
from cems_workbench.pipeline.supersession import SUPERSEDED

NO_NEW_EVIDENCE = frozenset({"rerank.max_concurrent", "rerank.timeout_s", "query.raw"})
"""Gather parameters that change how evidence is fetched, or only what replay does with it, but not the evidence."""

LEFT_OUT = frozenset({"rerank.query", "query.author"})
"""Gather parameters that hold a text of the user's or a name, which a redacted record leaves out; that is no need."""

DEEPENING = frozenset(
    {
        "lists.first_stage_factor",
        *(f"lists.{name}.first_stage_factor" for name in DEEP_LISTS),
        "lists.candidate_set.size_factor",
        "rerank.oversample_factor",
    }
)
"""Parameters that only make lists deeper or the candidate set larger, as does the result limit: what counts is what they come to."""


@dataclass(frozen=True, slots=True)
class ParameterNeed:
    """A gather parameter, by path, whose value differs from the gathered one."""

    stage: str
    parameter: str
    gathered: Any
    wanted: Any

    def to_json(self) -> dict[str, Any]:
        """The need as plain values."""
        return plain_fields(self, field_names(ParameterNeed))


SCORED_WITH = "scored_with"
"""The note with the parameters of `rerank` that scores were made with after gathering, by key of `model_scores`; for these scores they
override the gathered parameters."""

Need = ParameterNeed | ScoreNeed
"""What a config needs and the evidence lacks."""


@lru_cache(maxsize=512)
def gather_parameters(config: PipelineConfig) -> Mapping[str, Any]:
    """The values of every parameter that decides what is gathered, by path; depths and the candidate set as large as they come to."""
    values = {
        spec.path: config.get(spec.path)
        for spec in field_specs()
        if spec.cost != "replay" and spec.path not in NO_NEW_EVIDENCE
    }
    grown: dict[str, Any] = {f"lists.{source}.depth": depth for source, depth in list_depths(config).items()}
    return values | grown | {"lists.candidate_set.size": candidate_set_size(config)}


def portable_parameters(config: PipelineConfig) -> dict[str, Any]:
    """As `gather_parameters`, without those of installed retrievers that are at their defaults: what evidence is recorded and named by."""
    return {
        path: value
        for path, value in gather_parameters(config).items()
        if path.split(".")[1] not in ADDED_LISTS or value != PipelineConfig().get(path)
    }


def gathered_parameters(notes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The gather parameters that evidence with these notes was gathered with, by path; empty if it has no record."""
    noted = notes.get("gathered")
    return _as_values(noted) if isinstance(noted, Mapping) else {}


def _as_values(noted: Mapping[str, Any]) -> dict[str, Any]:
    return {path: tuple(value) if isinstance(value, list) else value for path, value in noted.items()}


def unmet(
    config: PipelineConfig, notes: Mapping[str, Any], in_brief: Callable[[int | None], bool]
) -> list[ParameterNeed]:
    """One entry per parameter that needs a gather, of evidence with these notes; `in_brief` is `Evidence.in_brief`."""
    gathered = gathered_parameters(notes)
    if not gathered:
        return []
    gathered = {**gathered, **_as_values(notes.get(SCORED_WITH, {}).get(model_key(config.rerank), {}))}
    specs = {spec.path: spec for spec in field_specs()}
    needs = []
    for path, wanted in gather_parameters(config).items():
        had = as_tuple(gathered.get(path, specs[path].default))  # a record has lists
        if had == wanted or _irrelevant(path, config) or (path in LEFT_OUT and path not in gathered):
            continue
        if path == "rerank.brief.long_chars" and in_brief(had) == in_brief(wanted):
            continue
        if path == "rerank.brief.chunk_chars" and not in_brief(config.rerank.brief.long_chars):
            continue
        by_row = path == "lists.fts5.depth" and config.lists.fts5.cut == "row"  # the best of more rows are other rows
        within = had is None or (wanted is not None and isinstance(had, int | float) and wanted <= had)
        if specs[path].cost == "deepen" and within and not by_row:
            continue
        needs.append(ParameterNeed(path.split(".")[0], path, had, wanted))
    if config.supersession.mode != "off" and SUPERSEDED not in notes:
        needs.append(ParameterNeed("supersession", "supersession.mode", "off", config.supersession.mode))
    return needs


def rerank_parameters(config: PipelineConfig) -> dict[str, Any]:
    """The gather parameters that decide what a reranker reads, by path."""
    return {
        path: value
        for path, value in gather_parameters(config).items()
        if path.startswith("rerank.") and not _irrelevant(path, config)
    }


def _irrelevant(path: str, config: PipelineConfig) -> bool:
    """Parameters of something that is off, that act through the depths, or whose unscored candidates rerank reports."""
    if (
        path in ("rerank.backend", "rerank.model", "rerank.depth", "rerank.score_window", "rerank.brief.total_chars")
        or path in DEEPENING
    ):
        return True
    if path.startswith("query.conversational.") and path != "query.conversational.enabled":
        return not config.query.conversational.enabled
    if path == "lists.vector.ef_search":
        return config.lists.vector.index != "graph"
    if path == "rerank.passages" and config.rerank.chunk_selection != "passages":
        return True
    if path == "rerank.question_for" and not config.rerank.prepend_question:
        return True
    if path == "rerank.brief.chunk_chars" and config.rerank.brief.long_chars is None:
        return True
    if path.startswith("rerank."):
        return RERANK.is_off(config)
    if path.startswith("judge."):
        return True
    if path.startswith("lists.hybrid."):
        return path != "lists.hybrid.enabled" and not config.lists.hybrid.enabled
    if path.startswith("lists.ts_rank."):
        return not config.lists.ts_rank.enabled
    listed = path.split(".")[1] if path.startswith("lists.") else ""
    if listed in (*ENGINE_LISTS, "entities", "source_hybrid"):
        return not config.get(f"lists.{listed}.enabled")
    if path == "variants.search":
        return config.expansion.backend == "none"
    if path == "lists.relations.mode":
        return not config.lists.relations.enabled
    return path == "lists.candidate_set.size" and config.lists.candidate_set.mode == "all"
