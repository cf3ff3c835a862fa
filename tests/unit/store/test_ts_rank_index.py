"""The index returns what comparing every text with the query gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.errors import StoreError
from cems_workbench.progress import silent
from cems_workbench.store.filter import Filter
from cems_workbench.store.search import postgres
from cems_workbench.store.search.directory.index_directory import read_manifest
from cems_workbench.store.search.entries import WHOLE_MEMORY, ChunkHits
from cems_workbench.store.search.postgres import Chunk, TsRankIndex
from pg_text_search.inverted_index import full_order, limited_order
from pg_text_search.ts_rank import lexemes, matches, or_query, ts_query, ts_rank

TEXTS = [
    *("the cat sat", "cats and a dog", "a dog", "re-rank the list", "rank of a list", "re", "cat cat dog", ""),
    *("foo.bar/baz", "a.bc/x", "dog dog dog", "cat"),
]


def build(home: Path, chunks: list[Chunk], hidden: frozenset[str] = frozenset()) -> TsRankIndex:
    manifest = postgres.build(home, chunks, len(chunks), 1, silent)
    assert read_manifest(home) == manifest
    return TsRankIndex(home / manifest.directory, hidden)


def chunks_of(texts: list[str]) -> list[Chunk]:
    scopes = ("personal", "shared")
    return [Chunk(f"m{99 - i // 2}", i % 2, text, f"p{i % 3}", scopes[i % 2]) for i, text in enumerate(texts)]


def by_hand(texts: list[str], query: str, k: int, order: str) -> ChunkHits:
    asked = or_query(query)
    found = [(chunk, lexemes(chunk.text)) for chunk in chunks_of(texts)]
    ranked = [(c.memory_id, ts_rank(words, asked), c.number) for c, words in found if matches(words, asked)]
    scores = np.array([hit[1] for hit in ranked], np.float32)
    if order == "id":
        return sorted(ranked, key=lambda hit: (-hit[1], hit[0], hit[2] or 0))[:k]
    places = limited_order(scores, k) if order == "limit" else full_order(scores, k)
    return [ranked[place] for place in places]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> TsRankIndex:
    return build(tmp_path_factory.mktemp("ts_rank"), chunks_of(TEXTS))


WORDS = st.lists(
    st.sampled_from(["cat", "dog", "re-rank", "rank", "the", "list", "foo.bar/baz", "-7", "zebra"]), max_size=5
)


@given(WORDS.map(" ".join), st.integers(0, 9), st.sampled_from(["id", "limit", "window"]))
def test_the_index_returns_what_every_text_compared_gives(index, query, k, order) -> None:
    assert index.search(query, k, ties=order) == by_hand(TEXTS, query, k, order)


@given(st.lists(WORDS.map(" ".join), max_size=12), WORDS.map(" ".join))
def test_any_texts_are_found_as_they_compare(tmp_path_factory, texts, query) -> None:
    index = build(tmp_path_factory.mktemp("any"), chunks_of(texts))
    assert index.search(query, 20) == by_hand(texts, query, 20, "id")


def test_ranks_by_hand(index) -> None:
    cat, dog = 0.1, 0.1 * (1 + 1 / 4 + 1 / 9)
    zeta = 1.64493406685
    hits = index.search("cat dog", 3)
    assert [(memory_id, chunk) for memory_id, _, chunk in hits] == [("m96", 0), ("m99", 1), ("m94", 0)]
    expected = [(0.125 + cat) / 2, (cat + cat) / 2, dog / 2]
    assert [score for _, score, _ in hits] == pytest.approx([value / zeta for value in expected], abs=1e-7)


def test_a_filter_and_hidden_memories_leave_the_order_of_the_others(tmp_path: Path) -> None:
    index = build(tmp_path, chunks_of(TEXTS), hidden=frozenset({"m99"}))
    everything = by_hand(TEXTS, "cat dog", 99, "id")
    shared = [hit for hit in everything if hit[2] == 1 and hit[0] != "m99"]
    assert index.search("cat dog", 99, Filter(scope="shared")) == shared
    assert index.search("cat dog", 99, Filter("nowhere", True)) == []


def test_phrases_prefixes_and_conjunctions_are_answered_from_positions(index) -> None:
    found = [
        [memory_id for memory_id, _, _ in index.search(ts_query(query), 9)]
        for query in ("re-rank", "c1 | dog:*", "cat & dog")
    ]
    assert found == [["m98"], ["m94", "m96", "m98", "m99"], ["m96", "m99"]]


def test_a_memory_that_is_searched_as_one_text_is_found_without_a_chunk(tmp_path: Path) -> None:
    index = build(
        tmp_path, [Chunk("whole", WHOLE_MEMORY, "cat", None, "shared"), Chunk("cut", 0, "cat", None, "shared")]
    )
    assert [(memory_id, chunk) for memory_id, _, chunk in index.search("cat", 9)] == [("cut", 0), ("whole", None)]


def test_an_index_of_nothing_finds_nothing(tmp_path: Path) -> None:
    assert TsRankIndex(None).search("cat", 3) == []
    assert build(tmp_path, []).search("cat", 3) == []
    assert build(tmp_path, chunks_of(["", "the"])).search("cat the", 3) == []


def test_a_damaged_index_says_so(tmp_path: Path) -> None:
    (tmp_path / "ids.json").write_text("[]")
    with pytest.raises(StoreError, match="is damaged"):
        TsRankIndex(tmp_path)
