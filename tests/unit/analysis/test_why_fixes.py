"""A fix is what was checked: no win by a tie, no change that only turns off what ranks, and first what the cause names."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cems_workbench.analysis.why import Why, explain
from cems_workbench.analysis.why.trial import Trials
from cems_workbench.config import with_values
from cems_workbench.pipeline import replay
from tests.unit.pipeline.cases import configured, evidence


def named(found: Why) -> dict[str, Any]:
    """The changes of the first fix."""
    return {} if found.fix is None or found.fix.change is None else found.fix.change.values


CHUNKS = {f"guide-md-{i}": 0.9 - 0.02 * i for i in range(8)}
NOTES = {"right-md-0": 0.6, "cake": 0.5, "tea": 0.4}


def near(*groups: tuple[str, ...]) -> dict[str, tuple[float, ...]]:
    """Embeddings at right angles between groups, and near within one."""
    return {
        key: tuple(float(g == axis) + 0.02 * (n + 1) * (axis == len(groups)) for axis in range(len(groups) + 1))
        for g, group in enumerate(groups)
        for n, key in enumerate(group)
    }


@pytest.mark.parametrize("target", ["right-md-0", "aa-md-0"])
def test_chunks_of_one_note_that_crowd_out_are_named_and_no_tie_is_a_fix(target: str) -> None:
    """jagoff/memo#204 (2026-08-06), MemPalace#2025 (2026-07-15): the fix was a weight of 0, by the order of ids."""
    scores = {**CHUNKS, **{target if key == "right-md-0" else key: value for key, value in NOTES.items()}}
    subject = replace(evidence({"vector": scores}), embeddings=near(tuple(CHUNKS), (target,), ("cake",), ("tea",)))
    found = explain(target, subject, configured({"assembly.limit": 5}))
    assert [mistake.words for mistake in found.mistakes] == [
        f"5 of the first 5 are chunks of guide-md, {target} is not"
    ]
    assert named(found) == {"dedup.enabled": True} and found.counterfactuals[0].rank == 2
    for change in found.counterfactuals:
        trace = replay(subject, change.config(configured({"assembly.limit": 5})))
        assert len({result.score for result in trace.results}) > 1, change.words


def test_change_that_leaves_the_memory_level_with_others_is_no_fix() -> None:
    # a is the last by meaning; at weight 0 all are level, and a is first by its id alone
    subject = evidence({"vector": {"d": 0.9, "c": 0.8, "b": 0.7, "a": 0.6}})
    config = configured({"assembly.limit": 2})
    found = explain("a", subject, config)
    trials = Trials(subject, "a", 2, present=config)
    for path in ("lists.vector.weight", "variants.original_weight", "fusion.cap"):
        level = with_values(config, {path: 0.0})
        assert replay(subject, level).results[0].memory_id == "a"
        assert trials.outcome(level).rank is None and not trials.succeeds(level)
    assert not {path for change in found.counterfactuals for path in change.values if path != "assembly.limit"}


@pytest.mark.parametrize(
    ("changes", "lists", "expected"),
    [
        # weaviate/weaviate#10350 (2026-01-20): a floor on the vector score removes the exact word
        (
            {"assembly.min_vector_score": 0.5},
            {"vector": {"b": 0.8, "a": 0.7, "t": 0.3}, "lexical": {"t": 9.0}},
            "assembly.min_vector_score",
        ),
        # automem#128 (2026-03-20): a gap rule drops what is near
        (
            {"gap.ratio": 0.95, "gap.keep": 1, "fusion.method": "combsum"},
            {"vector": {"a": 0.8, "t": 0.6, "b": 0.5}},
            "gap.ratio",
        ),
        (
            {"filter.min_score": 0.5, "fusion.method": "combsum"},
            {"vector": {"a": 0.8, "t": 0.4}},
            "filter.min_score",
        ),
        # mem0ai/mem0#5742 (2026-06-22): a keyword hit cannot enter
        (
            {"fusion.candidates_from": ["vector"]},
            {"vector": {"a": 0.8}, "lexical": {"t": 3.0}},
            "fusion.candidates_from",
        ),
    ],
)
def test_parameter_of_the_rule_that_dropped_the_memory_is_the_fix(changes, lists, expected):
    found = explain("t", evidence(lists), configured(changes), k=3)
    assert list(named(found)) == [expected], found.fix


def test_reading_further_is_the_fix_where_the_depth_is_the_cause() -> None:
    """getzep/graphiti#1642 (2026-07-09), mem0ai/mem0#6448 (2026-07-20): the reranker never reads the memory."""
    reranked = {"rerank.backend": "cross_encoder", "rerank.model": "oracle", "rerank.raw_scale": "identity"}
    model = {"a": 0.2, "b": 0.3, "c": 0.1, "t": 0.9}
    note = {"gathered": {"rerank.depth": 40}}
    subject = evidence({"vector": {"a": 0.9, "b": 0.8, "c": 0.7, "t": 0.6}}, model=model, notes=note)
    for below in ("drop", "below"):
        depth = {"rerank.depth": 2, "assembly.limit": 2, "rerank.below_depth": below}
        found = explain("t", subject, configured(reranked | depth))
        assert named(found) == {"rerank.depth": 4}
        point = found.counterfactuals[0].changes[0].breakpoint
        assert point is not None and (point.fails, point.succeeds) == (3, 4)
    found = explain("t", subject, configured(reranked | {"rerank.position": "returned", "assembly.limit": 2}))
    assert named(found) == {"rerank.position": "before_adjust"}


def test_bands_of_a_reranker_without_share_are_named_and_never_emptied() -> None:
    subject = evidence({"vector": {"d": 0.9, "c": 0.8, "b": 0.7, "a": 0.6}})
    bands = [{"max_rank": None, "retrieval": 1.0}]
    found = explain("a", subject, configured({"assembly.limit": 2, "rerank.backend": "llm", "rerank.bands": bands}))
    assert "rerank.bands" in [mistake.parameter for mistake in found.mistakes]
    assert json.dumps(found.to_json()) and all("rerank.bands" not in change.values for change in found.counterfactuals)
