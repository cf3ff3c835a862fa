"""Decisions on supersession: an accepted pair is an edge under its author, every decision is undoable, edges of files stay."""

from __future__ import annotations

import pytest

from cems_workbench.errors import InputError
from cems_workbench.records import SUPERSEDES, Memory, ParsedInput, Relation
from cems_workbench.store import Store

ANN, BO = "Ann", "Bo"


@pytest.fixture
def three(store: Store) -> Store:
    """Three memories, and an edge of a file from c to a."""
    memories = tuple(Memory(name, f"text of {name}") for name in ("a", "b", "c"))
    store.add(ParsedInput("m.jsonl", "t", memories=memories, relations=(Relation("c", "a", SUPERSEDES, 0.5),)))
    return store


def edges(store: Store) -> list[Relation]:
    return store.relations.read()


FILE_EDGE = Relation("c", "a", SUPERSEDES, 0.5)


def test_an_accepted_pair_is_an_edge_under_its_author_until_it_is_undone(three):
    version = three.content_version
    three.supersessions.decide("b", "a", "accepted", ANN, why="another number")
    assert edges(three) == [Relation("b", "a", SUPERSEDES, 1.0, ANN), FILE_EDGE]
    assert three.content_version == version + 1
    assert three.supersessions.undo(ANN).why == "another number"
    assert edges(three) == [FILE_EDGE]
    assert three.supersessions.undo(ANN) is None


def test_the_latest_decision_counts_and_undo_restores_the_one_before(three):
    three.supersessions.decide("b", "a", "accepted", ANN)
    three.supersessions.decide("a", "b", "accepted", BO)
    assert Relation("a", "b", SUPERSEDES, 1.0, BO) in edges(three) and len(edges(three)) == 2
    three.supersessions.decide("b", "a", "rejected", BO)
    assert edges(three) == [FILE_EDGE]
    three.supersessions.undo(BO)
    three.supersessions.undo(BO)
    assert edges(three) == [Relation("b", "a", SUPERSEDES, 1.0, ANN), FILE_EDGE]
    assert [one.author for one in three.supersessions.history("a", "b")] == [ANN, BO, BO]


def test_a_skip_is_of_one_person_and_changes_no_verdict(three):
    three.supersessions.decide("b", "a", "accepted", ANN)
    three.supersessions.decide("b", "a", "skipped", BO)
    assert [one.verdict for one in three.supersessions.standing()] == ["accepted"]
    assert [one.author for one in three.supersessions.skipped(BO)] == [BO] and not three.supersessions.skipped(ANN)
    three.supersessions.undo(BO)
    assert not three.supersessions.skipped(BO)


def test_a_rejected_edge_of_a_file_stays(three):
    three.supersessions.decide("c", "a", "rejected", ANN)
    assert edges(three) == [FILE_EDGE] and three.supersessions.apply() == 0


def test_the_decision_of_a_colleague_becomes_an_edge_of_this_store(three):
    three.supersessions.decide("b", "a", "skipped", BO)
    with three.team.transaction() as session:
        session.change("UPDATE supersession_decisions SET verdict = 'accepted' WHERE decided_by = ?", [BO])
    assert three.supersessions.apply() == 1 and three.supersessions.apply() == 0
    assert Relation("b", "a", SUPERSEDES, 1.0, BO) in edges(three)


@pytest.mark.parametrize(
    ("newer", "older", "author", "words"),
    [("a", "a", ANN, "cannot supersede itself"), ("a", "x", ANN, "no memory 'x'"), ("a", "b", " ", "is not a name")],
)
def test_what_cannot_be_decided_is_refused_in_a_line(three, newer, older, author, words):
    with pytest.raises(InputError, match=words):
        three.supersessions.decide(newer, older, "accepted", author)
    assert edges(three) == [FILE_EDGE] and three.supersessions.standing() == []
