"""A grade given on Inspect is the label that the Label page would have given, and the query is in a set."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cems_workbench.errors import InputError
from cems_workbench.evaluation.labelling.pooling import PooledPair
from cems_workbench.evaluation.labelling.queue import LabelQueue, make_queue
from cems_workbench.jobs.labelling import add_to_set, give_grade, own_grade
from cems_workbench.jobs.query_grades import stored_query
from cems_workbench.pipeline.gather import Request
from cems_workbench.records import Judgment, Memory, ParsedInput, Query
from cems_workbench.store import Store

AS_OF = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = Store.open(tmp_path / "store")
    opened.add(
        ParsedInput("t.jsonl", "t", memories=(Memory("a", "one"), Memory("b", "two")), queries=(Query("q", "which?"),))
    )
    return opened


def test_a_grade_is_the_same_label_on_inspect_and_on_label(store: Store) -> None:
    """The two pages differ in what they noted as shown; grade, author, kind, and the way to take it back are one."""
    asked = Request("which?")
    meant = stored_query(asked, store)
    assert meant is not None and meant.qid == "q"
    give_grade(store, "q", "a", 2, "ada")
    give_grade(store, "q", "b", 2, "ada", shown={"card": "seen on Label"})
    first, second = store.judgments.read("q")
    assert (first.grade, first.judge, first.kind, first.note) == (second.grade, second.judge, second.kind, second.note)
    assert [event.action for event in store.labels.history("ada")] == ["label", "label"]
    assert own_grade(store, "q", "a", "ada") == 2 and own_grade(store, "q", "a", "bob") is None
    with pytest.raises(InputError):
        give_grade(store, "q", "a", 9, "ada")
    store.labels.undo("ada")
    assert [one.memory_id for one in store.judgments.read("q")] == ["a"]


def test_what_inspect_graded_is_not_dealt_on_label(store: Store) -> None:
    queue = make_queue("mine", [PooledPair("q", "a", {"c": 1}), PooledPair("q", "b", {"c": 2})], "top", 1, 0, {}, {})
    store.queues.save(queue)
    give_grade(store, "q", "a", 3, "ada")
    card, _ = LabelQueue(store, "mine").deal("ada")
    assert card is not None and card.memory.id == "b"


def test_a_typed_query_is_added_once_and_others_stay(store: Store) -> None:
    store.query_sets.put("old", [Query("q", "which?")], "t.jsonl")
    before = store.content_version
    asked = Request("typed here", "web", AS_OF)
    assert stored_query(asked, store) is None
    query = add_to_set(asked, "old", store)
    assert add_to_set(asked, "old", store) == query == stored_query(asked, store)
    assert {one.query for one in store.query_sets.queries("old")} == {"which?", "typed here"}
    other = add_to_set(Request("typed here", "api", AS_OF), "new", store)
    assert other.qid != query.qid and store.query_sets.holding(other.qid) == ["new"]
    assert stored_query(asked, store) == query
    assert store.content_version == before  # what was gathered stays
    give_grade(store, query.qid, "a", 1, "ada")
    assert store.judgments.read(query.qid) == [
        Judgment(query.qid, "a", 1, "ada", judged_at=store.judgments.read(query.qid)[0].judged_at)
    ]
    with pytest.raises(InputError, match="is not a name"):
        add_to_set(asked, " ", store)
