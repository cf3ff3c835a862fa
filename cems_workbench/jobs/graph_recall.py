"""What Chroma's graph finds of the exactly nearest memories of a query set, by ef_search, and which relevant ones it misses.

Both lists have each memory once, by its nearest chunk; `analysis/graph_lists.py` has the recall.

The collection is never changed: a temporary copy of its files, which have its graph, is searched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from cems_workbench.analysis.graph_lists import Missed, recall_of
from cems_workbench.analysis.why.regather import least_ef_search
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError, StoreError, counted
from cems_workbench.jobs.evaluation import agreed
from cems_workbench.jobs.query_set_evidence import QuerySelection, request_for, selected
from cems_workbench.pipeline.gather import search_filter
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.results import Report, Table

EF_SEARCH = (10, 20, 50, 100, 200, 300)
MAX_TRACED = 100
"""Missed memories whose least ef_search is searched."""


def recall_of_set(
    query_set: str,
    resources: Resources,
    k: int = 10,
    ef_search: Sequence[int] = (),
    only_project: bool = False,
    progress: Progress = silent,
) -> Report:
    """`graph_recall` of a set of the store, of `all`, or of a file, with its agreed grades. Raises InputError also without queries."""
    selection, judgments = selected(query_set, resources, False, only_project)
    least = resources.store.query_sets.relevant_from(query_set)
    grades = agreed(judgments, None).grades
    return graph_recall(selection, grades, least, PipelineConfig(), resources, k, ef_search, progress)


def graph_recall(
    selection: QuerySelection,
    grades: Mapping[str, Mapping[str, int]],
    relevant_from: int,
    config: PipelineConfig,
    resources: Resources,
    k: int = 10,
    ef_search: Sequence[int] = (),
    progress: Progress = silent,
) -> Report:
    """The recall at `k` for each `ef_search` and for the collection's own; of the config only the scope is read.
    `grades` are those of memories by qid. Raises InputError for a number below 1, StoreError if the graph cannot be
    searched, and what `progress` raises."""
    if min([k, *ef_search]) < 1:
        raise InputError(f"expected a rank and values of ef_search of 1 or more, found {min([k, *ef_search])}")
    resources.graph(progress)
    hnsw = resources.store.indexes.graph_settings(resources.embedder)
    tried, own, notes = sorted({*(ef_search or EF_SEARCH), hnsw["ef_search"]}), hnsw["ef_search"], list[str]()
    try:
        vectors = resources.indexes.vectors.with_graph(tried[0])
    except StoreError as error:
        if ef_search:
            raise
        tried, notes = [one for one in tried if one >= own], [str(error)]
        vectors = resources.indexes.vectors.with_graph(own)
    queries, moment, missed = selection.queries, datetime.now(UTC), list[tuple[Any, ...]]()
    found, counts, relevant = np.ones((len(tried), len(queries))), [0] * len(tried), 0
    first: dict[tuple[int, int], Missed | None] = {}
    for q, query in enumerate(queries):
        progress("searching the graph", q, len(queries))
        vector = resources.embedder.encode_query(query.searched or query.query)
        where = search_filter(request_for(query, moment, selection.only_project), config, resources)
        exact = vectors.search(vector, k, where)
        ranks = {memory_id: rank for rank, (memory_id, _) in enumerate(exact, 1)}
        wanted = {key for key, grade in grades.get(query.qid, {}).items() if grade >= relevant_from} & ranks.keys()
        relevant += len(wanted)
        lost: dict[str, int] = {}
        for i, ef in enumerate(tried if exact else ()):
            recall = recall_of(exact, vectors.approximate(vector, k, where, ef))
            found[i, q], first[i, q] = recall.value, next(iter(recall.missed), None)
            absent = wanted & {one.memory_id for one in recall.missed}
            counts[i] += len(absent)
            lost |= dict.fromkeys(absent, ef)
        for key in sorted(lost, key=ranks.__getitem__):
            traced = len(missed) < MAX_TRACED
            point = least_ef_search(vectors, vector, k, where, key, lost[key]) if traced else None
            missed.append((query.qid, query.query, key, ranks[key], lost[key], point and point.succeeds))
    progress("searching the graph", len(queries), len(queries))
    at, worst = tried.index(own), found.argmin(axis=1).tolist()
    lines = [
        f"With the collection's ef_search of {own} Chroma's graph found {found[at].mean():.2%} of the exactly nearest {k} memories of "
        f"{counted(len(queries), 'queries')}, and missed {counts[at]} of {relevant} relevant ones among them."
    ]
    short = [i for i, q in enumerate(worst) if found[i, q] < 1]
    if short:
        i = at if at in short else short[-1]
        query, share, one = queries[worst[i]], found[i, worst[i]], first[i, worst[i]]
        assert one is not None
        lines.append(
            f"Worst query with ef_search {tried[i]}: {query.qid}, “{query.query}”: {share:.0%} found; the nearest of the others is "
            f"{one.memory_id}, exactly at {one.rank}."
        )
    names = ("ef_search", f"recall@{k}", "lowest", "worst query", "queries with a miss", "relevant missed")
    rows = (
        (ef, float(row.mean()), float(row[q]), queries[q].qid if row[q] < 1 else None, int((row < 1).sum()), count)
        for ef, row, q, count in zip(tried, found, worst, counts, strict=True)
    )
    of_missed = ("qid", "query", "memory", "exact rank", "missed at", "found from")
    return Report(
        f"recall of Chroma's graph on {selection.query_set}",
        lines,
        [
            Table(names, tuple(rows)),
            Table(
                of_missed,
                tuple(sorted(missed, key=lambda row: -row[4])),
                "relevant memories that the graph misses, by ef_search",
            ),
        ],
        [
            f"The collection has ef_search {own}, ef_construction {hnsw['ef_construction']} and max_neighbors {hnsw['max_neighbors']}, and "
            "was not changed: a temporary copy of its files was searched.",
            f"HNSW takes an ef_search below the {k} that are asked for as {k}.",
            "missed at: the largest ef_search tried that misses it. found from: it is found with this one and not with one less; empty: "
            f"with none, or it is not among the first {MAX_TRACED}, for which that was tried.",
            *notes,
        ],
    )
