"""Kept configs: in the history who kept what, when and why; experiments beside it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cems_workbench.errors import InputError, StoreError
from cems_workbench.store import Store

WHEN = datetime(2026, 11, 22, 10, 30, tzinfo=UTC)
CARD = {"baseline": "cems", "measured": [{"metric": "nDCG@10", "tuned": 0.5}], "looks": 1}


def test_a_config_comes_back_with_who_when_why_and_its_card_after_the_store_was_opened_anew(tmp_path):
    with Store.open(tmp_path / "s") as store:
        kept = store.configs.add(
            "cems-tuned",
            "name: cems-tuned\n",
            author="Ada Ōe",
            why=" temporal questions\n",
            base="cems",
            card=CARD,
            when=WHEN,
        )
    with Store.open(tmp_path / "s") as store:
        found = store.configs.get(kept.id)
        assert found == kept
        assert (found.name, found.config_yaml, found.base, found.author) == (
            "cems-tuned",
            "name: cems-tuned\n",
            "cems",
            "Ada Ōe",
        )
        assert (found.saved_at, found.why, found.card) == (WHEN, "temporal questions", CARD)


def test_the_history_lists_the_latest_first_and_names_may_repeat(store):
    ids = [store.configs.add("same", f"name: c{i}\n", author="a").id for i in range(3)]
    assert [one.id for one in store.configs.history()] == ids[::-1] and len(set(ids)) == 3
    assert [one.config_yaml for one in store.configs.history()] == ["name: c2\n", "name: c1\n", "name: c0\n"]
    assert store.configs.history()[0].card is None and store.configs.history()[0].base is None


def test_name_and_reason_may_be_put_better_later_and_nothing_else_changes(store):
    kept = store.configs.add("c", "name: c\n", author="a", why="first", card=CARD, when=WHEN)
    assert store.configs.reword(kept.id, why="better said").why == "better said"
    again = store.configs.reword(kept.id, name="renamed")
    assert (again.name, again.why) == ("renamed", "better said")
    assert (again.config_yaml, again.author, again.saved_at, again.card) == ("name: c\n", "a", WHEN, CARD)


@pytest.mark.parametrize("wrong", [{"name": " "}, {"name": "a\nb"}, {"author": ""}, {"why": "x" * 2001}])
def test_what_cannot_be_a_name_or_a_reason_is_refused_and_nothing_is_kept(store, wrong):
    with pytest.raises(InputError):
        store.configs.add(**{"name": "c", "config_yaml": "", "author": "a", **wrong})
    assert store.configs.history() == []


def test_an_unknown_entry_is_one_line(store):
    for asked in (lambda: store.configs.get(7), lambda: store.configs.reword(7, name="x")):
        with pytest.raises(StoreError, match="no config 7 in the history"):
            asked()
    kept = store.configs.add("c", "", author="a")
    with pytest.raises(InputError):
        store.configs.reword(kept.id, name="")
    assert store.configs.get(kept.id).name == "c"


def test_experiments_come_newest_first_with_their_evidence(store):
    first = store.configs.add_experiment("one", "version: 1")
    second = store.configs.add_experiment("one", "version: 1", "note", {"hit@5": [0.5, None]})
    assert second.id > first.id
    newest, oldest = store.configs.experiments()
    assert (newest.id, newest.why, newest.card) == (second.id, "note", {"hit@5": [0.5, None]})
    assert (oldest.config_yaml, oldest.card) == ("version: 1", None)
    assert newest.saved_at.tzinfo is not None


def test_history_and_experiments_are_listed_and_numbered_apart(store):
    first, second = (store.configs.add("c", f"name: c{i}\n", author="a").id for i in range(2))
    experiment = store.configs.add_experiment("e", "name: e\n")
    assert (first, second, experiment.id) == (1, 2, 1)
    assert [one.name for one in store.configs.history()] == ["c", "c"]
    assert store.configs.experiments() == [experiment]
    assert store.configs.get(1).config_yaml == "name: c0\n"
    store.configs.reword(1, name="renamed")
    assert store.configs.experiments() == [experiment]
