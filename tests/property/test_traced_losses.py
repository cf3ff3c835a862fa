"""External traces: every relevant memory is lost in one branch, that of `why`; and a trace of ours read back loses the same ones."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import IDS, evidences

from cems_workbench.analysis.losses import NEVER_FOUND
from cems_workbench.analysis.losses_of_set import Losses, losses_of, with_words
from cems_workbench.analysis.ranks import branch_of
from cems_workbench.analysis.why import cause, memory_path
from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.pipeline import Evidence, evidence_from, replay
from cems_workbench.pipeline.bundle import bundle_from
from cems_workbench.pipeline.recorded import RECORDED
from cems_workbench.pipeline.trace_spans import trace_spans
from cems_workbench.records import STAGE_KINDS, Memory, Query
from tests.property.test_one_truth import CONFIGS
from tests.thoroughly import EXAMPLES
from tests.unit.formats.test_traced_spans import ROOT, documents, reranker, retriever, stage
from workbench_tools.spans import Span, read_span
from workbench_tools.traced import TracedQuery, queries_of

SCORES = st.none() | st.sampled_from([0.1, 0.5, 0.5, 2.0])
STRANGER = "stranger"


def hits(draw: st.DrawFn, among: list[str]) -> list[tuple[str, float | None]]:
    ids = draw(st.lists(st.sampled_from(among), unique=True)) if among else []
    return [(key, draw(SCORES)) for key in ids]


@st.composite
def traces(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The spans of one query in any order: lists and stages between one another, inputs said or not, strangers, a root with or without
    documents, one span that failed."""
    spans, known = [ROOT], list[str]()
    for at in range(draw(st.integers(1, 7))):
        form = draw(st.sampled_from(["list", "stage", "stage", "rerank"]))
        if form == "list" or not known:
            found = hits(draw, IDS)
            spans.append(retriever(f"list {at}", at + 1, found))
        else:
            found = hits(draw, [*dict.fromkeys(known), STRANGER])
            read = hits(draw, list(dict.fromkeys(known)))
            if form == "rerank":
                spans.append(reranker(f"rerank {at}", at + 1, read, found))
            else:
                given = documents("workbench.stage.input", read) if draw(st.booleans()) else {}
                kind = draw(st.sampled_from(STAGE_KINDS))
                spans.append(stage(f"stage {at}", at + 1, kind, found, **given))
        known += [key for key, _ in found]
    if draw(st.booleans()):
        spans[0] = ROOT | {"attributes": ROOT["attributes"] | documents("retrieval.documents", hits(draw, IDS))}
    failed = draw(st.integers(0, 3 * len(spans)))
    if 0 < failed < len(spans):
        spans[failed] = spans[failed] | {"status_code": "ERROR"}
    return draw(st.permutations(spans))


def read_back(spans: list[dict[str, Any]]) -> list[TracedQuery]:
    found = [read_span(row, json.loads(json.dumps(one))) for row, one in enumerate(spans, 1)]
    return list(queries_of([Span.from_values(json.loads(json.dumps(one.to_values()))) for one in found]))


def evidence_of(query: TracedQuery) -> Evidence:
    memories = {key: Memory(key, "text") for key in query.ids}
    evidence = Evidence(query.query, memories, notes={RECORDED: query.recorded, "warnings": query.warnings})
    return evidence_from(json.loads(json.dumps(bundle_from(evidence))))


@settings(max_examples=4 * EXAMPLES)
@given(st.lists(traces(), min_size=1, max_size=4), st.integers(1, 4))
def test_every_relevant_memory_of_a_trace_is_in_one_branch_at_the_stage_that_why_names(found, k):
    queries = [query for spans in found for query in read_back(spans)]
    assert len(queries) == len(found)
    evidences_by_qid = {f"q{i}": evidence_of(query) for i, query in enumerate(queries)}
    ids = [*IDS, STRANGER, "nowhere"]
    grades = {qid: {key: (i + n) % 3 for n, key in enumerate(ids)} for i, qid in enumerate(evidences_by_qid)}
    batch = LabelledBatch([Query(qid, "q") for qid in evidences_by_qid], evidences_by_qid, grades)
    config = PipelineConfig()
    whole = losses_of([batch], [config], 1, k).maps[0]
    told = with_words(Losses((whole,), ()), [config], [lambda qids: {qid: evidences_by_qid[qid] for qid in qids}], 99)
    words = {(row.qid, row.memory_id): row.words for row in told.maps[0].rows}
    rows = {(row.qid, row.memory_id): row for row in whole.rows}
    assert len(rows) == len(whole.rows) == whole.lost == sum(whole.branches.values())
    widths = [whole.relevant - whole.at(""), *whole.after.values()]
    assert widths == sorted(widths, reverse=True) and widths[-1] == whole.returned
    for query, (qid, evidence) in zip(queries, evidences_by_qid.items(), strict=True):
        trace = replay(evidence, config)
        assert [result.memory_id for result in trace.results] == [key for key, _ in query.results]
        first = {key for key, _ in query.results[:k]}
        for memory_id in (key for key, grade in grades[qid].items() if grade):
            row, path = rows.get((qid, memory_id)), memory_path(trace, memory_id, k)
            assert (row is None) == (memory_id in first) == (path.status == "in the top k")
            assert (row.branch if row else None) == branch_of(trace, memory_id, k)
            assert words.get((qid, memory_id)) == (cause(path, trace) if row else None)
            if row is not None:
                known = memory_id in query.ids
                assert (row.branch == NEVER_FOUND) == (path.status == "in no list") == (not known)
                assert row.branch.stage == (path.lost_at or "")


@settings(max_examples=2 * EXAMPLES)
@given(evidences(), CONFIGS, st.integers(1, 4), st.integers(0, 9))
def test_a_trace_of_ours_written_as_spans_and_read_back_loses_the_same_memories(evidence, config, k, seed):
    before = replay(evidence, config)
    spans = [json.loads(line) for line in trace_spans(before)]
    random.Random(seed).shuffle(spans)
    if not evidence.searched.strip():
        assert not read_back(spans)  # nothing was asked
        return
    (query,) = read_back(spans)
    after = replay(evidence_of(query), PipelineConfig())
    assert [stage.name for stage in after.candidate_stages] == [stage.name for stage in before.candidate_stages]
    assert [result.memory_id for result in after.results] == [result.memory_id for result in before.results]
    for memory_id in [*evidence.candidate_ids, "nowhere"]:
        assert branch_of(after, memory_id, k) == branch_of(before, memory_id, k)
        one, other = (memory_path(trace, memory_id, k) for trace in (before, after))
        assert (one.status, one.rank, one.lost_at) == (other.status, other.rank, other.lost_at)
        # Before a stage ranks, ours has the best score of the lists, which no span has.
        ways = [
            [(step.stage, step.rank_in, step.rank, step.rank and step.score, step.kept) for step in path.steps]
            for path in (one, other)
        ]
        assert ways[0] == ways[1]
