"""Which model and which text a source's vectors are of: proven by embedding again, else told apart by the cosines."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from cems_workbench.errors import StoreError
from cems_workbench.jobs.connecting import identify_embedder, take_snapshot
from cems_workbench.jobs.embedder_match import SAMPLE_TEXTS, match_source
from cems_workbench.records import EmbeddedText, Memory, TakenChunk, TakenMemory
from cems_workbench.sources.rows import LLAMA_INDEX
from cems_workbench.store import Store
from tests.planted_source import WORDS_DIMENSION as DIMENSION
from tests.planted_source import Planted, Words
from tests.small_store import empty_store, store

__all__ = ["empty_store", "store"]
NOW = datetime(2026, 11, 1, tzinfo=UTC)
PREFIX = "content after 'passage: '"
CONTENTS = [f"memory {i} tells of {word} and {word}s in town {i * 7}" for i, word in enumerate("abcdefghijkl")]
LLAMA = EmbeddedText("kind: note\nby: me\n\n", "", "strip")


def source_of(embedded: Callable[[str, str], str], made_by: Words, chunked: bool = False) -> Planted:
    """Memories whose vectors are of what `embedded` makes of title and content; all have LlamaIndex's text as a possible one."""
    memories = {}
    for i, content in enumerate(CONTENTS):
        memory = Memory(f"m{i}", content, title=f"Title {i}")
        vector = made_by.encode_query(embedded(f"Title {i}", content)) * 3
        own = TakenMemory(memory, "1", vector=vector, embedded={LLAMA_INDEX: LLAMA})
        if chunked:
            own = TakenMemory(memory, "1", (TakenChunk(0, content, vector, 0, {LLAMA_INDEX: LLAMA}),))
        memories[memory.id] = own
    return Planted(memories, dimension=DIMENSION)


def identified(store: Store, source: Planted, embedder: Words, stated: bool = False) -> str:
    take_snapshot(store, source, NOW)
    (record,) = store.sources.read()
    return identify_embedder(store, record, embedder, "words", stated=stated)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("form", "embedded"),
    [
        ("content", lambda title, content: content),
        (LLAMA_INDEX, lambda title, content: f"kind: note\nby: me\n\n{content}"),
        ("title and content", lambda title, content: f"{title}\n{content}"),
        ("title, a colon and content", lambda title, content: f"{title}: {content}"),
        (PREFIX, lambda title, content: f"passage: {content}"),
    ],
)
def test_the_text_that_reproduces_the_vectors_is_found_and_kept(store, form, embedded, chunked):
    said = identified(store, source_of(embedded, Words(), chunked), Words())
    assert said.startswith("embedder words: 12 of 12 stored vectors reproduced, lowest cosine 1.0000")
    assert ("of another text than the content" in said) == (form != "content") and "named" not in said
    assert ("wants another prefix before queries" in said) == (form == PREFIX)
    assert store.sources.read()[0].text_form == form
    embedder = Words()
    assert match_source(store, store.sources.read()[0], embedder).same and len(embedder.texts) == 3 + 12
    store.indexes.refresh(embedder := Words())
    assert embedder.texts == []
    store.memories.update(replace(store.memories.read(["m1"])["m1"], content="An edited text."))
    store.indexes.refresh(embedder)
    assert embedder.texts == [embedded("Title 1", "An edited text.")]


@pytest.mark.parametrize("ascii_only", [False, True])
def test_an_edited_memory_of_one_chunk_keeps_what_its_source_has_around_the_content(store, ascii_only):
    def value(content: str) -> str:
        return json.dumps({"kind": "note", "text": content}, ensure_ascii=ascii_only)

    memories = {}
    for i, content in enumerate(CONTENTS):
        chunk = TakenChunk(0, value(f"{content} ä"), Words().encode_query(value(f"{content} ä")))
        memories[f"m{i}"] = TakenMemory(Memory(f"m{i}", f"{content} ä"), "1", (chunk,))
    assert "12 of 12" in identified(store, Planted(memories, dimension=DIMENSION), Words())
    edited = 'An "edited" text ä.'
    store.memories.update(replace(store.memories.read(["m1"])["m1"], content=edited))
    store.indexes.refresh(embedder := Words())
    assert embedder.texts == [value(edited)]


def test_vectors_of_another_text_are_searched_with_a_warning(store: Store) -> None:
    source = source_of(lambda title, content: f"{content} {title} with a summary that nobody kept", Words())
    said = identified(store, source, Words())
    assert "0 of 12 stored vectors reproduced, cosines 0." in said and "with those of other memories" in said
    assert "the model may be right, and the text that was embedded another" in said
    assert f"tried: content, {LLAMA_INDEX}, title and content in 5 forms, prefixes of models in 4 forms" in said
    assert "connect postgresql://me@here/cems --embedder MODEL" in said
    assert (store.sources.read()[0].text_form, store.sources.read()[0].model_id) == ("", "words")
    store.indexes.refresh(Words())


def test_vectors_of_another_model_are_not_searched_unless_it_is_named(store: Store) -> None:
    source = source_of(lambda title, content: content, Words(seed=1))
    said = identified(store, source, Words())
    assert said.startswith("words is not the embedder: 0 of 12 stored vectors reproduced, cosines -0.")
    assert "no packaged embedder makes 64 numbers" in said and "may be right" not in said
    with pytest.raises(StoreError, match="nothing says which model"):
        store.indexes.refresh(Words())
    said = identified(store, source, Words(), stated=True)
    assert "it is searched with as you named it, though another model seems to have made the vectors" in said
    store.indexes.refresh(Words())


def test_a_dimension_that_no_packaged_embedder_makes_is_said_with_candidates(store: Store) -> None:
    source = Planted({"a": TakenMemory(Memory("a", "text"), "1", vector=np.ones(1536, np.float32))}, dimension=1536)
    said = identified(store, source, Words())
    assert (
        "words makes 64 numbers, the source has 1536: no packaged embedder makes 1,536 numbers; OpenAI's text-emb"
        in said
    )


def test_rows_that_prove_nothing_are_not_compared(store: Store) -> None:
    source = source_of(lambda title, content: content, Words())
    assert len(CONTENTS) + 3 <= SAMPLE_TEXTS
    like = source.memories["m0"]
    # The same text again with another vector, no word, and no direction.
    source.memories["n0"] = TakenMemory(replace(like.memory, id="n0"), "1", vector=Words().encode_query("other"))
    source.memories["n1"] = TakenMemory(Memory("n1", " \n "), "1", vector=Words().encode_query("blank"))
    source.memories["n2"] = TakenMemory(Memory("n2", "zeros"), "1", vector=np.zeros(DIMENSION, np.float32))
    assert "12 of 12 stored vectors reproduced" in identified(store, source, Words())


def test_vectors_of_zeros_say_nothing_about_the_embedder(store: Store) -> None:
    zero = TakenMemory(Memory("a", "text"), "1", vector=np.zeros(DIMENSION, np.float32))
    source = Planted({"a": zero}, dimension=DIMENSION, address="lancedb:/folder?table=a&distance=ip")
    said = identified(store, source, Words())
    assert said.startswith("the embedder was not compared: no stored vector to compare with; no packaged embedder")
    assert said.endswith("; connect 'lancedb:/folder?table=a&distance=ip' --embedder MODEL")


def test_texts_that_the_model_does_not_read_to_their_end_are_counted(store: Store) -> None:
    source = source_of(lambda title, content: content, Words())
    assert "12 of the texts are longer than the model reads" in identified(store, source, Words(reads=5))
