"""A later memory below an earlier one that it contradicts: the question beside the query, and what an answer does."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import cems_workbench as cw
from cems_workbench.analysis.proposed_edges import contradicting
from cems_workbench.records import Memory, ParsedInput
from cems_workbench.settings import SavedTarget, save_target
from cems_workbench.store import Store

QUERY = "where in Hamburg do I live"
OLD, NEW = "7c9e6679-7425-40de-944b-e07fc1f90ae7", "550e8400-e29b-41d4-a716-446655440000"


def test_the_pair_that_spoils_a_query_is_asked_about_until_it_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memories = (
        Memory(OLD, "I live in Hamburg, at Grindelallee 12.", created_at=datetime(2026, 1, 10, tzinfo=UTC)),
        Memory(
            NEW,
            "I moved: I now live in Berlin, at Kantstrasse 4, no longer in Hamburg.",
            created_at=datetime(2026, 6, 11, tzinfo=UTC),
        ),
        Memory("tea", "My favourite tea is Assam.", created_at=datetime(2026, 2, 1, tzinfo=UTC)),
    )
    with Store.open(tmp_path / "store") as store:
        store.add(ParsedInput("m.jsonl", "t", memories=memories))
    with cw.open_store(tmp_path / "store") as opened:
        asked = cw.why(cw.search(opened, QUERY, "mem0"), NEW, store=opened)
        assert asked.question.startswith(
            f"{NEW} is later than {OLD}, which is above it. Does it replace it? Signs: 152 days later; cosine"
        )
        assert asked.lines[-1] == asked.question == asked.to_json()["question"]
        before = cw.search(opened, QUERY, "mem0", as_of=datetime(2026, 3, 1, tzinfo=UTC))
        assert cw.why(before, NEW, store=opened).question == ""  # the later one was not written yet
        found = contradicting(asked.answer.trace, opened.resources)
        assert found is not None and (found.newer, found.older) == (NEW, OLD)
        with monkeypatch.context() as patch:
            patch.setattr("cems_workbench.analysis.proposed_edges.ASKED_FIRST", 0)  # what grades contradict is left
            for grades, asks in (({OLD: 0, NEW: 3}, True), ({OLD: 3, NEW: 0}, False), ({NEW: 3}, False)):
                assert (contradicting(asked.answer.trace, opened.resources, grades, 2) is not None) == asks
        opened.resources.store.supersessions.decide(NEW, OLD, "rejected", "ada")
        assert contradicting(asked.answer.trace, opened.resources) is None

        opened.resources.store.supersessions.decide(NEW, OLD, "accepted", "ada")
        save_target(tmp_path / "store", SavedTarget("mem0", "mem0", {}))
        fixed = cw.why(cw.search(opened, QUERY, "mem0"), NEW, store=opened)
        assert fixed.why.fix is not None and fixed.why.fix.change is not None
        lost = f"mem0 cannot: {fixed.why.fix.change.assigned}"
        assert fixed.lines[1] == f"{lost}." and fixed.to_json()["cannot"].startswith(lost)
        save_target(tmp_path / "store", None)
        assert cw.why(fixed.answer, NEW, store=opened).cannot == ("", "")


@pytest.mark.parametrize("author", ["ada", "bob"])
def test_memories_of_the_same_text_are_neighbours_and_those_of_two_people_are_not_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, author: str
) -> None:
    monkeypatch.setattr("cems_workbench.analysis.proposed_edges.ASKED", 0.0)  # a text that is there twice scores low
    said = {"a": "I live in Hamburg.", "b": "I live in Hamburg.", "c": "I moved: I now live in Berlin."}
    memories = (
        Memory(
            key, text, created_at=datetime(2026, 1, ord(key) - 96, tzinfo=UTC), author=author if key == "c" else "ada"
        )
        for key, text in said.items()
    )
    with Store.open(tmp_path / "store") as store:
        store.add(ParsedInput("m.jsonl", "t", memories=tuple(memories)))
    with cw.open_store(tmp_path / "store") as opened:
        found = contradicting(cw.search(opened, QUERY, "mem0").trace, opened.resources)
    assert (found and (found.newer, found.older)) == (("c", "a") if author == "ada" else None)
