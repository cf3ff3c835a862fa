"""Whose vectors a source brought: of which model, of which text."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from cems_workbench.analysis.vector_origins import VectorOrigins, follows
from cems_workbench.analysis.why.report import explain
from cems_workbench.config import with_values
from cems_workbench.config.model import PipelineConfig
from cems_workbench.errors import StoreError
from cems_workbench.jobs import embedder_match
from cems_workbench.jobs.connecting import identify_embedder, take_snapshot
from cems_workbench.jobs.diagnosis import source_checks
from cems_workbench.jobs.embedder_match import SAMPLE_TEXTS, match_source, mismatched_memories
from cems_workbench.jobs.store_status import ask_sources
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.records import EmbeddedText, Memory, TakenChunk, TakenMemory
from cems_workbench.sources.rows import LLAMA_INDEX
from cems_workbench.store import Store
from tests.planted_source import WORDS_DIMENSION as DIMENSION
from tests.planted_source import Planted, Words, planted
from tests.small_store import empty_store, store

__all__ = ["empty_store", "store"]
NOW = datetime(2026, 11, 1, tzinfo=UTC)
_NOUNS = "apple bridge candle desert engine forest garden harbour island jungle kettle ladder"
NOUNS = _NOUNS.split()
CONTENTS = [
    f"the {NOUNS[i % 12]} of {NOUNS[(i * i + 3) % 12]} number {i} is kept by {'abcdef'[i % 6]}{i} since {1900 + i} "
    for i in range(30)
]
OTHER = "a former text of some other matter, note "


def source_of(vectors: Sequence[Float32], contents: Sequence[str] = CONTENTS) -> Planted:
    """Memories m00, m01, … with these vectors."""
    own = [
        TakenMemory(Memory(f"m{i:02}", content), "1", vector=vector)
        for i, (content, vector) in enumerate(zip(contents, vectors, strict=True))
    ]
    return Planted({each.memory.id: each for each in own}, dimension=64)


def connected(store: Store, source: Planted) -> tuple[str, VectorOrigins]:
    take_snapshot(store, source, NOW)
    (record,) = store.sources.read()
    said = identify_embedder(store, record, Words(), "words", stated=False)
    kept = store.sources.kept_origins(record.id)
    assert kept is not None
    return said, VectorOrigins.of_json(kept)


def vectors(embedder: Words, contents: Sequence[str] = CONTENTS) -> list[Float32]:
    return list(embedder.encode(contents) * 2)


def rotated(rows: Sequence[Float32]) -> list[Float32]:
    """Such as another model makes them: cosines with each other stay, those with others are lost."""
    turn, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(64, 64)))
    return list((np.stack(rows) @ turn).astype(np.float32))


@pytest.mark.parametrize(("count", "kind"), [(3, "far"), (8, "other model"), (15, "other model")])
def test_vectors_of_another_model_are_named_and_the_store_is_searched(store: Store, count: int, kind: str) -> None:
    """openhuman#1574 (2026-05-12), librefang#7912 (2026-08-25), marveen PR#1352 (2026-09-16): a migration that stopped half-way."""
    own = vectors(Words())
    said, found = connected(store, source_of([*rotated(own[:count]), *own[count:]]))
    assert said.startswith("embedder words: ") and "of 20 stored vectors reproduced" in said and "is not" not in said
    assert [(one.memory_id, one.kind) for one in found.mismatches] == [(f"m{i:02}", kind) for i in range(count)]
    head, group = found.lines
    two = "two models: " if kind == "other model" else ""
    assert head == f"{two}{count} of 30 stored vectors are not what words gives their texts: re-embed them"
    assert group.startswith(f"{count} × that of another model") and ": m00, m01, m02" in group
    assert store.sources.read()[0].model_id == "words"


def test_vectors_of_a_former_text_are_told_apart_from_those_of_an_earlier_version(store: Store) -> None:
    """LanceDB 0.40.0 `update`, LangGraph 4.3.2 `put` without index (run on 2026-11-29): an update of a text keeps the old vector."""
    former = [f"{OTHER}{'qrstuvwxyz'[i]}" for i in range(3)] + [
        f"{CONTENTS[i]} and {CONTENTS[i - 1][:24]}" for i in (3, 4)
    ]
    _, found = connected(store, source_of([*vectors(Words(), former), *vectors(Words())[5:]]))
    assert [one.kind for one in found.mismatches] == ["far"] * 3 + ["near"] * 2
    assert found.lines[1].startswith(
        "2 × that of a text like it, such as an earlier version or a part of it (cosine 0."
    )
    assert found.lines[2].startswith("3 × that of another model or of another text (cosine ")


def test_vectors_of_zeros_shared_ones_and_those_of_other_memories_are_named(store: Store) -> None:
    """nowledge-co/community#444 (2026-07-23), Synapse-OSS#46 (2026-08-12): a service that failed wrote zeros, or one vector for all."""
    rows = vectors(Words())
    constant = Words().encode_query("error")
    rows[0:3] = [np.zeros(64, np.float32)] * 3
    rows[3:6] = [constant] * 3
    rows[6], rows[7] = rows[7], rows[6]
    _, found = connected(store, source_of(rows))
    assert [one.kind for one in found.mismatches] == ["zeros"] * 3 + ["shared"] * 3 + ["swapped"] * 2
    assert found.lines[1:] == [
        "3 × all zeros, without a cosine: m00, m01, m02",
        next(line for line in found.lines if line.startswith("3 × that of a different text too (cosine ")),
        next(line for line in found.lines if line.endswith("m06 (that of m07), m07 (that of m06)")),
    ]


def test_vectors_of_two_prefixes_are_named(store: Store) -> None:
    """hindsight PR#3570, basic-memory#1284: some texts were embedded with a prefix."""
    rows = vectors(Words(), [f"passage: {text}" if i < 10 else text for i, text in enumerate(CONTENTS)])
    _, found = connected(store, source_of(rows))
    assert {one.kind for one in found.mismatches} == {"other form"} and len(found.mismatches) == 10
    assert found.lines[1].startswith("10 × that of content after 'passage: ' (cosine 0.")


def test_what_needs_no_model_is_said_of_vectors_of_a_model_that_is_not_here(store: Store) -> None:
    rows = rotated(vectors(Words()))
    rows[0] = np.zeros(64, np.float32)
    rows[2] = rows[1]
    said, found = connected(store, source_of(rows))
    assert said.startswith("words is not the embedder")
    assert found.lines == [
        "3 of 30 stored vectors say nothing of their texts",
        "1 × all zeros, without a cosine: m00",
        "2 × that of a different text too: m01, m02",
    ]


def test_equal_texts_may_share_a_vector(store: Store) -> None:
    contents = ["The Apple", "the apple", *CONTENTS[2:]]
    rows = vectors(Words(), ["the apple", *contents[1:]])
    assert not [one for one in connected(store, source_of(rows, contents))[1].mismatches if one.kind == "shared"]


def test_of_many_vectors_a_sample_is_compared_and_all_if_it_fails(store, monkeypatch):
    monkeypatch.setattr(embedder_match, "FEW_VECTORS", 25)
    rows = vectors(Words())
    source = source_of(rows)
    monkeypatch.setattr(embedder_match, "MOST_SUSPECTS", 5)
    assert connected(store, source)[1] == VectorOrigins("words", 30, 10)
    # A memory that was edited after it was written is among the first.
    later = Memory("m00", CONTENTS[0], created_at=NOW, updated_at=datetime(2026, 12, 1, tzinfo=UTC))
    source.memories["m00"] = TakenMemory(later, "2", vector=Words().encode_query(OTHER))
    found = connected(store, source)[1]
    assert (found.checked, [one.memory_id for one in found.mismatches]) == (30, ["m00"])


def test_doctor_names_them_until_they_are_re_embedded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 12 of 2026-07-23: connect said it, doctor did not."""
    rows = vectors(Words())
    source = source_of([*rotated(rows[:10]), *rows[10:]])
    connected(store, source)
    planted(monkeypatch, source)
    _, told = source_checks(ask_sources(store, Words())(), NOW)
    assert (told.name, told.status) == (f"vectors of {source.address}", "warning")
    assert (
        "10 of 30 stored vectors are not what words gives their texts" in told.finding
        and "m07 and 2 more" in told.finding
    )
    assert told.detail is not None and len(told.detail["mismatches"]) == 10
    store.indexes.refresh(Words())
    assert store.sources.re_embed(mismatched_memories(store, Words())) == 10
    report = store.indexes.refresh(embedder := Words())
    assert report.embedded == 10 and sorted(embedder.texts) == sorted(CONTENTS[:10])
    assert len(source_checks(ask_sources(store, Words())(), NOW)) == 1
    # A later import of the same rows takes no former vector back.
    assert connected(store, source)[1].mismatches == () and store.indexes.refresh(Words()).embedded == 0


def test_why_says_it_and_where_the_memory_is_with_the_vector_of_its_text(store: Store) -> None:
    """marveen PR#1352 (2026-09-16): a memory of the other model is far from a question in its own words."""
    rows = vectors(Words())
    connected(store, source_of([*rotated(rows[:8]), *rows[8:]]))
    resources = Resources(store, Words(), Servers("", "", "", None, None, None))
    config = with_values(PipelineConfig(), {"rerank.backend": "none", "lists.lexical.enabled": False})
    request = Request(CONTENTS[4], as_of=NOW)
    evidence = gather_lists(request, config, resources)
    found = explain("m04", evidence, config, k=1, request=request, resources=resources)
    assert found.vector is not None and found.fix is not None and found.vector.brings_in
    assert found.fix.sentence == "Fix: re-embed m04. m04 becomes 1st; not checked on other queries."
    now = next(place.rank for place in found.path.places if place.list == "vector:0")
    assert now is not None and now > 1
    assert found.vector.sentence.startswith("The stored vector of m04 is not the one that its text gives (cosine ")
    assert f"With the vector of its text it is 1st in vector:0 ({now}" in found.vector.sentence
    assert explain("m20", evidence, config, k=1, request=request, resources=resources).vector is None
    # What was replayed is what happens.
    store.sources.re_embed(["m04"])
    after = gather_lists(request, config, resources)
    assert after.lists[0].hits[0].memory_id == "m04"
    assert explain("m04", after, config, k=1, request=request, resources=resources).vector is None


def test_why_repeats_what_connect_found_where_all_vectors_are_of_another_text(store: Store) -> None:
    """Planted fault `vectors-header` (2026-11-29): all texts were embedded with a header before them."""
    said, kept = connected(store, source_of(vectors(Words(), [f"{OTHER * 2}{text}" for text in CONTENTS])))
    assert store.sources.read()[0].text_form == "" and kept.lines == [] and kept.sample in said
    resources = Resources(store, Words(), Servers("", "", "", None, None, None))
    config = with_values(PipelineConfig(), {"rerank.backend": "none", "lists.lexical.enabled": False})
    request = Request(CONTENTS[4], as_of=NOW)
    vector = explain(
        "m04", gather_lists(request, config, resources), config, request=request, resources=resources
    ).vector
    assert vector is not None and vector.mismatch.memory_id == "m04"
    assert f" Of its source: {kept.sample}. With the vector of its text it is 1st in vector:0 (" in vector.sentence
    assert (
        "0 of 20 stored vectors reproduced" in vector.sentence
        and "embedded another than those tried" in vector.sentence
    )


def test_a_few_vectors_of_another_model_among_many_are_found_as_the_outlying_ones(store, monkeypatch):
    """Planted fault `vectors-few-other-model` (2026-11-29): 8 of 438, and `connect` said 20 of 20 reproduced."""
    monkeypatch.setattr(embedder_match, "FEW_VECTORS", 25)
    monkeypatch.setattr(embedder_match, "MOST_SUSPECTS", 4)
    monkeypatch.setattr(embedder_match, "SAMPLE_TEXTS", 4)
    rows = vectors(Words())
    rows[17] = rotated(rows)[17]
    said, found = connected(store, source_of(rows))
    assert "4 of 4 stored vectors reproduced" in said
    assert [(one.memory_id, one.kind) for one in found.mismatches] == [("m17", "far")]


def test_vectors_a_little_nearer_to_their_own_texts_are_not_said_to_be_of_another_model(store: Store) -> None:
    """Planted fault `vectors-title-alone` (2026-11-29): their cosines follow those of the texts, and the model is the same."""
    own = vectors(Words())
    mixed = [other + 0.4 * right for other, right in zip(rotated(own[:10]), own[:10], strict=True)]
    _, found = connected(store, source_of([*mixed, *own[10:]]))
    assert [one.kind for one in found.mismatches].count("far") >= 8


def test_a_group_follows_its_texts_only_if_it_is_large_enough() -> None:
    rows = Words().encode(CONTENTS).astype(np.float64)
    turned = np.stack(rotated(list(Words().encode(CONTENTS)))).astype(np.float64)
    assert follows(turned, rows) and follows(turned[:6], rows[:6])
    assert (
        not follows(turned[:5], rows[:5])
        and not follows(Words().encode([f"{OTHER}{i} {i * i}" for i in range(30)]).astype(np.float64), rows)
        and not follows(np.ones((8, 64)) / 8, rows[:8])
    )


PREFIX = "content after 'passage: '"
WHOSE = [f"memory {i} tells of {word} and {word}s in town {i * 7}" for i, word in enumerate("abcdefghijkl")]
LLAMA = EmbeddedText("kind: note\nby: me\n\n", "", "strip")


def source_whose(embedded: Callable[[str, str], str], made_by: Words, chunked: bool = False) -> Planted:
    """Memories whose vectors are of what `embedded` makes of title and content; all have LlamaIndex's text as a possible one."""
    memories = {}
    for i, content in enumerate(WHOSE):
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
    said = identified(store, source_whose(embedded, Words(), chunked), Words())
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
    for i, content in enumerate(WHOSE):
        chunk = TakenChunk(0, value(f"{content} ä"), Words().encode_query(value(f"{content} ä")))
        memories[f"m{i}"] = TakenMemory(Memory(f"m{i}", f"{content} ä"), "1", (chunk,))
    assert "12 of 12" in identified(store, Planted(memories, dimension=DIMENSION), Words())
    edited = 'An "edited" text ä.'
    store.memories.update(replace(store.memories.read(["m1"])["m1"], content=edited))
    store.indexes.refresh(embedder := Words())
    assert embedder.texts == [value(edited)]


def test_vectors_of_another_text_are_searched_with_a_warning(store: Store) -> None:
    source = source_whose(lambda title, content: f"{content} {title} with a summary that nobody kept", Words())
    said = identified(store, source, Words())
    assert "0 of 12 stored vectors reproduced, cosines 0." in said and "with those of other memories" in said
    assert "the model may be right, and the text that was embedded another" in said
    assert f"tried: content, {LLAMA_INDEX}, title and content in 5 forms, prefixes of models in 4 forms" in said
    assert "connect postgresql://me@here/cems --embedder MODEL" in said
    assert (store.sources.read()[0].text_form, store.sources.read()[0].model_id) == ("", "words")
    store.indexes.refresh(Words())


def test_vectors_of_another_model_are_not_searched_unless_it_is_named(store: Store) -> None:
    source = source_whose(lambda title, content: content, Words(seed=1))
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
    source = source_whose(lambda title, content: content, Words())
    assert len(WHOSE) + 3 <= SAMPLE_TEXTS
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
    source = source_whose(lambda title, content: content, Words())
    assert "12 of the texts are longer than the model reads" in identified(store, source, Words(reads=5))
