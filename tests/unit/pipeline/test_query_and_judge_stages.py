"""The detectors of the query stage, and the judge (docs/internals/specification.md, "query" and "judge")."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cases import column, evidence, kept, stage, trace, warned

from cems_workbench.config.sections.gathering import Detectors
from cems_workbench.pipeline import ModelScore
from cems_workbench.pipeline.stages.query import DetectorMatch, detect

WORD = {"query.detectors.matching": "word"}


def query_stage(query: str, changes: dict[str, Any] | None = None) -> Any:
    return stage("query", evidence({"vector": {"a": 0.9}}, query=query), changes)


def detectors(query: str, matching: Any = "substring") -> set[str]:
    return {match.detector for match in detect(query, Detectors(matching=matching))}


def test_substring_matching_calls_restart_elasticsearch_temporal_and_shows_the_cut_word() -> None:
    found = query_stage("restart elasticsearch")
    assert found.fields.matches == (DetectorMatch("temporal", "last", 9, 13, cuts_word=True),)
    assert warned(found, "temporal: “last” was found inside a word (“elasticsearch”)")


@pytest.mark.parametrize(
    ("query", "cut"), [("firstly", True), ("at last", False), ("ballast", True), ("last-minute", False)]
)
def test_a_signal_cuts_a_word_when_letters_touch_it_on_either_side(query: str, cut: bool) -> None:
    assert [match.cuts_word for match in query_stage(query).fields.matches] == [cut]


def test_word_matching_does_not() -> None:
    found = query_stage("restart elasticsearch", WORD)
    assert found.fields.matches == ()
    assert found.warnings == []


@pytest.mark.parametrize("matching", ["substring", "word"])
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("recommend video editing resources", {"preference"}),
        ("Suggest a cocktail based on my taste", {"preference"}),
        ("when did I deploy to production?", {"temporal"}),
        ("WHICH CAME FIRST", {"temporal"}),
        ("how many days since the upgrade", {"temporal", "aggregation"}),
        ("how much did I spend", {"aggregation"}),
        ("how does hybrid search work", set()),
        ("", set()),
    ],
)
def test_signal_words(query: str, expected: set[str], matching: str) -> None:
    assert detectors(query, matching) == expected


def test_detectors_can_be_off() -> None:
    assert detect("how many", Detectors(enabled=False)) == ()


def test_the_query_stage_has_no_candidates() -> None:
    assert query_stage("x").rows == ()


JUDGE = {"judge.backend": "auto"}


def judged(scores: dict[str, float | None], changes: dict[str, Any] | None = None, **fields: Any) -> Any:
    judge_scores = {"ms-marco": {key: ModelScore(value) for key, value in scores.items()}}
    ranked = fields.pop("model_scores", {})
    subject = evidence({"vector": {key: 0.9 for key in scores}}, judge_scores=judge_scores, **fields)
    subject = replace(subject, model_scores={**subject.model_scores, **ranked})
    return trace(subject, {**JUDGE, **(changes or {})})


def test_bands_of_the_ace_document() -> None:
    """> −8 highly relevant, −8…−10 relevant, −10…−12 weak, < −12 irrelevant; relevant when > −10."""
    judge = judged({"a": -7.9, "b": -8.0, "c": -9.9, "d": -10.0, "e": -11.9, "f": -12.0, "g": -20.0}).stage("judge")
    assert column(judge, "band") == {
        "a": "highly relevant",
        "b": "relevant",
        "c": "relevant",
        "d": "weak",
        "e": "weak",
        "f": "irrelevant",
        "g": "irrelevant",
    }
    assert [key for key, relevant in column(judge, "relevant").items() if relevant] == ["a", "b", "c"]


OWN = {"judges": {"ms-marco": {"label": "cross-encoder of mine", "threshold": 1.0, "bands": [3.0, 1.0, -1.0]}}}


def test_threshold_and_bands_that_are_null_are_the_judges_own() -> None:
    judge = judged({"a": 3.5, "b": 1.5, "c": 1.0, "d": -2.0}, notes=OWN).stage("judge")
    assert column(judge, "band") == {"a": "highly relevant", "b": "relevant", "c": "weak", "d": "irrelevant"}
    assert column(judge, "relevant") == {"a": True, "b": True, "c": False, "d": False}
    assert judge.fields.to_json() == {
        "backend": "auto",
        "model": "ms-marco",
        "threshold": 1.0,
        "bands": [3.0, 1.0, -1.0],
        "label": "cross-encoder of mine",
    }


def test_those_of_the_config_win_each_for_itself() -> None:
    fields = judged({"a": 0.0}, {"judge.threshold": -0.5}, notes=OWN).stage("judge").fields.to_json()
    assert (fields["threshold"], fields["bands"]) == (-0.5, [3.0, 1.0, -1.0])
    fields = judged({"a": 0.0}, {"judge.bands": [5.0, 4.0, 3.0]}, notes=OWN).stage("judge").fields.to_json()
    assert (fields["threshold"], fields["bands"]) == (1.0, [5.0, 4.0, 3.0])


@pytest.mark.parametrize(
    "about", [{}, {"judges": {"another": OWN["judges"]["ms-marco"]}}, {"judges": {"ms-marco": {"label": "x"}}}]
)
def test_a_judge_of_which_nothing_is_known_is_read_as_ms_marco(about: dict[str, Any]) -> None:
    fields = judged({"a": 0.0}, notes=about).stage("judge").fields.to_json()
    assert (fields["threshold"], fields["bands"]) == (-10.0, [-8.0, -10.0, -12.0])


def test_a_result_without_judgment_has_no_band() -> None:
    judge = judged({"a": -3.0, "b": None}).stage("judge")
    assert column(judge, "band") == {"a": "highly relevant", "b": None}
    assert column(judge, "relevant") == {"a": True, "b": None}


def test_the_judge_never_changes_the_ranking() -> None:
    scores = {"a": -20.0, "b": 5.0, "c": -9.0}
    result = judged(scores)
    assert kept(result.stage("judge")) == [row.memory_id for row in result.results] == ["a", "b", "c"]
    assert [row.score for row in result.results] == [
        row.score for row in judged(scores, {"judge.backend": "none"}).results
    ]


@pytest.mark.parametrize(("score", "name"), [(0.4, "highly relevant"), (-20.0, "irrelevant")])
def test_bands_that_fit_none_of_the_judges_scores_are_warned_of(score: float, name: str) -> None:
    assert warned(judged({"a": score, "b": score + 0.1}).stage("judge"), f"every result is judged {name}")
    assert not warned(judged({"a": score, "b": -9.0}).stage("judge"), "every result")
    assert not warned(judged({"a": score}).stage("judge"), "every result")


def test_a_judge_that_also_ranked_warns_of_circularity() -> None:
    changes = {"rerank.backend": "cross_encoder", "rerank.model": "ms-marco"}
    changes |= {"rerank.combine": "replace", "rerank.skip_if_few": False}
    ranked = {"ms-marco": {"a": ModelScore(1.0), "b": ModelScore(-9.0)}}
    said = {"a": 1.0, "b": -9.0}
    alone = judged(said, changes, model_scores=ranked)
    assert warned(alone.stage("judge"), "agree with the ranking by construction")
    blended = judged(said, {**changes, "rerank.combine": "position_bands"}, model_scores=ranked)
    assert warned(blended.stage("judge"), "no second opinion") and not warned(blended.stage("judge"), "by construction")
    other_text = judged({"a": 1.0, "b": -8.5}, changes, model_scores=ranked)
    assert warned(other_text.stage("judge"), "another text") and not warned(
        other_text.stage("judge"), "by construction"
    )
    assert not judged(said, {**changes, "rerank.model": "other"}, model_scores=ranked).stage("judge").warnings


def test_a_judge_that_took_anothers_place_and_also_ranked_is_seen_by_what_it_is() -> None:
    """Two names, one model: the cross-encoder that was asked for was not there, and late interaction ranked."""
    changes = {"rerank.backend": "cross_encoder"}
    same = {"models": {"reranker": "late interaction on MiniLM", "judge": "late interaction on MiniLM"}}
    ranked = {"cross_encoder": {"a": ModelScore(1.0)}}
    changes |= {"rerank.combine": "replace", "rerank.skip_if_few": False}
    subject = judged({"a": 1.0}, changes, notes=same, model_scores=ranked).stage("judge")
    assert warned(subject, "agree with the ranking by construction")
    other = {"models": {"reranker": "cross-encoder", "judge": "late interaction on MiniLM"}}
    assert not judged({"a": 1.0}, changes, notes=other, model_scores=ranked).stage("judge").warnings


def test_a_judgment_carries_the_sigmoid_of_its_score() -> None:
    subject = evidence(
        {"vector": {"a": 0.9, "b": 0.8}}, judge_scores={"j": {"a": ModelScore(0.0), "b": ModelScore(None)}}
    )
    found = column(stage("judge", subject, {"judge.backend": "cross_encoder", "judge.model": "j"}), "sigmoid")
    assert found == {"a": 0.5, "b": None}
