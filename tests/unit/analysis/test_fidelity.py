"""Production's answer beside our trace: matching, agreement, where it was lost, whose scores they are, what explains it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from cems_workbench.analysis.fidelity.answer import (
    RecordedResult,
    agreement,
    match_results,
    most_similar,
    overlap_at,
    placements,
    results_of,
    score_maps,
    stage_similarities,
)
from cems_workbench.analysis.fidelity.explain import Explanation, Replays, combined_changes, explanations
from cems_workbench.analysis.ranks import loss
from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.pipeline import Evidence, Hit, RankedList, Trace, Variant, replay
from cems_workbench.records import Memory

PLAIN = {
    "filter.min_score": None,
    "adjust.time_decay.mode": "none",
    "fusion.top_rank_bonus.rank1": 0.0,
    "fusion.top_rank_bonus.rank2_3": 0.0,
    "assembly.limit": 3,
    "judge.backend": "none",
}
CONFIG = with_values(PipelineConfig(), PLAIN)
TEXTS = {
    "a": "Anna lives in the house by the lake.",
    "b": "Bert  lives\nin the town.",
    "c": "The same words twice, and more of them.",
    "d": "The same words twice, and more of them here.",
    "e": "Emil.",
    "f": "Frieda.",
    "z": "in the store, never found",
}


def find(ids: Iterable[str] | None) -> Mapping[str, Memory]:
    wanted = TEXTS if ids is None else [key for key in ids if key in TEXTS]
    return {key: Memory(key, TEXTS[key]) for key in wanted}


def evidence(priority: Mapping[str, float] | None = None) -> Evidence:
    vector = {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6, "e": 0.5, "f": 0.4}
    lexical = {"f": 9.0, "e": 7.0, "d": 5.0, "c": 3.0, "b": 1.0}

    def ranked(name: Any, hits: Mapping[str, float]) -> RankedList:
        return RankedList(f"{name}:0", name, 0, tuple(Hit(key, score) for key, score in hits.items()))

    memories = {key: Memory(key, TEXTS[key], priority=(priority or {}).get(key, 1.0)) for key in vector}
    return Evidence("q", memories, (Variant("q"),), (ranked("vector", vector), ranked("lexical", lexical)))


def trace(changes: Mapping[str, Any] | None = None) -> Trace:
    return replay(evidence(), with_values(CONFIG, changes or {}))


def production(*ids: str, scores: Iterable[float] = ()) -> Any:
    given = [*scores, *[None] * len(ids)]
    return match_results([RecordedResult(key, score=score) for key, score in zip(ids, given, strict=False)], find)


def test_memories_are_matched_by_id_then_by_text_then_by_a_part_of_one_memory_only() -> None:
    answers = [
        RecordedResult("b", "somebody else's text", 0.9),
        RecordedResult("prod-1", "Emil.", 0.8),
        RecordedResult(None, "Anna lives in the house by the"),
        RecordedResult("prod-2", "The same words twice, and more of them"),
        RecordedResult("prod-3", "Emil"),
        RecordedResult("e"),
        RecordedResult("prod-4", "Bert lives in the town."),
    ]
    found = match_results(answers, find)
    assert found.order == ("b", "e", "a")
    assert found.ranks == {"b": 1, "e": 2, "a": 3}
    assert found.scores == {"b": 0.9, "e": 0.8}
    assert found.by_text == {"e": "prod-1", "a": "no id"}
    assert [(rank, answer.memory_id) for rank, answer in found.unknown] == [(4, "prod-2"), (5, "prod-3")]


def test_agreement_by_hand() -> None:
    found = agreement(["a", "b", "c"], ["b", "a", "x", "c"])
    assert (found.depth, found.shared) == (3, 2)
    # pairs of {a,b,c,x}: ab reversed 1; ac, bc, ax, bx agree 0; cx is known apart in each list: 1 (c first there, x first here)
    assert found.tau == pytest.approx(1 - 2 * 2 / 6)
    # agreement at depths 1, 2, 3: 0, 1, 2/3; rbo = (1-p)/p * (0 + 1*p^2 + 2/3*p^3) + 2/3 * p^3
    assert found.rbo == pytest.approx(0.1 / 0.9 * (0.81 + 2 / 3 * 0.729) + 2 / 3 * 0.729)
    assert overlap_at(["a", "b", "c"], ["b", "a", "x", "c"], (1, 2, 3, 5)) == {1: 0, 2: 2, 3: 2}


def test_every_memory_says_where_our_trace_lost_it_and_what_production_lacks() -> None:
    ours = trace({"filter.min_score": 0.4})
    rows = {one.memory_id: one for one in placements(production("a", "z", "f"), ours)}
    assert list(rows)[:3] == ["a", "z", "f"]
    assert (rows["z"].lost_at, rows["z"].reason) == ("lists", "no list returned it")
    for memory_id in ("a", "f"):
        lost = loss(ours, memory_id)
        assert (rows[memory_id].lost_at, rows[memory_id].reason) == ((lost.stage, lost.reason) if lost else (None, ""))
    extra = [one for one in rows.values() if one.production is None]
    assert [one.memory_id for one in extra] == [key for key in results_of(ours) if key not in ("a", "z", "f")]
    assert [one.ours for one in extra] == sorted(one.ours or 0 for one in extra)


def test_the_list_that_production_copies_is_the_one_it_is_most_like() -> None:
    found = stage_similarities(["f", "e", "d", "c"], trace())
    best = most_similar(found)
    assert best is not None
    assert (best.name, best.stage, best.shared, best.tau, best.rbo) == ("lexical:0", False, 4, 1.0, pytest.approx(1.0))
    assert {one.name for one in found if not one.stage} == {"vector:0", "lexical:0"}
    assert next(one for one in found if one.name == "vector:0").tau == -1.0


def test_our_own_results_are_most_like_the_assembly() -> None:
    ours = trace()
    best = most_similar(stage_similarities(results_of(ours), ours))
    assert best is not None
    assert (best.name, best.rbo) == ("assembly", pytest.approx(1.0))


def test_scores_of_production_that_are_a_map_of_a_stage_are_recognised() -> None:
    ours = trace()
    fused = {row.memory_id: row.raw for row in ours.stage("fusion").rows}
    given = {key: round(2 * value + 0.25, 6) for key, value in fused.items()}
    best = score_maps(given, ours)[0]
    assert best.exact
    assert best.name == "fusion, raw"
    assert (best.slope, best.intercept) == (pytest.approx(2, abs=1e-3), pytest.approx(0.25, abs=1e-4))
    assert best.worst <= 0.5e-6 + 1e-9


def test_scores_that_map_onto_nothing_are_not_called_exact() -> None:
    found = score_maps({"a": 0.9, "b": 0.1, "c": 0.8, "d": 0.2, "e": 0.7}, trace())
    assert found and not any(one.exact for one in found)
    assert score_maps({"a": 0.9, "b": 0.1}, trace()) == []
    assert score_maps({"a": 0.5, "b": 0.5, "c": 0.5}, trace()) == []


@pytest.mark.parametrize(
    ("path", "value"), [("lists.lexical.weight", 0.2), ("lists.lexical.enabled", False), ("fusion.score_blend", 1.0)]
)
def test_the_one_parameter_that_differs_is_found_first(path: str, value: Any) -> None:
    there = results_of(trace({path: value}))
    assert there != results_of(trace())
    replays = Replays(there, evidence())
    found = explanations(replays, CONFIG)
    exact = [one for one in found if one.agreement.rbo == pytest.approx(1.0)]
    assert exact and found[: len(exact)] == exact
    assert path in {changed for one in exact for changed, _, _ in one.changes}
    for one in exact:
        if one.preset is None:
            tuned = with_values(CONFIG, {name: now for name, _, now in one.changes})
            assert results_of(replay(evidence(), tuned)) == there
        else:
            assert results_of(replay(evidence(), preset(one.preset).config))[:3] == there
    assert replays.count > 50


def test_explanations_come_in_the_order_of_what_they_raise_and_only_those_that_do() -> None:
    replays = Replays(["f", "e", "a"], evidence())
    now = replays.agreement(CONFIG)
    found = explanations(replays, CONFIG)
    values = [round(one.agreement.rbo, 9) for one in found]
    assert values == sorted(values, reverse=True)
    assert all(value > now.rbo for value in values)


def test_two_parameters_together_explain_what_one_does_not() -> None:
    boosted = evidence({"c": 1.4, "e": 1.9})
    config = with_values(CONFIG, {"adjust.priority": False})
    there = results_of(
        replay(
            boosted,
            with_values(config, {"adjust.priority": True, "adjust.clamp": False, "lists.vector.enabled": False}),
        )
    )
    replays = Replays(there, boosted)
    single = next(one for one in explanations(replays, config) if one.preset is None)
    joint = combined_changes(replays, config, single)
    assert joint is not None
    assert 2 <= len(joint.changes) <= 3
    assert joint.agreement.rbo > single.agreement.rbo
    tuned = with_values(config, {path: value for path, _, value in joint.changes})
    assert replays.agreement(tuned) == joint.agreement
    perfect = Explanation(single.changes, agreement(there, there), 0.1)
    assert combined_changes(replays, config, perfect) is None


def test_what_is_the_same_needs_no_explanation() -> None:
    assert explanations(Replays(results_of(trace()), evidence()), CONFIG) == []


def test_progress_counts_the_parameters() -> None:
    seen: list[tuple[str, int, int]] = []
    explanations(Replays(["f"], evidence()), CONFIG, lambda label, done, total: seen.append((label, done, total)))
    assert seen[-1][1] == seen[-1][2] > 20
    assert re.fullmatch("trying parameters", seen[0][0])
