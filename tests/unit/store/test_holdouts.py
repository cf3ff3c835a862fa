"""How often the sealed queries of a query set were looked at."""

from __future__ import annotations

from cems_workbench.records import Memory
from cems_workbench.store import Store


def test_looks_are_counted_per_query_set_and_survive_closing(tmp_path):
    with Store.open(tmp_path / "s") as store:
        assert store.holdouts.count("set", ["q1", "q2"]) == 0
        assert store.holdouts.look("set", ["q1", "q2"]) == 1
    with Store.open(tmp_path / "s") as store:
        assert store.holdouts.look("set", ["q2", "q1"]) == 2
        assert store.holdouts.count("another", ["q1"]) == 0
        assert store.holdouts.count("set", ["q3"]) == 0
        assert store.holdouts.count("set", []) == 0


def test_a_hold_out_that_shares_a_query_with_an_earlier_one_goes_on_counting(store):
    store.holdouts.look("set", ["q1", "q2"])
    store.holdouts.look("set", ["q1", "q2"])
    assert store.holdouts.count("set", ["q2", "q3"]) == 2
    assert store.holdouts.look("set", ["q2", "q3"]) == 3
    assert [store.holdouts.count("set", [qid]) for qid in ("q1", "q2", "q3")] == [2, 3, 1]


def test_a_query_that_is_named_twice_is_looked_at_once(store):
    assert store.holdouts.look("set", ["q1", "q1"]) == 1


def test_changing_memories_or_the_set_leaves_the_count(store, rows):
    store.holdouts.look("set", ["q1"])
    version = store.content_version
    store.add(rows([Memory("a", "1")]))
    assert store.content_version > version and store.holdouts.count("set", ["q1"]) == 1


def test_who_looked_is_kept_with_the_set(tmp_path):
    with Store.open(tmp_path / "store") as store:
        for who in ("ada", "bo", "ada", ""):
            store.holdouts.look("set", ["q1"], who)
        assert store.holdouts.lookers("set") == {"ada": 2, "bo": 1}
        assert store.holdouts.lookers("other") == {}
        assert store.holdouts.count("set", ["q1"]) == 4
