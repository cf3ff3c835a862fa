"""A graph that misses memories: its recall over a query set, the branch of the loss map, and why."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cems_workbench.analysis.losses_of_set import losses_of
from cems_workbench.analysis.ranks import GRAPH_LOST
from cems_workbench.analysis.why.report import explain
from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.jobs.evaluation import agreed
from cems_workbench.jobs.factory import open_resources
from cems_workbench.jobs.graph_recall import graph_recall
from cems_workbench.jobs.query_set_evidence import QuerySelection, request_for
from cems_workbench.pipeline.gather import gather
from cems_workbench.settings import Settings
from cems_workbench.store.search import chroma
from tests.sample import answered_queries

AS_OF = datetime(2026, 9, 1, tzinfo=UTC)


def test_what_a_graph_misses_is_counted_where_it_is_lost_and_brought_back(
    sample_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rows that are newer than the last synchronisation enter the graph anew at each start, in another way.
    for name, value in (("max_neighbors", 2), ("ef_construction", 2), ("sync_threshold", 100)):
        monkeypatch.setitem(chroma.HNSW, name, value)
    folder = shutil.copytree(sample_store, tmp_path / "store")
    resources = open_resources(Settings(store=folder))
    selection = QuerySelection("some", tuple(answered_queries(resources.store)[:40]))
    grades = agreed(resources.store.judgments.read(), None).grades
    with pytest.raises(InputError, match="1 or more, found 0"):
        graph_recall(selection, grades, 1, PipelineConfig(), resources, 0)
    found = graph_recall(selection, grades, 1, PipelineConfig(), resources, 10, [10, 400])
    recall, missed = found.tables
    assert [row[0] for row in recall.rows] == [10, 300, 400]
    assert recall.rows[0][1] < 1
    vectors, by_qid = resources.indexes.vectors, {query.qid: query for query in selection.queries}
    relevant_missed = 0
    for _, text, memory_id, rank, misses, finds in missed.rows:
        vector = resources.embedder.encode_query(text)
        assert vectors.search(vector, 10)[rank - 1][0] == memory_id
        for ef_search, there in ((misses, False), *([(finds, True), (finds - 1, False)] if finds else [])):
            assert (memory_id in dict(vectors.approximate(vector, 10, ef_search=ef_search))) is there
        relevant_missed += memory_id not in dict(vectors.approximate(vector, 10, ef_search=10))
    assert relevant_missed == recall.rows[0][-1] > 0

    values = {"lists.vector.index": "graph", "lists.vector.ef_search": 10, "lists.vector.depth": 10}
    values |= {"lists.lexical.enabled": False, "lists.relations.enabled": False, "rerank.backend": "none"}
    config = with_values(PipelineConfig(), values)
    qids = sorted({row[0] for row in missed.rows})[:4]
    evidences = {qid: gather(request_for(by_qid[qid], AS_OF), config, resources) for qid in qids}
    batch = LabelledBatch([by_qid[qid] for qid in evidences], evidences, grades)
    lost = losses_of([batch], [config], 1).maps[0].rows_of(GRAPH_LOST)
    assert lost
    for one in lost:
        (listed,) = (ranked for ranked in evidences[one.qid].lists if ranked.source == "vector")
        assert one.memory_id not in {hit.memory_id for hit in listed.hits}
        assert evidences[one.qid].missed_by_graph[one.memory_id][1] <= 10
    one = lost[0]
    request = request_for(by_qid[one.qid], AS_OF)
    why = explain(one.memory_id, evidences[one.qid], config, request=request, resources=resources)
    assert "Chroma's graph missed it" in why.cause
    changes = {next(iter(change.values)): change for change in why.counterfactuals if change.of_cause}
    assert changes["lists.vector.index"].values == {"lists.vector.index": "exact"}
    resources.close()
