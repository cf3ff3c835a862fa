"""The trace as rows, and what a config asks of the evidence that it does not hold."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from cases import configured, evidence, falling, trace

from cems_workbench.config import PipelineConfig, preset
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.missing_evidence import gather_parameters
from cems_workbench.pipeline.stages import STAGES
from cems_workbench.records import Chunk, Query

SPEC_ORDER = [
    "query",
    "expansion",
    "lists",
    "threshold",
    "fusion",
    "filter",
    "rerank",
    "adjust",
    "supersession",
    "gap",
    "dedup",
    "abstain",
    "assembly",
    "judge",
]


def gathered(config: PipelineConfig, **fields: Any) -> Evidence:
    """Evidence that notes the parameters it was gathered with."""
    return evidence({"vector": falling(3)}, notes={"gathered": dict(gather_parameters(config))}, **fields)


def missing(evidence: Evidence, changes: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {need.parameter: (need.gathered, need.wanted) for need in trace(evidence, changes).needs}


def test_the_stages_run_in_the_order_of_the_specification() -> None:
    assert [stage.name for stage in STAGES] == SPEC_ORDER
    assert [stage.name for stage in trace(evidence({"vector": falling(3)})).stages] == SPEC_ORDER


def test_every_stage_row_has_the_row_contract() -> None:
    for stage in trace(evidence({"vector": falling(3)})).stages:
        for row in stage.rows:
            assert {"memory_id", "rank_in", "rank_out", "score_in", "score", "kept", "reason"} <= row.to_json().keys()


def test_trace_json_has_the_keys_of_the_specification() -> None:
    subject = evidence({"vector": falling(3)}, model=dict.fromkeys(falling(3), 0.5))
    values = trace(subject, {"rerank.backend": "cross_encoder", "rerank.model": "oracle"}).to_json()
    assert {"stages", "results", "tokens_used", "skipped_for_budget"} <= values.keys()
    rows = {stage["name"]: stage["rows"][0] for stage in values["stages"] if stage["rows"]}
    assert {"raw", "normalized", "contributions"} <= rows["fusion"].keys()
    assert rows["fusion"]["contributions"][0].keys() >= {"list", "rank", "weight", "base", "bonus"}
    assert rows["rerank"].keys() >= {
        "raw",
        "unit",
        "rank_before",
        "retrieval_weight",
        "retrieval_score",
        "score",
        "flagged",
    }
    assert rows["adjust"].keys() >= {"factors", "score"}
    assert all({"name", "rows", "warnings", "elapsed_ms"} <= stage.keys() for stage in values["stages"])
    assert all({"memory_id", "score"} <= row.keys() for row in values["results"])


def test_a_memory_can_be_followed_to_the_stage_that_lost_it() -> None:
    path = trace(evidence({"vector": falling(3)}), {"assembly.limit": 1}).path("m02")
    assert [name for name, _ in path] == SPEC_ORDER[2:-1]
    assert [row.kept for _, row in path] == [True] * 10 + [False]


def test_survivors_of_a_stage_are_the_entrants_of_the_next() -> None:
    changes = {"lists.vector.depth": 5, "filter.percentile": 20.0, "assembly.limit": 2}
    stages = trace(evidence({"vector": falling(8)}), changes).stages[2:]
    for earlier, later in pairwise(stages):
        assert {row.memory_id for row in earlier.rows if row.kept} == set(later.by_id)


def test_stages_are_timed_by_the_clock_that_is_handed_in_and_by_no_other() -> None:
    ticks = iter(range(100))
    timed = replay(evidence({"vector": falling(3)}), configured(), clock=lambda: next(ticks) / 1000)
    assert [stage.elapsed_ms for stage in timed.stages] == pytest.approx([1.0] * len(SPEC_ORDER))
    untimed = trace(evidence({"vector": falling(3)}))
    assert {stage.elapsed_ms for stage in untimed.stages} == {None}


def test_same_as_ignores_time_and_nothing_else() -> None:
    subject = evidence({"vector": falling(3)})
    ticks = iter(range(100))
    assert trace(subject).same_as(replay(subject, configured(), clock=lambda: float(next(ticks))))
    assert not trace(subject).same_as(trace(subject, {"fusion.k": 61}))


def test_evidence_of_the_same_parameters_needs_nothing() -> None:
    assert trace(gathered(configured())).needs == []


def test_a_bundle_without_a_record_of_its_gathering_needs_nothing() -> None:
    assert trace(evidence({"vector": falling(3)}), {"lists.vector.depth": 9000}).needs == []


def test_shrinking_a_depth_is_instant_and_growing_it_needs_a_gather() -> None:
    subject = gathered(configured({"lists.vector.depth": 50}))
    assert missing(subject, {"lists.vector.depth": 10}) == {}
    assert missing(subject, {"lists.vector.depth": 51}) == {"lists.vector.depth": (50, 51)}
    assert missing(subject, {"lists.vector.depth": None}) == {"lists.vector.depth": (50, None)}
    assert missing(gathered(configured({"lists.vector.depth": None})), {"lists.vector.depth": 9000}) == {}


def test_what_deepens_a_list_is_needed_by_the_depth_it_comes_to() -> None:
    """10 × 1 × 10 = 100 is within 150; a limit of 20 asks for 200. Lexical: 50 → 100 → 200."""
    subject = gathered(configured({"lists.first_stage_factor": 10, "assembly.limit": 10}))
    deeper = {"lists.first_stage_factor": 10, "assembly.limit": 20}
    assert missing(subject, deeper) == {"lists.vector.depth": (150, 200), "lists.lexical.depth": (100, 200)}
    assert (
        missing(subject, {"lists.first_stage_factor": 10, "assembly.limit": 10, "lists.vector.first_stage_factor": 1})
        == {}
    )
    assert missing(gathered(configured()), {"rerank.oversample_factor": 3.0, "assembly.limit": 10}) == {}
    assert missing(gathered(configured()), {"lists.vector.first_stage_factor": 7, "assembly.limit": 10}) == {}
    own = {"lists.vector.first_stage_factor": 16, "assembly.limit": 10}  # effective with a factor of 1 for all lists
    assert missing(gathered(configured()), own) == {"lists.vector.depth": (150, 160)}


def test_a_candidate_set_is_needed_by_the_size_it_comes_to() -> None:
    subject = gathered(configured({"lists.candidate_set.mode": "newest_created", "lists.candidate_set.size": 9}))
    mode = {"lists.candidate_set.mode": "newest_created", "lists.candidate_set.size": 9, "assembly.limit": 5}
    assert missing(subject, {**mode, "lists.candidate_set.size_factor": 1}) == {}
    assert missing(subject, {**mode, "lists.candidate_set.size_factor": 3}) == {"lists.candidate_set.size": (9, 15)}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("query.mode", "vector"),
        ("query.scope", "shared"),
        ("expansion.backend", "manual"),
        ("lists.candidate_set.mode", "recent_access"),
        ("lists.relations.seeds", 9),
        ("expansion.skip_on_strong_signal.threshold", 0.5),
    ],
)
def test_a_gather_parameter_that_differs_is_needed(path: str, value: Any) -> None:
    subject = gathered(configured())
    assert missing(subject, {path: value}) == {path: (configured().get(path), value)}


@pytest.mark.parametrize(
    "changes",
    [
        {"fusion.k": 5},
        {"lists.relations.enabled": True},
        {"rerank.chunk_chars": 50},
        {"lists.candidate_set.size": 10},
        {"rerank.timeout_s": 3.0},
    ],
)
def test_replay_parameters_and_those_of_what_is_off_need_nothing(changes: dict[str, Any]) -> None:
    assert missing(gathered(configured()), changes) == {}


RERANKING = {"rerank.backend": "cross_encoder", "rerank.model": "oracle"}


def gathered_without(path: str, chunks: dict[str, tuple[Chunk, ...]]) -> Evidence:
    """Evidence as it was gathered before there was this parameter, every candidate scored."""
    notes = {"gathered": {key: value for key, value in gather_parameters(configured(RERANKING)).items() if key != path}}
    subject = evidence({"vector": falling(3)}, notes=notes, model=dict.fromkeys(falling(3), 0.5))
    return replace(subject, chunks=chunks)


def test_a_parameter_that_the_record_of_gathering_lacks_had_its_default() -> None:
    old = gathered_without("rerank.text_source", {})
    assert missing(old, RERANKING | {"rerank.text_source": "chunk"}) == {"rerank.text_source": ("memory", "chunk")}
    assert missing(old, RERANKING | {"rerank.text_source": "memory"}) == {}
    assert missing(old, {"rerank.text_source": "chunk"}) == {}  # nothing is reranked
    redacted = gathered_without("rerank.query", {})
    assert missing(redacted, RERANKING | {"rerank.query": "instructed"}) == {}
    assert missing(gathered_without("lists.answered_by", {}), {"lists.answered_by": "source"}) == {
        "lists.answered_by": ("workbench", "source")
    }


def test_a_parameter_that_is_a_list_is_read_from_the_record_as_it_was_written() -> None:
    noted = json.loads(json.dumps(gather_parameters(configured(RERANKING | {"rerank.text_fields": ["title"]}))))
    subject = evidence({"vector": falling(3)}, notes={"gathered": noted}, model=dict.fromkeys(falling(3), 0.5))
    assert missing(subject, RERANKING | {"rerank.text_fields": ["title"]}) == {}
    assert missing(subject, RERANKING) == {"rerank.text_fields": (("title",), ())}


def test_a_query_set_says_how_many_scores_were_gathered_otherwise() -> None:
    old, whole = gathered_without("rerank.text_source", {}), gathered_without("none", {})
    queries = [Query(qid, old.query) for qid in ("a", "b", "c")]
    batch = LabelledBatch(queries, {"a": whole, "b": old, "c": old}, {qid: {"m01": 1} for qid in "abc"})
    needs = batch.rankings(configured(RERANKING | {"rerank.text_source": "chunk"})).needs
    assert needs == {"rerank.text_source: gathered with memory, wanted chunk": 3}


def test_a_broken_record_of_gathering_is_a_need_and_no_crash() -> None:
    subject = evidence({"vector": falling(3)}, notes={"gathered": {"lists.vector.depth": "deep"}})
    assert missing(subject, {}) == {"lists.vector.depth": ("deep", 150)}


@pytest.mark.parametrize("name", ["cems", "cems_head", "qmd", "recollection"])
def test_every_preset_replays_an_empty_evidence_to_an_empty_result(name: str) -> None:
    result = replay(evidence({}), preset(name).config)
    assert result.results == [] and result.tokens_used == 0
