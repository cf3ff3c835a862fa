"""Fusion as other systems do it, against their own numbers (recorded; the version stands beside them)."""

from __future__ import annotations

import math
from typing import Any

import pytest
from cases import column, configured, dropped, evidence, kept, stage, trace, warned

from cems_workbench.pipeline import Evidence, Variant
from cems_workbench.pipeline.fusion_methods import FUSION_METHODS
from cems_workbench.pipeline.stages.fusion import linear_in_weights, score_parts

QDRANT: dict[str, dict[str, float]] = {
    "vector": {"1": 0.9, "2": 0.5, "3": 0.4, "4": 0.1},
    "lexical": {"2": 7.0, "5": 4.0, "1": 1.5},
}
"""Dot products of one-dimensional vectors, asked as prefetches of qdrant-client 1.20.0 (local mode) and of qdrant-edge-py 0.9.0 (the Rust
engine); both returned the numbers below, to the seven digits of the single precision in which they hold the vectors."""
SINGLE = 1e-7
RAW = {"lists.lexical.normalization": "none"}


def scores(subject: Evidence, changes: dict[str, Any]) -> dict[str, float]:
    return {row.memory_id: row.score for row in stage("fusion", subject, changes).kept}


def test_dbsf_gives_the_scores_of_qdrant() -> None:
    expected = {
        "1": 1.0529901293499586,
        "2": 1.1840919685597777,
        "3": 0.46216750836411147,
        "4": 0.3108375192706322,
        "5": 0.4899128744555199,
    }
    changes = {**RAW, "fusion.method": "dbsf"}
    assert scores(evidence(QDRANT), changes) == pytest.approx(expected, abs=SINGLE)
    alone = {**QDRANT, "relations": {"3": 2.0}}
    counted = scores(evidence(alone), {**changes, "lists.relations.enabled": True, "lists.relations.weight": 1.0})
    assert counted == pytest.approx(expected | {"3": 0.9621675083641115}, abs=SINGLE)  # one hit counts 0.5


def test_dbsf_of_equal_scores_is_one_half() -> None:
    """0.1 three times has a mean that is off by one rounding."""
    subject = evidence({"vector": {"a": 0.1, "b": 0.1, "c": 0.1}, "lexical": {}})
    assert set(scores(subject, {"fusion.method": "dbsf"}).values()) == {0.5}


def test_dbsf_explains_a_contribution_and_weights_it() -> None:
    changes = {**RAW, "fusion.method": "dbsf", "lists.vector.weight": 0.5}
    first, second = stage("fusion", evidence(QDRANT), changes).by_id["1"].contributions
    words = FUSION_METHODS["dbsf"].explain(first, configured(changes).fusion)
    assert words == f"0.5 × {2 * first.base:.4f} within mean ± 3 standard deviations = {first.base:.4f}"
    assert first.base + first.base + second.base == pytest.approx(1.0529901293499586, abs=SINGLE)


@pytest.mark.parametrize(
    ("k", "weights", "expected"),
    [
        (2, (3.0, 0.5), {"1": 0.8928571428571428, "2": 0.9333333333333333, "3": 0.5, "4": 3 / 7, "5": 0.2}),
        (2, (3.0, 0.0), {"1": 0.75, "2": 0.6, "3": 0.5, "4": 3 / 7, "5": 0.0}),
        (
            60,
            (1.0, 1.0),
            {
                "1": 0.03279569892473118,
                "2": 0.03306010928961749,
                "3": 0.016129032258064516,
                "4": 0.015873015873015872,
                "5": 0.01639344262295082,
            },
        ),
    ],
    ids=["weights", "weight 0", "k 60"],
)
def test_rank_divided_rrf_gives_the_scores_of_qdrant(k, weights, expected):
    changes = {
        "fusion.method": "rank_divided_rrf",
        "fusion.k": k,
        "lists.vector.weight": weights[0],
        "lists.lexical.weight": weights[1],
    }
    assert scores(evidence(QDRANT), changes) == pytest.approx(expected, abs=1e-12)
    first = stage("fusion", evidence(QDRANT), changes).by_id["1"].contributions[0]
    words = FUSION_METHODS["rank_divided_rrf"].explain(first, configured(changes).fusion)
    assert words == f"1 / (1 / {weights[0]:g} + {k} − 1) = {first.base:.4f}"


MEM0: dict[str, Any] = {
    "fusion.method": "combsum",
    "fusion.candidates_from": ["vector"],
    "fusion.divisor": "active_lists",
    "fusion.cap": 1.0,
    "fusion.tie_break": "first_seen",
    "lists.lexical.normalization": "logistic",
    "lists.relations.enabled": True,
    "lists.relations.weight": 0.5,
    "threshold.mode": "fixed",
    "threshold.fixed": 0.1,
    "threshold.applies_to": ["vector"],
}
"""The pieces of mem0 2.2.1 (PEERS.md 1, steps 5 to 9); relations stand for its entity list, whose boost is similarity × 0.5."""


def squashed(raw: float, words: int) -> float:
    """PEERS.md 1, step 5, written again."""
    limits = [(3, 5, 0.7), (6, 7, 0.6), (9, 9, 0.5), (15, 10, 0.5), (math.inf, 12, 0.5)]
    midpoint, slope = next((m, s) for most, m, s in limits if words <= most)
    return 1 / (1 + math.exp(-slope * (raw - midpoint)))


@pytest.mark.parametrize("words", [1, 3, 4, 6, 7, 9, 10, 15, 16, 40])
def test_mem0s_sum_of_similarity_keyword_and_boost(words: int) -> None:
    """d = 2.5: the keyword list and the entity list have a hit, neither of which needs to be a candidate."""
    text = " ".join(["word"] * words)
    lists = {
        "vector": {"a": 0.9, "b": 0.6, "c": 0.3, "d": 0.05},
        "lexical": {"a": 12.0, "k": 30.0, "c": 6.5},
        "relations": {"e": 0.9, "b": 0.7},
    }
    fusion = stage("fusion", evidence(lists, variants=(Variant(text),)), MEM0)
    expected = {
        "a": min(1, (0.9 + squashed(12.0, words)) / 2.5),
        "b": min(1, (0.6 + 0.35) / 2.5),
        "c": min(1, (0.3 + squashed(6.5, words)) / 2.5),
    }
    assert {row.memory_id: row.score for row in fusion.kept} == pytest.approx(expected, abs=1e-15)
    assert fusion.fields.divisor == 2.5
    assert dropped(fusion) == dict.fromkeys("ek", "only in lists whose hits cannot enter; candidates come from vector")
    for row in fusion.kept:
        assert sum(part.value for part in score_parts(row, fusion.fields)) == pytest.approx(row.score, rel=1e-12)


def test_mem0s_score_is_at_most_1_and_alone_it_is_not_divided() -> None:
    """Without a keyword or entity hit d is 1; a score above 1 is cut, which makes ties that keep the order of the vector list."""
    lists = {"vector": {"z": 1.0, "a": 0.9}, "lexical": {}, "relations": {}}
    assert scores(evidence(lists), MEM0) == {"z": 1.0, "a": 0.9}
    both = {"vector": {"z": 1.0, "a": 0.99}, "lexical": {"z": 90.0, "a": 80.0}, "relations": {}}
    fusion = stage("fusion", evidence(both), {**MEM0, "fusion.divisor": "none"})
    assert [(row.memory_id, row.score) for row in fusion.kept] == [("z", 1.0), ("a", 1.0)]


def test_a_list_counts_the_words_that_its_engine_counted() -> None:
    """Lemmas without stop words, say; the text as typed has ten words, another band."""
    lists = {"vector": {"a": 0.5}, "lexical": {"a": 8.0}}
    typed = Variant("a b c d e f g h i j")
    notes = {"engines": {"lexical": {"query": "g h", "words": 2}}}
    counted = scores(evidence(lists, variants=(typed,), notes=notes), MEM0)
    assert counted["a"] == pytest.approx((0.5 + squashed(8.0, 2)) / 2, abs=1e-15)
    assert scores(evidence(lists, variants=(typed,)), MEM0)["a"] == pytest.approx((0.5 + squashed(8.0, 10)) / 2)


def test_logistic_of_a_score_of_0_or_less_is_0() -> None:
    lists = stage("lists", evidence({"lexical": {"a": 3.0, "b": 0.0, "c": -1.0}}), MEM0)
    assert [lists.by_id[key].lists[0].normalized for key in "bc"] == [0.0, 0.0]


ENGRAM_RECALL: dict[str, Any] = {
    "fusion.method": "combsum",
    "fusion.importance_floor": 0.15,
    "lists.vector.weight": 0.35,
    "lists.lexical.weight": 0.15,
    "lists.lexical.normalization": "minmax",
    "lists.equal_scores": 0.5,
    "lists.recency.enabled": True,
    "lists.recency.weight": 0.3,
    "lists.recency.normalization": "exponential",
    "lists.recency.half_life_days": 30.0,
    "lists.access.enabled": True,
    "lists.access.weight": 0.2,
    "lists.access.normalization": "smoothed_share",
}
"""memory_recall of engram (ENGRAM.md, L): 0.5 relevance + 0.3 recency + 0.2 (n + 1)/(largest + 1)."""
DAY = 86400.0


def recalled(cosine: float, words: float, days: float, share: float, floor: float = 0.0) -> float:
    """The formula of ENGRAM.md, L, written again."""
    relevance = max(0.7 * cosine + 0.3 * words, floor)
    return 0.5 * relevance + 0.3 * math.exp(-math.log(2) * days / 30) + 0.2 * share


def test_engrams_recall_sums_relevance_recency_and_access() -> None:
    now = 1_788_220_800.0  # 2026-09-01, the moment of the evidence
    lists = {
        "vector": {"a": 0.8, "b": 0.2, "c": 0.1},
        "lexical": {"a": 4.0, "b": 1.0},
        "recency": {"a": now - 30 * DAY, "b": now, "c": now - 60 * DAY},
        "access": {"a": 3.0, "b": 0.0, "c": 1.0},
    }
    subject = evidence(lists, memories={"c": {"importance": "high"}})
    fusion = stage("fusion", subject, ENGRAM_RECALL)
    assert column(fusion, "score") == pytest.approx(
        {"a": recalled(0.8, 1, 30, 1), "b": recalled(0.2, 0, 0, 1 / 4), "c": recalled(0.1, 0, 60, 2 / 4, floor=0.3)},
        abs=1e-12,
    )
    assert fusion.by_id["c"].importance_floor == pytest.approx(0.15 - 0.35 * 0.1)
    for row in fusion.rows:
        assert sum(part.value for part in score_parts(row, fusion.fields)) == pytest.approx(row.score, rel=1e-12)
    assert not warned(fusion, "leaves out")


def test_equal_scores_are_what_the_config_says_and_the_warning_too() -> None:
    lists = stage("lists", evidence({"lexical": {"a": 4.0}, "vector": {"a": 0.3}}), ENGRAM_RECALL)
    assert [entry.normalized for entry in lists.by_id["a"].lists if entry.list == "lexical"] == [0.5]
    assert warned(lists, "lexical has one hit, which minmax scales to 0.5 however weak it is")


def test_a_store_that_was_never_used_shares_1_over_2() -> None:
    subject = evidence({"vector": {"a": 0.8}, "access": {"a": 0.0}})
    lists = stage("lists", subject, ENGRAM_RECALL)
    assert [entry.normalized for entry in lists.by_id["a"].lists if entry.list == "access"] == [0.5]


@pytest.mark.parametrize("single_list", ["fuse", "bypass"])
def test_minmax_runs_over_the_candidates_that_may_enter(single_list: str) -> None:
    subject = evidence({"vector": {"a": 0.9, "b": 0.5}, "lexical": {"k": 9.0, "a": 3.0}})
    changes = {"fusion.normalize": "minmax", "fusion.candidates_from": ["vector"], "fusion.single_list": single_list}
    assert scores(subject, changes) == {"a": 1.0, "b": 0.0}
    alone = trace(subject, {**changes, "lists.vector.enabled": False})
    assert alone.results == []


def test_scores_are_straight_lines_in_weights_unless_divided_capped_or_floored() -> None:
    lines = [
        linear_in_weights(configured(changes).fusion)
        for changes in (
            {"fusion.method": "dbsf"},
            {"fusion.method": "rank_divided_rrf"},
            {"fusion.divisor": "active_lists"},
            {"fusion.cap": 1.0},
            {"fusion.importance_floor": 0.2},
        )
    ]
    assert lines == [True, False, False, False, False]


def test_kept_candidates_are_in_a_list_that_they_may_come_from() -> None:
    subject = evidence({"vector": {"a": 0.9}, "lexical": {"b": 3.0}})
    assert sorted(kept(stage("fusion", subject, {"fusion.candidates_from": ["vector", "lexical"]}))) == ["a", "b"]
