"""Known mistakes of a config in a query, from its trace (analysis/known_mistakes.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cases import evidence, falling, trace

from cems_workbench.analysis.known_mistakes import known_mistakes
from cems_workbench.analysis.stage_mistakes import KnownMistake
from cems_workbench.pipeline import Evidence

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
