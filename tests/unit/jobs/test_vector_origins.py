"""Stored vectors that are not of their texts are named with ids, with no more than the numbers support; re-embedding mends them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pytest

from cems_workbench.analysis.vector_origins import VectorOrigins, follows
from cems_workbench.analysis.why import explain
from cems_workbench.config import with_values
from cems_workbench.config.model import PipelineConfig
from cems_workbench.jobs import embedder_match
from cems_workbench.jobs.connecting import identify_embedder, take_snapshot
from cems_workbench.jobs.diagnosis import source_checks
from cems_workbench.jobs.embedder_match import mismatched_memories
from cems_workbench.jobs.store_status import ask_sources
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.records import Memory, TakenMemory
from cems_workbench.store import Store
from tests.planted_source import Planted, Words, planted
from tests.small_store import empty_store, store

__all__ = ["empty_store", "store"]
NOW = datetime(2026, 11, 1, tzinfo=UTC)
NOUNS = (
    "apple",
    "bridge",
    "candle",
    "desert",
    "engine",
    "forest",
    "garden",
    "harbour",
    "island",
    "jungle",
    "kettle",
    "ladder",
)
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
    assert group.startswith(f"{count} are of another model") and ": m00, m01, m02" in group
    assert store.sources.read()[0].model_id == "words"


def test_vectors_of_a_former_text_are_told_apart_from_those_of_an_earlier_version(store: Store) -> None:
    """LanceDB 0.40.0 `update`, LangGraph 4.3.2 `put` without index (run on 2026-11-29): an update of a text keeps the old vector."""
    former = [f"{OTHER}{'qrstuvwxyz'[i]}" for i in range(3)] + [
        f"{CONTENTS[i]} and {CONTENTS[i - 1][:24]}" for i in (3, 4)
    ]
    _, found = connected(store, source_of([*vectors(Words(), former), *vectors(Words())[5:]]))
    assert [one.kind for one in found.mismatches] == ["far"] * 3 + ["near"] * 2
    assert found.lines[1].startswith(
        "2 are of a text like theirs, such as an earlier version or a part of it (cosine 0."
    )
    assert found.lines[2].startswith("3 are of another model or of another text (cosine ")


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
        "3 are all zeros and have no cosine: m00, m01, m02",
        next(line for line in found.lines if line.startswith("3 have the very vector of a different text (cosine ")),
        next(line for line in found.lines if line.endswith("m06 (that of m07), m07 (that of m06)")),
    ]


def test_vectors_of_two_prefixes_are_named(store: Store) -> None:
    """hindsight PR#3570, basic-memory#1284: some texts were embedded with a prefix."""
    rows = vectors(Words(), [f"passage: {text}" if i < 10 else text for i, text in enumerate(CONTENTS)])
    _, found = connected(store, source_of(rows))
    assert {one.kind for one in found.mismatches} == {"other form"} and len(found.mismatches) == 10
    assert found.lines[1].startswith("10 are of content after 'passage: ' (cosine 0.")


def test_what_needs_no_model_is_said_of_vectors_of_a_model_that_is_not_here(store: Store) -> None:
    rows = rotated(vectors(Words()))
    rows[0] = np.zeros(64, np.float32)
    rows[2] = rows[1]
    said, found = connected(store, source_of(rows))
    assert said.startswith("words is not the embedder")
    assert found.lines == [
        "3 of 30 stored vectors say nothing of their texts",
        "1 is all zeros and has no cosine: m00",
        "2 have the very vector of a different text: m01, m02",
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
