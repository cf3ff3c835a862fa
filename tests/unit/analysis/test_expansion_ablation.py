"""What each variant gives and the results without it, on lists small enough to add up by hand."""

from __future__ import annotations

import pytest

from cems_workbench.analysis.component_effects import leave_one_variant_out, variant_parts
from cems_workbench.pipeline import Evidence, Variant
from tests.unit.pipeline.cases import evidence, trace

VARIANTS = (Variant("query"), Variant("more", "expansion"), Variant("other", "expansion"))


def three() -> Evidence:
    """a and b by the query; b and c by the first expansion; d by the second alone."""
    lists = {
        "vector": {"a": 0.9, "b": 0.8},
        "vector@1": {"c": 0.9, "b": 0.7},
        "lexical@1": {"c": 5.0},
        "vector@2": {"d": 0.9},
    }
    return evidence(lists, variants=VARIANTS)


def test_candidates_and_those_that_nobody_else_found_are_counted() -> None:
    parts = variant_parts(trace(three()))
    assert [(part.found, part.alone, part.on) for part in parts] == [
        (2, ("a",), True),
        (2, ("c",), True),
        (1, ("d",), True),
    ]


def test_the_shares_are_those_of_the_fused_scores_of_the_results() -> None:
    """rrf, k 60, weights 1: a 1/61, b 1/62 + 1/62, c 1/61 + 1/61, d 1/61."""
    total = 4 / 61 + 2 / 62
    shares = [part.share for part in variant_parts(trace(three()))]
    assert shares == pytest.approx([(1 / 61 + 1 / 62) / total, (2 / 61 + 1 / 62) / total, (1 / 61) / total])
    assert sum(shares) == pytest.approx(1)


def test_only_the_results_count_for_the_shares() -> None:
    """The first two are c (2/61) and b (2/62)."""
    shares = [part.share for part in variant_parts(trace(three(), {"assembly.limit": 2}))]
    total = 2 / 61 + 2 / 62
    assert shares == pytest.approx([(1 / 62) / total, (2 / 61 + 1 / 62) / total, 0])


def test_with_combmax_the_share_belongs_to_the_decisive_variant() -> None:
    lists = {"vector": {"a": 0.9, "b": 0.2}, "vector@1": {"a": 0.3, "b": 0.6}}
    changes = {"fusion.method": "combmax", "lists.lexical.enabled": False}
    shares = [part.share for part in variant_parts(trace(evidence(lists, variants=VARIANTS[:2]), changes))]
    assert shares == pytest.approx([0.9 / 1.5, 0.6 / 1.5])


def test_a_relation_of_another_memory_found_it_too() -> None:
    subject = evidence({"vector@1": {"a": 0.9, "b": 0.8}, "relations": {"b": 1.0}}, variants=VARIANTS[:2])
    assert variant_parts(trace(subject, {"lists.relations.enabled": True}))[1].alone == ("a",)


def test_recency_finds_nobody() -> None:
    subject = evidence({"vector": {"a": 0.9}, "recency": {"a": 5.0}})
    assert variant_parts(trace(subject, {"lists.recency.enabled": True}))[0].alone == ("a",)


def test_without_a_variant_its_own_candidates_leave() -> None:
    """Order with all: c, b, then a and d by id. Without 1: a, d, b. Without 0: c, d, b."""
    found = leave_one_variant_out(trace(three(), {"assembly.limit": 3}))
    assert [row.memory_id for row in trace(three()).results] == ["c", "b", "a", "d"]
    assert [toggled.results for toggled in found] == [("c", "d", "b"), ("a", "d", "b"), ("c", "b", "a")]
    assert [toggled.left for toggled in found] == [("a",), ("c",), ()]
    assert [toggled.entered for toggled in found] == [("d",), ("d",), ()]
    assert [found[2].tau, found[2].rbo] == pytest.approx([1.0, 1.0])
    assert found[1].rbo < found[0].rbo < 1


def test_one_that_is_off_is_put_back() -> None:
    off = frozenset({2})
    subject = trace(three(), switched_off=off)
    parts, found = variant_parts(subject, off), leave_one_variant_out(subject, off)
    assert [part.on for part in parts] == [True, True, False]
    assert (parts[2].found, parts[2].share) == (0, 0)
    assert (found[2].off, found[2].entered, found[2].left) == (False, ("d",), ())
    assert found[0].off


def test_scores_that_the_reranker_lacks_are_counted() -> None:
    lists = {"vector": {"a": 0.9, "b": 0.8}, "vector@1": {"c": 0.9}}
    subject = evidence(lists, variants=VARIANTS[:2], model={"a": 0.5, "c": 0.9})
    changes = {"rerank.backend": "cross_encoder", "rerank.model": "oracle", "rerank.depth": 2}
    whole = trace(subject, changes)
    assert not whole.stage_needs  # a and c are the first two
    assert [toggled.unscored for toggled in leave_one_variant_out(whole)] == [0, 1]


def test_nothing_found_has_no_share_and_nothing_to_lose() -> None:
    empty = trace(evidence({"vector": {}}))
    assert [part.share for part in variant_parts(empty)] == [0]
    assert leave_one_variant_out(empty)[0].rbo == 1
