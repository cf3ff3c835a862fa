"""Intent from the words of a query, and where `auto` routes it (docs/internals/specification.md, "query")."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from cems_workbench.config.sections.gathering import Detectors, QueryConfig
from cems_workbench.pipeline.understanding import Intent, understand


def config(mode: Any = "auto", matching: Any = "substring") -> QueryConfig:
    return QueryConfig(mode=mode, detectors=Detectors(matching=matching))


def intent(query: str, settings: QueryConfig) -> Intent:
    found, said = understand(query, settings)
    assert said == []
    return found


@pytest.mark.parametrize(
    ("query", "complexity"),
    [
        ("redis", "simple"),
        ("redis cache size", "simple"),
        ("redis cache key size", "moderate"),
        ("redis and kafka", "moderate"),
        ("redis, kafka", "moderate"),
        ("redis and kafka, or neither", "complex"),
        ("one two three four five six seven eight nine ten eleven twelve", "moderate"),
        ("one two three four five six seven eight nine ten eleven twelve thirteen", "complex"),
        ("", "simple"),
    ],
)
def test_complexity_counts_words_and_clauses(query: str, complexity: str) -> None:
    assert intent(query, config()).complexity == complexity


@pytest.mark.parametrize("query", ["why redis", "Redis VERSUS kafka", "how many deploys", "latest deploy", "which one"])
def test_reasons_comparisons_and_signals_need_reasoning(query: str) -> None:
    found = intent(query, config())
    assert found.reasoning and found.route == "hybrid"


def test_a_reasoning_word_inside_another_word_does_not_count() -> None:
    assert not intent("show somehow", config()).reasoning


def test_a_preference_signal_alone_needs_no_reasoning() -> None:
    assert intent("recommend tools", config()).route == "vector"


@pytest.mark.parametrize(
    ("query", "route"),
    [("redis cache", "vector"), ("redis cache key size", "hybrid"), ("redis and kafka, or neither", "hybrid")],
)
def test_simple_without_reasoning_goes_to_vector_and_all_else_to_hybrid(query: str, route: str) -> None:
    assert intent(query, config()).route == route


def test_restart_elasticsearch_is_hybrid_by_substring_and_vector_by_word() -> None:
    by_substring = intent("restart elasticsearch", config(matching="substring"))
    assert (by_substring.complexity, by_substring.reasoning, by_substring.route) == ("simple", True, "hybrid")
    by_word = intent("restart elasticsearch", config(matching="word"))
    assert (by_word.complexity, by_word.reasoning, by_word.route) == ("simple", False, "vector")


@pytest.mark.parametrize("mode", ["vector", "hybrid"])
@pytest.mark.parametrize("query", ["redis", "why is redis slower than it was before the upgrade?"])
def test_a_mode_that_is_set_decides_the_route(mode: str, query: str) -> None:
    found = intent(query, config(mode=mode))
    assert (found.route, found.reason) == (mode, f"mode is {mode}")


def test_the_modes_are_those_tested_here() -> None:
    assert set(get_args(QueryConfig.model_fields["mode"].annotation)) == {"auto", "vector", "hybrid"}


def test_the_reason_says_that_no_llm_was_asked() -> None:
    assert intent("redis", config()).reason == "simple, no reasoning; from the words, no LLM was asked"
