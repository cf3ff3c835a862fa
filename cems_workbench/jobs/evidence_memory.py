"""Evidence memory: evidence of judged queries for tools that measure on them repeatedly: query picker, why, sensitivity.

Evidence comes from the files of query sets that were gathered before; otherwise it is gathered a query at a time, without the judge's
scores. Lists of a running system never come from a file: this process asks the system, and asks again after `forget`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from cems_workbench.analysis.why.trial import LabelledSet
from cems_workbench.config import PipelineConfig, asks_source, field_spec, with_values
from cems_workbench.errors import InputError
from cems_workbench.evaluation.grades import agreed_answerable, agreed_grades, as_judged
from cems_workbench.jobs.query_set_evidence import (
    ALL_QUERIES,
    EMBED_BATCH_SIZE,
    QuerySelection,
    dictionary_entries,
    embed_ahead,
    evidence_files,
    measurable,
    read_exact_evidence,
    read_some_evidence,
    require_answered,
    sample_queries,
)
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.gather import Request, gather_lists, gather_scores
from cems_workbench.pipeline.missing_evidence import gather_parameters
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.scoring import RERANKING
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Judgment, Query

SETS_IN_MEMORY = 4
MemoryKey = tuple[str, int, str]
Grades = Mapping[str, Mapping[str, int]]


def judged_queries(resources: Resources) -> tuple[list[Query], Grades]:
    """The queries that people judged or marked as having no answer, by qid, and their agreed grades by qid and memory id."""
    judgments = resources.store.judgments.read(kind="human")
    queries = as_judged(resources.store.queries.read(), agreed_answerable(judgments))
    return measurable(queries, judgments), agreed_grades(judgments)


class EvidenceMemory:
    """The last few sets of evidence of single queries, by gather parameters; shared by all sessions of a process.

    Evidence has lists and reranker scores, and judge scores only if a threshold on them decides. A query is kept once it is
    gathered, so that an interrupted gather resumes after it, but not if it was searched while the indexes were behind.
    """

    def __init__(self, sets: int = SETS_IN_MEMORY) -> None:
        self._sets = sets
        self._gathered: dict[MemoryKey, dict[Query, Evidence]] = {}

    @staticmethod
    def key(config: PipelineConfig, resources: Resources) -> MemoryKey:
        """All that evidence depends on: store, content version, gather parameters, dictionary, and whether the judge decides."""
        decides = config.abstain.judge is not None
        parameters = repr((sorted(gather_parameters(config).items()), dictionary_entries(config, resources), decides))
        return str(resources.store.path), resources.store.content_version, parameters

    def has(self, queries: Sequence[Query], config: PipelineConfig, resources: Resources) -> bool:
        """Whether the evidence of every query is in memory."""
        gathered = self._gathered.get(self.key(config, resources), {})
        return all(query in gathered for query in queries)

    def searched(self, selection: QuerySelection, config: PipelineConfig, resources: Resources) -> bool:
        """Whether the queries of a set were searched, so that the scores that a reranker gave them are kept in the store."""
        known = {query.qid for query in self._gathered.get(self.key(config, resources), {})}
        return known.issuperset(query.qid for query in selection.queries)

    def get(
        self, queries: Sequence[Query], config: PipelineConfig, resources: Resources, progress: Progress = silent
    ) -> list[Evidence]:
        """The evidence of every query in their order: from memory, from a file, or gathered. `progress` counts queries,
        and is also called after each batch of a reranker. Its exceptions pass through, and finished queries are kept.
        Raises as `gather` does, and SourceError if a running system is unavailable."""
        key = self.key(config, resources)
        while key not in self._gathered and len(self._gathered) >= self._sets:
            self._gathered.pop(next(iter(self._gathered)))
        gathered = self._gathered.setdefault(key, {})
        if not asks_source(config) and not all(query in gathered for query in queries):
            _take_from_shelf(gathered, queries, config, resources)
        missing, found = [query for query in queries if query not in gathered], dict[Query, Evidence]()
        for i, query in enumerate(missing):
            done = len(queries) - len(missing) + i

            def reading(label: str, *_: int, done: int = done) -> None:
                if label == RERANKING:  # a reranker reports anything else while it is locked
                    progress("gathering the query set", done, len(queries))

            progress("gathering the query set", done, len(queries))
            if i % EMBED_BATCH_SIZE == 0:
                embed_ahead(missing[i : i + EMBED_BATCH_SIZE], resources)
            lists = gather_lists(Request(query.query, query.project, query.as_of), config, resources)
            require_answered(lists, config)
            found[query] = gather_scores(lists, config, resources, reading, judge="decisive")
            if not resources.behind:
                gathered[query] = found[query]
        return [found.get(query) or gathered[query] for query in queries]

    def forget(self, config: PipelineConfig, resources: Resources) -> None:
        """Drop the evidence of this config, so that it is gathered again."""
        self._gathered.pop(self.key(config, resources), None)


def _take_from_shelf(
    gathered: dict[Query, Evidence], queries: Sequence[Query], config: PipelineConfig, resources: Resources
) -> None:
    """Add evidence from the files of the store's query sets; a damaged file is ignored."""
    store = resources.store
    judgments = store.judgments.read()
    for selection in _gathered_selections(resources, judgments):
        missing = {query for query in queries if query not in gathered}
        if not missing.intersection(selection.queries):
            continue
        with suppress(InputError):
            if (evidence := read_exact_evidence(config, selection, resources)) is not None:
                known = (q for q in evidence.queries if q in missing and q.qid in evidence.evidences)
                gathered |= {q: evidence.evidences[q.qid] for q in known}


def _gathered_selections(resources: Resources, judgments: Sequence[Judgment]) -> Iterator[QuerySelection]:
    """What may have been gathered in files: of every query set and of all queries, the measurable ones and the whole."""
    store = resources.store
    sets = {known.name: store.query_sets.queries for known in store.query_sets.latest()}
    for name in dict.fromkeys([*sets, ALL_QUERIES]):
        whole = tuple(sets[name](name) if name in sets else store.queries.read())
        judged = tuple(measurable(whole, judgments))
        yield QuerySelection(name, judged)
        if judged != whole:
            yield QuerySelection(name, whole)


MAX_CHECKED = 500
"""Judged queries on which changes are checked; of more than these a random sample."""


def gathered_judged_set(config: PipelineConfig, resources: Resources) -> LabelledSet | None:
    """The store's judged queries with a relevant memory, as far as files next to the store hold their evidence; None if
    none does. At most `MAX_CHECKED`, drawn with a fixed seed, so that time and memory do not grow with the files. A
    damaged file is ignored. Lists of a running system never come from a file."""
    if asks_source(config) or not evidence_files(resources):
        return None
    queries, grades = judged_queries(resources)
    relevant_from = resources.store.query_sets.relevant_from_of([query.qid for query in queries])
    best = {qid: max(found.values(), default=-math.inf) for qid, found in grades.items()}
    useful = [query for query in queries if best.get(query.qid, -math.inf) >= relevant_from[query.qid]]
    drawn = {query.qid for query in sample_queries(useful, MAX_CHECKED, seed=0)}
    found: dict[str, Evidence] = {}
    alike = [config]
    if config.abstain.judge is None:  # then a judge moves nothing, and evidence of another one ranks alike
        others = [name for name in field_spec("judge.backend").choices if name != config.judge.backend]
        alike += [with_values(config, {"judge.backend": name}) for name in others]
    for selection in _gathered_selections(resources, resources.store.judgments.read()):
        missing = drawn.intersection(query.qid for query in selection.queries) - found.keys()
        if missing:
            for same in alike:
                with suppress(InputError):
                    found |= read_some_evidence(same, selection, missing - found.keys(), resources) or {}
    if not found:
        return None
    scope = f" of {len(useful):,}" if len(found) < len(useful) else ""
    return LabelledSet(found, grades, relevant_from, scope, len(drawn) < len(useful))


def checking_set(
    config: PipelineConfig, resources: Resources, gather: bool = False, progress: Progress = silent
) -> LabelledSet | None:
    """The judged queries on which `why` checks changes: as far as they were gathered, or with `gather` all, which may take a while."""
    return judged_set(config, resources, progress) if gather else gathered_judged_set(config, resources)


def judged_set(config: PipelineConfig, resources: Resources, progress: Progress = silent) -> LabelledSet:
    """The store's judged queries with evidence and grades, for `why`. Raises as `EvidenceMemory.get` does."""
    queries, grades = judged_queries(resources)
    found = EvidenceMemory().get(queries, config, resources, progress)
    evidences = {query.qid: evidence for query, evidence in zip(queries, found, strict=True)}
    return LabelledSet(evidences, grades, resources.store.query_sets.relevant_from_of(list(evidences)))
