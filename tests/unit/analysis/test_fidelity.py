"""Recorded answers beside what a config computes: how they are matched and measured, where they part, and what explains it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from cems_workbench.analysis.ranks import loss
from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.jobs.recorded_answers import match_results
from cems_workbench.pipeline import Evidence, Hit, RankedList, Trace, Variant, replay
from cems_workbench.records import Memory, Relation, Returned
from tests.unit.pipeline.cases import configured, evidence, trace
from workbench_fidelity.explain import (
    Explanation,
    Replays,
    SetReplays,
    combined_changes,
    explanations,
    single_changes,
)
from workbench_fidelity.fidelity import setting_for
from workbench_fidelity.lists import (
    Divergence,
    agreement,
    first_divergence,
    most_similar,
    overlap_at,
    placements,
    stage_similarities,
)
from workbench_fidelity.measures import QueryFidelity, SetFidelity, cause_of
from workbench_fidelity.recordings import parse_recording

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


def small(priority: Mapping[str, float] | None = None) -> Evidence:
    vector = {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6, "e": 0.5, "f": 0.4}
    lexical = {"f": 9.0, "e": 7.0, "d": 5.0, "c": 3.0, "b": 1.0}

    def ranked(name: Any, hits: Mapping[str, float]) -> RankedList:
        return RankedList(f"{name}:0", name, 0, tuple(Hit(key, score) for key, score in hits.items()))

    memories = {key: Memory(key, TEXTS[key], priority=(priority or {}).get(key, 1.0)) for key in vector}
    return Evidence("q", memories, (Variant("q"),), (ranked("vector", vector), ranked("lexical", lexical)))


def traced(changes: Mapping[str, Any] | None = None) -> Trace:
    return replay(small(), with_values(CONFIG, changes or {}))


def production(*ids: str, scores: Iterable[float] = ()) -> Any:
    given = [*scores, *[None] * len(ids)]
    return match_results([Returned(0, key, score) for key, score in zip(ids, given, strict=False)], find)


def test_memories_are_matched_by_id_then_by_text_then_by_a_part_of_one_memory_only() -> None:
    answers = [
        Returned(1, "b", 0.9, "somebody else's text"),
        Returned(2, "prod-1", 0.8, "Emil."),
        Returned(0, None, None, "Anna lives in the house by the"),
        Returned(0, "prod-2", None, "The same words twice, and more of them"),
        Returned(0, "prod-3", None, "Emil"),
        Returned(0, "e"),
        Returned(0, "prod-4", None, "Bert lives in the town."),
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
    ours = traced({"filter.min_score": 0.4})
    rows = {one.memory_id: one for one in placements(production("a", "z", "f"), ours)}
    assert list(rows)[:3] == ["a", "z", "f"]
    assert (rows["z"].lost_at, rows["z"].reason) == ("lists", "no list returned it")
    for memory_id in ("a", "f"):
        lost = loss(ours, memory_id)
        assert (rows[memory_id].lost_at, rows[memory_id].reason) == ((lost.stage, lost.reason) if lost else (None, ""))
    extra = [one for one in rows.values() if one.production is None]
    assert [one.memory_id for one in extra] == [key for key in list(ours.ranks) if key not in ("a", "z", "f")]
    assert [one.ours for one in extra] == sorted(one.ours or 0 for one in extra)


def test_the_list_that_production_copies_is_the_one_it_is_most_like() -> None:
    found = stage_similarities(["f", "e", "d", "c"], traced())
    best = most_similar(found)
    assert best is not None
    assert (best.name, best.stage, best.shared, best.tau, best.rbo) == ("lexical:0", False, 4, 1.0, pytest.approx(1.0))
    assert {one.name for one in found if not one.stage} == {"vector:0", "lexical:0"}
    assert next(one for one in found if one.name == "vector:0").tau == -1.0


def test_our_own_results_are_most_like_the_assembly() -> None:
    ours = traced()
    best = most_similar(stage_similarities(list(ours.ranks), ours))
    assert best is not None
    assert (best.name, best.rbo) == ("assembly", pytest.approx(1.0))


@pytest.mark.parametrize(
    ("path", "value"), [("lists.lexical.weight", 0.2), ("lists.lexical.enabled", False), ("fusion.score_blend", 1.0)]
)
def test_the_one_parameter_that_differs_is_found_first(path: str, value: Any) -> None:
    there = list(traced({path: value}).ranks)
    assert there != list(traced().ranks)
    replays = Replays(there, small())
    found = explanations(replays, CONFIG)
    exact = [one for one in found if one.agreement.rbo == pytest.approx(1.0)]
    assert exact and found[: len(exact)] == exact
    assert path in {changed for one in exact for changed, _, _ in one.changes}
    for one in exact:
        if one.preset is None:
            tuned = with_values(CONFIG, {name: now for name, _, now in one.changes})
            assert list(replay(small(), tuned).ranks) == there
        else:
            assert list(replay(small(), preset(one.preset).config).ranks)[:3] == there
    assert replays.count > 50


def test_explanations_come_in_the_order_of_what_they_raise_and_only_those_that_do() -> None:
    replays = Replays(["f", "e", "a"], small())
    now = replays.agreement(CONFIG)
    found = explanations(replays, CONFIG)
    values = [round(one.agreement.rbo, 9) for one in found]
    assert values == sorted(values, reverse=True)
    assert all(value > now.rbo for value in values)


def test_two_parameters_together_explain_what_one_does_not() -> None:
    boosted = small({"c": 1.4, "e": 1.9})
    config = with_values(CONFIG, {"adjust.priority": False})
    there = list(
        replay(
            boosted,
            with_values(config, {"adjust.priority": True, "adjust.clamp": False, "lists.vector.enabled": False}),
        ).ranks
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


VECTOR = {"vector": {"a": 0.9, "b": 0.8, "c": 0.7}}


def parted(recorded: str, made: Trace) -> tuple[str, str, str]:
    """Stage, memory and how; a letter of `recorded` a memory."""
    found = first_divergence(made, tuple(recorded))
    assert found is not None
    return found.stage, found.memory_id, found.how


def beside(recorded: str, made: Trace, scores: Any = (), unknown: tuple[str, ...] = ()) -> QueryFidelity:
    ours = tuple(result.memory_id for result in made.results)
    given = dict(zip(recorded, scores, strict=False))
    return QueryFidelity("q", "query", tuple(recorded), ours, given, {}, unknown)


HEAVY = {"memories": {"c": {"priority": 2.0}}}


@pytest.mark.parametrize(
    ("recorded", "config", "found"),
    [
        ("azbc", {}, ("lists", "z", "lost")),
        ("abc", {"filter.min_score": 1 / 62}, ("filter", "c", "lost")),
        ("abc", {"gap.ratio": 0.99, "gap.keep": 1}, ("gap", "b", "lost")),
        ("abc", {"assembly.limit": 2}, ("assembly", "c", "lost")),
        ("abc", {"filter.min_score": 1 / 62, "assembly.limit": 1}, ("filter", "c", "lost")),  # the first of several
        ("abcz", {"filter.min_score": 1 / 62, "assembly.limit": 1}, ("lists", "z", "lost")),
        ("bac", {}, ("fusion", "b", "order")),
        ("abc", {"adjust.priority": True}, ("adjust", "a", "order")),  # from which the other order stays
        ("cab", {"adjust.priority": True, "assembly.limit": 2}, ("assembly", "b", "lost")),
    ],
)
def test_a_trace_parts_at_the_first_stage_that_cannot_be_right(recorded: str, config: Any, found: Any) -> None:
    assert parted(recorded, trace(evidence(VECTOR, **(HEAVY if "adjust.priority" in config else {})), config)) == found


def test_the_same_order_parts_nowhere_even_if_a_later_stage_puts_it_right() -> None:
    assert first_divergence(trace(evidence(VECTOR)), ("a", "b", "c")) is None
    made = trace(evidence(VECTOR, **HEAVY), {"adjust.priority": True})
    assert [result.memory_id for result in made.results] == ["c", "a", "b"]
    assert first_divergence(made, ("c", "a", "b")) is None


def test_what_we_alone_return_is_named_where_nothing_else_parts() -> None:
    found = first_divergence(trace(evidence(VECTOR)), ("a", "b"))
    assert found == Divergence("assembly", "c", "extra", "we return it; the recording does not")


def test_ours_may_be_cut_where_the_recorded_answers_are() -> None:
    made = trace(evidence(VECTOR))
    assert first_divergence(made, ("a", "b"), ours=("a", "b")) is None
    found = first_divergence(made, ("a", "c"), ours=("a", "b"))
    assert found is not None
    assert (found.memory_id, found.how, found.reason) == ("c", "lost", "it stands further down")


def test_a_memory_of_another_store_is_the_cause() -> None:
    made = trace(evidence(VECTOR))
    cause = cause_of(beside("abcx", made, unknown=("x",)), made, {})
    assert (cause.kind, cause.text) == ("not here", "x: no memory of this store")


def test_equal_recorded_scores_are_the_cause_only_when_nothing_else_differs() -> None:
    made = trace(evidence(VECTOR))
    tied = cause_of(beside("bac", made, [0.5, 0.5, 0.1]), made, {})
    assert (tied.kind, tied.text) == ("equal scores", "b and a have equal scores in the recording")
    assert cause_of(beside("bac", made, [0.6, 0.5, 0.1]), made, {}).kind == "other"
    assert cause_of(beside("ba", made, [0.5, 0.5]), made, {}).kind == "other"
    assert cause_of(beside("bac", made), made, {}).kind == "other"


def test_lexical_scores_of_the_recording_that_are_not_ours_are_the_cause() -> None:
    made = trace(evidence({"vector": {"a": 0.9, "b": 0.8}, "lexical": {"a": 8.0, "b": 2.0}}))
    query = beside("ba", made)
    recorded = {"lexical": [[("a", 0.04), ("b", 0.02)]]}
    cause = cause_of(query, made, recorded)
    assert cause.kind == "lexical scores"
    assert cause.text == "b has 0.5000 of the best lexical score there and 0.2500 here"
    assert cause_of(query, made, {"lexical": [[("a", 0.04), ("b", 0.01)]]}).kind == "other"


RELATED = {
    "lists.relations.enabled": True,
    "lists.relations.mode": "each",
    "lists.relations.weight": 1.0,
    "lists.vector.depth": 1,
}


def test_edges_of_equal_similarity_are_the_cause_when_their_other_order_gives_the_recorded_one() -> None:
    edges = (Relation("a", "x", weight=0.5), Relation("a", "y", weight=0.5), Relation("a", "z", weight=0.4))
    subject = evidence({"vector": {"a": 0.9}}, memories={key: {} for key in "xyz"}, relations=edges)
    made = trace(subject, RELATED)
    assert [result.memory_id for result in made.results] == ["a", "x", "y", "z"]
    cause = cause_of(beside("ayxz", made), made, {})
    assert cause.kind == "equal relations"
    assert cause.text == "equal edges of a to x, y: in another order they give the recorded one"
    assert cause_of(beside("axzy", made), made, {}).kind == "other"


def test_a_vector_list_that_is_ordered_otherwise_is_the_cause() -> None:
    made = trace(evidence(VECTOR))
    named = replace(made.evidence, lists=tuple(replace(one, name="vector:0") for one in made.evidence.lists))
    made = trace(named)
    cause = cause_of(beside("bac", made), made, {"vector": [[("b", 0.1), ("a", 0.05), ("c", 0.01)]]})
    assert (cause.kind, cause.text) == ("vector list", "b is at 1 of the vector list there, at 2 here")


def test_a_score_that_another_order_of_equal_edges_gives_is_their_doing() -> None:
    """b stands in two places of the relations; which of them is nearer to the top is up to the order of a's edges."""
    edges = (Relation("a", "x", weight=0.5), Relation("a", "b", weight=0.5))
    subject = evidence({"vector": {"a": 0.9, "b": 0.8}}, memories={"x": {}}, relations=edges)
    made = trace(subject, {**RELATED, "lists.vector.depth": 2})
    other = trace(replace(subject, relations=edges[::-1]), {**RELATED, "lists.vector.depth": 2})
    order = tuple(result.memory_id for result in made.results)
    assert order == tuple(result.memory_id for result in other.results)
    theirs, ours = ({one.memory_id: one.score for one in side.results} for side in (other, made))
    query = QueryFidelity("q", "query", order, order, theirs, ours)
    assert query.same_order
    assert not query.same
    assert cause_of(query, made, {}).kind == "equal relations"


def test_a_score_that_is_off_where_two_share_one_in_the_hybrid_list_is_that_ties() -> None:
    """a is first by meaning and second by words, b the reverse, and both count alike."""
    subject = evidence({"vector": {"a": 0.9, "b": 0.8, "c": 0.1}, "ts_rank": {"b": 0.4, "a": 0.3}})
    subject = replace(subject, lists=tuple(replace(one, name=f"{one.source}:0", variant=0) for one in subject.lists))
    hybrid = {"lists.hybrid.enabled": True, "lists.hybrid.vector_weight": 0.5, "lists.vector.enabled": False}
    made = trace(subject, hybrid)
    order = tuple(result.memory_id for result in made.results)
    ours = {one.memory_id: one.score for one in made.results}

    def cause(off: str) -> str:
        theirs = ours | {off: ours[off] + 1e-4}
        return cause_of(QueryFidelity("q", "query", order, order, theirs, ours), made, {}).kind

    assert cause("a") == "equal hybrid"
    assert cause("c") == "other"


FIRST = evidence({"vector": {"a": 0.9, "b": 0.8}, "lexical": {"b": 9.0, "c": 8.0}})
SECOND = evidence({"vector": {"x": 0.9, "y": 0.8, "z": 0.7}})


def replays(*production: str, limit: int | None = None) -> SetReplays:
    return SetReplays([tuple(order) for order in production], [FIRST, SECOND], [limit, limit])


@pytest.mark.parametrize(("second", "same"), [("xyz", 2), ("xzy", 1), ("xyq", 1), ("xyzq", 1), ("xy", 1)])
def test_agreement_counts_the_same_orders_and_the_mean_overlap(second: str, same: int) -> None:
    """No candidate, one result more, and one less are other orders too."""
    found = replays("bac", second).agreement(configured())
    assert (found.queries, found.same_order) == (2, same)
    assert 0.7 < found.rbo <= 1 and (found.rbo < 1) is (second in ("xzy", "xyq"))


def test_the_change_that_gives_most_queries_the_recorded_order_comes_first() -> None:
    config = configured({"assembly.limit": 2})
    found = single_changes(replays("bac", "xyz"), config)
    assert found[0].changes[0][0] == "assembly.limit"
    assert found[0].agreement.same_order == 2
    assert all(one.agreement.nearness >= 1e-6 for one in found)


def query(recorded, ours, recorded_scores=(), our_scores=()):
    """A letter a memory."""
    theirs, own = dict(zip(recorded, recorded_scores, strict=False)), dict(zip(ours, our_scores, strict=False))
    return QueryFidelity("q", "what?", tuple(recorded), tuple(ours), theirs, own)


@pytest.mark.parametrize(
    ("recorded", "ours", "measures"),
    [  # same order, set and first, overlap
        ("abc", "abc", (True, True, True, 1.0)),
        ("abc", "acb", (False, True, True, 1.0)),
        ("abc", "bca", (False, True, False, 1.0)),
        ("abc", "abd", (False, False, True, 2 / 4)),
        ("abc", "xyz", (False, False, False, 0.0)),
        ("", "", (True, True, True, 1.0)),
        ("", "a", (False, False, False, 0.0)),
        ("abcdefghijK", "abcdefghijL", (False, False, True, 1.0)),  # the overlap is of the first ten
        ("abcdefghij", "abcdefghixj", (False, False, True, 9 / 11)),
    ],
)
def test_order_set_first_and_overlap_of_a_query(recorded: str, ours: str, measures: Any) -> None:
    row = query(recorded, ours)
    assert (row.same_order, row.same_set, row.same_first, row.overlap) == measures
    assert (row.rbo == pytest.approx(1.0)) is row.same_order and (recorded or row.rbo == float(not ours))


def test_scores_are_compared_where_the_order_is_the_same() -> None:
    assert query("ab", "ab", [0.5, 0.25], [0.5, 0.2500004]).score_difference == pytest.approx(4e-7)
    assert query("ab", "ba", [0.5, 0.25], [0.5, 0.25]).score_difference is None
    assert query("ab", "ab", [], [0.5, 0.25]).score_difference is None


def test_a_set_has_counts_means_and_intervals() -> None:
    rows = [query("ab", "ab", [0.5, 0.2], [0.5, 0.3]), query("ab", "ba"), query("ab", "ac"), query("c", "c", [1], [1])]
    fidelity = SetFidelity(tuple(rows))
    order = fidelity.estimates["same_order"]
    assert (order.count, order.mean) == (2, 0.5)
    assert 0 <= order.low < 0.5 < order.high <= 1
    assert fidelity.estimates["same_set"].count == 3
    assert fidelity.estimates["same_first"].count == 3
    assert fidelity.estimates["overlap"].mean == pytest.approx((1 + 1 + 1 / 3 + 1) / 4)
    assert fidelity.estimates["overlap"].count is None
    assert fidelity.score_difference == pytest.approx(0.1)
    assert fidelity.precise == (1, 2)
    assert fidelity.value("same_order") == 0.5


def test_equal_recorded_scores_may_stand_in_any_order_and_others_may_not() -> None:
    scores = [3.0, 2.0, 2.0, 1.0]
    assert query("abcd", "acbd", scores).up_to_ties
    assert not query("abcd", "bacd", scores).up_to_ties
    assert not query("abcd", "acb", scores).up_to_ties
    assert not query("abcd", "acbd").up_to_ties  # without scores nothing is tied


def test_which_of_two_equals_got_in_is_chance_if_both_had_one_score_before_the_cut() -> None:
    cut = query("ab", "ax", [3.0, 2.0], [3.0, 2.0])
    tied = replace(cut, ours_before_cut={"a": 3.0, "b": 2.0, "x": 2.0})
    assert tied.up_to_ties
    assert tied.same_scores == 1.0
    # A score of ours that equals a recorded one is no tie: every list gives its second the same share.
    below = replace(cut, ours_before_cut={"a": 3.0, "b": 1.5, "x": 2.0})
    assert (below.up_to_ties, below.same_scores) == (False, 0.0)
    # Reordered after the cut by a reranker, whose scores say nothing about it: the recorded ones before the cut do.
    reranked = query("ba", "xa", [9.0, 1.0], [8.0, 1.0])
    assert not reranked.up_to_ties
    assert replace(reranked, before_cut={"a": 0.5, "b": 0.2, "x": 0.2}).up_to_ties


def test_scores_are_compared_memory_by_memory_whatever_the_order() -> None:
    assert query("ab", "ba", [0.5, 0.5], [0.5, 0.5]).same_scores == 1.0
    assert query("ab", "ba", [0.5, 0.4], [0.5, 0.4]).same_scores == 0.0
    assert query("ab", "ab", [0.5, 0.4], [0.5, 0.3]).equal_scores == (1, 2)
    assert math.isnan(query("ab", "ab").same_scores)


def test_results_with_the_ties_of_lists_settled_as_recorded_count_for_both() -> None:
    other = query("ab", "ba", [0.5, 0.4], [0.45, 0.41])
    assert (other.up_to_ties, other.same_scores) == (False, 0.0)
    settled = replace(other, settled={"a": 0.5, "b": 0.4})
    assert (settled.same_order, settled.up_to_ties, settled.same_scores) == (False, True, 1.0)


@pytest.mark.parametrize(("order", "rows"), [("created", "created"), ("file", "store")])
def test_rows_of_an_engram_store_count_in_the_order_of_insertion_that_the_recording_states(
    order: str, rows: str
) -> None:
    answers = [{"query": "roof", "results": [{"id": "m1", "score": 1.0}]}]
    stated = {"engine": "engram 10a2fe6", "config": {"insertion_order": order}, "answers": answers}
    recording = parse_recording(json.dumps(stated), "engram.json")
    assert preset("engram_head").config.lists.fts5.rows == "store"
    assert setting_for(recording, preset("engram_head").config).config.lists.fts5.rows == rows


@pytest.mark.parametrize(("dated", "decay"), [(True, "exponential"), (False, "none")])
def test_scores_of_engrams_notes_fall_with_age_where_files_are_named_by_date(dated: bool, decay: str) -> None:
    answers = [{"query": "roof", "results": [{"id": "m1", "score": 1.0}]}]
    stated = {"engine": "engram 10a2fe6", "config": {"path": "search", "dated": dated}, "answers": answers}
    setting = setting_for(parse_recording(json.dumps(stated), "engram.json"), preset("engram_search").config)
    assert setting.config.adjust.time_decay.mode == decay
