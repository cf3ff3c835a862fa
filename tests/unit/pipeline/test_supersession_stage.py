"""Which candidates are superseded, and what the stage does: demote, drop, follow; what has expired."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from cems_workbench.analysis.ranks import NEVER_FOUND, Branch, branch_of
from cems_workbench.analysis.supersession import first_result_words, result_staleness, stale_badges
from cems_workbench.config import parse_config, with_values
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.evaluate import evaluate
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.pipeline import Evidence, Hit, RankedList, Variant, replay
from cems_workbench.pipeline.effects import as_of_effect
from cems_workbench.pipeline.stages import ASSEMBLY, SUPERSESSION
from cems_workbench.pipeline.supersession import (
    EXCLUDED,
    Successor,
    check_excluded,
    check_note,
    excluded_successor,
    find_successors,
    superseded,
)
from cems_workbench.records import Memory, Query
from cems_workbench.store.filter import ANY, Filter
from cems_workbench.store.relations import SupersedingEdge

NOW = datetime(2026, 7, 1, tzinfo=UTC)
PLAIN = """
version: 2
name: plain
lists: {lexical: {enabled: false}}
fusion: {top_rank_bonus: {rank1: 0.0, rank2_3: 0.0}}
filter: {min_score: 0.0}
adjust: {priority: false, time_decay: {mode: none}, pinned_factor: 1.0, project: {enabled: false}}
assembly: {strategy: greedy, max_tokens: null}
"""


def day(number):
    return datetime(2026, 1, number, tzinfo=UTC)


def evidence(ranked, successors, *, more=(), until=None):
    """One list of memories in this order; `successors` by id; memories of no list in `more`; dates of expiry in `until`."""
    memories = {
        key: Memory(id=key, content=f"text of {key}", created_at=day(1), valid_until=(until or {}).get(key))
        for key in (*ranked, *more)
    }
    noted = {
        key: [{"id": one, "created_at": day(20 - i).isoformat(), "kind": "supersedes"} for i, one in enumerate(own)]
        for key, own in successors.items()
    }
    hits = tuple(Hit(key, 1.0 - i / 10) for i, key in enumerate(ranked))
    return Evidence(
        query="q",
        memories=memories,
        variants=(Variant("q"),),
        lists=(RankedList("vector:0", "vector", 0, hits),),
        as_of=NOW,
        notes={"superseded": noted},
    )


def config(mode="off", expired="keep"):
    return parse_config(PLAIN + f"supersession: {{mode: {mode}, expired: {expired}}}\n", "test")


def results(given, mode="off", expired="keep"):
    return [result.memory_id for result in replay(given, config(mode, expired)).results]


def told(given, mode, memory_id, expired="keep"):
    stage = replay(given, config(mode, expired)).stage(SUPERSESSION)
    row = stage.by_id[memory_id]
    return row.reason or SUPERSESSION.words(row, stage)


def test_superseded_moves_right_below_its_successor():
    given = evidence("abcd", {"a": ["c"]})
    assert results(given) == ["a", "b", "c", "d"]
    assert results(given, "demote") == ["b", "c", "a", "d"]
    assert told(given, "demote", "a") == "superseded by c, which is 3rd; moved below it"


def test_what_mmr_chooses_first_stays_below_its_successor():
    # lambda 0.1: after x, of session s, mmr prefers what is least like it, and c is like x; a is not
    given = evidence("xcab", {"a": ["c"]})
    memories = {
        key: replace(one, content={"x": "red", "c": "red", "a": "blue", "b": "green"}[key])
        for key, one in given.memories.items()
    }
    mmr = parse_config(
        PLAIN.replace("greedy", "mmr, mmr_lambda: 0.1, limit: 3, mmr_procedure: plain")
        + "supersession: {mode: demote}\n",
        "test",
    )
    unlike = replace(given, memories=memories)
    free = [one.memory_id for one in replay(unlike, with_values(mmr, {"supersession.mode": "off"})).results]
    assert free == ["x", "a", "b"]
    found = replay(unlike, mmr)
    assert [one.memory_id for one in found.results] == ["x", "a", "b"]
    assert "a is chosen without c, which supersedes it and was ranked above it" in found.stage(ASSEMBLY).warnings
    whole = replay(unlike, with_values(mmr, {"assembly.limit": 4}))
    assert [one.memory_id for one in whole.results] == ["x", "b", "c", "a"]
    assert not whole.stage(ASSEMBLY).warnings


def test_superseded_stays_if_it_is_below_a_successor_or_none_is_ranked():
    assert results(evidence("abcd", {"c": ["a", "d"]}), "demote") == ["a", "b", "c", "d"]
    lost = evidence("ab", {"a": ["z"]}, more="z")
    assert results(lost, "demote") == results(lost, "drop") == ["a", "b"]


def test_chain_ends_up_newest_first():
    chain = {"a": ["d", "c"], "c": ["d"]}
    assert results(evidence("abcd", chain), "demote") == ["b", "d", "c", "a"]
    assert results(evidence("abcd", chain), "drop") == ["b", "d"]
    assert results(evidence("abcd", chain), "follow") == ["d", "b"]


def test_several_successors_demote_below_the_best_and_follow_the_latest():
    given = evidence("abcd", {"a": ["d", "c"]})
    assert results(given, "demote") == ["b", "c", "a", "d"]
    assert results(given, "follow") == ["d", "b", "c"]


def test_follow_fetches_what_no_list_found():
    given = evidence("ab", {"a": ["z"]}, more="z")
    assert results(given, "follow") == ["z", "b"]
    assert told(given, "follow", "a") == "superseded by z, which is not ranked; it takes the rank"
    assert told(given, "follow", "z") == "takes the rank of a, which it supersedes"
    row = replay(given, config("follow")).stage(SUPERSESSION).by_id["z"]
    assert (row.rank_in, row.rank_out, row.in_place_of) == (None, 1, "a")
    off = replay(given, config()).results
    assert replay(given, config("follow")).results[0].score == off[0].score


def test_follow_ends_at_a_memory_that_is_valid():
    chain = {"a": ["d", "c"], "c": ["d"]}
    expired = {"d": day(9)}
    assert results(evidence("abcd", chain, until=expired), "follow") == ["c", "b", "d"]
    assert results(evidence("ad", {"a": ["d"]}, until=expired), "follow") == ["a", "d"]


def test_expired_is_dropped_first_and_said():
    given = evidence("abc", {"a": ["c"]}, until={"c": day(9), "b": NOW})
    assert results(given, "drop", "drop") == ["a"]
    assert told(given, "off", "b", "drop") == "expired 2026-07-01"
    assert results(replace(given, as_of=day(5)), "off", "drop") == ["a", "b", "c"]


def test_pin_does_not_protect():
    given = evidence("ab", {"a": ["b"]})
    pinned = {key: replace(memory, pinned=key == "a") for key, memory in given.memories.items()}
    assert results(replace(given, memories=pinned), "demote") == ["b", "a"]


@pytest.mark.parametrize("mode", ["demote", "drop", "follow"])
def test_evidence_without_the_note_is_gathered_again(mode):
    given = replace(evidence("ab", {}), notes={"gathered": {"lists.vector.depth": 150}})
    assert [need.parameter for need in replay(given, config(mode)).needs] == ["supersession.mode"]
    assert not replay(given, config()).needs
    assert not replay(replace(given, notes={**given.notes, "superseded": {}}), config(mode)).needs


def test_result_is_stale_if_it_expired_or_no_successor_is_above_it():
    given = evidence("abcd", {"a": ["z", "c"], "d": ["z", "c"], "c": ["z"]}, more="z", until={"b": day(9)})
    batch = LabelledBatch([Query("q", "q")], {"q": given}, {"q": {"a": 1}})

    def stale(mode, expired="keep"):
        graded = batch.rankings(config(mode, expired)).graded
        return graded.stale[0].tolist(), [float(parse_measure(f"stale@{k}").values(graded)[0]) for k in (1, 4)]

    assert stale("off") == ([True, True, True, False], [1.0, 0.75])
    assert stale("demote")[0] == [True, True, False, False]  # b, c, a, d
    assert stale("follow", "drop") == ([False], [0.0, 0.0])
    assert evaluate(batch, config(), [parse_measure("hit@1")]).stale == (
        "1 of 1 query has a stale memory in the first 10"
    )


def test_stale_is_unknown_where_no_edge_was_looked_for_and_nothing_expires():
    given = replace(evidence("ab", {}), notes={})
    batch = LabelledBatch([Query("q", "q")], {"q": given}, {"q": {"a": 1}})
    found = evaluate(batch, config(), [parse_measure("stale@2")])
    assert found.stale == "" and found.stale_queries == (0, 0) and np.isnan(found.values).all()


def test_moment_of_the_query_is_not_ignored_if_it_decides_what_is_stale():
    assert as_of_effect(config()).ignored
    assert as_of_effect(config("follow")).words == "Memories written later supersede nothing"
    dropping = as_of_effect(config("drop", "drop"))
    assert dropping.words == "Memories written later supersede nothing and expired memories are dropped"
    assert not dropping.ignored


def test_successor_that_no_list_has_is_lost_only_where_it_was_brought_in():
    given = evidence("abcd", {"a": ["z"], "c": ["y"]}, more="yz")
    trace = replay(given, config("follow"))
    assert branch_of(trace, "z", 2) is None and branch_of(trace, "z", 4) is None
    assert branch_of(trace, "y", 2) == Branch("supersession", "below")
    assert branch_of(trace, "a", 2) == Branch("supersession", "dropped")
    assert branch_of(replay(given, config()), "y", 2) == NEVER_FOUND


def test_memory_of_a_later_day_is_dropped_as_an_expired_one_is():
    """caura PR#529, 2026-07-06: valid from a day after the query's."""
    given = evidence("abc", {})
    later = replace(given.memories["a"], valid_from=NOW + timedelta(days=1))
    from_now = replace(given.memories["b"], valid_from=NOW)
    given = replace(given, memories={**given.memories, "a": later, "b": from_now})
    assert results(given) == ["a", "b", "c"]
    assert results(given, expired="drop") == ["b", "c"]
    assert told(given, "off", "a", "drop") == f"not valid before {later.valid_from:%Y-%m-%d}"
    trace = replay(given, config())
    assert first_result_words(result_staleness(trace)["a"]) == (
        f"The first result, a, is not valid before {later.valid_from:%Y-%m-%d}."
    )
    assert stale_badges(trace) == {"a": f"not valid before {later.valid_from:%Y-%m-%d}"}


MAY, JUNE, JULY = (datetime(2026, month, 1, tzinfo=UTC) for month in (5, 6, 7))


def edge(older, newer, created_at=MAY, scope="personal", live=True):
    return SupersedingEdge(older, newer, "supersedes", None, created_at, None, scope, live)


def of(edges, as_of=JULY, where=ANY):
    found = find_successors(edges, as_of, where)
    return {key: [one.memory_id for one in own] for key, own in found.successors.items()}


def test_chain_is_followed_to_its_end_latest_first():
    assert of([edge("a", "b", MAY), edge("b", "c", JUNE)]) == {"a": ["c", "b"], "b": ["c"]}


def test_successor_written_after_the_query_supersedes_nothing():
    edges = [edge("a", "b", JUNE), edge("x", "y", None)]
    assert of(edges, MAY) == {"x": ["y"]}


def test_edges_of_a_cycle_are_ignored_and_said():
    edges = [edge("a", "b"), edge("b", "a"), edge("b", "c", JUNE), edge("d", "d")]
    found = find_successors(edges, JULY, ANY)
    assert of(edges) == {"b": ["c"]} and found.cyclic == ("a", "b", "d")
    assert found.warnings == [
        "3 memories supersede each other in a circle; the edges between them are ignored: a, b, d"
    ]


def test_hidden_successor_is_none_but_the_chain_goes_on():
    assert of([edge("a", "b", live=False), edge("b", "c", JUNE)]) == {"a": ["c"], "b": ["c"]}
    shared = [edge("a", "b", scope="shared")]
    assert of(shared, where=Filter(scope="personal")) == {} and of(shared) == {"a": ["b"]}


def test_the_latest_of_successors_that_the_filter_hides_is_noted_with_what_excludes_it():
    edges = [
        edge("a", "b", MAY, "shared"),
        edge("a", "c", JUNE, "shared"),
        edge("d", "e", MAY),
        edge("d", "f", JUNE, "shared"),
    ]
    found = find_successors(edges, JULY, Filter(scope="personal"))
    assert list(found.successors) == ["d"] and list(found.excluded) == ["a"]
    successor, by = excluded_successor(found.noted_in({EXCLUDED: "a former note"}), "a") or (None, "")
    assert successor == Successor("c", JUNE) and by == "scope"
    assert excluded_successor(found.noted_in({}), "d") is None
    own = find_successors(edges, JULY, Filter("harbor", True, "shared"))
    assert excluded_successor(own.noted_in({}), "a")[1] == "project"
    assert EXCLUDED not in find_successors(edges, JULY, ANY).noted_in({EXCLUDED: "a former note"})
    assert check_excluded(found.noted_in({})[EXCLUDED]) is None and "scope or project" in check_excluded(
        {"a": {"id": "b"}}
    )


def test_note_is_read_back():
    found = find_successors([edge("a", "b"), edge("a", "c", None)], JULY, ANY)
    assert superseded(found.noted_in({})) == found.successors
    assert superseded({}) == {}


@pytest.mark.parametrize("named", [["b"], None, 1, "z"])
def test_note_that_names_no_memory_is_refused(named):
    note = {"a": [{"id": named, "created_at": None, "kind": "supersedes"}]}
    assert "expected successors that are among the memories" in (check_note(note, {"a": None, "b": None}) or "")
