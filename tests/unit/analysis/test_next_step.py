"""The next step for a query: which of several is named, in which words, and where it leads."""

from __future__ import annotations

from typing import Any

import pytest

from cems_workbench.analysis.known_mistakes import NextStep, next_step
from tests.unit.analysis.test_supersession_words import traced
from tests.unit.pipeline.cases import evidence, trace

SUBJECT = evidence(
    {"vector": {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6}}, memories={"a": {"category": "gone"}, "x": {"content": "x"}}
)


def step(grades: dict[str, int] | None = None, changes: dict[str, Any] | None = None, **options: Any) -> NextStep:
    return next_step(trace(SUBJECT, {"assembly.limit": 2, **(changes or {})}), grades, **options)


def test_stale_first_result_leads_to_its_successor_before_any_judgment_counts():
    found = next_step(traced("abc", {"a": ["c"]}), {"b": 3})
    assert (found.kind, found.place, found.memory_id) == ("superseded", "why", "c")
    assert (
        found.words
        == "The first result, a, is superseded by c (the same day), which is below 2 in every list (best: 3rd in vector:0)."
    )


@pytest.mark.parametrize(
    ("grades", "kind", "memory", "words"),
    [
        ({"c": 3}, "missing", "c", "The memory judged relevant is missing: c (grade 3), below 2 in every list (best: 3rd in vector)."),
        ({"a": 3, "x": 2}, "missing", "x", "1 of 2 memories judged relevant is missing: x (grade 2), which no list found."),
        ({"c": 2, "d": 3}, "missing", "d",
         "2 of 2 memories judged relevant are missing; the best is d (grade 3), below 2 in every list (best: 4th in vector)."),
        ({"c": 2, "d": 2, "x": 2}, "missing", "c",
         "3 of 3 memories judged relevant are missing; the best is c (grade 2), below 2 in every list (best: 3rd in vector)."),
        ({"a": 0, "b": 3}, "low", "b",
         "The best memory judged relevant, b (grade 3), is 2nd, below a, which is judged irrelevant and 1st."),
        ({"a": 3}, "good", None, "The memory judged relevant is among the results: see which other queries lose theirs."),
        ({"d": 0}, "unjudged", "a", "The only judged memory is irrelevant to this query: grade the results."),
        ({}, "unjudged", "a", "No result is judged for this query: grade what answers it, and what it loses is counted and explained."),
    ],
)  # fmt: skip
def test_judgments_decide_the_step(grades, kind, memory, words):
    found = step(grades)
    assert (found.kind, found.memory_id, found.words) == (kind, memory, words)


def test_best_candidate_dropped_by_a_stage_leads_to_it_unless_it_is_judged_irrelevant():
    budget = {"assembly.limit": None, "assembly.max_tokens": 10}
    long = evidence({"vector": {"a": 0.9, "b": 0.8}}, memories={"a": {"content": "word " * 100}})
    found = next_step(trace(long, budget))
    assert (found.kind, found.place, found.memory_id) == ("dropped", "why", "a")
    assert found.words.startswith("The best candidate before assembly, a, was dropped by it: ")
    assert next_step(trace(long, budget), {"a": 0}).kind == "unjudged"


def test_nothing_returned_leads_to_the_stage_that_dropped_it_or_to_the_judged_memory():
    high = {"filter.min_score": 0.5}
    assert step(changes=high).place == "stages"
    assert step(changes=high).words.startswith(
        "Nothing returned: filter dropped all 4 candidates by filter.min_score (the best, a: "
    )
    assert (step({"b": 2}, high).place, step({"b": 2}, high).memory_id) == ("why", "b")
    assert next_step(trace(evidence({"vector": {}}))).place == "lists"


def test_query_that_the_store_does_not_answer_is_right_without_results_and_noise_with_them():
    noise, right = step(answerable=False), step(changes={"filter.min_score": 0.5}, answerable=False)
    assert (noise.kind, noise.place, right.kind) == ("unanswered", "abstain", "answered")
    assert noise.words == "The store does not answer this query, by its judgments, but 2 results are returned."


def test_target_rank_decides_what_is_missing_and_is_kept_for_the_explanation():
    words = "The memory judged relevant is not within the first 1: b (grade 3), below 1 in every list (best: 2nd in vector)."
    assert step({"b": 3}, k=1) == NextStep("missing", words, "why", "b", 1)
    assert step({"b": 3}).kind == "good" and "k" not in step({"c": 3}).to_json()
