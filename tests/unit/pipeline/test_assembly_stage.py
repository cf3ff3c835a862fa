"""assembly: greedy and mmr within a limit and a token budget (docs/internals/specification.md, "assembly")."""

from __future__ import annotations

from typing import Any

import pytest
from cases import column, dropped, evidence, kept, stage, trace, warned

from cems_workbench.models import tokens
from cems_workbench.pipeline.table import chars4, tokens_by_script

ALONE: dict[str, Any] = {"fusion.single_list": "bypass"}
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


def test_null_limits_are_off() -> None:
    subject = evidence({"vector": {"a": 0.9, "b": 0.8}}, memories={"a": text(10**6)})
    assert len(trace(subject, ALONE).results) == 2


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


def test_memories_without_session_are_each_their_own() -> None:
    memories = {key: {"content": key * 3} for key in "abc"}
    subject = evidence({"vector": {"a": 0.9, "b": 0.8, "c": 0.7}}, memories=memories)
    assert kept(stage("assembly", subject, {**MMR, "assembly.limit": 2})) == ["a", "b"]


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


def test_auto_without_detectors_is_greedy() -> None:
    subject = evidence({"vector": {"a": 0.9}}, query="how many concerts")
    changes = {"assembly.strategy": "auto", "query.detectors.enabled": False}
    assert stage("assembly", subject, changes).fields.strategy == "greedy"


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
    assert (
        reasons["x"]
        == "it is in no vector list, which counts as a cosine of 0: below the floor of 0.5, and nobody moves up"
    )
    assert reasons["d"] == "past the result limit of 4"
    assert result.tokens_used == sum(row.tokens for row in result.results)
    assert warned(result.stage("assembly"), "2 of the 4 chosen are below the vector floor of 0.5 and dropped")


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
    assert warned(result.stage("assembly"), "2 candidates have an MMR value below 0.01 and are left out")


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
