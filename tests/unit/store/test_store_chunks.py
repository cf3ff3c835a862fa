"""Chunks in the store: cut by its rule, kept when they were given, each found by itself; and whose vectors a store has."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import duckdb
import numpy as np
import pytest

from cems_workbench.errors import EmbedderMismatchError
from cems_workbench.models.protocol import Float32
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Chunk, Memory, ParsedInput
from cems_workbench.store import ANY, Filter, Store
from cems_workbench.store.search import embedded, vector_index
from cems_workbench.store.search.entries import Entry, best_per_memory, key_of, parse_key
from tests.small_store import HashEmbedder

SHORT, LONG = "alpha beta", " ".join(f"word{i}" for i in range(20))


class WordEmbedder:
    """Reads so many words of a text, and remembers what it embedded."""

    dimension = 16

    def __init__(self, model_id: str = "words-16", room: int = 8) -> None:
        self.model_id = model_id
        self.room = room
        self.texts: list[str] = []

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        self.texts.extend(texts)
        return np.eye(16, dtype=np.float32)[[len(text) % 16 for text in texts]]

    def spans(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        return [[match.span() for match in re.finditer(r"\S+", text)] for text in texts]

    def truncated(self, texts: Sequence[str]) -> list[bool]:
        return [len(spans) > self.room for spans in self.spans(texts)]


class Directions:
    """Maps a text to the unit vector of its last number: "north 2" points along the third axis."""

    model_id = "directions"
    dimension = 8

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        return np.eye(8, dtype=np.float32)[[int(text.split()[-1]) % 8 for text in texts]]


@pytest.fixture
def words() -> WordEmbedder:
    return WordEmbedder()


def given(memories: Sequence[Memory], *chunks: Chunk) -> ParsedInput:
    return ParsedInput("test", "test", tuple(memories), chunks=chunks)


def axis(number: int) -> Float32:
    return np.eye(8, dtype=np.float32)[number]


def test_a_new_store_cuts_by_what_the_embedder_reads(store, words, rows):
    assert store.chunks.rule == "embedder"
    store.add(rows([Memory("short", SHORT), Memory("long", LONG)]))
    assert store.chunks.read(["long"]) == {}
    store.indexes.refresh(words)
    found = store.chunks.read(["short", "long", "unknown"])
    assert list(found) == ["long"]
    assert [chunk.seq for chunk in found["long"]] == [0, 1, 2]
    assert all(LONG[chunk.start :].startswith(chunk.text) for chunk in found["long"])
    statistics = store.chunks.statistics()
    assert (statistics.rule, statistics.memories, statistics.chunks, statistics.given) == ("embedder", 1, 3, 0)


def test_chunks_are_embedded_with_the_title_before_them(store, words, rows):
    store.add(rows([Memory("m", LONG, title="Title")]))
    store.indexes.refresh(words)
    assert len(words.texts) > 3
    assert all(text.startswith("Title. word") for text in words.texts)


def test_cems_chunks_every_memory_without_its_title(store, embedder, rows):
    assert store.chunks.choose("cems")
    store.add(rows([Memory("m", SHORT, title="Title")]))
    store.indexes.refresh(embedder)
    assert store.chunks.read(["m"]) == {"m": (Chunk("m", 0, SHORT, 0),)}
    assert embedder.texts == [SHORT]
    lexical = store.indexes.open(embedder).lexical
    assert lexical.search("title", 5) == []
    assert lexical.search_chunks("alpha", 5)[0][::2] == ("m", 0)
    assert "title" in lexical.words, "the words of a memory, for typos, are those of all of it"


def test_another_rule_cuts_anew_and_embeds_what_changed(store, words, rows):
    store.add(rows([Memory("short", SHORT), Memory("long", LONG)]))
    store.indexes.refresh(words)
    before = store.content_version
    words.texts.clear()
    assert store.chunks.choose("whole") and not store.chunks.choose("whole")
    assert store.content_version > before
    report = store.indexes.refresh(words)
    assert (words.texts, report.embedded, report.removed) == ([LONG], 1, 3)
    assert store.chunks.statistics().chunks == 0
    assert len(store.indexes.open(words).vectors) == 2


def test_an_embedder_that_reads_less_cuts_anew_and_makes_the_other_index_stale(store, words, rows):
    store.add(rows([Memory("m", LONG)]))
    store.indexes.refresh(words)
    narrow = WordEmbedder("narrow", 5)
    store.indexes.refresh(narrow)
    assert len(store.chunks.read(["m"])["m"]) == 4
    assert [state.fresh for state in store.indexes.states("words-16")] == [True, False]
    store.indexes.refresh(words)
    assert len(store.indexes.open(words).vectors) == len(store.chunks.read(["m"])["m"]) == 3


def test_editing_a_memory_cuts_it_anew_and_its_surplus_chunks_leave(store, words, rows):
    store.add(rows([Memory("m", LONG)]))
    store.indexes.refresh(words)
    store.memories.update(replace(store.memories.get("m"), content=LONG[:60]))
    report = store.indexes.refresh(words)
    chunks = store.chunks.read(["m"])["m"]
    assert len(chunks) == 2 and report.removed == 1
    vectors = store.indexes.open(words).vectors
    assert len(vectors) == 2
    assert set(vectors.chunk_embeddings(["m"])["m"]) == {0, 1}
    store.memories.update(replace(store.memories.get("m"), content=SHORT))
    store.indexes.refresh(words)
    assert store.chunks.read(["m"]) == {}
    assert set(store.indexes.open(words).vectors.chunk_embeddings(["m"])["m"]) == {None}


def test_given_chunks_are_kept_until_the_content_changes(store, words, rows):
    memory = Memory("m", LONG)
    chunks = Chunk("m", 3, "word0 word1", 0), Chunk("m", 7, "elsewhere", None)
    report = store.add(given([memory], *chunks))
    assert report.chunks.added == 2
    kept = {"m": (replace(chunks[0], seq=0), replace(chunks[1], seq=1))}
    for rule in ("cems", "embedder", "whole"):
        store.chunks.choose(rule)
        store.indexes.refresh(words)
        assert store.chunks.read(["m"]) == kept
    assert store.add(given([memory], *chunks)).chunks.unchanged == 2
    store.memories.update(replace(memory, title="only a title"))
    store.indexes.refresh(words)
    assert store.chunks.read(["m"]) == kept
    store.memories.update(replace(memory, content=LONG + " more"))
    store.indexes.refresh(words)
    assert store.chunks.read(["m"]) == {}


def test_new_given_chunks_make_the_indexes_stale(store, words):
    memory = Memory("m", SHORT)
    store.add(given([memory], Chunk("m", 0, "alpha", 0)))
    store.indexes.refresh(words)
    version = store.content_version
    store.add(given([memory], Chunk("m", 0, "beta", 6)))
    assert store.content_version == version + 1
    store.indexes.refresh(words)
    assert store.indexes.open(words).lexical.search("alpha", 5) == []


def test_chunks_of_an_unknown_memory_are_reported(store):
    report = store.add(given([], Chunk("nobody", 0, "text", 0)))
    assert "no memory 'nobody'" in report.errors[0].reason
    assert store.content_version == 0


def compass(store: Store) -> None:
    """a: axes 0 and 1; b: axes 1 and 2; c: axis 3, whole."""
    store.chunks.choose("whole")
    memories = [Memory("a", "a 0", project="p"), Memory("b", "b 1", project="q"), Memory("c", "south 3", project="p")]
    chunks = [
        Chunk("a", 0, "x 0", 0),
        Chunk("a", 1, "x 1", None),
        Chunk("b", 0, "x 1", None),
        Chunk("b", 1, "y 2", None),
    ]
    store.add(given(memories, *chunks))
    store.indexes.refresh(Directions())


def test_a_memory_is_found_once_by_its_nearest_chunk(store):
    compass(store)
    vectors = store.indexes.open(Directions()).vectors
    assert vectors.search(axis(1), 2) == [("a", 1.0), ("b", 1.0)]
    assert vectors.search(axis(2), 1) == [("b", 1.0)]
    assert vectors.search_chunks(axis(2), 1) == [("b", 1.0, 1)]
    assert vectors.search_chunks(axis(1), 2) == [("a", 1.0, 1), ("b", 1.0, 0)]
    assert vectors.search_chunks(axis(3), 2) == [("c", 1.0, None), ("a", 0.0, 0)]
    assert len(vectors.search_chunks(axis(1), 9)) == len(vectors) == 5
    assert vectors.ids() == ["a", "b", "c"]


@pytest.mark.parametrize("exact_rows", [0, 10_000])
def test_filters_and_deleted_memories_leave_out_all_their_chunks(store, monkeypatch, exact_rows):
    monkeypatch.setattr(vector_index, "EXACT_ROWS", exact_rows)
    compass(store)
    vectors = store.indexes.open(Directions()).vectors
    only = Filter("p", only_project=True)
    assert {hit[0] for hit in vectors.search_chunks(axis(1), 5, only)} == {"a", "c"}
    assert vectors.ids(only) == ["a", "c"]
    store.memories.delete("a")
    assert [hit[0] for hit in vectors.search(axis(1), 1)] == ["b"]
    assert {hit[0] for hit in vectors.search_chunks(axis(1), 5)} == {"b", "c"}
    assert vectors.chunk_embeddings(["a"]) == {}


def test_one_vector_of_a_memory_is_the_direction_of_the_mean_of_its_chunks(store):
    compass(store)
    vectors = store.indexes.open(Directions()).vectors
    found = vectors.embeddings(["a", "c"])
    assert found["a"] == pytest.approx((axis(0) + axis(1)) / np.sqrt(2))
    assert found["a"].dtype == np.float32
    assert (found["c"] == axis(3)).all()


def test_bm25_ranks_chunks_and_says_which(store, embedder):
    store.add(
        given(
            [Memory("a", "fox dog bird fox"), Memory("b", "fox")],
            Chunk("a", 0, "dog bird bird", None),
            Chunk("a", 1, "fox fox", None),
            Chunk("b", 0, "fox", 0),
        )
    )
    store.indexes.refresh(embedder)
    lexical = store.indexes.open(embedder).lexical
    assert [hit[::2] for hit in lexical.search_chunks("fox", 5, ANY)] == [("a", 1), ("b", 0)]
    assert [memory_id for memory_id, _ in lexical.search("fox dog", 5)] == ["a", "b"]
    assert (lexical.document_count, lexical.document_frequency("fox")) == (3, 2)
    ((_, score, _), _) = lexical.search_chunks("fox", 5)
    assert lexical.contributions("a", ["fox", "dog"], 1) == {"fox": pytest.approx(score)}
    assert set(lexical.contributions("a", ["fox", "dog"], 0)) == {"dog"}
    assert lexical.contributions("a", ["fox"]) == {"fox": pytest.approx(score)}
    assert lexical.contributions("a", ["fox"], 9) == lexical.contributions("nobody", ["fox"]) == {}


@pytest.mark.parametrize(
    "place", [("m", None), ("m", 0), ("a:1", 10), ("a\x1f1", None), ("a\x1f1", 2), ("a\x1f", None)]
)
def test_a_key_names_one_entry(place):
    assert parse_key(key_of(place)) == place


def test_keys_of_ids_that_look_like_keys_do_not_meet(store, embedder):
    memories = [Memory("a", "one"), Memory("a\x1f0", "two")]
    store.add(given(memories, Chunk("a", 0, "three", None)))
    store.indexes.refresh(embedder)
    vectors = store.indexes.open(embedder).vectors
    assert len(vectors) == 2
    assert {hit[::2] for hit in vectors.search_chunks(np.ones(16), 5)} == {("a", 0), ("a\x1f0", None)}


def test_the_best_chunk_stands_for_its_memory():
    assert best_per_memory([("a", 0.9, 1), ("b", 0.8, None), ("a", 0.2, 0)]) == [("a", 0.9), ("b", 0.8)]


Rows = Callable[..., ParsedInput]


@pytest.fixture
def filled(store: Store, rows: Rows) -> Store:
    store.add(rows(memories=[Memory(id="a", content="blue kettle"), Memory(id="b", content="releases")]))
    return store


def test_a_store_without_vectors_takes_any_embedder(filled: Store) -> None:
    filled.indexes.check("any", 3)


def test_the_embedder_of_the_vectors_passes_with_its_length_or_none(filled: Store, embedder: HashEmbedder) -> None:
    filled.indexes.refresh(embedder)
    filled.indexes.check("hash-16", 16)
    filled.indexes.check("hash-16", None)


def test_another_model_is_refused_and_so_is_another_length(filled: Store, embedder: HashEmbedder) -> None:
    filled.indexes.refresh(embedder)
    with pytest.raises(
        EmbedderMismatchError, match=r"made by hash-16 \(16 values\), and the embedder configured is hash-8"
    ):
        filled.indexes.check("hash-8", 16)
    with pytest.raises(EmbedderMismatchError, match=r"hash-16 and have 16 values.*makes 8"):
        filled.indexes.check("hash-16", 8)


def test_vectors_of_two_embedders_stand_side_by_side(filled, embedder, other_embedder):
    filled.indexes.refresh(embedder)
    filled.indexes.rebuild(other_embedder)
    filled.indexes.check("hash-16", 16)
    filled.indexes.check("hash-8", 8)
    assert filled.indexes.refresh(embedder).embedded == 0


def test_a_model_of_ollama_pulled_anew_is_none_other(filled: Store) -> None:
    filled.indexes.refresh(HashEmbedder("ollama:nomic@sha256:1"))
    filled.indexes.check("ollama:nomic@sha256:2", 16)
    for other in ("ollama:bge@sha256:1", "openai:nomic@256"):
        with pytest.raises(EmbedderMismatchError):
            filled.indexes.check(other, 16)


def test_texts_are_not_added_to_vectors_of_another_length(filled: Store, embedder: HashEmbedder, rows: Rows) -> None:
    filled.indexes.refresh(embedder)
    filled.add(rows(memories=[Memory(id="c", content="a third")]))
    with pytest.raises(EmbedderMismatchError, match="makes 8"):
        filled.indexes.refresh(HashEmbedder("hash-16", 8))
    assert filled.indexes.refresh(embedder).embedded == 1


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (collection, memory_id, seq)"])
def test_what_is_known_is_replaced_and_what_is_new_added_in_one_step(key):
    cursor = duckdb.connect()
    cursor.execute(
        "CREATE TABLE embedded (collection VARCHAR, memory_id VARCHAR, seq BIGINT, text_sha VARCHAR, project VARCHAR, "
        f"scope VARCHAR, vector_hash BIGINT{key})"
    )

    def record(collection, **shas):
        entries = [Entry((name, None), "text", sha, None, "shared", None, "text") for name, sha in shas.items()]
        embedded.record(cursor, collection, entries, {entry.id: 7 for entry in entries})

    record("other", a="of another collection")
    record("own", a="first", b="first")
    record("own", b="second", c="second")
    record("own", c="third")
    rows = cursor.execute("SELECT collection, memory_id, text_sha FROM embedded ORDER BY ALL").fetchall()
    assert rows == [
        ("other", "a", "of another collection"),
        ("own", "a", "first"),
        ("own", "b", "second"),
        ("own", "c", "third"),
    ]
