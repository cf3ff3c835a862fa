"""Learned corrections of typos, and the store's own words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cems_workbench.records import Memory
from cems_workbench.store import LearnedPair, Store

START = datetime(2026, 1, 1, tzinfo=UTC)


def day(number: int) -> datetime:
    return START + timedelta(days=number)


def pairs(store: Store) -> list[tuple[str, str]]:
    return [(pair.typo, pair.correction) for pair in store.learned_pairs() if not pair.refused]


def test_an_accepted_pair_is_kept_with_its_count_and_times(tmp_path):
    with Store.open(tmp_path) as store:
        assert store.learn_pairs([(" Pyhton ", "Python")], 10, day(1)) == [("pyhton", "python")]
        assert store.learn_pairs([("pyhton", "python"), ("srver", "server")], 10, day(3)) == [
            ("pyhton", "python"),
            ("srver", "server"),
        ]
    with Store.open(tmp_path) as store:
        assert store.learned_pairs() == [
            LearnedPair("pyhton", "python", 2, day(1), day(3)),
            LearnedPair("srver", "server", 1, day(3), day(3)),
        ]


def test_the_pair_accepted_longest_ago_goes_first(store):
    for number, typo in enumerate(["aa", "bb", "cc"]):
        store.learn_pairs([(typo, "word")], 3, day(number))
    store.learn_pairs([("aa", "word")], 3, day(3))
    assert store.learn_pairs([("dd", "word")], 3, day(4)) == [("dd", "word")]
    assert pairs(store) == [("dd", "word"), ("aa", "word"), ("cc", "word")]


def test_with_room_for_none_nothing_is_learned(store):
    store.learn_pairs([("aa", "word")], 5)
    assert store.learn_pairs([("bb", "word")], 0) == []
    assert store.learned_pairs() == []


def test_a_typo_has_one_learned_correction_the_last(store):
    store.learn_pairs([("modle", "module")], 5, day(1))
    store.learn_pairs([("modle", "model")], 5, day(2))
    assert pairs(store) == [("modle", "model")]


@pytest.mark.parametrize("pair", [("same", "Same"), ("", "word"), ("word", " ")])
def test_what_corrects_nothing_is_not_learned(store, pair):
    assert store.learn_pairs([pair], 5) == []
    assert store.learned_pairs() == []


def test_a_refused_pair_is_forgotten_and_not_learned_again(store):
    store.learn_pairs([("modle", "module")], 5, day(1))
    store.refuse_pair("modle", "module", day(2))
    assert store.learn_pairs([("modle", "module"), ("modle", "model")], 5, day(3)) == [("modle", "model")]
    assert store.learned_pairs() == [
        LearnedPair("modle", "model", 1, day(3), day(3)),
        LearnedPair("modle", "module", 1, day(1), day(2), refused=True),
    ]


def test_a_pair_can_be_refused_before_it_was_learned_and_takes_no_room(store):
    store.refuse_pair("aa", "word")
    assert store.learn_pairs([("aa", "word"), ("bb", "word")], 1) == [("bb", "word")]
    assert len(store.learned_pairs()) == 2


def test_one_pair_is_forgotten_and_may_be_learned_again(store):
    store.learn_pairs([("aa", "word"), ("bb", "word")], 5)
    assert store.forget_pair("AA", "word")
    assert not store.forget_pair("aa", "word")
    assert pairs(store) == [("bb", "word")]
    store.refuse_pair("bb", "word")
    assert store.forget_pair("bb", "word")
    assert store.learn_pairs([("bb", "word")], 5) == [("bb", "word")]


def test_all_learned_pairs_are_forgotten_and_refusals_stay(store):
    store.learn_pairs([("aa", "word"), ("bb", "word")], 5)
    store.refuse_pair("cc", "word")
    assert store.forget_learned() == 2
    assert [pair.typo for pair in store.learned_pairs()] == ["cc"]


@pytest.fixture(scope="module")
def emptied(tmp_path_factory):
    """`emptied()`: one store for many examples, with every pair forgotten, since opening one takes longer than using it."""
    with Store.open(tmp_path_factory.mktemp("pairs")) as store:

        def empty() -> Store:
            for pair in store.learned_pairs():
                assert store.forget_pair(pair.typo, pair.correction)
            assert store.learned_pairs() == []
            return store

        yield empty


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("wxyz"), st.integers(0, 4), st.integers(0, 5))),
    st.sets(st.tuples(st.sampled_from("abcd"), st.sampled_from("wxyz")), max_size=4),
)
def test_learned_pairs_never_exceed_their_limit(emptied, learning, refused):
    store = emptied()
    for typo, correction in refused:
        store.refuse_pair(typo, correction)
    for typo, correction, most, when in learning:
        store.learn_pairs([(typo, correction)], most, day(when))
        kept = pairs(store)
        assert len(kept) <= most
        assert len({pair[0] for pair in kept}) == len(kept)
        assert not refused & set(kept)


@pytest.mark.parametrize("version", [1, 2])
def test_a_store_of_an_earlier_schema_gains_the_table_and_keeps_its_memories(tmp_path, rows, version):
    with Store.open(tmp_path) as store:
        store.add(rows([Memory("a", "1")]))
    with duckdb.connect(str(tmp_path / "workbench.duckdb")) as database:
        database.execute("DROP TABLE learned_pairs")
        if version == 1:
            database.execute("ALTER TABLE score_cache DROP COLUMN detail")
        database.execute("UPDATE workbench_meta SET value = ? WHERE key = 'schema'", [str(version)])
    for _ in range(2):
        with Store.open(tmp_path) as store:
            assert store.count() == 1
            assert store.learn_pairs([("aa", "word")], 5) == [("aa", "word")]


def test_the_vocabulary_counts_the_memories_a_word_stands_in_as_it_is_written(store, rows):
    store.add(
        rows(
            [
                Memory("a", "Deploying the deploy; deploy getUserById v2", title="Größe"),
                Memory("b", "DEPLOY src/main.py well-known"),
                Memory("c", "gone gone"),
            ]
        )
    )
    store.delete("c")
    vocabulary = store.vocabulary()
    assert dict(vocabulary) == {"größe": 1, "deploying": 1, "the": 1, "deploy": 2, "getuserbyid": 1}
    assert vocabulary.get("gone") is None and "gone" not in vocabulary
    assert sorted(vocabulary.of_length(5, 6)) == ["deploy", "größe"]
    assert vocabulary.of_length(20, 10**9) == []


def test_the_vocabulary_is_computed_once_per_content_version(store, rows):
    store.add(rows([Memory("a", "one")]))
    first = store.vocabulary()
    assert store.vocabulary() is first
    store.add(rows([Memory("b", "one two")]))
    assert dict(store.vocabulary()) == {"one": 2, "two": 1}


TEXTS = ["The cat, the CAT's hat; a.b.c e-mail (ok) ﬁne", "Ünïcode naïve\u00a0café x" + "y" * 60, "", "cat\ncat C++ 12"]


def test_the_fresh_lexical_index_gives_the_same_words(store, rows, embedder):
    store.add(rows([Memory(str(number), text, title=text[:5]) for number, text in enumerate(TEXTS)]))
    counted = dict(store.vocabulary())
    store.refresh(embedder)
    assert store.indexes(embedder).lexical.words == counted
    store.close()
    with Store.open(store.path) as again:
        assert dict(again.vocabulary()) == counted
