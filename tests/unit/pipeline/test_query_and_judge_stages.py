"""query, expansion's probe and judge: detectors, intent and route, conversation, bands (docs/internals/specification.md)."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from cases import column, configured, evidence, kept, stage, trace, warned
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.config.sections import Conversational, Detectors, QueryConfig
from cems_workbench.errors import InputError
from cems_workbench.pipeline import ModelScore
from cems_workbench.pipeline.stages.expansion import ExpansionFields, StrongSignal
from cems_workbench.pipeline.stages.query import (
    DetectorMatch,
    PatternMatch,
    QueryFeatures,
    detect,
    features,
    is_conversational,
)
from cems_workbench.pipeline.understanding import Intent, shipped_terms, strong_signal, technical_terms, understand

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


def probed(raw: list[float], scale: str, **settings: float) -> StrongSignal:
    """The probe of lexical hits with these scores."""
    hits = [(f"m{i}", score) for i, score in enumerate(raw)]
    path = "expansion.skip_on_strong_signal"
    config = configured({f"{path}.scale": scale} | {f"{path}.{key}": value for key, value in settings.items()})
    return strong_signal(hits[:2], config)


def test_raw_compares_the_score_itself_so_nearly_every_query_fires() -> None:
    found = probed([1.2, 0.9], "raw")
    assert (found.top, found.second, found.fires) == (1.2, 0.9, True)


@pytest.mark.parametrize(("top", "fires"), [(5.66, False), (5.67, True)])
def test_the_saturating_scale_needs_raw_5_67(top: float, fires: bool) -> None:
    """0.85 = s / (1 + s) at s = 0.85 / 0.15 = 5.667."""
    found = probed([top], "saturating")
    assert found.fires is fires
    assert found.top == pytest.approx(top / (1 + top), rel=1e-15)
    assert found.short_of_threshold == pytest.approx(0.0 if fires else 0.85 - top / (1 + top), abs=1e-15)


def test_the_gap_to_the_second_is_needed_too() -> None:
    assert not probed([2.0, 1.9], "raw").fires
    assert probed([2.0, 1.5], "raw").fires


@pytest.mark.parametrize("scale", ["raw", "max", "saturating"])
def test_no_hit_never_fires(scale: str) -> None:
    assert not probed([], scale, threshold=0.0, gap=0.0).fires


def test_what_was_noted_in_evidence_is_read_back_and_what_is_no_probe_is_none() -> None:
    found = probed([1.2, 0.9], "raw")
    noted = asdict(found)
    assert ExpansionFields(notes={"probe": noted}).probe == found
    for other in (None, "yes", {}, {"top": 4.0}, noted | {"top": "4.0"}, noted | {"scale": 1}):
        assert ExpansionFields(notes={"probe": other}).probe is None


TERMS = shipped_terms()
WIRED, HYBRID, TOKEN = (
    "is this wired up and working in production",
    "how does hybrid search work",
    "what is the token limit",
)


def marks(count: int) -> tuple[PatternMatch, ...]:
    return (PatternMatch("x", "x", 0, 1),) * count


def kinds(query: str) -> set[str]:
    return {match.signal for match in features(query, TERMS).code}


@pytest.mark.parametrize(
    ("query", "domain", "stopwords", "conversational"),
    [(WIRED, 1 / 8, 7 / 8, True), (HYBRID, 0 / 5, 2 / 5, False), (TOKEN, 1 / 5, 2 / 5, False)],
)
def test_the_three_queries_of_the_ace_document(query, domain, stopwords, conversational):
    found = features(query, TERMS)
    assert (found.domain_signal, found.stopword_ratio, found.has_code) == (domain, stopwords, False)
    assert is_conversational(found, Conversational()) is conversational


def test_the_words_that_matched_are_shown_where_they_stand() -> None:
    found = features("Is the API's latency_ms ok, Tokens?", TERMS)
    assert [(match.signal, match.start, match.end) for match in found.stopwords] == [("is", 0, 2), ("the", 3, 6)]
    assert [(match.signal, match.start, match.end) for match in found.terms] == [("api", 7, 12), ("token", 28, 34)]
    assert found.code == (PatternMatch("code", "underscore", 13, 23),)


@pytest.mark.parametrize(
    ("domain", "stopwords", "conversational"),
    [(14, 41, True), (15, 41, False), (14, 40, False), (0, 100, True), (100, 0, False)],
)
def test_both_bounds_are_strict(domain: int, stopwords: int, conversational: bool) -> None:
    found = QueryFeatures(100, marks(stopwords), marks(domain))
    assert is_conversational(found, Conversational()) is conversational


@pytest.mark.parametrize("query", ["", "  ", "? - …"])
def test_a_query_without_words_has_ratios_of_zero_and_is_not_conversational(query: str) -> None:
    found = features(query, TERMS)
    assert (found.words, found.stopword_ratio, found.domain_signal, found.has_code) == (0, 0.0, 0.0, False)
    assert not is_conversational(found, Conversational())


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("what does `git add` do", "backticks"),
        ("where is src/api/handlers", "path"),
        ("clear ~/.cache/pip now", "path"),
        (r"look in C:\temp", "path"),
        ("open https://example.org/x", "path"),
        ("who wrote main.py", "file name"),
        ("why DATABASE_URL", "underscore"),
        ("why __init__", "underscore"),
        ("where is getUserById", "camel case"),
        ("where is UserService", "camel case"),
        ("what does foo() give", "call"),
        ("is items[0] right", "brackets"),
        ("why {}", "brackets"),
        ("a <div> in it", "brackets"),
        ("what is os.path.join", "dotted name"),
        ("if a == b", "operator"),
        ("what is std::move", "operator"),
        ("what is --force for", "option"),
        ("where is $HOME", "variable"),
        ("what is 0xFF", "number in hex"),
        ("SELECT name FROM memories", "SQL"),
    ],
)
def test_how_a_query_shows_code(query: str, kind: str) -> None:
    assert kind in kinds(query)


@pytest.mark.parametrize(
    "query",
    [
        "and/or",
        "he/she/they",
        "open 24/7",
        "on 12/05/2024.",
        "version 1.2.3",
        "the file(s)",
        "e.g. this",
        "U.S. law",
        "MacDonald",
        "my iPhone",
        "PostgreSQL and GitHub",
        "Node.js",
        "[note] this",
        "well-known",
        "C++ or C#",
        "it's $50",
        "wait... what",
        "select from these",
        "rock'n'roll",
        "8:30",
    ],
)
def test_what_is_only_written_like_code_is_none(query: str) -> None:
    assert kinds(query) == set()


@given(st.text(max_size=200))
def test_ratios_lie_in_0_to_1_and_matches_in_the_query(query: str) -> None:
    found = features(query, TERMS)
    assert 0 <= found.stopword_ratio <= 1
    assert 0 <= found.domain_signal <= 1
    assert found.words <= len(query.split())
    for match in (*found.stopwords, *found.terms, *found.code):
        assert 0 <= match.start < match.end <= len(query)


def test_the_lexicon_is_in_lower_case_and_has_some_hundreds_of_terms() -> None:
    assert len(TERMS) > 500
    assert all(term == term.lower() for term in TERMS)
    assert not {"search", "work", "limit", "hybrid", "the"} & TERMS


def test_a_project_dictionary_adds_its_words(tmp_path) -> None:
    file = tmp_path / "terms.txt"
    file.write_text("# ours\nFlurbo  gizmo-server\n", encoding="utf-8")
    terms = technical_terms(file)
    assert terms == TERMS | {"flurbo", "gizmo-server"}
    assert features("the flurbos of it", terms).domain_signal == 1 / 4
    assert technical_terms(tmp_path / "none.txt") == TERMS == technical_terms()


def test_a_project_dictionary_that_is_no_text_is_an_error(tmp_path) -> None:
    file = tmp_path / "terms.txt"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"terms.txt: not readable as a list of words"):
        technical_terms(file)
