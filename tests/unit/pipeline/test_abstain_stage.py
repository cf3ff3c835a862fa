"""abstain (docs/internals/specification.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cases import configured, dropped, evidence, falling, kept, stage, trace, warned
from hypothesis import given, settings
from hypothesis import strategies as st

from cems_workbench.analysis.ranks import nothing_returned
from cems_workbench.analysis.sensitivity.exact import LEVELS, ParameterSweep
from cems_workbench.config import field_spec, with_values
from cems_workbench.pipeline import Evidence, Hit, ModelScore, RankedList, Variant, replay
from cems_workbench.pipeline.replay import run, to_table
from cems_workbench.pipeline.scoring import judge_texts
from cems_workbench.pipeline.stages import ABSTAIN
from cems_workbench.pipeline.stages.abstain import CONFIDENCE_FEATURES, asking_all, switched_off

VECTOR = {"a": 0.44, "b": 0.40, "c": 0.31, "d": 0.30, "e": 0.20, "f": 0.10}
LEXICAL = {"c": 7.5, "a": 3.0, "x": 1.0}
JUDGED = {"a": ModelScore(-9.0, "text a"), "c": ModelScore(-4.0, "text c"), "f": ModelScore(3.0, "text f")}
ASKED: dict[str, Any] = {
    "fusion.method": "combmax",
    "rerank.backend": "cross_encoder",
    "rerank.model": "oracle",
    "rerank.combine": "replace",
    "rerank.raw_scale": "sigmoid",
    "judge.backend": "auto",
    "assembly.limit": 3,
}
"""By the reranker's scores b, a, c, d, ...: b, a and c are what would be returned."""


def subject(**changes: Any) -> Evidence:
    model = {"a": 1.0, "b": 2.0, "c": 0.5, "d": 0.0, "e": -1.0, "f": -2.0, "x": -3.0}
    return evidence(
        {"vector": VECTOR, "lexical": LEXICAL}, **{"model": model, "judge_scores": {"j": JUDGED}, **changes}
    )


def values(subject: Evidence, changes: dict[str, Any]) -> dict[str, float | None]:
    fields = replay(subject, asking_all(configured(changes))).stage(ABSTAIN).fields
    assert not fields.abstained
    return {signal.name: signal.value for signal in fields.signals}


def test_every_signal_is_what_is_worked_out_by_hand() -> None:
    """First hits 0.44 and 7.5; of b, a, c the reranker's best is 2 and the judge's -4 (f, with 3, would not be returned);
    sigmoid(2) - sigmoid(1); of a, b, c, d, e the lexical list has a and c."""
    assert values(subject(), ASKED) == {
        "vector": 0.44,
        "lexical": 7.5,
        "reranker": 2.0,
        "judge": -4.0,
        "margin": pytest.approx(0.8807971 - 0.7310586, abs=1e-7),
        "agreement": pytest.approx(2 / 5),
    }
    assert values(subject(), {**ASKED, "abstain.agreement_k": 3})["agreement"] == pytest.approx(2 / 3)
    assert values(subject(), {**ASKED, "abstain.agreement_k": 3, "lists.lexical.depth": 1})[
        "agreement"
    ] == pytest.approx(1 / 3)
    assert values(subject(), {**ASKED, "assembly.limit": None})["judge"] == 3.0


def test_only_the_lists_of_the_query_as_it_was_asked_count_and_no_cut_hides_their_best() -> None:
    two = evidence(
        {"vector@0": {"a": 0.3}, "vector@1": {"b": 0.9}, "lexical@0": {}},
        variants=(Variant("query"), Variant("guess", "hyde")),
    )
    assert {key: values(two, {})[key] for key in ("vector", "lexical", "agreement")} == {
        "vector": 0.3,
        "lexical": 0.0,
        "agreement": None,
    }
    assert values(two, {"threshold.mode": "fixed", "threshold.fixed": 0.5})["vector"] == 0.3
    assert values(two, {})["margin"] == 0.0  # one place each
    assert values(evidence({"vector": {"a": 0.3}}), {"fusion.single_list": "bypass"})["margin"] == 0.3


def test_the_lists_inside_a_hybrid_list_count_as_searched() -> None:
    inside = {"lists.vector.enabled": False, "lists.hybrid.enabled": True}
    both = evidence({"vector": VECTOR})
    both = replace(both, lists=(*both.lists, RankedList("ts_rank:0", "ts_rank", 0, (Hit("a", 0.1),))))
    assert values(both, inside)["vector"] == 0.44
    assert values(both, {"lists.vector.enabled": False, "lists.ts_rank.enabled": True})["vector"] is None


def test_below_the_threshold_nothing_is_returned_and_the_value_itself_is_the_largest_that_answers() -> None:
    assert kept(stage("abstain", subject(), {**ASKED, "abstain.vector": 0.44}))[:3] == ["b", "a", "c"]
    refused = trace(subject(), {**ASKED, "abstain.vector": 0.4400000001})
    assert set(dropped(refused.stage("abstain")).values()) == {"best vector score 0.44 is below 0.4400000001"}
    assert refused.results == [] and nothing_returned(refused) == (
        "abstain",
        "best vector score 0.44 is below 0.4400000001",
    )
    assert refused.stage(ABSTAIN).to_json()["abstained"] is True


def test_any_signal_refuses_or_only_all_of_them() -> None:
    one = {**ASKED, "abstain.vector": 0.5, "abstain.lexical": 7.0}
    assert kept(stage("abstain", subject(), one)) == []
    assert kept(stage("abstain", subject(), {**one, "abstain.rule": "all"})) != []
    both = trace(subject(), {**one, "abstain.lexical": 8.0, "abstain.rule": "all"})
    assert nothing_returned(both) == (
        "abstain",
        "best vector score 0.44 is below 0.5 and best lexical score 7.5 is below 8",
    )


def test_a_signal_without_a_value_decides_nothing_and_is_said() -> None:
    bare = evidence({"vector": VECTOR})
    for name in ("lexical", "reranker", "judge", "agreement"):
        found = stage("abstain", bare, {f"abstain.{name}": 1.0})
        assert len(kept(found)) == 6 and warned(found, f"the {CONFIDENCE_FEATURES[name].title} decides nothing")
    assert kept(stage("abstain", bare, {"abstain.lexical": 1.0, "abstain.vector": 0.9, "abstain.rule": "all"})) == []
    assert nothing_returned(trace(evidence({"vector": {}}), {"abstain.vector": 0.5})) == (
        "",
        "no list that is switched on has a hit",
    )


def test_other_stages_that_leave_nothing_say_so_themselves() -> None:
    cut = trace(
        evidence({"vector": falling(2)}),
        {"filter.min_score": 0.45, "fusion.single_list": "bypass", "lists.vector.depth": 1},
    )
    assert nothing_returned(cut) is None
    cut = trace(evidence({"vector": {"a": 0.31, "b": 0.2}}), {"filter.min_score": 0.45, "fusion.single_list": "bypass"})
    assert nothing_returned(cut) == (
        "filter",
        "filter dropped all 2 candidates by filter.min_score (the best, a: score 0.3100 is below the minimum 0.45)",
    )


def test_best_of_what_was_dropped_is_named_not_the_first_by_id() -> None:
    uneven = evidence({"vector": {"a": 0.1, "b": 0.3, "c": 0.2}})
    cut = trace(uneven, {"threshold.mode": "fixed", "threshold.fixed": 0.5})
    assert nothing_returned(cut) == (
        "threshold",
        "threshold dropped all 3 candidates by threshold.fixed (the best, b: best list score 0.3000 is below the threshold 0.5)",
    )
    filtered = nothing_returned(trace(uneven, {"filter.min_score": 100, "fusion.single_list": "bypass"}))
    assert filtered is not None and "(the best, b: score 0.3000 is below the minimum 100)" in filtered[1]


def test_the_judge_reads_what_decides_even_where_nothing_is_returned() -> None:
    refused = trace(subject(), {**ASKED, "abstain.judge": 100.0})
    assert refused.results == [] and list(judge_texts(refused)) == ["b", "a", "c"]
    assert [(need.stage, need.memory_ids) for need in refused.stage_needs] == [("abstain", ("b",))]  # a and c were read
    assert judge_texts(trace(subject(), {**ASKED, "abstain.vector": 100.0})) == {}
    assert trace(subject(), {**ASKED, "abstain.judge": 1.0, "judge.backend": "none"}).stage_needs == ()


def test_every_query_of_a_batch_is_decided_by_itself() -> None:
    each = [subject(), evidence({"vector": {"a": 0.2}}), evidence({}), evidence({"lexical": {"z": 3.0}})]
    config = configured({"abstain.vector": 0.3})
    batch = run(to_table(each), config).of(ABSTAIN)
    assert [bool(alive.any()) for alive in batch.after.alive] == [True, False, False, True]
    for q, one in enumerate(each):
        alone = replay(one, config).stage(ABSTAIN).fields
        assert batch.fields(q).abstained == alone.abstained and batch.fields(q).signals == alone.signals


def test_the_sensitivity_of_a_threshold_has_its_event_at_the_value() -> None:
    for name, value in {"vector": 0.44, "lexical": 7.5, "reranker": 2.0, "judge": -4.0}.items():
        turned = ParameterSweep(subject(), configured(ASKED), f"abstain.{name}", 3)
        assert LEVELS[f"abstain.{name}"](turned, -1000.0).tolist() == [value]


NUMBERS = st.floats(-5, 5, allow_nan=False).map(lambda value: round(value, 2))
THRESHOLDS = st.fixed_dictionaries(
    {
        "abstain.vector": NUMBERS,
        "abstain.lexical": NUMBERS,
        "abstain.margin": st.floats(0, 1),
        "abstain.agreement": st.floats(0, 1),
    }
)


@settings(max_examples=40)
@given(
    lists=st.fixed_dictionaries(
        {name: st.dictionaries(st.sampled_from("abcdef"), NUMBERS, max_size=6) for name in ("vector", "lexical")}
    ),
    low=THRESHOLDS,
    raised=st.sampled_from(sorted(CONFIDENCE_FEATURES)),
    by=st.floats(0, 3),
    rule=st.sampled_from(["any", "all"]),
)
def test_raising_a_threshold_never_returns_more_and_off_is_the_ranking_as_it_was(lists, low, raised, by, rule):
    ordered = {name: dict(sorted(hits.items(), key=lambda hit: -hit[1])) for name, hits in lists.items()}
    found = evidence(ordered)
    config = configured({**low, "abstain.rule": rule})
    path = f"abstain.{raised}"
    spec, now = field_spec(path), config.get(path)
    more = with_values(config, {path: None if now is None else min(now + by, spec.high or 0.0)})
    before, after, off = (
        [(result.memory_id, result.score) for result in replay(found, one).results]
        for one in (config, more, switched_off(config))
    )
    assert after in ([], before) and before in ([], off)
    assert off == [(result.memory_id, result.score) for result in replay(found, configured()).results]
