"""The trace as rows, what a config needs that evidence lacks, its known mistakes, and recorded stages of external traces."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import configured, evidence, falling, trace

from cems_workbench.analysis.known_mistakes import known_mistakes
from cems_workbench.analysis.losses_of_set import losses_of
from cems_workbench.analysis.ranks import branch_of, rank_flow
from cems_workbench.analysis.stage_mistakes import KnownMistake
from cems_workbench.analysis.why.path import cause, memory_path
from cems_workbench.config import PipelineConfig, preset, preset_names, with_values
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.jobs.factory import servers
from cems_workbench.models.protocol import PairScore
from cems_workbench.pipeline import Evidence, ModelScore, evidence_from, read_bundle, replay, scoring, write_bundle
from cems_workbench.pipeline.bundle import bundle_from
from cems_workbench.pipeline.evidence import Hit, RankedList, Variant
from cems_workbench.pipeline.gather import gather_scores
from cems_workbench.pipeline.missing_evidence import gather_parameters
from cems_workbench.pipeline.reading import Head, kernel, read_promising, similarity_part
from cems_workbench.pipeline.recorded import RECORDED
from cems_workbench.pipeline.redact import redacted
from cems_workbench.pipeline.replay import run, to_table
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import STAGES
from cems_workbench.pipeline.stages.rerank import RERANK
from cems_workbench.records import Chunk, Memory, Query, RecordedList, RecordedStage, RecordedStages
from cems_workbench.settings import Settings
from cems_workbench.store import Store

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


def test_stages_are_timed_by_the_clock_that_is_handed_in_and_by_no_other() -> None:
    ticks = iter(range(100))
    timed = replay(evidence({"vector": falling(3)}), configured(), clock=lambda: next(ticks) / 1000)
    assert [stage.elapsed_ms for stage in timed.stages] == pytest.approx([1.0] * len(SPEC_ORDER))
    untimed = trace(evidence({"vector": falling(3)}))
    assert {stage.elapsed_ms for stage in untimed.stages} == {None}


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


RANKS: dict[str, Any] = {"fusion.k": 1}


def found(subject: Evidence, changes: Mapping[str, Any]) -> dict[str, KnownMistake]:
    return {mistake.parameter: mistake for mistake in known_mistakes(trace(subject, changes))}


def test_a_config_without_mistakes_has_none() -> None:
    assert known_mistakes(trace(evidence({"vector": falling(5), "lexical": {"m03": 4.0}}))) == []


def test_minimum_on_rrf_passes_one_list_only_as_its_first() -> None:
    # k = 1: rank 1 has 1/2, rank 2 1/3; m02 is in both lists and passes with 1/3 + 1/2.
    subject = evidence({"vector": {"m01": 0.9, "m02": 0.8, "m03": 0.7}, "lexical": {"m02": 5.0, "m04": 4.0}})
    mistake = found(subject, {**RANKS, "filter.min_score": 0.35})["filter.min_score"]
    assert (mistake.stage, mistake.count) == ("filter", 2)
    assert mistake.words == (
        "minimum 0.35 on a score of rank shares (rrf): a memory found by one list passes only as its first; "
        "2 of the 3 found by one list are dropped"
    )


def test_minimum_on_rrf_names_the_last_rank_of_each_list() -> None:
    subject = evidence({"vector": falling(4), "lexical": {"x1": 5.0, "x2": 4.0}})
    changes = {**RANKS, "filter.min_score": 0.3, "lists.vector.weight": 1.2, "lists.lexical.weight": 0.5}
    # vector 1.2/2, 1.2/3, 1.2/4 = 0.3 passes; lexical 0.5/2 does not.
    words = found(subject, changes)["filter.min_score"].words
    assert "passes only down to rank 3 of vector, 0 of lexical; 3 of the 6" in words


def test_minimum_on_normalised_scores_is_no_mistake() -> None:
    subject = evidence({"vector": falling(4), "lexical": {"x1": 5.0}})
    assert not found(subject, {**RANKS, "filter.min_score": 0.3, "fusion.normalize": "minmax"})


def test_threshold_above_every_vector_score_names_scale_and_best() -> None:
    subject = evidence({"vector": {"a": 0.774, "b": 0.5}, "lexical": {"c": 7.0, "d": 3.0}})
    changes = {
        "threshold.mode": "fixed",
        "threshold.fixed": 0.95,
        "lists.vector.scale": "half_cosine",
        "lists.lexical.normalization": "none",
    }
    mistake = found(subject, changes)["threshold.fixed"]
    assert mistake.count == 2
    assert mistake.words == (
        "no vector score can reach 0.95 (as a cosine: 0.9): the best of 2 is 0.887 (as a cosine: 0.774); "
        "the 2 that remain are from other lists"
    )
    assert not found(subject, {**changes, "threshold.fixed": 0.8})


def test_results_below_the_vector_floor_are_counted() -> None:
    subject = evidence({"vector": {"a": 0.9, "b": 0.2, "c": 0.1}})
    mistake = found(subject, {"assembly.limit": 2, "assembly.min_vector_score": 0.25})["assembly.min_vector_score"]
    assert (
        mistake.words == "1 result fell below the vector floor of 0.25 after the limit, and nobody moved up: 1 is left"
    )


def engine(name: str, **answer: Any) -> dict[str, Any]:
    return {"engines": {name: answer}}


def test_list_cut_by_row_says_that_the_best_match_is_missing() -> None:
    notes = engine("fts5", words=2, matches=161, cut="row", best_match="m99")
    subject = evidence({"vector": falling(3), "fts5": {"m01": 2.0, "m02": 1.0}}, notes=notes)
    mistake = found(subject, {"lists.fts5.enabled": True, "lists.fts5.cut": "row"})["lists.fts5.cut"]
    assert mistake.words == "fts5 holds the 2 oldest of 161 matches; the best match, m99, is not among them"
    assert mistake.count == 159
    assert not found(subject, {}), "a list that takes no part makes no mistake"


def test_list_is_empty_because_every_word_must_occur() -> None:
    subject = evidence({"vector": falling(3), "fts5": {}}, notes=engine("fts5", words=7, matches=0, cut="score"))
    changes = {"lists.fts5.enabled": True, "lists.fts5.match": "all"}
    assert found(subject, changes)["lists.fts5.match"].words == ("fts5 is empty: all 7 words must occur in one memory")
    assert not found(subject, {**changes, "lists.fts5.match": "any"})


def test_hits_outside_the_vector_list_cannot_enter() -> None:
    subject = evidence({"vector": falling(3), "lexical": {"m01": 4.0, "x1": 3.0, "x2": 2.0}})
    mistake = found(subject, {"fusion.candidates_from": ["vector"]})["fusion.candidates_from"]
    assert (mistake.count, mistake.words) == (
        2,
        "2 of the 3 hits of lexical cannot enter: outside the 3 of vector, from which alone candidates come",
    )


def test_one_keyword_hit_halves_every_score() -> None:
    subject = evidence({"vector": falling(3), "lexical": {"m01": 4.0}})
    changes = {"fusion.method": "combsum", "fusion.divisor": "active_lists"}
    assert "all scores of this query are halved because its lists have hits (3 in vector, 1 in lexical)" in (
        found(subject, changes)["fusion.divisor"].words
    )
    assert not found(evidence({"vector": falling(3), "lexical": {}}), changes)


def test_list_that_weighs_many_times_the_other_is_named() -> None:
    subject = evidence({"vector": falling(4), "lexical": {"m03": 5.0}})
    assert "fusion" in {m.stage for m in found(subject, {"lists.lexical.weight": 20.0}).values()}
    assert set(found(subject, {"lists.lexical.weight": 20.0})) == {"lists.lexical.weight"}
    assert set(found(subject, {"lists.vector.weight": 0.02})) == {"lists.vector.weight"}
    assert not found(subject, {"lists.lexical.weight": 7.0})


def test_reranker_without_a_share_in_any_band_is_named() -> None:
    subject = evidence({"vector": falling(4)})
    on = {"rerank.backend": "cross_encoder"}
    assert "rerank.bands" in found(subject, {**on, "rerank.bands": [{"max_rank": None, "retrieval": 1.0}]})
    assert "rerank.bands" not in found(subject, {**on, "rerank.bands": [{"max_rank": None, "retrieval": 0.9}]})


CONFIG = with_values(
    PipelineConfig(),
    {
        "rerank.backend": "cross_encoder",
        "rerank.model": "oracle",
        "rerank.depth": 60,
        "rerank.raw_scale": "minmax",
        "rerank.retrieval_score": "fused",
        "rerank.below_depth": "below",
        "rerank.expected_misses": 0.3,
        "filter.min_score": None,
        "fusion.normalize": "minmax",
        "assembly.limit": 10,
        "abstain.reranker": None,
        "judge.backend": "none",
    },
)


def some_evidence(seed: int, count: int = 50) -> tuple[Evidence, dict[str, float]]:
    """A query over memories in groups of like meaning, and the reranker's scores, which go by group and rank."""
    drawn = np.random.default_rng(seed)
    group = drawn.integers(0, 5, count)
    centres, worth = drawn.normal(size=(5, 16)), drawn.normal(size=5) * 3
    vectors = centres[group] + 0.3 * drawn.normal(size=(count, 16))
    ids = [f"m{n:03d}" for n in range(count)]
    hits = tuple(Hit(key, 0.9 - n / 100, None) for n, key in enumerate(ids))
    raw = worth[group] - np.arange(count) / 15 + 0.2 * drawn.normal(size=count)
    evidence = Evidence(
        query="which",
        memories={key: Memory(key, f"Text {key} of {seed}.") for key in ids},
        variants=(Variant("which"),),
        lists=(RankedList("vector:0", "vector", 0, hits),),
        embeddings=dict(zip(ids, vectors, strict=True)),
    )
    return evidence, dict(zip(ids, raw.tolist(), strict=True))


def scored(evidence: Evidence, raw: dict[str, float]) -> Evidence:
    return replace(evidence, model_scores={"oracle": {key: ModelScore(value) for key, value in raw.items()}})


@dataclass
class Oracle:
    """Knows every score; remembers in how many calls it was asked what."""

    raw: dict[str, float]
    label: str = "oracle"
    scale: None = None
    batch: int = 32
    given: list[list[str]] = field(default_factory=list)

    def cache_model(self, query: str) -> str:
        return f"oracle {id(self)}"

    def score(self, query: str, texts: Sequence[str]) -> list[PairScore]:
        self.given.append(list(texts))
        return [PairScore(self.raw[text.split()[1]]) for text in texts]


def results(evidence: Evidence, config: PipelineConfig = CONFIG) -> list[tuple[str, float | None]]:
    return [(result.memory_id, result.score) for result in replay(evidence, config).results]


def test_live_replayed_and_batched_the_same_candidates_are_read(tmp_path, monkeypatch):
    queries = [some_evidence(seed, 30 + seed * 6) for seed in range(8)]
    read = 0
    with Store.open(tmp_path / "store") as store:
        resources = Resources(store, None, servers(Settings()))  # type: ignore[arg-type]
        live = []
        for evidence, raw in queries:
            oracle = Oracle(raw)

            def asking(backend, request, use, oracle=oracle):
                return oracle, None, use(oracle)

            monkeypatch.setattr(scoring, "score_with", asking)
            found = gather_scores(evidence, CONFIG, resources, only="rerank")
            assert not replay(found, CONFIG).needs
            assert sorted(text for texts in oracle.given for text in texts) == sorted(
                evidence.memories[key].content for key in found.model_scores["oracle"]
            )
            read += sum(map(len, oracle.given))
            live.append(results(found))
    whole = [scored(evidence, raw) for evidence, raw in queries]
    assert [results(evidence) for evidence in whole] == live
    assert 100 < read < 0.75 * sum(len(raw) for _, raw in queries)
    table = to_table(whole)
    after = run(table, CONFIG).of(RERANK).after
    for q, evidence in enumerate(whole):
        alone = replay(evidence, CONFIG).stage(RERANK)
        assert [table.ids[q][c] for c in after.order(q)] == [row.memory_id for row in alone.kept]
    # The first ten are nearly always those of reading everything.
    full = [results(evidence, with_values(CONFIG, {"rerank.expected_misses": None})) for evidence in whole]
    same = [{key for key, _ in some} == {key for key, _ in every} for some, every in zip(live, full, strict=True)]
    assert sum(same) >= 7


def test_equal_candidates_are_read_alike_alone_and_in_a_batch() -> None:
    """Heads of several lengths are padded, which changes the last digits of chances: the first of equal ones is read."""
    drawn = np.random.default_rng(1)
    lengths = drawn.integers(20, 60, 60)
    inside = np.arange(60) < lengths[:, None]
    vectors = drawn.normal(size=(60, 12, 32))[:, drawn.integers(0, 12, 60)]
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    base, one = np.zeros(inside.shape), np.ones(inside.shape)
    alike = kernel(similarity_part(vectors @ vectors.swapaxes(1, 2)), base)
    head = Head(inside, base, one, one, np.where(inside[:, :, None] & inside[:, None], alike, 0.0))
    raw = np.where(inside, vectors[:, :, 0] + 0.3 * drawn.normal(size=inside.shape), np.nan)
    rules = np.full(60, 5), np.full(60, 0.3), np.full(60, 4)

    def unit(raw: Any, good: Any, failed: Any) -> Any:
        return np.where(good, raw, np.nan)

    together = read_promising(head, raw, inside, unit, *rules)
    for q, n in enumerate(lengths.tolist()):
        own = slice(q, q + 1), slice(0, n)
        alone = Head(*(each[own] for each in (inside, base, one, one)), head.kernel[q : q + 1, :n, :n])
        single = read_promising(alone, raw[own], inside[own], unit, *(each[q : q + 1] for each in rules))
        assert np.array_equal(single.read[0], together.read[q, :n]), q


def test_a_score_of_what_is_not_worth_reading_does_not_count() -> None:
    evidence, raw = some_evidence(3)
    rows = replay(scored(evidence, raw), CONFIG).stage(RERANK).rows
    unread = [row for row in rows if row.outcome == "not_read"]
    assert unread and all(row.raw is None and row.unit is None and row.kept for row in unread)
    assert max(row.rank_out or 0 for row in rows if row.outcome == "scored") < min(row.rank_out or 0 for row in unread)
    assert RERANK.words(unread[0], replay(scored(evidence, raw), CONFIG).stage(RERANK)).startswith(
        "not read: could not"
    )
    better = raw | {row.memory_id: 100.0 for row in unread}
    assert results(scored(evidence, better)) == results(scored(evidence, raw))


def test_reading_stops_at_the_first_missing_scores_and_asks_for_those() -> None:
    evidence, raw = some_evidence(3)
    first = replay(evidence, CONFIG)
    assert set(first.stage_needs[0].memory_ids) == {f"m{n:03d}" for n in (*range(10), 47, 48, 49)}
    some = {key: raw[key] for key in first.stage_needs[0].memory_ids}
    (need,) = replay(scored(evidence, some), CONFIG).stage_needs
    assert len(need.memory_ids) == 4 and not some.keys() & set(need.memory_ids)


def test_if_the_first_scores_fail_everything_is_asked_for_at_once() -> None:
    evidence, _ = some_evidence(3)
    first = replay(evidence, CONFIG).stage_needs[0].memory_ids
    failed = {key: ModelScore(None, error="refused") for key in first}
    (need,) = replay(replace(evidence, model_scores={"oracle": failed}), CONFIG).stage_needs
    assert {*need.memory_ids, *first} == set(evidence.memories)


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
    assert replay(read_bundle(path), PipelineConfig()).to_json() == replay(evidence, PipelineConfig()).to_json()
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
        ({}, "stages: expected an array"),
        ({"stages": []}, "at least one"),
        (
            {"stages": [{"name": "x", "kind": "magic", "output": []}]},
            "stages[0].kind: 'magic' is not known; allowed: list | fusion",
        ),
        (
            {"stages": [{"name": "x", "kind": "other", "output": [["a", 1], ["a", 2]]}]},
            "stages[0].output: 'a' is in it twice",
        ),
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
