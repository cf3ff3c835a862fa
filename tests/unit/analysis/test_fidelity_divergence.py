"""Where a trace parts from a recorded answer, and the cause: a small case by hand for each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cems_workbench.analysis.fidelity.answer import Divergence, first_divergence
from cems_workbench.analysis.fidelity.causes import cause_of
from cems_workbench.analysis.fidelity.measures import QueryFidelity
from cems_workbench.pipeline import Trace
from cems_workbench.records import Relation
from tests.unit.pipeline.cases import evidence, trace

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


def test_the_same_order_parts_nowhere() -> None:
    assert first_divergence(trace(evidence(VECTOR)), ("a", "b", "c")) is None


def test_what_no_list_returned_is_lost_in_the_lists() -> None:
    assert parted("azbc", trace(evidence(VECTOR))) == ("lists", "z", "lost")


def test_what_a_stage_dropped_is_lost_there() -> None:
    assert parted("abc", trace(evidence(VECTOR), {"filter.min_score": 1 / 62})) == ("filter", "c", "lost")
    assert parted("abc", trace(evidence(VECTOR), {"gap.ratio": 0.99, "gap.keep": 1})) == ("gap", "b", "lost")
    assert parted("abc", trace(evidence(VECTOR), {"assembly.limit": 2})) == ("assembly", "c", "lost")


def test_of_several_the_first_stage_counts() -> None:
    made = trace(evidence(VECTOR), {"filter.min_score": 1 / 62, "assembly.limit": 1})
    assert parted("abc", made) == ("filter", "c", "lost")
    assert parted("abcz", made) == ("lists", "z", "lost")


def test_another_order_is_of_the_first_stage_from_which_it_stays() -> None:
    assert parted("bac", trace(evidence(VECTOR))) == ("fusion", "b", "order")
    heavy = {"c": {"priority": 2.0}}
    made = trace(evidence(VECTOR, memories=heavy), {"adjust.priority": True})
    assert [result.memory_id for result in made.results] == ["c", "a", "b"]
    assert parted("abc", made) == ("adjust", "a", "order")


def test_an_order_that_a_later_stage_puts_right_is_none_of_a_stages_business() -> None:
    heavy = {"c": {"priority": 2.0}}
    made = trace(evidence(VECTOR, memories=heavy), {"adjust.priority": True})
    assert first_divergence(made, ("c", "a", "b")) is None
    assert parted("cab", trace(evidence(VECTOR, memories=heavy), {"adjust.priority": True, "assembly.limit": 2})) == (
        "assembly",
        "b",
        "lost",
    )


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
