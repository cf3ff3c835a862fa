"""Blame as page, command, API and MCP ask for it: the query searched, its judgments, and the queries of the store's sets."""

from __future__ import annotations

from dataclasses import replace

from cems_workbench.analysis.blame import Blame, blame
from cems_workbench.analysis.claims import split_claims
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.jobs.caching import Cache, uncached
from cems_workbench.jobs.memory_use import uses_in_store
from cems_workbench.jobs.query_grades import query_grades
from cems_workbench.jobs.query_set_evidence import ALL_QUERIES
from cems_workbench.pipeline import Trace, replay
from cems_workbench.pipeline.gather import Request, gather_lists, gather_scores
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.understanding import NO_LLM, asker
from cems_workbench.progress import Progress, silent


def blame_answer(
    text: str,
    resources: Resources,
    config: PipelineConfig,
    request: Request | None = None,
    *,
    trace: Trace | None = None,
    returned: bool = False,
    progress: Progress = silent,
    cache: Cache = uncached,
) -> Blame:
    """The memories that support a text, and what became of them for a request, if there is one.

    `trace` is the replay of this request under this config, if the caller has it. `returned`, without a request: name the judged queries
    of the store that return each memory; their evidence is gathered if it is missing.

    Raises InputError for a text without a claim, an empty query, or `returned` with a request, and as `gather` does.
    """
    if request is not None and returned:
        raise InputError("the queries that return a memory are named without a query; leave out one of the two")
    llm = asker(resources)
    split = split_claims(text, resources.indexes.lexical.language, llm)
    if llm is None:
        split = replace(split, notes=(*split.notes, NO_LLM))
    if request is not None and trace is None:
        lists = gather_lists(request, config, resources)
        trace = replay(gather_scores(lists, config, resources, progress, judge="decisive"), config)
    if request is None:
        found = blame(split, resources, config, progress=progress)
        return _with_queries(found, resources, config, progress, cache) if returned else found
    judged = query_grades(request, resources.store)
    return blame(
        split,
        resources,
        config,
        trace,
        grades=judged.grades,
        relevant_from=judged.relevant_from,
        progress=progress,
    )


def _with_queries(
    found: Blame, resources: Resources, config: PipelineConfig, progress: Progress, cache: Cache
) -> Blame:
    """With the judged queries that return each memory within the config's limit."""
    ids = {memory.id for blamed in found.claims for memory in blamed.memories}
    if not ids:
        return found
    used = uses_in_store(config, resources, ALL_QUERIES, followed=ids, progress=progress, cache=cache).uses
    queries = {
        memory_id: tuple(row.query.query for row in used.rows.get(memory_id, ()) if row.rank is not None)
        for memory_id in ids
    }
    return replace(
        found,
        claims=tuple(
            replace(blamed, memories=tuple(replace(one, returned_for=queries[one.id]) for one in blamed.memories))
            for blamed in found.claims
        ),
    )
