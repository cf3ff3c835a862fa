"""adjust, gap, dedup, assembly and abstain, by hand (docs/internals/specification.md)."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cases import NOW, column, configured, dropped, evidence, falling, kept, stage, trace, warned
from hypothesis import given, settings
from hypothesis import strategies as st

from cems_workbench.analysis.ranks import nothing_returned
from cems_workbench.config import field_spec, with_values
from cems_workbench.models import tokens
from cems_workbench.pipeline import Evidence, Hit, ModelScore, RankedList, Variant, replay
from cems_workbench.pipeline.replay import run, to_table
from cems_workbench.pipeline.scoring import judge_texts
from cems_workbench.pipeline.stages import ABSTAIN
from cems_workbench.pipeline.stages.abstain import CONFIDENCE_FEATURES, asking_all, switched_off
from cems_workbench.pipeline.table import chars4, tokens_by_script
from workbench_inspect.breakpoints import LEVELS, ParameterSweep

ALONE: dict[str, Any] = {"fusion.single_list": "bypass"}
DEDUP: dict[str, Any] = {**ALONE, "dedup.enabled": True}
LIST = {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6}


def test_gap_drops_below_a_share_of_the_top() -> None:
    subject = evidence({"vector": {"a": 0.8, "b": 0.41, "c": 0.4, "d": 0.39}})
    gap = stage("gap", subject, {**ALONE, "gap.ratio": 0.5, "gap.keep": 0})
    assert kept(gap) == ["a", "b", "c"]
    assert dropped(gap) == {"d": "score 0.3900 is below 0.5 × the top score 0.8000"}


@pytest.mark.parametrize(
    ("keep", "expected"), [(0, ["a"]), (1, ["a"]), (2, ["a", "b"]), (3, ["a", "b", "c"]), (9, ["a", "b", "c"])]
)
def test_gap_always_keeps_the_first(keep: int, expected: list[str]) -> None:
    subject = evidence({"vector": {"a": 0.8, "b": 0.2, "c": 0.1}})
    assert kept(stage("gap", subject, {**ALONE, "gap.ratio": 0.9, "gap.keep": keep})) == expected


def test_dedup_names_the_better_ranked_memory_it_duplicates() -> None:
    embeddings = {"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [0.95, math.sqrt(1 - 0.95**2)], "d": [0.0, 2.0]}
    dedup = stage("dedup", evidence({"vector": LIST}, embeddings=embeddings), DEDUP)
    assert kept(dedup) == ["a", "b"]
    assert dedup.by_id["c"].duplicate_of == "a"
    assert dedup.by_id["c"].similarity == pytest.approx(0.95, abs=1e-12)
    assert dedup.by_id["d"].duplicate_of == "b"  # cosine, not dot product
    assert dedup.by_id["d"].reason == "duplicates b (cosine 1.000)"


def test_a_duplicate_of_a_dropped_memory_is_kept_when_it_differs_from_the_kept() -> None:
    """b is 0.92 to a and dropped; c is 0.92 to b but 0.693 to a, so c stays."""
    angle = math.acos(0.92)
    embeddings = {"a": [1.0, 0.0], "b": [0.92, math.sin(angle)], "c": [math.cos(2 * angle), math.sin(2 * angle)]}
    dedup = stage("dedup", evidence({"vector": {"a": 0.9, "b": 0.8, "c": 0.7}}, embeddings=embeddings), DEDUP)
    assert kept(dedup) == ["a", "c"]


def test_a_memory_without_embedding_is_kept_with_a_warning() -> None:
    dedup = stage("dedup", evidence({"vector": LIST}, embeddings={"a": [1.0, 0.0], "b": [1.0, 0.0]}), DEDUP)
    assert kept(dedup) == ["a", "c", "d"]
    assert warned(dedup, "no embedding for 2 of the candidates")


def test_equal_vectors_are_duplicates_at_similarity_one() -> None:
    """The cosine of a vector with itself is 1, whatever rounding makes of its norm."""
    vector = [0.1, 0.2, 0.3]
    subject = evidence({"vector": LIST}, embeddings={key: list(vector) for key in LIST})
    assert kept(stage("dedup", subject, {**DEDUP, "dedup.similarity": 1.0})) == ["a"]


MMR: dict[str, Any] = {**ALONE, "assembly.strategy": "mmr"}


def text(tokens: int) -> dict[str, Any]:
    return {"content": "x" * (4 * tokens)}


@pytest.mark.parametrize(
    ("content", "tokens"), [("", 1), ("abc", 1), ("abcd", 1), ("abcde", 2), ("a" * 400, 100), ("é" * 5, 2)]
)
def test_chars4_is_a_quarter_of_the_characters_rounded_up_at_least_one(content: str, tokens: int) -> None:
    assert chars4(content) == tokens


def test_greedy_skips_what_does_not_fit_and_tries_the_next() -> None:
    subject = evidence(
        {"vector": {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6}},
        memories={"a": text(60), "b": text(50), "c": text(40), "d": text(1)},
    )
    result = trace(subject, {**ALONE, "assembly.max_tokens": 100})
    assert [row.memory_id for row in result.results] == ["a", "c"]
    assert result.tokens_used == 100
    assert result.skipped_for_budget == ["b", "d"]
    assert dropped(result.stage("assembly"))["b"] == "50 tokens do not fit the budget of 100"


def test_the_limit_ends_the_results() -> None:
    result = trace(evidence({"vector": {"a": 0.9, "b": 0.8, "c": 0.7}}), {**ALONE, "assembly.limit": 2})
    assert [(row.memory_id, row.rank) for row in result.results] == [("a", 1), ("b", 2)]
    assert dropped(result.stage("assembly")) == {"c": "past the result limit of 2"}
    assert result.skipped_for_budget == []


def test_nothing_fits_is_a_warning_not_an_error() -> None:
    result = trace(evidence({"vector": {"a": 0.9}}), {**ALONE, "assembly.max_tokens": 0})
    assert result.results == []
    assert result.skipped_for_budget == ["a"]
    assert warned(result.stage("assembly"), "nothing fits")


def test_mmr_trades_score_against_the_closest_selected() -> None:
    """λ 0.6. First a = 0.54. Then b: 0.6·0.8 − 0.4·J(b,a) = 0.48 − 0.4·1 = 0.08; c: 0.6·0.5 − 0.4·0 = 0.30."""
    contents = {"a": "red apple pie", "b": "Red, apple: PIE!", "c": "blue sky"}
    subject = evidence(
        {"vector": {"a": 0.9, "b": 0.8, "c": 0.5}},
        memories={key: {"content": value} for key, value in contents.items()},
    )
    assembly = stage("assembly", subject, MMR)
    assert kept(assembly) == ["a", "c", "b"]
    assert column(assembly, "mmr") == pytest.approx({"a": 0.54, "c": 0.30, "b": 0.08})


def test_jaccard_is_over_sets_of_lower_case_words_and_digits() -> None:
    """J = |{red, pie}| / |{red, apple, pie, v2}| = 2/4 however often a word stands there: 0.6·0.8 − 0.4·0.5 = 0.28."""
    subject = evidence(
        {"vector": {"a": 0.9, "b": 0.8}},
        memories={"a": {"content": "red red apple pie"}, "b": {"content": "Red-pie v2 pie"}},
    )
    assert column(stage("assembly", subject, MMR), "mmr")["b"] == pytest.approx(0.28)


def test_mmr_takes_the_best_of_each_session_first() -> None:
    """Sessions s: a, b; t: c; d has none, which is a session of its own. Phase 1: a, c, d; phase 2: b."""
    sessions = {"a": "s", "b": "s", "c": "t", "d": None}
    memories = {key: {"session": session, "content": f"only {key}{key}{key}"} for key, session in sessions.items()}
    subject = evidence({"vector": {"a": 0.9, "b": 0.8, "c": 0.2, "d": 0.1}}, memories=memories)
    assert kept(stage("assembly", subject, {**MMR, "assembly.mmr_lambda": 1.0})) == ["a", "c", "d", "b"]


def test_mmr_ties_fall_to_the_higher_score_then_to_the_id() -> None:
    """λ 0: every value is 0 until something is selected; the words are disjoint, so it stays 0."""
    memories = {key: {"content": key * 3} for key in "abcd"}
    subject = evidence({"vector": {"b": 0.5, "a": 0.5, "d": 0.9, "c": 0.1}}, memories=memories)
    assert kept(stage("assembly", subject, {**MMR, "assembly.mmr_lambda": 0.0})) == ["d", "a", "b", "c"]


def test_mmr_keeps_the_scores_and_skips_what_does_not_fit() -> None:
    memories = {"a": text(10), "b": {"content": "zz " * 40}, "c": text(5)}
    subject = evidence({"vector": {"a": 0.9, "b": 0.8, "c": 0.7}}, memories=memories)
    result = trace(subject, {**MMR, "assembly.max_tokens": 15})
    assert [(row.memory_id, row.score) for row in result.results] == [("a", 0.9), ("c", 0.7)]
    assert result.skipped_for_budget == ["b"]


@pytest.mark.parametrize(
    ("query", "strategy"),
    [("how many concerts did I visit", "mmr"), ("which concert did I like", "greedy"), ("total spending", "mmr")],
)
def test_auto_is_mmr_for_aggregation_queries(query: str, strategy: str) -> None:
    subject = evidence({"vector": {"a": 0.9}}, query=query)
    assert stage("assembly", subject, {"assembly.strategy": "auto"}).fields.strategy == strategy


def test_plain_mmr_ignores_sessions_and_reads_underscores_as_letters() -> None:
    """λ 0.6. First a = 0.54. Then b: 0.48 − 0.4·1 = 0.08; c: 0.30 − 0.4·0: `blue_sky` is one word, so J(c,d) = 0. d last."""
    contents = {"a": "red pie", "b": "Red, PIE!", "c": "blue_sky", "d": "blue red"}
    subject = evidence(
        {"vector": {"a": 0.9, "b": 0.8, "c": 0.5, "d": 0.4}},
        memories={key: {"content": value, "session": "s"} for key, value in contents.items()},
    )
    assembly = stage("assembly", subject, {**MMR, "assembly.mmr_procedure": "plain"})
    assert kept(assembly) == ["a", "c", "d", "b"]
    # d: 0.6·0.4 − 0.4·1/3 with a in the selection.
    assert column(assembly, "mmr") == pytest.approx({"a": 0.54, "c": 0.30, "d": 0.24 - 0.4 / 3, "b": 0.08})


PLAIN = {**MMR, "assembly.mmr_procedure": "plain"}


def with_contents(scores: dict[str, float], **contents: str) -> Evidence:
    return evidence({"vector": scores}, memories={key: {"content": value} for key, value in contents.items()})


def test_mmr_weights_the_score_between_the_least_and_the_largest() -> None:
    """(score − 0.2) / 0.7 is 1, 6/7, 1/7, 0. λ 0.6: a 0.6; c 0.6/7 before b 3.6/7 − 0.4; d 0. On the scores b would come last."""
    subject = with_contents({"a": 0.9, "b": 0.8, "c": 0.3, "d": 0.2}, a="red pie", b="Red pie", c="blue", d="green")
    assembly = stage("assembly", subject, {**PLAIN, "assembly.mmr_relevance": "minmax"})
    assert kept(assembly) == ["a", "b", "c", "d"]
    assert column(assembly, "mmr") == pytest.approx({"a": 0.6, "b": 3.6 / 7 - 0.4, "c": 0.6 / 7, "d": 0.0})
    assert kept(stage("assembly", subject, PLAIN)) == ["a", "c", "d", "b"]
    product = replace(subject, notes={"engine": {"lists": {"vector": {"scale": "product"}}}})
    unfloored = {**PLAIN, "assembly.mmr_relevance": "minmax"}
    floored = stage("assembly", product, {**unfloored, "assembly.min_vector_score": 0.5})
    assert column(floored, "mmr") == column(stage("assembly", product, unfloored), "mmr")
    equal = with_contents({"a": 0.5, "b": 0.5}, a="x", b="y")
    assert column(stage("assembly", equal, {**PLAIN, "assembly.mmr_relevance": "minmax"}), "mmr") == {
        "a": 0.6,
        "b": 0.6,
    }


def test_mmr_compares_the_first_characters() -> None:
    """Of 4 characters `pie ` alone is left of both: J = 1; of the whole texts it is 1/3."""
    subject = with_contents({"a": 0.9, "b": 0.8}, a="pie red", b="pie blue")
    assert column(stage("assembly", subject, PLAIN), "mmr")["b"] == pytest.approx(0.48 - 0.4 / 3)
    cut = stage("assembly", subject, {**PLAIN, "assembly.mmr_characters": 4})
    assert column(cut, "mmr")["b"] == pytest.approx(0.08)


def test_what_is_below_the_score_floor_is_looked_at_and_no_result() -> None:
    """Min-max: a 1, h 2/9, x 0. a; then x, 0, before h, 0.6·2/9 − 0.4·2/3; so h is compared with x too, and moves up to the limit."""
    subject = with_contents({"a": 0.9, "h": 0.55, "x": 0.45}, a="red pie", h="red pie sky", x="blue sea")
    values = {**PLAIN, "assembly.mmr_relevance": "minmax", "assembly.min_score": 0.5, "assembly.limit": 2}
    assembly = stage("assembly", subject, values)
    assert kept(assembly) == ["a", "h"]
    assert column(assembly, "mmr") == pytest.approx({"a": 0.6, "x": 0.0, "h": 0.6 * 2 / 9 - 0.4 * 2 / 3})
    assert dropped(assembly) == {"x": "score 0.4500 is below the floor of 0.5"}
    greedy = trace(subject, {**ALONE, "assembly.min_score": 0.5})
    assert [row.memory_id for row in greedy.results] == ["a", "h"]
    everything = trace(subject, {**ALONE, "assembly.min_score": 0.95})
    assert everything.results == []
    assert not warned(everything.stage("assembly"), "nothing fits")


@pytest.mark.parametrize(
    ("floor", "limit", "expected"),
    [(0.5, 3, ["a", "k"]), (0.95, 3, ["b", "k"]), (0.95, 1, ["b"]), (0.5, 1, ["a"]), (0.1, 3, ["a", "b", "k"])],
)
def test_free_places_are_filled_below_the_floor_from_the_named_list(
    floor: float, limit: int, expected: list[str]
) -> None:
    """b = 0.2 + 0.1, k = 0.15. Where a is there only k, which the vector list lacks, fills; where nobody is, b does too."""
    subject = evidence({"vector": {"a": 0.9, "b": 0.2}, "lexical": {"k": 0.15, "b": 0.1}})
    values = {"fusion.method": "combsum", "lists.lexical.normalization": "none", "assembly.min_score": floor}
    result = trace(subject, {**values, "assembly.fill_from": ("lexical",), "assembly.limit": limit})
    assert [row.memory_id for row in result.results] == expected
    filled = sum(row.score < floor for row in result.results)
    assert warned(result.stage("assembly"), f"{filled} of the {len(expected)} chosen are below") == (filled > 0)


def test_a_memory_whose_chunks_are_candidates_is_a_result_once_in_the_place_of_the_first() -> None:
    scores = {"a#1": 0.9, "b": 0.8, "a": 0.7, "c": 0.6}
    subject = evidence({"vector": scores}, notes={"pieces": {"a#1": "a"}})
    result = trace(subject, {**ALONE, "assembly.limit": 3})
    assert [(row.memory_id, row.score) for row in result.results] == [("a", 0.9), ("b", 0.8)]
    assert dropped(result.stage("assembly")) == {
        "a#1": "a, of which it is a chunk, is the result",
        "c": "past the result limit of 3",
    }


@pytest.mark.parametrize("procedure", ["greedy", "guide", "cems", "plain", "one_pass"])
def test_a_memory_costs_its_whole_content_once_whichever_of_its_chunks_is_chosen_first(procedure: str) -> None:
    """By score: a#1 60 for all of a, b 30, a nothing more; all of d would be 20 more, c 10 fits."""
    subject = evidence(
        {"vector": {"a#1": 0.9, "b": 0.8, "a": 0.7, "d#2": 0.6, "c": 0.5, "d": 0.4}},
        memories={"a": text(60), "a#1": text(10), "b": text(30), "c": text(10), "d": text(20), "d#2": text(5)},
        notes={"pieces": {"a#1": "a", "d#2": "d"}},
    )
    mmr = {**MMR, "assembly.mmr_lambda": 1.0, "assembly.mmr_procedure": procedure}
    values = ALONE if procedure == "greedy" else mmr
    result = trace(subject, {**values, "assembly.max_tokens": 100})
    assert [(row.memory_id, row.tokens) for row in result.results] == [("a", 60), ("b", 30), ("c", 10)]
    assert result.tokens_used == 100
    assert dropped(result.stage("assembly"))["d#2"] == "20 tokens do not fit the budget of 100"
    assert trace(subject, values).tokens_used == 120
    first = {**values, "assembly.limit": 1, "assembly.max_tokens": 50}  # the chunk's 40 bytes would fit
    assert [row.memory_id for row in trace(subject, first).results] == ["b"]
    chunks = trace(subject, {**values, "assembly.text": "version"})  # each chosen text is given
    assert [(row.memory_id, row.tokens) for row in chunks.results] == [("a", 70), ("b", 30), ("d", 25), ("c", 10)]
    assert chunks.tokens_used == 135


def test_results_below_the_vector_floor_leave_and_nobody_moves_up() -> None:
    """The limit takes a, b, c, x; b and x (in no vector list: 0) are below 0.5, and d does not follow."""
    subject = evidence(
        {"vector": {"a": 0.9, "b": 0.4, "c": 0.8, "d": 0.7}, "lexical": {"b": 9.0, "x": 8.0, "a": 7.0, "c": 6.0}}
    )
    weights = {"lists.lexical.weight": 3.0, "assembly.limit": 4}
    whole = trace(subject, weights)
    assert [row.memory_id for row in whole.results] == ["b", "a", "c", "x"]
    result = trace(subject, {**weights, "assembly.min_vector_score": 0.5})
    assert [(row.memory_id, row.rank) for row in result.results] == [("a", 1), ("c", 2)]
    reasons = dropped(result.stage("assembly"))
    assert reasons["b"] == "vector score 0.4000: below the floor of 0.5, and nobody moves up"
    assert reasons["x"] == "no vector list has it, a cosine of 0: below the floor of 0.5, and nobody moves up"
    assert reasons["d"] == "past the result limit of 4"
    assert result.tokens_used == sum(row.tokens for row in result.results)
    assert warned(result.stage("assembly"), "2 of the 4 chosen dropped, below the vector floor of 0.5")


def test_the_vector_floor_reads_the_list_within_its_depth_before_any_threshold() -> None:
    subject = evidence({"vector": {"a": 0.9, "b": 0.8, "c": 0.7}, "lexical": {"c": 3.0, "b": 2.0}})
    floor = {"assembly.min_vector_score": 0.75, "threshold.mode": "fixed", "threshold.fixed": 0.85}
    assert {row.memory_id for row in trace(subject, {**floor, "threshold.applies_to": ("vector",)}).results} == {
        "a",
        "b",
    }
    assert {
        row.memory_id for row in trace(subject, {"assembly.min_vector_score": 0.5, "lists.vector.depth": 2}).results
    } == {
        "a",
        "b",
    }


def test_the_vector_floor_speaks_the_scale_of_the_list() -> None:
    """(1 + 0.4) / 2 = 0.7 passes, (1 + 0.3) / 2 = 0.65 does not; x has no vector score: (1 + 0) / 2 = 0.5."""
    subject = evidence({"vector": {"a": 0.9, "b": 0.4, "c": 0.3}, "lexical": {"x": 8.0}})
    half = {"lists.vector.scale": "half_cosine", "assembly.min_vector_score": 0.7}
    result = trace(subject, half)
    assert {row.memory_id for row in result.results} == {"a", "b"}
    assert dropped(result.stage("assembly"))["c"].startswith("vector score 0.6500: below the floor of 0.7")
    assert "x" in {row.memory_id for row in trace(subject, {**half, "assembly.min_vector_score": 0.5}).results}


ONE_PASS = {
    **MMR,
    "assembly.mmr_procedure": "one_pass",
    "assembly.mmr_similarity": "cosine",
    "assembly.mmr_relevance": "vector",
    "assembly.mmr_lambda": 0.5,
}
FACTS = evidence(
    {"vector": {"a": 0.9, "b": 0.8, "c": 0.5}, "lexical": {"d": 2.0}},
    embeddings={"a": [1.0, 0.0, 0.0], "b": [0.8, 0.6, 0.0], "c": [0.0, 0.0, 1.0], "d": [-1.0, 0.0, 0.0]},
)


def test_mmr_in_one_pass_compares_with_all_others_and_sorts_once() -> None:
    """0.5 · cosine − 0.5 · largest to any other: a and b lower each other (0.8), c and d have 0 at least; d has no vector score."""
    assembly = stage("assembly", FACTS, {**ONE_PASS, "fusion.single_list": "fuse"})
    assert column(assembly, "mmr") == pytest.approx({"c": 0.25, "a": 0.05, "b": 0.0, "d": 0.0})
    assert kept(assembly)[:2] == ["c", "a"]


def test_candidates_below_the_least_mmr_value_are_left_out() -> None:
    result = trace(FACTS, {**ONE_PASS, "assembly.mmr_min_value": 0.01})
    assert [row.memory_id for row in result.results] == ["c", "a"]
    assert dropped(result.stage("assembly"))["b"] == "MMR value 0.0000 is below the least of 0.01"
    assert warned(result.stage("assembly"), "2 of the candidates, with an MMR value below 0.01")


@pytest.mark.parametrize("procedure", ["guide", "plain"])
def test_greedy_mmr_reads_cosines_too(procedure: str) -> None:
    """a first; then c, 0.25, before b, 0.4 − 0.5 · 0.8 = 0."""
    values = {**ONE_PASS, "assembly.mmr_procedure": procedure, "lists.lexical.enabled": False}
    assert kept(stage("assembly", FACTS, values)) == ["a", "c", "b"]


def test_tokens_of_chinese_are_not_a_quarter_of_its_characters() -> None:
    """agentmemory#1232, 2026-08-20; remnic#2403, 2026-08-16: chars4 counts a fifth of what cl100k does."""
    chinese = "部署窗口定在每周二晚上十点到十二点，其他时间不得部署，紧急修复需要两位负责人在群里确认。"
    subject = evidence({"vector": {"a": 0.9}}, memories={"a": {"content": chinese}})
    (line,) = stage("assembly", subject, {**ALONE, "assembly.max_tokens": 20}).warnings
    assert line == (
        f"chars4 counts {chars4(chinese)} tokens for the texts of the 1 chosen, which have about {tokens_by_script(chinese):.0f} by their "
        "scripts; assembly.token_counter=cl100k counts them"
    )
    assert tokens_by_script(chinese) == pytest.approx(tokens.count(chinese), rel=0.15)
    german = evidence({"vector": {"a": 0.9}}, memories={"a": {"content": "Die Prüfung läuft über die Brücke."}})
    assert not stage("assembly", german, {**ALONE, "assembly.max_tokens": 20}).warnings


VECTOR = {"a": 0.44, "b": 0.40, "c": 0.31, "d": 0.30, "e": 0.20, "f": 0.10}
LEXICAL = {"c": 7.5, "a": 3.0, "x": 1.0}
JUDGED = {"a": ModelScore(-9.0, "text a"), "c": ModelScore(-4.0, "text c"), "f": ModelScore(3.0, "text f")}
ASKED: dict[str, Any] = {
    "fusion.method": "combmax",
    "rerank.backend": "cross_encoder",
    "rerank.model": "oracle",
    "rerank.combine": "replace",
    "rerank.raw_scale": "sigmoid",
    "judge.backend": "auto",
    "assembly.limit": 3,
}
"""By the reranker's scores b, a, c, d, ...: b, a and c are what would be returned."""


def subject(**changes: Any) -> Evidence:
    model = {"a": 1.0, "b": 2.0, "c": 0.5, "d": 0.0, "e": -1.0, "f": -2.0, "x": -3.0}
    return evidence(
        {"vector": VECTOR, "lexical": LEXICAL}, **{"model": model, "judge_scores": {"j": JUDGED}, **changes}
    )


def values(subject: Evidence, changes: dict[str, Any]) -> dict[str, float | None]:
    fields = replay(subject, asking_all(configured(changes))).stage(ABSTAIN).fields
    assert not fields.abstained
    return {signal.name: signal.value for signal in fields.signals}


def test_every_signal_is_what_is_worked_out_by_hand() -> None:
    """First hits 0.44 and 7.5; of b, a, c the reranker's best is 2 and the judge's -4 (f, with 3, would not be returned);
    sigmoid(2) - sigmoid(1); of a, b, c, d, e the lexical list has a and c."""
    assert values(subject(), ASKED) == {
        "vector": 0.44,
        "lexical": 7.5,
        "reranker": 2.0,
        "judge": -4.0,
        "margin": pytest.approx(0.8807971 - 0.7310586, abs=1e-7),
        "agreement": pytest.approx(2 / 5),
    }
    assert values(subject(), {**ASKED, "abstain.agreement_k": 3})["agreement"] == pytest.approx(2 / 3)
    assert values(subject(), {**ASKED, "abstain.agreement_k": 3, "lists.lexical.depth": 1})[
        "agreement"
    ] == pytest.approx(1 / 3)
    assert values(subject(), {**ASKED, "assembly.limit": None})["judge"] == 3.0


def test_only_the_lists_of_the_query_as_it_was_asked_count_and_no_cut_hides_their_best() -> None:
    two = evidence(
        {"vector@0": {"a": 0.3}, "vector@1": {"b": 0.9}, "lexical@0": {}},
        variants=(Variant("query"), Variant("guess", "hyde")),
    )
    assert {key: values(two, {})[key] for key in ("vector", "lexical", "agreement")} == {
        "vector": 0.3,
        "lexical": 0.0,
        "agreement": None,
    }
    assert values(two, {"threshold.mode": "fixed", "threshold.fixed": 0.5})["vector"] == 0.3
    assert values(two, {})["margin"] == 0.0  # one place each
    assert values(evidence({"vector": {"a": 0.3}}), {"fusion.single_list": "bypass"})["margin"] == 0.3


def test_the_lists_inside_a_hybrid_list_count_as_searched() -> None:
    inside = {"lists.vector.enabled": False, "lists.hybrid.enabled": True}
    both = evidence({"vector": VECTOR})
    both = replace(both, lists=(*both.lists, RankedList("ts_rank:0", "ts_rank", 0, (Hit("a", 0.1),))))
    assert values(both, inside)["vector"] == 0.44
    assert values(both, {"lists.vector.enabled": False, "lists.ts_rank.enabled": True})["vector"] is None


def test_below_the_threshold_nothing_is_returned_and_the_value_itself_is_the_largest_that_answers() -> None:
    assert kept(stage("abstain", subject(), {**ASKED, "abstain.vector": 0.44}))[:3] == ["b", "a", "c"]
    refused = trace(subject(), {**ASKED, "abstain.vector": 0.4400000001})
    assert set(dropped(refused.stage("abstain")).values()) == {"best vector score 0.44 is below 0.4400000001"}
    assert refused.results == [] and nothing_returned(refused) == (
        "abstain",
        "best vector score 0.44 is below 0.4400000001",
    )
    assert refused.stage(ABSTAIN).to_json()["abstained"] is True


def test_any_signal_refuses_or_only_all_of_them() -> None:
    one = {**ASKED, "abstain.vector": 0.5, "abstain.lexical": 7.0}
    assert kept(stage("abstain", subject(), one)) == []
    assert kept(stage("abstain", subject(), {**one, "abstain.rule": "all"})) != []
    both = trace(subject(), {**one, "abstain.lexical": 8.0, "abstain.rule": "all"})
    assert nothing_returned(both) == (
        "abstain",
        "best vector score 0.44 is below 0.5 and best lexical score 7.5 is below 8",
    )


def test_a_signal_without_a_value_decides_nothing_and_is_said() -> None:
    bare = evidence({"vector": VECTOR})
    for name in ("lexical", "reranker", "judge", "agreement"):
        found = stage("abstain", bare, {f"abstain.{name}": 1.0})
        assert len(kept(found)) == 6 and warned(found, f"the {CONFIDENCE_FEATURES[name].title} decides nothing")
    assert kept(stage("abstain", bare, {"abstain.lexical": 1.0, "abstain.vector": 0.9, "abstain.rule": "all"})) == []
    assert nothing_returned(trace(evidence({"vector": {}}), {"abstain.vector": 0.5})) == (
        "",
        "no list that is switched on has a hit",
    )


def test_other_stages_that_leave_nothing_say_so_themselves() -> None:
    cut = trace(
        evidence({"vector": falling(2)}),
        {"filter.min_score": 0.45, "fusion.single_list": "bypass", "lists.vector.depth": 1},
    )
    assert nothing_returned(cut) is None
    cut = trace(evidence({"vector": {"a": 0.31, "b": 0.2}}), {"filter.min_score": 0.45, "fusion.single_list": "bypass"})
    assert nothing_returned(cut) == (
        "filter",
        "filter dropped all 2 candidates by filter.min_score (the best, a: score 0.3100 is below the minimum 0.45)",
    )


def test_best_of_what_was_dropped_is_named_not_the_first_by_id() -> None:
    uneven = evidence({"vector": {"a": 0.1, "b": 0.3, "c": 0.2}})
    cut = trace(uneven, {"threshold.mode": "fixed", "threshold.fixed": 0.5})
    assert nothing_returned(cut) == (
        "threshold",
        "threshold dropped all 3 candidates by threshold.fixed (the best, b: best list score 0.3000 is below the threshold 0.5)",
    )
    filtered = nothing_returned(trace(uneven, {"filter.min_score": 100, "fusion.single_list": "bypass"}))
    assert filtered is not None and "(the best, b: score 0.3000 is below the minimum 100)" in filtered[1]


def test_the_judge_reads_what_decides_even_where_nothing_is_returned() -> None:
    refused = trace(subject(), {**ASKED, "abstain.judge": 100.0})
    assert refused.results == [] and list(judge_texts(refused)) == ["b", "a", "c"]
    assert [(need.stage, need.memory_ids) for need in refused.stage_needs] == [("abstain", ("b",))]  # a and c were read
    assert judge_texts(trace(subject(), {**ASKED, "abstain.vector": 100.0})) == {}
    assert trace(subject(), {**ASKED, "abstain.judge": 1.0, "judge.backend": "none"}).stage_needs == ()


def test_every_query_of_a_batch_is_decided_by_itself() -> None:
    each = [subject(), evidence({"vector": {"a": 0.2}}), evidence({}), evidence({"lexical": {"z": 3.0}})]
    config = configured({"abstain.vector": 0.3})
    batch = run(to_table(each), config).of(ABSTAIN)
    assert [bool(alive.any()) for alive in batch.after.alive] == [True, False, False, True]
    for q, one in enumerate(each):
        alone = replay(one, config).stage(ABSTAIN).fields
        assert batch.fields(q).abstained == alone.abstained and batch.fields(q).signals == alone.signals


def test_the_sensitivity_of_a_threshold_has_its_event_at_the_value() -> None:
    for name, value in {"vector": 0.44, "lexical": 7.5, "reranker": 2.0, "judge": -4.0}.items():
        turned = ParameterSweep(subject(), configured(ASKED), f"abstain.{name}", 3)
        assert LEVELS[f"abstain.{name}"](turned, -1000.0).tolist() == [value]


NUMBERS = st.floats(-5, 5, allow_nan=False).map(lambda value: round(value, 2))
THRESHOLDS = st.fixed_dictionaries(
    {
        "abstain.vector": NUMBERS,
        "abstain.lexical": NUMBERS,
        "abstain.margin": st.floats(0, 1),
        "abstain.agreement": st.floats(0, 1),
    }
)


@settings(max_examples=40)
@given(
    lists=st.fixed_dictionaries(
        {name: st.dictionaries(st.sampled_from("abcdef"), NUMBERS, max_size=6) for name in ("vector", "lexical")}
    ),
    low=THRESHOLDS,
    raised=st.sampled_from(sorted(CONFIDENCE_FEATURES)),
    by=st.floats(0, 3),
    rule=st.sampled_from(["any", "all"]),
)
def test_raising_a_threshold_never_returns_more_and_off_is_the_ranking_as_it_was(lists, low, raised, by, rule):
    ordered = {name: dict(sorted(hits.items(), key=lambda hit: -hit[1])) for name, hits in lists.items()}
    found = evidence(ordered)
    config = configured({**low, "abstain.rule": rule})
    path = f"abstain.{raised}"
    spec, now = field_spec(path), config.get(path)
    more = with_values(config, {path: None if now is None else min(now + by, spec.high or 0.0)})
    before, after, off = (
        [(result.memory_id, result.score) for result in replay(found, one).results]
        for one in (config, more, switched_off(config))
    )
    assert after in ([], before) and before in ([], off)
    assert off == [(result.memory_id, result.score) for result in replay(found, configured()).results]


ADJUST_ALONE = {"fusion.single_list": "bypass"}
"""The score before adjust is the vector score."""


def ago(**duration: float) -> dict[str, Any]:
    moment = NOW - timedelta(**duration)
    return {"last_accessed": moment, "created_at": moment}


def adjust(memory: dict[str, Any], changes: dict[str, Any], score: float = 0.5, **fields: Any) -> dict[str, Any]:
    """The adjust row of one memory whose score was `score`."""
    subject = evidence({"vector": {"a": score}}, memories={"a": memory}, **fields)
    return stage("adjust", subject, {**ADJUST_ALONE, **changes}).by_id["a"]


def decay(memory: dict[str, Any], **changes: Any) -> float:
    settings = {"adjust.time_decay.mode": "hyperbolic"} | {f"adjust.time_decay.{key}": v for key, v in changes.items()}
    return float(adjust(memory, settings).factors["time_decay"])


DATES = {"created_at": NOW - timedelta(days=120), "last_accessed": NOW - timedelta(days=60)}
TIERS = {"tiers": {"preferences": 120.0, "observation": 21.0}}
HINDSIGHT = {"mode": "linear", "half_life_days": 182.5, "floor": 0.1, "alpha": 0.2, "whole_days": False}
"""1 + 0.2 (max(0.1, 1 − age / 365) − 0.5)."""
GROWING = {"mode": "exponential", "half_life_days": 30.0, "clock": "created_at", "future": "grows"}


@pytest.mark.parametrize(
    ("memory", "changes", "factor"),
    [
        *((ago(days=days), {}, 1 / (1 + days / 60)) for days in (0, 30, 60, 120)),
        *((ago(days=days), {"mode": "exponential"}, 0.5 ** (days / 60)) for days in (0, 30, 60, 120)),
        *((ago(days=days), {"mode": "linear"}, max(0, 1 - days / 120)) for days in (0, 30, 60, 90, 400)),
        (ago(days=30, hours=23), {}, 1 / (1 + 30 / 60)),  # whole days
        (ago(days=30, hours=12), {"whole_days": False}, 1 / (1 + 30.5 / 60)),
        (DATES, {}, 0.5),  # the last access, or the creation
        (DATES, {"clock": "created_at"}, 1 / 3),
        ({**ago(days=120), "category": "preferences"}, TIERS, 0.5),
        ({**ago(days=120), "category": "observation"}, TIERS, 21 / 141),
        ({**ago(days=120), "category": "else"}, TIERS, 60 / 180),
        ({**ago(days=120), "category": None}, TIERS, 60 / 180),
        (ago(days=400), {"mode": "linear", "floor": 0.1}, 0.1),
        (ago(days=6000), {"floor": 0.1}, 0.1),
        (ago(days=60), {"mode": "linear", "floor": 0.1}, 0.5),
        (ago(days=0), HINDSIGHT, 1.1),
        (ago(days=365), HINDSIGHT, 1 + 0.2 * (0.1 - 0.5)),
        (ago(days=182.5), HINDSIGHT, 1.0),
        (ago(days=73), HINDSIGHT, 1 + 0.2 * 0.3),
        ({"last_accessed": None}, HINDSIGHT, 1.0),
        (ago(days=-60), GROWING, 4.0),
        (ago(days=60), GROWING, 0.25),
        (ago(days=-60), GROWING | {"mode": "linear"}, 1.0),
    ],
)
def test_time_decay_by_hand(memory: dict[str, Any], changes: dict[str, Any], factor: float) -> None:
    assert decay(memory, **changes) == pytest.approx(factor, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(
    ("memory", "as_of", "age", "said"),
    [
        ({}, NOW, None, "no last_accessed date for 1 of the candidates"),
        (ago(days=-10), NOW, -10, "a date after as_of for 1 of the candidates"),
        (ago(days=60), None, None, "the evidence has no as_of"),
    ],
)
def test_what_has_no_age_has_time_decay_one_and_a_warning(memory, as_of, age, said) -> None:
    subject = evidence({"vector": {"a": 0.5}}, memories={"a": memory}, as_of=as_of)
    found = stage("adjust", subject, {**ADJUST_ALONE, "adjust.time_decay.mode": "hyperbolic"})
    assert (found.by_id["a"].factors["time_decay"], found.by_id["a"].age_days) == (1.0, age)
    assert warned(found, said)


def test_age_is_against_as_of_whatever_the_time_zone() -> None:
    memory = {"last_accessed": datetime(2026, 7, 3, 2, tzinfo=UTC)}
    as_of = datetime.fromisoformat("2026-09-01T04:00:00+02:00")
    row = adjust(memory, {"adjust.time_decay.mode": "hyperbolic"}, as_of=as_of)
    assert (row.age_days, row.factors["time_decay"]) == (60.0, 0.5)


@pytest.mark.parametrize(
    ("own", "match", "factor"),
    [
        ("org/repo", "exact", 1.3),
        ("org/other", "exact", 0.8),
        (None, "exact", 0.9),
        ("org/repo2", "exact", 0.8),
        ("org/repo2", "prefix", 1.3),  # the seed's mistake, kept as an option
        ("org", "prefix", 0.8),
        ("org/repo", "prefix", 1.3),
    ],
)
def test_project_factor(own: str | None, match: str, factor: float) -> None:
    changes = {"adjust.project.enabled": True, "adjust.project.match": match}
    assert adjust({"project": own}, changes, project="org/repo").factors == {"project": factor}


def test_a_query_without_project_has_no_project_factor() -> None:
    assert adjust({"project": "org/repo"}, {"adjust.project.enabled": True}).factors == {}


@pytest.mark.parametrize(
    ("relevant", "noise", "factors"),
    [(2, 0, {}), (3, 0, {"feedback": 1.15}), (0, 3, {"feedback": 0.85}), (1, 2, {"feedback": 0.95}), (0, 0, {})],
)
def test_feedback_counts_from_the_third_signal_on(relevant: int, noise: int, factors: dict[str, float]) -> None:
    row = adjust({"relevant_count": relevant, "noise_count": noise}, {"adjust.feedback.enabled": True})
    assert row.factors == pytest.approx(factors)


def test_all_factors_multiply() -> None:
    memory = {**ago(days=60), "priority": 1.5, "pinned": True, "project": "org/repo", "relevant_count": 4}
    changes = {
        "adjust.priority": True,
        "adjust.pinned_factor": 1.1,
        "adjust.time_decay.mode": "hyperbolic",
        "adjust.project.enabled": True,
        "adjust.feedback.enabled": True,
    }
    row = adjust(memory, changes, project="org/repo")
    assert row.score == pytest.approx(0.5 * 1.5 * 1.1 * 0.5 * 1.3 * 1.15, rel=1e-12)


def test_clamping_makes_ties_by_id_and_warns() -> None:
    subject = evidence({"vector": {"b": 0.9, "a": 0.8}}, memories={key: {"priority": 2.0} for key in "ab"})
    changes = {**ADJUST_ALONE, "adjust.priority": True}
    clamped = stage("adjust", subject, {**changes, "adjust.clamp": True})
    assert kept(clamped) == ["a", "b"]
    assert column(clamped, "score") == {"a": 1.0, "b": 1.0}
    assert warned(clamped, "2 candidates were clamped to 1.0")
    free = stage("adjust", subject, changes)
    assert column(free, "score") == {"b": 1.8, "a": 1.6}
    assert not free.warnings


def test_negative_scores_are_clamped_to_zero() -> None:
    assert adjust({}, {"adjust.clamp": True}, score=-0.3).score == 0.0


def test_adjusted_scores_rank_again() -> None:
    subject = evidence({"vector": {"a": 0.6, "b": 0.5}}, memories={"b": {"priority": 2.0}})
    found = stage("adjust", subject, {**ADJUST_ALONE, "adjust.priority": True})
    assert kept(found) == ["b", "a"]
    assert [(row.rank_in, row.rank_out) for row in found.rows] == [(2, 1), (1, 2)]


@pytest.mark.parametrize(("of", "field"), [("accesses", "access_count"), ("relevant", "relevant_count")])
def test_a_count_lifts_by_its_logarithm(of: str, field: str) -> None:
    """1 + 0.1 ln(20) / 10; once and never are 1."""
    factor = {"adjust.count.of": of}
    assert adjust({field: 20}, factor).factors["count"] == pytest.approx(1 + 0.1 * math.log(20) / 10)
    assert adjust({field: 1}, factor).factors["count"] == adjust({field: 0}, factor).factors["count"] == 1.0
    subject = evidence({"vector": {"a": 0.9, "b": 0.8}})
    assert warned(stage("adjust", subject, factor), "the count factor is 1 for all")


def test_factors_say_what_the_store_lacks_for_them() -> None:
    subject = evidence({"vector": {"a": 0.9, "b": 0.8}}, project="org/repo")
    changes = {"adjust.feedback.enabled": True, "adjust.project.enabled": True, "adjust.project.untagged": 0.9}
    found = stage("adjust", subject, changes)
    assert warned(found, "no candidate has 3 votes: the feedback factor does nothing")
    assert warned(found, "no candidate belongs to a project: every one has the factor 0.9")
    assert warned(stage("fusion", subject, {"fusion.importance_bonus_ranks": 10}), "the bonus of 10 ranks does nothing")
