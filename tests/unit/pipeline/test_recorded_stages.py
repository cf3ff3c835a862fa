"""Recorded stages: those of an external trace are returned under any config, and every loss is at one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cems_workbench.analysis.losses_of_set import losses_of
from cems_workbench.analysis.ranks import branch_of, rank_flow
from cems_workbench.analysis.why.path import cause, memory_path
from cems_workbench.config import PipelineConfig, preset, preset_names
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.pipeline import Evidence, evidence_from, read_bundle, replay, write_bundle
from cems_workbench.pipeline.bundle import bundle_from
from cems_workbench.pipeline.recorded import RECORDED, RecordedList, RecordedStage, RecordedStages
from cems_workbench.pipeline.redact import redacted
from cems_workbench.records import Memory, Query


def hits(*ids: str, score: float | None = None) -> tuple[tuple[str, float | None], ...]:
    return tuple((key, None if score is None else score - i) for i, key in enumerate(ids))


def traced(recorded: RecordedStages, query: str = "q") -> Evidence:
    memories = {key: Memory(key, f"text of {key}") for key in recorded.ids}
    return Evidence(query, memories, notes={RECORDED: recorded.to_json()})


HYBRID = RecordedStages(
    (RecordedList("bm25", hits("a", "b", "c", "d", score=9.0)), RecordedList("faiss", hits("e", "a", "f"))),
    (
        RecordedStage("rrf", "fusion", hits("a", "e", "b", "c", "f")),
        RecordedStage("only ours", "filter", hits("a", "e", "b", "f")),
        RecordedStage("cohere", "rerank", hits("b", "a", "e", score=0.9), input=hits("a", "e", "b")),
        RecordedStage("first two", "assembly", hits("b", "a")),
    ),
)


def test_stages_are_the_recorded_ones_under_every_preset() -> None:
    evidence = traced(HYBRID)
    for name in preset_names():
        trace = replay(evidence, preset(name).config)
        assert [stage.name for stage in trace.stages] == ["lists", "rrf", "only ours", "cohere", "first two"]
        assert [result.memory_id for result in trace.results] == ["b", "a"]
        assert not trace.needs
        row = trace.stage("cohere").by_id["b"]
        assert (row.rank_in, row.rank_out, row.score_in, row.score) == (3, 1, None, 0.9)


@pytest.mark.parametrize(
    ("memory_id", "k", "stage", "manner"),
    [
        ("d", 2, "lists", "below"),  # 4th in the only list that has it: rrf kept as many as it does
        ("d", 4, "rrf", "dropped"),
        ("c", 2, "only ours", "dropped"),  # below 2 before it too, and dropped for another reason
        ("c", 3, "rrf", "below"),  # its rank there was 4, and a later stage dropped it
        ("c", 4, "only ours", "dropped"),
        ("f", 5, "cohere", "dropped"),  # the reranker never read it
        ("e", 2, "cohere", "below"),
        ("e", 5, "first two", "dropped"),
        ("a", 1, "cohere", "below"),
        ("nowhere", 2, "", "never"),
    ],
)
def test_a_memory_is_lost_at_the_stage_after_which_it_is_never_within_k(memory_id, k, stage, manner):
    trace = replay(traced(HYBRID), PipelineConfig())
    branch = branch_of(trace, memory_id, k)
    assert branch is not None and (branch.stage, branch.manner) == (stage, manner)


@pytest.mark.parametrize(
    ("k", "stages"),
    [
        (1, {"a": None, "b": "lists", "c": "topk", "d": "topk", "e": "min_score", "f": "min_score", "x": ""}),
        (2, {"a": None, "b": None, "c": "topk", "d": "topk", "e": "min_score", "f": "min_score", "x": ""}),
        (5, {"a": None, "b": None, "c": "topk", "d": "topk", "e": "min_score", "f": "min_score", "x": ""}),
    ],
)
def test_one_list_a_filter_and_a_cut_lose_what_retrieval_observatory_says(k, stages):
    """Recorded from retrieval-observatory 0.8.0 by benchmarks/observatory_agree.py, whose `retained_below_cutoff` is b at 1.

    A filter that kept the order was blamed for what the cut took (found beside peers, 29 November 2026).
    """
    only = RecordedStages(
        (RecordedList("bm25", hits("a", "b", "c", "d", "e", "f", score=9.0)),),
        (
            RecordedStage("min_score", "other", hits("a", "b", "c", "d", score=9.0)),
            RecordedStage("topk", "assembly", hits("a", "b", score=9.0)),
        ),
    )
    trace = replay(traced(only), PipelineConfig())
    found = {key: branch_of(trace, key, k) for key in stages}
    assert {key: branch and branch.stage for key, branch in found.items()} == stages


def test_a_list_that_has_it_below_k_lost_it_and_the_sentence_says_so() -> None:
    """`why` said "lost at fusion" of a memory that the only list has 2nd (found beside peers, 29 November 2026)."""
    second = RecordedStages(
        (RecordedList("vector", hits("a", "b")),), (RecordedStage("fusion", "fusion", hits("a", "b")),)
    )
    trace = replay(traced(second), PipelineConfig())
    assert cause(memory_path(trace, "b", 1), trace) == (
        "Lost at lists: below 1 in every list (best: 2nd in vector); b was 2nd in vector."
    )


def test_what_a_reranker_never_read_it_lost_and_what_it_left_where_it_was_the_lists_did() -> None:
    read = RecordedStages(
        (RecordedList("bm25", hits("a", "b", "c", "d")), RecordedList("faiss", hits("b", "a", "d", "c"))),
        (
            RecordedStage("rrf", "fusion", hits("a", "b", "c", "d")),
            RecordedStage("cohere", "rerank", hits("b", "a"), input=hits("a", "b", "c")),
        ),
    )
    trace = replay(traced(read), PipelineConfig())
    found = {key: branch_of(trace, key, 2) for key in "abcd"}
    assert {key: branch and branch.stage for key, branch in found.items()} == {
        "a": None,
        "b": None,
        "c": "lists",
        "d": "cohere",
    }


@pytest.mark.parametrize(("read", "stage"), [("ab", "rrf"), ("abef", "titles")])
def test_what_fusion_left_below_k_is_lost_where_it_is_dropped_if_a_reranker_reads_as_far(read: str, stage: str) -> None:
    """A deduplication by title was planted before a reranker of 20, and `why` blamed the fusion that had the memory 17th."""
    deep = RecordedStages(
        (RecordedList("bm25", hits("c", "a", "b", "e")), RecordedList("faiss", hits("b", "a", "e", "f"))),
        (
            RecordedStage("rrf", "fusion", hits("a", "b", "c", "e", "f")),
            RecordedStage("titles", "dedup", hits("a", "b", "e", "f")),
            RecordedStage("cohere", "rerank", hits("b", "a"), input=hits(*read)),
        ),
    )
    branch = branch_of(replay(traced(deep), PipelineConfig()), "c", 2)
    assert branch is not None and branch.stage == stage


def test_the_cause_names_the_stage_and_the_ranks_before_and_after() -> None:
    trace = replay(traced(HYBRID), PipelineConfig())
    assert (
        cause(memory_path(trace, "a", 1), trace)
        == "Lost at cohere: a was 1st in bm25 (9), 2nd in faiss, 1st before cohere; cohere put it 2nd with the score -0.1."
    )
    assert cause(memory_path(trace, "f", 5), trace) == (
        "Lost at cohere: f was not in bm25, 3rd in faiss, 4th before cohere; cohere dropped it: not in its input."
    )
    flow = rank_flow(trace, 5, ["d"])
    assert flow.columns == ("bm25", "faiss", "rrf", "only ours", "cohere", "first two")
    assert {line.memory_id: line.dropped and line.dropped.stage for line in flow.lines} == {
        "b": None,
        "a": None,
        "e": "first two",
        "f": "cohere",
        "c": "only ours",
        "d": "rrf",
    }


def test_a_candidate_on_another_branch_waits() -> None:
    recorded = RecordedStages(
        (RecordedList("bm25", hits("a", "b")), RecordedList("faiss", hits("c", "d"))),
        (
            RecordedStage("rerank words", "rerank", hits("b", "a"), input=hits("a", "b")),
            RecordedStage("rerank vectors", "rerank", hits("d"), input=hits("c", "d")),
            RecordedStage("join", "fusion", hits("d", "b"), input=hits("b", "a", "d")),
        ),
    )
    trace = replay(traced(recorded), PipelineConfig())
    lost = {key: branch_of(trace, key, 10) for key in "abcd"}
    assert {key: branch and branch.stage for key, branch in lost.items()} == {
        "a": "join",
        "b": None,
        "c": "rerank vectors",
        "d": None,
    }


def test_queries_with_other_stages_share_a_loss_map() -> None:
    short = RecordedStages((RecordedList("bm25", hits("a", "b")),), (RecordedStage("rrf", "fusion", hits("b")),))
    evidences = {"q1": traced(HYBRID), "q2": traced(short), "q3": traced(HYBRID)}
    queries = [Query(qid, "q") for qid in evidences]
    batch = LabelledBatch(queries, evidences, {qid: dict.fromkeys("abcdef", 1) for qid in evidences})
    found = losses_of([batch], [PipelineConfig()], 1, 1).maps[0]
    assert list(found.after) == ["lists", "rrf", "only ours", "cohere", "first two"]
    assert found.returned == 3 and found.relevant == 18
    assert [(branch.stage, branch.manner, count) for branch, count in found.branches.items()] == [
        ("", "never", 4),
        ("lists", "below", 2),
        ("rrf", "dropped", 1),
        ("rrf", "below", 2),
        ("only ours", "dropped", 2),
        ("cohere", "dropped", 2),
        ("cohere", "below", 2),
    ]
    assert list(found.after.values())[-1] == found.returned


def test_a_bundle_holds_them_and_evidence_without_them_is_unchanged(tmp_path: Path) -> None:
    evidence = traced(HYBRID)
    path = tmp_path / "traced.json"
    write_bundle(evidence, path)
    assert read_bundle(path).recorded == HYBRID
    assert replay(read_bundle(path), PipelineConfig()).same_as(replay(evidence, PipelineConfig()))
    plain = Evidence("q", {"a": Memory("a", "text")})
    assert RECORDED not in bundle_from(plain).get("notes", {}) and not plain.external


def test_a_redacted_bundle_has_the_same_ranks_and_no_names() -> None:
    hidden = redacted(traced(HYBRID), b"key")
    before, after = (replay(one, PipelineConfig()) for one in (traced(HYBRID), hidden))
    for one, other in zip(before.stages, after.stages, strict=True):
        assert [(row.rank_in, row.rank_out, row.score) for row in one.rows] == [
            (row.rank_in, row.rank_out, row.score) for row in other.rows
        ]
    assert "cohere" not in str(bundle_from(hidden))


@pytest.mark.parametrize(
    ("note", "said"),
    [
        ({}, "stages: expected list"),
        ({"stages": []}, "at least one"),
        ({"stages": [{"name": "x", "kind": "magic", "output": []}]}, "stages[0].kind: expected one of list, fusion"),
        ({"stages": [{"name": "x", "kind": "other", "output": [["a", 1], ["a", 2]]}]}, "a memory is in it twice"),
        ({"stages": [{"name": "x", "kind": "other", "output": [["zz", 1]]}]}, "'zz' is not among the memories"),
        ({"stages": [{"name": "lists", "kind": "other", "output": []}]}, "two are named 'lists'"),
    ],
)
def test_a_note_that_is_none_is_refused_with_its_field(note: object, said: str) -> None:
    bundle = bundle_from(Evidence("q", {"a": Memory("a", "text")}, notes={RECORDED: note}))
    with pytest.raises(InputError, match="recorded_stages") as caught:
        evidence_from(bundle, "bundle")
    assert said in str(caught.value)


def test_cause_says_that_the_trace_lacks_documents_of_a_list() -> None:
    """opentelemetry-sdk 1.45.2, run on 2026-11-29: what is in no recorded list may have been dropped from the span."""
    lists = (
        RecordedList("R", hits("not in the trace: 1 of R", "a"), lost="1 of its 2 documents are missing"),
        RecordedList("S", hits("a")),
    )
    trace = replay(traced(RecordedStages(lists, HYBRID.stages[:1])), PipelineConfig())
    assert cause(memory_path(trace, "m3", 5), trace) == (
        "No recorded list has m3, but the trace lacks documents of some (R: 1 of its 2 documents are missing)."
    )
    assert RecordedStages(lists, HYBRID.stages).to_json()["lists"][0]["lost"] == "1 of its 2 documents are missing"
