"""What a memory's edit, absence or presence does to the judged queries of a store, for page, command, API and MCP."""

from __future__ import annotations

from cems_workbench.analysis.edited_evidence import Edit
from cems_workbench.analysis.what_if_set import SetEffect, set_effect
from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.grades import agreed_answerable, agreed_grades, as_judged
from cems_workbench.evaluation.metrics import parse_measures
from cems_workbench.jobs.evidence_memory import EvidenceMemory
from cems_workbench.jobs.query_set_evidence import ALL_QUERIES, queries_named
from cems_workbench.progress import Progress, silent

MEASURES = "nDCG@10 hit@5 recall@5"


def effect_on_queries(
    edit: Edit,
    config: PipelineConfig,
    query_set: str = ALL_QUERIES,
    *,
    k: int | None = None,
    measures: str = MEASURES,
    progress: Progress = silent,
    memory: EvidenceMemory | None = None,
) -> SetEffect:
    """What the edit does to the judged queries of a set, on evidence in `memory` or kept in files; else it is gathered.

    Raises as `EvidenceMemory.get` and `set_effect` do.
    """
    resources = edit.resources
    queries, judgments = queries_named(query_set, resources, True)
    found = (memory or EvidenceMemory()).get(queries, config, resources, progress)
    relevant_from = resources.store.query_sets.relevant_from(query_set)
    return set_effect(
        edit,
        as_judged(queries, agreed_answerable(judgments)),
        {query.qid: evidence for query, evidence in zip(queries, found, strict=True)},
        agreed_grades(judgments),
        config,
        parse_measures(measures, relevant_from),
        k=k,
        progress=progress,
    )
