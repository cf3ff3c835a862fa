"""Which candidates are superseded: chains, dates, cycles, filters, and the note in evidence."""

from datetime import UTC, datetime

import pytest

from cems_workbench.pipeline.supersession import (
    EXCLUDED,
    Successor,
    check_excluded,
    check_note,
    excluded_successor,
    find_successors,
    superseded,
)
from cems_workbench.store.filter import ANY, Filter
from cems_workbench.store.relations import SupersedingEdge

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
