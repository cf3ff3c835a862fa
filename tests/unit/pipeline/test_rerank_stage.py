"""rerank: scales, bands, retrieval scores, failures, the tail, and which texts are read (docs/internals/specification.md)."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cases import column, dropped, evidence, falling, kept, stage, trace, warned

from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.jobs.factory import servers
from cems_workbench.models.protocol import PairScore
from cems_workbench.pipeline import ModelScore, replay, scoring
from cems_workbench.pipeline.evidence import QUESTIONS, Evidence, Hit, RankedList, Variant
from cems_workbench.pipeline.gather import gather_scores
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.pipeline.stages.result import ScoreNeed
from cems_workbench.records import Chunk, Memory, ParsedInput
from cems_workbench.settings import Settings
from cems_workbench.store import Store
from cems_workbench.store.caches import PairScores
from cems_workbench.ui.inspect.views.judge import differing_texts, judge_columns

ON: dict[str, Any] = {"rerank.backend": "cross_encoder", "rerank.model": "oracle"}
IDENTITY = {**ON, "rerank.raw_scale": "identity"}
REPLACE = {**IDENTITY, "rerank.combine": "replace"}
BELOW = {**REPLACE, "rerank.below_depth": "below"}


def units(scale: str, **scores: float) -> dict[str, float]:
    subject = evidence({"vector": {key: 0.9 - i / 100 for i, key in enumerate(scores)}}, model=scores)
    return column(stage("rerank", subject, {**ON, "rerank.raw_scale": scale}), "unit")


def test_divide_by_10_clamps() -> None:
    assert units("divide_by_10", a=7.0, b=12.0, c=-1.0) == {"a": 0.7, "b": 1.0, "c": 0.0}


def test_sigmoid_maps_logits() -> None:
    found = units("sigmoid", a=0.0, b=math.log(3), c=-math.log(3), d=-800.0, e=800.0)
    assert found == pytest.approx({"a": 0.5, "b": 0.75, "c": 0.25, "d": 0.0, "e": 1.0}, abs=1e-15)


def test_sigmoid_outside_unit_is_for_queries_with_a_score_outside() -> None:
    """hindsight-api-slim 1.1.0, read on 2026-11-29: scores of 0 to 1 are probabilities, and an unscored candidate has 0."""
    assert units("sigmoid_outside_unit", a=0.0, b=0.007, c=1.0) == {"a": 0.0, "b": 0.007, "c": 1.0}
    found = units("sigmoid_outside_unit", a=0.0, b=math.log(3))
    assert found == pytest.approx({"a": 0.5, "b": 0.75})
    assert preset("hindsight").config.rerank.raw_scale == "sigmoid_outside_unit"
    assert preset("hindsight").config.rerank.neutral_unit == 0.0


def test_minmax_runs_over_the_good_scores() -> None:
    subject = evidence(
        {"vector": {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6}}, model={"a": -2.0, "b": 6.0, "c": 2.0, "d": None}
    )
    found = column(stage("rerank", subject, {**ON, "rerank.raw_scale": "minmax"}), "unit")
    assert found == {"a": 0.0, "b": 1.0, "c": 0.5, "d": 0.5}  # d failed: neutral


def test_identity_is_clamped_and_flattens_negative_logits() -> None:
    assert units("identity", a=0.4, b=1.5, c=-9.0, d=-2.0) == {"a": 0.4, "b": 1.0, "c": 0.0, "d": 0.0}


@pytest.mark.parametrize(
    ("retrieval_score", "expected"),
    [
        ("rrf", {"m01": 0.75 / 61 + 0.25 * 0.2, "m04": 0.6 / 64 + 0.4 * 0.8, "m11": 0.4 / 71 + 0.6 * 0.5}),
        ("inverse_rank", {"m01": 0.75 + 0.25 * 0.2, "m04": 0.6 / 4 + 0.4 * 0.8, "m11": 0.4 / 11 + 0.6 * 0.5}),
        (
            "normalized_rrf",
            {"m01": 0.75 + 0.25 * 0.2, "m04": 0.6 * 61 / 64 + 0.4 * 0.8, "m11": 0.4 * 61 / 71 + 0.6 * 0.5},
        ),
        ("fused", {"m01": 0.75 / 61 + 0.25 * 0.2, "m04": 0.6 / 64 + 0.4 * 0.8, "m11": 0.4 / 71 + 0.6 * 0.5}),
    ],
)
def test_position_bands_blend_the_retrieval_score_by_rank(retrieval_score: str, expected: dict[str, float]) -> None:
    """Bands 0.75 to rank 3, 0.60 to rank 10, 0.40 beyond; `fused` is here plain rrf."""
    model = {f"m{i:02d}": 0.5 for i in range(1, 12)} | {"m01": 0.2, "m04": 0.8}
    rerank = stage(
        "rerank",
        evidence({"vector": falling(11)}, model=model),
        {**IDENTITY, "rerank.retrieval_score": retrieval_score},
    )
    assert {key: rerank.by_id[key].score for key in expected} == pytest.approx(expected, rel=1e-12)
    assert [rerank.by_id[key].retrieval_weight for key in ("m03", "m04", "m10", "m11")] == [0.75, 0.6, 0.6, 0.4]


def test_bands_with_rrf_are_inverted_an_all_neutral_reranker_puts_ranks_11_to_40_first() -> None:
    """The documented demonstration: 1/(k+r) is so small that less retrieval weight means a higher score."""
    subject = evidence({"vector": falling(40, top=0.9)}, model=dict.fromkeys(falling(40)))
    order = kept(stage("rerank", subject, IDENTITY))
    assert order == [f"m{i:02d}" for i in (*range(11, 41), *range(4, 11), *range(1, 4))]


def test_inverse_rank_makes_rank_1_unbeatable() -> None:
    """At worst 0.75 for rank 1, at best 0.4/11 + 0.6 = 0.636 for rank 11."""
    model = dict.fromkeys(falling(40), 1.0) | {"m01": 0.0}
    subject = evidence({"vector": falling(40, top=0.9)}, model=model)
    rerank = stage("rerank", subject, {**IDENTITY, "rerank.retrieval_score": "inverse_rank"})
    assert kept(rerank)[:2] == ["m01", "m11"]
    assert rerank.by_id["m01"].score == 0.75
    assert rerank.by_id["m11"].score == pytest.approx(0.6 + 0.4 / 11, rel=1e-15)


def test_a_rank_past_every_band_takes_the_last_band() -> None:
    bands = [{"max_rank": 1, "retrieval": 0.9}, {"max_rank": 2, "retrieval": 0.3}]
    subject = evidence({"vector": falling(3)}, model=dict.fromkeys(falling(3), 0.5))
    assert column(stage("rerank", subject, {**IDENTITY, "rerank.bands": bands}), "retrieval_weight") == {
        "m01": 0.9,
        "m02": 0.3,
        "m03": 0.3,
    }


def test_replace_is_the_reranker_alone() -> None:
    subject = evidence({"vector": falling(3)}, model={"m01": 0.1, "m02": 0.9, "m03": 0.5})
    rerank = stage("rerank", subject, REPLACE)
    assert kept(rerank) == ["m02", "m03", "m01"]
    assert column(rerank, "score") == {"m02": 0.9, "m03": 0.5, "m01": 0.1}
    assert column(rerank, "rank_before") == {"m02": 2, "m03": 3, "m01": 1}


@pytest.mark.parametrize(
    "failure",
    [
        ModelScore(None, error="timeout"),
        ModelScore(None),
        ModelScore(math.nan),
        ModelScore(math.inf),
        ModelScore(0.9, error="half an answer"),
    ],
    ids=["error", "nothing", "nan", "infinite", "number-with-error"],
)
def test_a_failed_score_is_neutral_and_flagged(failure: ModelScore) -> None:
    subject = evidence({"vector": falling(3)}, model={"m01": 0.1, "m02": failure, "m03": 0.9})
    rerank = stage("rerank", subject, {**REPLACE, "rerank.neutral_unit": 0.3})
    assert column(rerank, "unit") == {"m03": 0.9, "m02": 0.3, "m01": 0.1}
    assert column(rerank, "flagged") == {"m03": False, "m02": True, "m01": False}
    assert rerank.by_id["m02"].raw is None
    assert rerank.fields.health.failed == 1
    assert warned(rerank, "1 of 3 scores failed")
    assert not warned(rerank, "every score failed")


def test_an_order_that_neutral_scores_alone_have_made_is_called_no_reranking() -> None:
    subject = evidence({"vector": falling(3)}, model=dict.fromkeys(falling(3)))
    assert warned(stage("rerank", subject, REPLACE), "every score failed: each candidate has the neutral 0.5")
    assert not warned(stage("rerank", subject, {**REPLACE, "rerank.on_error": "drop"}), "every score failed")


def test_a_failed_score_can_be_dropped_and_is_still_flagged() -> None:
    subject = evidence({"vector": falling(3)}, model={"m01": 0.1, "m02": None, "m03": 0.9})
    rerank = stage("rerank", subject, {**REPLACE, "rerank.on_error": "drop"})
    assert kept(rerank) == ["m03", "m01"]
    assert rerank.by_id["m02"].flagged
    assert "timeout" in dropped(rerank)["m02"]
    assert rerank.fields.health.causes == {"timeout": 1}


def test_past_the_input_limit_is_dropped() -> None:
    subject = evidence({"vector": falling(4)}, model=dict.fromkeys(falling(4), 0.5))
    rerank = stage("rerank", subject, {**REPLACE, "rerank.depth": 2})
    assert dropped(rerank) == {f"m0{i}": f"rank {i} is past the rerank depth of 2" for i in (3, 4)}


def test_past_the_span_of_the_first_score_is_not_reranked() -> None:
    subject = evidence({"vector": {"a": 0.8, "b": 0.61, "c": 0.3}}, model={"a": 0.4, "b": 0.5})
    span = {"fusion.method": "combsum", "rerank.score_window": 0.25}
    rerank = stage("rerank", subject, {**REPLACE, **span})
    assert kept(rerank) == ["b", "a"]
    assert "more than 25% below the first" in dropped(rerank)["c"]
    below = trace(subject, {**BELOW, **span})
    assert kept(below.stage("rerank")) == ["b", "a", "c"] and not below.needs
    assert below.stage("rerank").by_id["c"].score == pytest.approx(0.4 * 0.3 / 0.61, rel=1e-12)
    wider = trace(subject, {**BELOW, **span, "rerank.score_window": 0.7})
    assert wider.needs == [ScoreNeed("rerank", "oracle", ("c",))]


def test_the_tail_follows_below_scaled_to_the_lowest_reranked() -> None:
    """lowest reranked · own score / first such score: 0.4 · (1/63)/(1/63), 0.4 · 63/64."""
    subject = evidence({"vector": falling(4)}, model={"m01": 0.4, "m02": 0.8})
    rerank = stage("rerank", subject, {**BELOW, "rerank.depth": 2})
    assert kept(rerank) == ["m02", "m01", "m03", "m04"]
    assert [row.score for row in rerank.rows] == pytest.approx([0.8, 0.4, 0.4, 0.4 * 63 / 64], rel=1e-12)
    assert column(rerank, "unit") == {"m02": 0.8, "m01": 0.4, "m03": None, "m04": None}
    assert column(rerank, "rank_before")["m03"] is None


def test_what_was_never_scored_follows_below_before_the_tail_and_is_needed() -> None:
    subject = evidence({"vector": falling(5)}, model={"m02": 0.8, "m03": 0.6})
    result = trace(subject, {**BELOW, "rerank.depth": 4})
    rerank = result.stage("rerank")
    assert kept(rerank) == ["m02", "m03", "m01", "m04", "m05"]
    assert column(rerank, "outcome") == {
        "m02": "scored",
        "m03": "scored",
        "m01": "not_scored",
        "m04": "not_scored",
        "m05": "tail",
    }
    assert rerank.by_id["m01"].score == pytest.approx(0.6, rel=1e-12)
    assert rerank.by_id["m05"].score == pytest.approx(0.6 * 61 / 65, rel=1e-12)
    assert not any(column(rerank, "flagged").values())
    assert result.needs == [ScoreNeed("rerank", "oracle", ("m01", "m04"))]


def test_never_scored_candidates_stay_even_when_the_tail_is_dropped() -> None:
    subject = evidence({"vector": falling(3)}, model={"m01": 0.8})
    assert kept(stage("rerank", subject, {**REPLACE, "rerank.depth": 2})) == ["m01", "m02"]


def test_without_any_score_the_order_stays_and_everything_is_needed() -> None:
    result = trace(evidence({"vector": falling(3)}), IDENTITY)
    assert kept(result.stage("rerank")) == ["m01", "m02", "m03"]
    assert column(result.stage("rerank"), "score") == pytest.approx({"m01": 1 / 61, "m02": 1 / 62, "m03": 1 / 63})
    assert result.needs[0].memory_ids == ("m01", "m02", "m03")


def test_skip_if_few_reranks_nothing_at_the_result_limit() -> None:
    subject = evidence({"vector": falling(3)}, model={"m01": 0.1, "m02": 0.5, "m03": 0.9})
    changes = {**REPLACE, "rerank.skip_if_few": True}
    skipped = trace(subject, {**changes, "assembly.limit": 3})
    assert kept(skipped.stage("rerank")) == ["m01", "m02", "m03"]
    assert set(column(skipped.stage("rerank"), "unit").values()) == {None}
    assert kept(stage("rerank", subject, {**changes, "assembly.limit": 2})) == ["m03", "m02", "m01"]


def test_health_names_what_makes_scores_doubtful() -> None:
    same = stage("rerank", evidence({"vector": falling(3)}, model=dict.fromkeys(falling(3), 0.5)), IDENTITY)
    assert same.fields.health.all_equal and warned(same, "it tells nothing apart")
    narrow = stage("rerank", evidence({"vector": falling(3)}, model={"m01": 0.50, "m02": 0.51, "m03": 0.52}), IDENTITY)
    assert warned(narrow, "span only 0.020")
    outside = stage("rerank", evidence({"vector": falling(2)}, model={"m01": 11.0, "m02": -3.0}), ON)
    assert outside.fields.health.out_of_range == 2 and warned(outside, "2 raw scores lie outside")


def test_the_model_or_its_backend_names_the_scores_that_are_read() -> None:
    subject = evidence({"vector": falling(2)}, model={"m01": 0.1, "m02": 0.9})
    assert trace(subject, {"rerank.backend": "ollama"}).needs[0].model == "ollama"
    assert trace(subject, REPLACE).needs == []


RETURNED = {**REPLACE, "rerank.position": "returned", "assembly.limit": 3}


def test_a_reranker_of_the_results_reads_the_limit_and_brings_nothing_in() -> None:
    """By score a, b, c, d; d has the best score of the model and is not read, even if the tail is kept below."""
    subject = evidence(
        {"vector": {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6}}, model={"a": 0.1, "b": 0.3, "c": 0.2, "d": 1}
    )
    result = trace(subject, {**RETURNED, "rerank.below_depth": "below"})
    assert [(row.memory_id, row.score) for row in result.results] == [("b", 0.3), ("c", 0.2), ("a", 0.1)]
    assert dropped(result.stage("rerank")) == {
        "d": "past the result limit of 3; the reranker reads only what would be returned"
    }
    assert {row.memory_id for row in trace(subject, REPLACE).results} >= {"d"}


def test_a_reranker_of_the_results_comes_after_adjust_and_dedup() -> None:
    """b duplicates a and leaves, so that d is read; the pin lifts c above a before the model orders all three."""
    subject = evidence(
        {"vector": {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6}},
        memories={"c": {"pinned": True}},
        embeddings={"a": [1.0, 0.0], "b": [1.0, 0.0], "c": [0.0, 1.0], "d": [0.6, 0.8]},
        model={"a": 0.1, "b": 0.9, "c": 0.2, "d": 0.3},
    )
    values = {**RETURNED, "dedup.enabled": True, "dedup.similarity": 0.95, "adjust.pinned_factor": 2.0}
    result = trace(subject, values)
    assert kept(result.stage("dedup")) == ["c", "a", "d"]
    assert kept(result.stage("rerank")) == ["d", "c", "a"]
    assert column(result.stage("rerank"), "rank_before") == {"c": 1, "a": 2, "d": 3}
    assert [row.memory_id for row in result.results] == ["d", "c", "a"]


def test_only_what_would_be_returned_needs_a_score_and_one_alone_needs_none() -> None:
    subject = evidence({"vector": {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6}}, model={"a": 0.5})
    assert trace(subject, RETURNED).needs == [ScoreNeed("rerank", "oracle", ("b", "c"))]
    alone = trace(evidence({"vector": {"a": 0.9}}), RETURNED)
    assert alone.needs == [] and [row.score for row in alone.results] == [alone.stage("fusion").rows[0].score]
    assert trace(subject, {**RETURNED, "assembly.limit": 1}).needs == []


def test_long_candidates_are_read_until_their_characters_come_to_the_total() -> None:
    lengths = {"a": 700, "b": 900, "c": 50, "d": 2000, "e": 600}
    subject = evidence(
        {"vector": {key: 0.9 - i / 100 for i, key in enumerate(lengths)}},
        memories={key: {"content": "x" * length} for key, length in lengths.items()},
        model=dict.fromkeys(lengths, 0.5),
    )
    brief = {"rerank.brief.long_chars": 650, "rerank.brief.chunk_chars": 800, "rerank.brief.total_chars": 1501}
    outcomes = column(stage("rerank", subject, {**BELOW, **brief}), "outcome")
    assert outcomes == {"a": "scored", "b": "scored", "c": "scored", "d": "tail", "e": "tail"}
    last = dropped(stage("rerank", subject, {**REPLACE, **brief}))
    assert set(last) == {"d", "e"} and "1,501 characters" in last["d"]
    # One of five is longer than 900 characters, which is less than a quarter.
    short = stage("rerank", subject, {**BELOW, **brief, "rerank.brief.long_chars": 900})
    assert set(column(short, "outcome").values()) == {"scored"}


@dataclass
class Reader:
    """Scores a text by its length, and remembers what it was given."""

    label: str = "reader"
    scale: None = None
    batch: int = 8
    given: list[str] = field(default_factory=list)

    def cache_model(self, query: str) -> str:
        return f"reader {id(self)}"

    def score(self, query: str, texts: Sequence[str]) -> list[PairScore]:
        self.given += texts
        return [PairScore(float(len(text))) for text in texts]


def some_evidence(turn: int) -> Evidence:
    """A query over five memories of three sentences each, found whole or by their second chunk."""
    drawn = random.Random(turn)
    words = ["deploy", "database", "lunch", "doctor", "garden", "train"]
    texts = {f"m{n}": [" ".join(drawn.choices(words, k=9)) + f" {n}. " for _ in range(3)] for n in range(5)}
    chunked = {key for key in texts if drawn.random() < 0.5}
    hits = tuple(Hit(key, 0.9 - n / 10, 1 if key in chunked else None) for n, key in enumerate(texts))
    return Evidence(
        query=" ".join(drawn.choices(words, k=2)),
        memories={key: Memory(key, "".join(parts)) for key, parts in texts.items()},
        variants=(Variant("query"),),
        lists=(RankedList("vector:0", "vector", 0, hits),),
        chunks={key: tuple(Chunk(key, seq, part) for seq, part in enumerate(texts[key])) for key in chunked},
        notes={QUESTIONS: {key: f"Which {drawn.choice(words)}?" for key in texts if drawn.random() < 0.5}},
    )


def given_text(evidence: Evidence, memory_id: str, config: PipelineConfig) -> str:
    """What the reranker's texts are chosen from."""
    chunk = scoring.given_chunks(evidence, config).get(memory_id)
    return evidence.memories[memory_id].content if chunk is None else chunk.text


def test_reranker_and_judge_say_what_they_were_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, readers, differ = random.Random(18), [], []

    def reading(backend: str, request: object, use: Callable[[Reader], Any]) -> tuple[Reader, None, Any]:
        readers.append(Reader())
        return readers[-1], None, use(readers[-1])

    monkeypatch.setattr(scoring, "score_with", reading)
    # Every reader is another model, so that nothing would be found: 200 turns take four seconds instead of twenty.
    monkeypatch.setattr(PairScores, "read", lambda cache, texts: [None] * len(texts))
    monkeypatch.setattr(PairScores, "write", lambda *given: None)
    with Store.open(tmp_path / "store") as store:
        resources = Resources(store, None, servers(Settings()))  # type: ignore[arg-type]
        for turn in range(200):
            config = with_values(
                PipelineConfig(),
                {
                    "rerank.backend": "cross_encoder",
                    "rerank.model": "one",
                    "rerank.skip_if_few": False,
                    "judge.backend": "cross_encoder",
                    "rerank.chunk_selection": drawn.choice(["seed_overlap", "term_overlap", "head", "passages"]),
                    "rerank.passages": drawn.choice([1, 2, None]),
                    "rerank.text_source": drawn.choice(["memory", "chunk"]),
                    "rerank.chunk_chars": drawn.choice([60, 300]),
                    "rerank.prepend_question": drawn.choice([True, False]),
                    "judge.max_chars": drawn.choice([None, None, 40]),
                    "filter.min_score": None,
                },
            )
            readers.clear()
            found = gather_scores(some_evidence(turn), config, resources)
            trace = replay(found, config)
            for key, score in found.model_scores[model_key(config.rerank)].items():
                read = scoring.Reading.of(found, config).by_reranker(key)
                asked = config.rerank.prepend_question and key in found.questions
                assert read[: len(read) - asked] == scoring.texts_for_reranker(
                    given_text(found, key, config), found.searched, config
                )
                assert score.raw == max(map(len, read)) and set(read) <= set(readers[0].given)
            reranked = {key: score.chunk for key, score in found.model_scores[model_key(config.rerank)].items()}
            judged = {key: score.chunk for key, score in next(iter(found.judge_scores.values())).items()}
            assert set(readers[1].given) == set(judged.values())
            several = config.rerank.prepend_question or (
                config.rerank.chunk_selection == "passages" and config.rerank.passages != 1
            )
            assert set(readers[0].given) >= set(reranked.values()) and (
                several or len(readers[0].given) == len(set(reranked.values()))
            )
            assert trace.results and not scoring.wanted_scores(trace, "judge")
            texts = differing_texts(trace)
            if config.judge.max_chars is None:
                assert {key: reranked[key] for key in judged} == judged
                assert not texts
            else:
                assert texts["judge read"] == judged
                read = next(column for column in judge_columns(trace, {}, None) if column.name == "judge read")
                assert [read.cell(row) for row in trace.results] == [judged[row.memory_id] for row in trace.results]
            differ.append(bool(texts))
    assert set(differ) == {True, False}


def test_questions_are_looked_up_once_where_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader()
    monkeypatch.setattr(scoring, "score_with", lambda backend, request, use: (reader, None, use(reader)))
    said = [
        Memory(f"t{n}", text, session="s", created_at=datetime(2026, 1, 1, 9, 0, n, tzinfo=UTC))
        for n, text in enumerate(TURNS)
    ]
    hits = tuple(Hit(memory.id, 0.9) for memory in said[1:])
    with Store.open(tmp_path / "store") as store:
        store.add(ParsedInput("t.jsonl", "t", memories=tuple(said)))
        resources = Resources(store, None, servers(Settings()))  # type: ignore[arg-type]
        evidence = Evidence(
            "where",
            {memory.id: memory for memory in said[1:]},
            (Variant("where"),),
            (RankedList("vector:0", "vector", 0, hits),),
        )
        config = with_values(
            PipelineConfig(),
            {
                "rerank.backend": "cross_encoder",
                "rerank.skip_if_few": False,
                "filter.min_score": None,
                "rerank.chunk_selection": "head",
            },
        )
        assert gather_scores(evidence, config, resources, only="rerank").questions == {}
        assert sorted(reader.given) == sorted(TURNS[1:])
        asking = with_values(config, {"rerank.prepend_question": True})
        scored = gather_scores(evidence, asking, resources, only="rerank")
        assert scored.questions == {"t1": TURNS[0]}
        assert scored.model_scores[model_key(asking.rerank)]["t1"].chunk == f"{TURNS[0]}\n{TURNS[1]}"
        monkeypatch.setattr(store.memories, "before", None)
        assert (
            gather_scores(scoring.without_failures(scored, "none"), asking, resources, only="rerank").questions
            == scored.questions
        )


TURNS = ("Where did you go?", "To the lake.", "Lovely.")
