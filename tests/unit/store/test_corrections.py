"""Learned corrections of typos, and the store's own words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cems_workbench.records import Memory
from cems_workbench.store import LearnedPair, Store, memories

START = datetime(2026, 1, 1, tzinfo=UTC)


def day(number: int) -> datetime:
    return START + timedelta(days=number)


def pairs(store: Store) -> list[tuple[str, str]]:
    return [(pair.typo, pair.correction) for pair in store.corrections.read() if not pair.refused]


def test_an_accepted_pair_is_kept_with_its_count_and_times(tmp_path):
    with Store.open(tmp_path) as store:
        assert store.corrections.learn([(" Pyhton ", "Python")], 10, day(1)) == [("pyhton", "python")]
        assert store.corrections.learn([("pyhton", "python"), ("srver", "server")], 10, day(3)) == [
            ("pyhton", "python"),
            ("srver", "server"),
        ]
    with Store.open(tmp_path) as store:
        assert store.corrections.read() == [
            LearnedPair("pyhton", "python", 2, day(1), day(3)),
            LearnedPair("srver", "server", 1, day(3), day(3)),
        ]


def test_the_pair_accepted_longest_ago_goes_first(store):
    for number, typo in enumerate(["aa", "bb", "cc"]):
        store.corrections.learn([(typo, "word")], 3, day(number))
    store.corrections.learn([("aa", "word")], 3, day(3))
    assert store.corrections.learn([("dd", "word")], 3, day(4)) == [("dd", "word")]
    assert pairs(store) == [("dd", "word"), ("aa", "word"), ("cc", "word")]


def test_with_room_for_none_nothing_is_learned(store):
    store.corrections.learn([("aa", "word")], 5)
    assert store.corrections.learn([("bb", "word")], 0) == []
    assert store.corrections.read() == []


def test_a_typo_has_one_learned_correction_the_last(store):
    store.corrections.learn([("modle", "module")], 5, day(1))
    store.corrections.learn([("modle", "model")], 5, day(2))
    assert pairs(store) == [("modle", "model")]


@pytest.mark.parametrize("pair", [("same", "Same"), ("", "word"), ("word", " ")])
def test_what_corrects_nothing_is_not_learned(store, pair):
    assert store.corrections.learn([pair], 5) == []
    assert store.corrections.read() == []


def test_a_refused_pair_is_forgotten_and_not_learned_again(store):
    store.corrections.learn([("modle", "module")], 5, day(1))
    store.corrections.refuse("modle", "module", day(2))
    assert store.corrections.learn([("modle", "module"), ("modle", "model")], 5, day(3)) == [("modle", "model")]
    assert store.corrections.read() == [
        LearnedPair("modle", "model", 1, day(3), day(3)),
        LearnedPair("modle", "module", 1, day(1), day(2), refused=True),
    ]


def test_a_pair_can_be_refused_before_it_was_learned_and_takes_no_room(store):
    store.corrections.refuse("aa", "word")
    assert store.corrections.learn([("aa", "word"), ("bb", "word")], 1) == [("bb", "word")]
    assert len(store.corrections.read()) == 2


def test_one_pair_is_forgotten_and_may_be_learned_again(store):
    store.corrections.learn([("aa", "word"), ("bb", "word")], 5)
    assert store.corrections.forget("AA", "word")
    assert not store.corrections.forget("aa", "word")
    assert pairs(store) == [("bb", "word")]
    store.corrections.refuse("bb", "word")
    assert store.corrections.forget("bb", "word")
    assert store.corrections.learn([("bb", "word")], 5) == [("bb", "word")]


def test_all_learned_pairs_are_forgotten_and_refusals_stay(store):
    store.corrections.learn([("aa", "word"), ("bb", "word")], 5)
    store.corrections.refuse("cc", "word")
    assert store.corrections.forget_learned() == 2
    assert [pair.typo for pair in store.corrections.read()] == ["cc"]


@pytest.fixture(scope="module")
def emptied(tmp_path_factory):
    """`emptied()`: one store for many examples, with every pair forgotten, since opening one takes longer than using it."""
    with Store.open(tmp_path_factory.mktemp("pairs")) as store:

        def empty() -> Store:
            for pair in store.corrections.read():
                assert store.corrections.forget(pair.typo, pair.correction)
            assert store.corrections.read() == []
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
        store.corrections.refuse(typo, correction)
    for typo, correction, most, when in learning:
        store.corrections.learn([(typo, correction)], most, day(when))
        kept = pairs(store)
        assert len(kept) <= most
        assert len({pair[0] for pair in kept}) == len(kept)
        assert not refused & set(kept)


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
    store.memories.delete("c")
    vocabulary = store.indexes.vocabulary()
    assert dict(vocabulary) == {"größe": 1, "deploying": 1, "the": 1, "deploy": 2, "getuserbyid": 1}
    assert vocabulary.get("gone") is None and "gone" not in vocabulary
    assert sorted(vocabulary.of_length(5, 6)) == ["deploy", "größe"]
    assert vocabulary.of_length(20, 10**9) == []


def test_the_vocabulary_is_computed_once_per_content_version(store, rows):
    store.add(rows([Memory("a", "one")]))
    first = store.indexes.vocabulary()
    assert store.indexes.vocabulary() is first
    store.add(rows([Memory("b", "one two")]))
    assert dict(store.indexes.vocabulary()) == {"one": 2, "two": 1}


TEXTS = ["The cat, the CAT's hat; a.b.c e-mail (ok) ﬁne", "Ünïcode naïve\u00a0café x" + "y" * 60, "", "cat\ncat C++ 12"]


def test_words_of_what_changed_since_the_index_are_read_and_no_others(store, rows, embedder, monkeypatch):
    store.add(rows([Memory("a", "one two"), Memory("b", "two three"), Memory("c", "four")]))
    store.indexes.refresh(embedder)
    store.memories.delete("c")
    store.add(rows([Memory("a", "one five"), Memory("d", "three")]))
    monkeypatch.setattr(memories, "documents", lambda *_: pytest.fail("all memories are read"))
    assert dict(store.indexes.vocabulary()) == {"one": 1, "two": 1, "three": 2, "five": 1}


def test_the_fresh_lexical_index_gives_the_same_words(store, rows, embedder):
    store.add(rows([Memory(str(number), text, title=text[:5]) for number, text in enumerate(TEXTS)]))
    counted = dict(store.indexes.vocabulary())
    store.indexes.refresh(embedder)
    assert store.indexes.open(embedder).lexical.words == counted
    store.close()
    with Store.open(store.path) as again:
        assert dict(again.indexes.vocabulary()) == counted
