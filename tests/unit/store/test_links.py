"""States of the Inspect page kept in the store under a short, content-addressed id."""

from __future__ import annotations

import duckdb

from cems_workbench.store import Store, configs


def test_a_state_comes_back_under_its_id_after_the_store_was_opened_anew(tmp_path):
    state = {
        "query": "Wo läuft der Dienst? 🚀 \ud83d",
        "project": None,
        "off": [1, 2],
        "config": {"fusion": {"k": 30.5}},
    }
    with Store.open(tmp_path / "s") as store:
        state_id = store.links.save(state)
    with Store.open(tmp_path / "s") as store:
        assert store.links.read(state_id) == state


def test_the_same_state_has_the_same_id_in_any_order_of_keys_and_any_store(tmp_path):
    with Store.open(tmp_path / "a") as first, Store.open(tmp_path / "b") as second:
        assert (
            first.links.save({"x": 1, "y": 2})
            == first.links.save({"y": 2, "x": 1})
            == second.links.save({"y": 2, "x": 1})
        )
        assert first.links.save({"x": 1}) != first.links.save({"x": 2})


def test_an_id_is_short_however_long_the_state(tmp_path):
    with Store.open(tmp_path / "s") as store:
        state_id = store.links.save({"query": "long " * 100_000})
        assert len(state_id) == configs.MIN_ID_CHARS
        assert state_id.isalnum()
        assert store.links.read(state_id) == {"query": "long " * 100_000}


def test_an_unknown_id_has_no_state(tmp_path):
    with Store.open(tmp_path / "s") as store:
        assert store.links.read("nowhere") is None


def test_a_state_whose_short_id_is_taken_by_another_gets_a_longer_one(tmp_path):
    with Store.open(tmp_path / "s") as store:
        state_id = store.links.save({"query": "mine"})
    with duckdb.connect(str(tmp_path / "s" / "workbench.duckdb")) as database:
        database.execute('UPDATE saved_states SET state = \'{"query": "theirs"}\'')
    with Store.open(tmp_path / "s") as store:
        longer = store.links.save({"query": "mine"})
        assert longer.startswith(state_id)
        assert len(longer) == len(state_id) + 1
        assert store.links.save({"query": "mine"}) == longer
        assert (store.links.read(state_id), store.links.read(longer)) == ({"query": "theirs"}, {"query": "mine"})
