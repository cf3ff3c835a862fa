"""Which candidates are superseded: chains, dates, cycles, filters, and the note in evidence."""

from datetime import UTC, datetime

import pytest

from cems_workbench.pipeline.supersession import check_note, find_successors, superseded
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


def test_note_is_read_back():
    found = find_successors([edge("a", "b"), edge("a", "c", None)], JULY, ANY)
    assert superseded({"superseded": found.to_json()}) == found.successors
    assert superseded({}) == {}


@pytest.mark.parametrize("named", [["b"], None, 1, "z"])
def test_note_that_names_no_memory_is_refused(named):
    note = {"a": [{"id": named, "created_at": None, "kind": "supersedes"}]}
    assert "expected successors that are among the memories" in (check_note(note, {"a": None, "b": None}) or "")
