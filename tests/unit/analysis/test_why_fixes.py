"""What to do about a lost memory: fixes, what they cost elsewhere, which comes first, and the next step."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from cems_workbench.analysis.known_mistakes import NextStep, next_step
from cems_workbench.analysis.ranks import kendall, rbo
from cems_workbench.analysis.why.counterfactual import Change, Counterfactual
from cems_workbench.analysis.why.first_fix import first_fix, standing_of
from cems_workbench.analysis.why.report import Why, explain
from cems_workbench.analysis.why.trial import NDCG, LabelledEffect, LabelledSet, SideEffects, Trials, side_effects
from cems_workbench.config import with_values
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.comparison import compare
from cems_workbench.evaluation.evaluate import evaluate
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.evaluation.verdict import verdict_of_values
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.supersession import SUPERSEDED
from cems_workbench.records import Query
from cems_workbench.tuning.holdout import gain
from cems_workbench.ui.inspect.tools.why import cause_html
from tests.unit.analysis.test_supersession_signals import traced
from tests.unit.pipeline.cases import NOW, configured, evidence, trace


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


def test_equal_lists_agree_wholly() -> None:
    assert kendall("abc", "abc") == 1.0
    assert rbo("abc", "abc") == pytest.approx(1.0)
    assert (kendall("", ""), rbo("", "")) == (1.0, 1.0)


def test_a_reversed_pair() -> None:
    assert kendall("ab", "ba") == -1.0
    # agreement 0 at depth 1, 1 at depth 2: 0.1/0.9 · 0.81 + 0.81
    assert rbo("ab", "ba") == pytest.approx(0.9)


def test_lists_that_share_one_of_two() -> None:
    # of the pairs ab, ac, bc only bc is in opposite orders
    assert kendall("ab", "ac") == pytest.approx(1 / 3)
    # agreement 1 at depth 1, 1/2 at depth 2: 0.1/0.9 · (0.9 + 0.405) + 0.405
    assert rbo("ab", "ac") == pytest.approx(0.1 / 0.9 * 1.305 + 0.405)


def test_disjoint_lists() -> None:
    # ab and cd are each known to one list only; the four others are in opposite orders
    assert kendall("ab", "cd") == pytest.approx(1 - 2 * 5 / 6)
    assert rbo("ab", "cd") == 0.0


def test_making_room_for_the_memory_costs_nothing() -> None:
    moved = side_effects("abc", "abm", "m")
    assert (moved.tau, moved.rbo, moved.gone) == (1.0, pytest.approx(1.0), 0)


def test_results_that_are_gone_cost() -> None:
    assert side_effects("abcd", "m", "m").rbo < 0.5
    assert side_effects("abcd", "m", "m").gone == 3
    assert side_effects("abcm", "ma", "m").rbo < 0.9


def test_a_memory_that_only_moves_up_disturbs_nobody() -> None:
    assert side_effects("abm", "mab", "m").tau == 1.0


def test_labelled_queries_that_gain_and_lose() -> None:
    # vector alone puts a first, lexical alone b; grades want b in the first query and a in the second
    lists = {"vector": {"a": 0.9, "b": 0.8}, "lexical": {"b": 2.0, "a": 1.0}}
    labelled = LabelledSet(
        {"q1": evidence(lists), "q2": evidence(lists), "q3": evidence(lists)},
        {"q1": {"b": 3, "a": 0}, "q2": {"a": 2}, "q3": {"a": 0}},
    )
    before, after = configured({"lists.lexical.weight": 0.5}), configured({"lists.lexical.weight": 2.0})
    effect = labelled.effect(before, after, k=1)
    assert effect.queries == 2  # q3 has no answer
    assert (effect.gained, effect.lost) == (("q1",), ("q2",))
    assert effect.gain == pytest.approx(0) and effect.low < 0 < effect.high
    assert (effect.better, effect.worse) == (1, 1)
    assert effect.before == pytest.approx((1 / math.log2(3) + 1) / 2)
    assert effect.after == pytest.approx(effect.before)
    same = labelled.effect(before, before, k=1)
    assert (same.gained, same.lost, same.better, same.worse) == ((), (), 0, 0)


def test_the_interval_of_a_gain_is_that_of_the_comparison() -> None:
    lists = {"vector": {"a": 0.9, "b": 0.8}, "lexical": {"b": 2.0, "a": 1.0}}
    evidences = {f"q{i}": evidence(lists) for i in range(5)}
    grades = {"q0": {"b": 3}, "q1": {"b": 1, "a": 2}, "q2": {"a": 2}, "q3": {"b": 2}, "q4": {"b": 1}}
    before, after = configured({"lists.lexical.weight": 0.5}), configured({"lists.lexical.weight": 2.0})
    batch = LabelledBatch([Query(qid, "t") for qid in evidences], evidences, grades)
    old, new = (evaluate(batch, config, [parse_measure("nDCG@10")]) for config in (before, after))
    (compared,) = compare([old, new]).compared[0].differences
    assert compared.low < compared.difference < compared.high

    effect = LabelledSet(evidences, grades).effect(before, after, k=1)
    tuned = gain(old.values[:, 0], new.values[:, 0])
    for found in ((effect.gain, effect.low, effect.high), (tuned.difference, tuned.low, tuned.high)):
        assert found == pytest.approx((compared.difference, compared.low, compared.high))
    none = LabelledSet(evidences, {qid: {"a": 0} for qid in evidences})  # nothing is relevant
    assert not none and none.effect(before, after, k=1).queries == 0 and not none.mistakes(before)


UNMOVED = SideEffects(1.0, 1.0)


def change(path: str, distance: float, differences: list[float] | None = None, **fields: Any) -> Counterfactual:
    """A change with these differences of nDCG@10 on the judged queries; None: not measured."""
    one = Counterfactual((Change(path, 1, 2, distance),), 3, UNMOVED, **fields)
    if differences is None:
        return one
    values = np.array(differences)
    verdict = verdict_of_values(("the change", "workbench"), NDCG, values)
    ends = (0.5, 0.5 + float(values.mean()), verdict.low, verdict.high)
    return replace(one, labelled=LabelledEffect(len(values), (), (), 0, 0, *ends, verdict))


PASSES = [0.1, 0.2] * 60
CANNOT_TELL = [0.5, -0.4] * 20
LOSES_PERHAPS = [0.4, -0.5] * 20
FAILS = [-0.1, -0.2] * 60


def naming(*changes: Counterfactual) -> str:
    fix = first_fix("m", 10, changes)
    assert fix.change is not None
    return fix.change.changes[0].path


def test_smallest_change_without_a_loss_comes_first_and_a_fail_never_if_another_exists() -> None:
    kinds = [
        change(f"fusion.{name}", distance, own)
        for name, distance, own in [
            ("cannot", 0.8, CANNOT_TELL),
            ("pass", 0.9, PASSES),
            ("unknown", 0.7, None),
            ("perhaps", 0.6, LOSES_PERHAPS),
            ("fail", 0.5, FAILS),
        ]
    ]
    assert [standing_of(one) for one in kinds] == ["unharmed", "holds", "unknown", "doubtful", "harms"]
    for i in range(len(kinds)):
        assert naming(*reversed(kinds[i:])) == kinds[i].changes[0].path


def test_parameter_that_the_cause_names_comes_before_others_unless_it_is_known_to_lose() -> None:
    other, cause = change("fusion.k", 0.1, PASSES), change("rerank.depth", 0.9, of_cause=True)
    assert naming(other, cause) == "rerank.depth"
    assert naming(other, change("rerank.depth", 0.9, FAILS, of_cause=True)) == "fusion.k"


def test_among_equals_the_smallest_change_and_first_what_puts_it_above_the_superseded() -> None:
    near, far = change("fusion.near", 0.1, PASSES), change("fusion.far", 0.2, PASSES)
    assert naming(far, near) == "fusion.near"
    assert naming(far, replace(near, stale_above="old")) == "fusion.far"
    pair = replace(near, changes=(*near.changes, Change("fusion.k", 1, 2, 0.0)))
    assert naming(pair, far) == "fusion.far"


def test_a_loss_with_missing_scores_comes_after_the_unknown_and_other_words_after_a_setting() -> None:
    def unscored(path: str, distance: float, differences: list[float]) -> Counterfactual:
        one = change(path, distance, differences)
        assert one.labelled is not None
        return replace(one, labelled=replace(one.labelled, unscored=88))

    losing, other = unscored("fusion.losing", 0.1, FAILS), unscored("fusion.other", 0.9, CANNOT_TELL)
    assert (standing_of(losing), standing_of(other)) == ("doubtful", "unknown")
    assert naming(losing, other) == "fusion.other"
    words = change("expansion.backend", 0.0, gathers=True, terms=("grew",))
    gathers = change("query.mode", 1.0, gathers=True)
    assert [
        naming(words, gathers, other),
        naming(words, gathers),
        naming(losing, words),
    ] == [
        "fusion.other",
        "query.mode",
        "fusion.losing",
    ]
    assert first_fix("m", 10, [words]).sentence.startswith(
        "No setting that was tried brings m into the first 10; for this query only: expansion.backend = 2 and search for “grew” too (needs "
        "a new search). m becomes 3rd; "
    )


def test_sentence_says_first_that_every_fix_harms() -> None:
    worse = change("fusion.worse", 0.1, [-0.3, -0.4] * 60)
    fix = first_fix("m", 10, [worse, change("fusion.bad", 0.9, FAILS)])
    assert fix.sentence == (
        "All 2 changes that bring m into the first 10 fail on the judged queries; the least loss: fusion.bad = 2. m becomes 3rd; "
        "on 120 queries with a relevant memory: 0 better, 120 worse, 0 the same by nDCG@10, -0.150 [-0.159, -0.141] (fail)."
    )
    assert first_fix("m", 1, [worse]).sentence.startswith(
        "The only change that brings m first fails on the judged queries: fusion.worse = 2. "
    )
    doubtful = first_fix("m", 10, [change("fusion.k", 0.1, LOSES_PERHAPS)]).sentence
    assert doubtful.startswith(
        "No change that brings m into the first 10 is known to spare the judged queries; the least loss: "
    )


def superseding(order: str, **memories: dict[str, Any]) -> Evidence:
    """Evidence of one list in this order, in which t supersedes a."""
    scores = {name: 0.9 - 0.05 * i for i, name in enumerate(order)}
    note = {SUPERSEDED: {"a": [{"id": "t", "created_at": NOW.isoformat(), "kind": "supersedes"}]}}
    return evidence({"vector": scores}, memories=memories, notes=note)


def test_a_memory_below_the_one_it_supersedes_is_fixed_by_a_mode_of_supersession() -> None:
    subject, config = superseding("abct"), configured({"assembly.limit": 2})
    found = explain("t", subject, config)
    assert found.fix is not None and found.fix.change is not None
    assert found.fix.sentence.startswith("Fix: supersession.mode = follow. t becomes 1st; not checked on other queries")
    assert replay(subject, found.fix.change.config(config)).results[0].memory_id == "t"

    assert found.fix.sentence in " ".join(cause_html(found, "text of t").split())  # what the page draws

    # In the first 4 already, but a reader takes a for the truth.
    inside = explain("t", subject, configured({"assembly.limit": 4}))
    assert inside.path.status == "in the top k" and inside.fix is not None
    assert inside.fix.sentence.startswith("Fix: supersession.mode = follow. t becomes 1st")
    assert inside.verdict.endswith("would put it above a, which it supersedes.")
    assert {one.values["supersession.mode"] for one in inside.counterfactuals} == {"demote", "drop", "follow"}
    assert explain("b", subject, configured({"assembly.limit": 4})).fix is None


def test_sentence_says_when_no_change_puts_the_memory_above_what_it_supersedes() -> None:
    # t has expired, so that it takes nobody's rank; a is pinned by its priority, and only a larger limit brings t in.
    ages = {"a": {"priority": 9.0}, "t": {"valid_until": NOW - timedelta(days=1)}}
    subject = superseding("at", **ages)
    config = configured({"assembly.limit": 1, "adjust.priority": True})
    found = explain("t", subject, config, k=2)
    fix = found.fix
    assert fix is not None and fix.change is not None and fix.above == "a"
    without = [one for one in found.counterfactuals if one.stale_above is not None]
    kept = first_fix("t", 2, without, above="a")
    assert kept.sentence.endswith(" No change that was tried puts it above a, which it supersedes.")
    both = first_fix(
        "t", 2, [replace(without[0], changes=(Change("assembly.limit", 1, 2, 0.0),)), change("fusion.k", 0.1)]
    )
    assert "which it supersedes" not in both.sentence


def test_the_verdict_of_a_change_is_that_of_its_values() -> None:
    lists = {"vector": {"a": 0.9, "b": 0.8}, "lexical": {"b": 2.0, "a": 1.0}}
    labelled = LabelledSet(
        {f"q{i}": evidence(lists) for i in range(20)}, {f"q{i}": {"b": 3} for i in range(20)}, scope=" of 90"
    )
    before, after = configured({"lists.lexical.weight": 0.5}), configured({"lists.lexical.weight": 2.0})
    effect = labelled.effect(before, after, 10)
    shown = f"+{1 - 1 / np.log2(3):.3f} [+{effect.low:.3f}, +{effect.high:.3f}] (pass)"
    assert effect.verdict.brief == f"20 better, 0 worse, 0 the same by nDCG@10, {shown}"
    assert effect.verdict.kind == "pass" and labelled.effect(before, before, 10).verdict.kind == "pass"
    fix = first_fix("b", 1, [replace(change("lists.lexical.weight", 0.5), labelled=effect)])
    assert (
        "; on 20 of 90 queries with a relevant memory: 20 better, 0 worse, 0 the same by nDCG@10, +0.369"
        in fix.sentence
    )


@pytest.mark.parametrize("value", [0.1 + 0.2, 2 / 3, None, True, "follow", 7])
def test_the_value_of_a_sentence_is_the_value(value: object) -> None:
    from cems_workbench.config import parse_assignment

    one = Counterfactual((Change("fusion.k", 1, value, 0.1),), 1, UNMOVED)
    assert parse_assignment(one.assigned.replace(" = ", "=")) == ("fusion.k", value)


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
