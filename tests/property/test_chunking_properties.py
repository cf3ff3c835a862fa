"""Chunks cover their texts, and a search over them is that of brute force."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.models import tokens
from cems_workbench.models.chunking import (
    CEMS_STEP,
    CEMS_TOKENS,
    CountedByCl100k,
    Piece,
    cems_pieces,
    embedder_pieces,
    qmd_pieces,
)
from cems_workbench.models.protocol import Float32
from cems_workbench.progress import Progress, silent
from cems_workbench.records import titled
from cems_workbench.store.search.entries import (
    best_per_memory,
    group_starts,
    search_visible,
    top_memories,
    truncate_to_memories,
)

PARTS = st.sampled_from(
    [
        "word ",
        "Überraschung ",
        "🦊",
        "日本語",
        "\n\n",
        "\n# Heading\n",
        "\n```\ncode\n```\n",
        "- item\n",
        "x" * 70,
        "<|endoftext|>",
        "\x00",
    ]
)
TEXTS = st.builds(
    lambda parts, times: "".join(parts) * times, st.lists(PARTS, min_size=1, max_size=12), st.integers(1, 400)
).filter(lambda text: bool(text.strip()) and len(text) < 60_000)


class Letters:
    """Reads 12 tokens; a token is up to three characters that are no white space."""

    model_id = "letters"
    dimension = 1
    room = 12

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        return np.ones((len(texts), 1), np.float32)

    def spans(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        return [[match.span() for match in re.finditer(r"\S{1,3}", text)] for text in texts]

    def truncated(self, texts: Sequence[str]) -> list[bool]:
        return [len(spans) > self.room for spans in self.spans(texts)]


def covered(text: str, pieces: Sequence[Piece]) -> bool:
    end = 0
    for piece in pieces:
        if piece.start > end or text[piece.start : piece.start + len(piece.text)] != piece.text:
            return False
        end = max(end, piece.start + len(piece.text))
    return end == len(text)


@given(TEXTS)
def test_cems_chunks_are_the_decoded_windows(text: str) -> None:
    ids = tokens.encode(text)
    pieces = cems_pieces(text)
    assert tokens.decode(ids) == text
    if len(ids) <= CEMS_TOKENS:
        assert pieces == [Piece(0, text)]
        return
    assert [piece.text for piece in pieces] == [
        tokens.decode(ids[at : at + CEMS_TOKENS]) for at in range(0, len(ids), CEMS_STEP)
    ]
    for piece in pieces:
        inner = piece.text.strip("\ufffd")
        assert inner in text[piece.start : piece.start + len(piece.text) + 1]


@given(TEXTS)
def test_qmd_chunks_cover_the_text(text: str) -> None:
    assert covered(text, qmd_pieces(text))


@given(TEXTS.filter(lambda text: len(text) < 3000), st.one_of(st.none(), st.just("a title")))
def test_embedder_windows_cover_the_text_and_fit(text: str, title: str | None) -> None:
    (pieces,) = embedder_pieces([(title, text)], Letters())
    if not pieces:
        assert len(Letters().spans([titled(title, text)])[0]) <= Letters.room
        return
    assert covered(text, pieces)
    assert all(len(Letters().spans([titled(title, piece.text)])[0]) <= Letters.room for piece in pieces)


@given(TEXTS.filter(lambda text: len(text) < 3000))
def test_windows_counted_by_cl100k_have_every_character_but_white_space(text: str) -> None:
    counted = CountedByCl100k(30)
    (pieces,) = embedder_pieces([(None, text)], counted)
    if not pieces:
        assert tokens.count(text) <= 30
        return
    kept = {place for piece in pieces for place in range(piece.start, piece.start + len(piece.text))}
    assert all(character.isspace() for place, character in enumerate(text) if place not in kept)
    assert all(text[piece.start :].startswith(piece.text) for piece in pieces)
    # One character may have more tokens than fit.
    assert all(tokens.count(piece.text) <= 30 or len(piece.text) == 1 for piece in pieces)


@given(TEXTS.filter(lambda text: len(text) < 3000))
def test_cl100k_spans_stand_in_order_within_the_text(text: str) -> None:
    spans = tokens.spans(text)
    assert len(spans) == tokens.count(text)
    assert all(0 <= begin <= end <= len(text) for begin, end in spans)
    assert all(left[1] <= right[1] for left, right in pairwise(spans))


SCORES = st.integers(-2, 4).map(float)
"""Few values, so that ties are many."""
CORPORA = st.lists(st.lists(SCORES, min_size=1, max_size=5), max_size=8)


def rows_of(corpus: list[list[float]]) -> tuple[list[str], list[int], np.ndarray]:
    ids = [f"m{number}" for number, chunks in enumerate(corpus) for _ in chunks]
    chunks = [chunk for memory in corpus for chunk in range(len(memory))]
    return ids, chunks, np.array([score for memory in corpus for score in memory], np.float32)


@given(CORPORA, st.integers(0, 12), st.sampled_from([-np.inf, 0.0]))
def test_search_equals_brute_force_over_chunks(corpus: list[list[float]], k: int, above: float) -> None:
    ids, chunks, scores = rows_of(corpus)
    ranked = sorted((-score, ids[i], chunks[i]) for i, score in enumerate(scores.tolist()) if score > above)
    expected = truncate_to_memories([(name, -score, chunk) for score, name, chunk in ranked], k) if k else []
    found = top_memories(scores, group_starts(ids), k, above)
    assert [(ids[i], float(scores[i]), chunks[i]) for i in found.tolist()] == expected
    best: dict[str, float] = {}
    for score, name, _ in ranked:
        best.setdefault(name, -score)
    assert best_per_memory(expected) == sorted(best.items(), key=lambda hit: (-hit[1], hit[0]))[:k]


@given(CORPORA, st.integers(1, 12), st.sets(st.integers(0, 8)))
def test_hidden_memories_leave_room_for_the_next(corpus: list[list[float]], k: int, gone: set[int]) -> None:
    ids, chunks, scores = rows_of(corpus)
    hidden = {f"m{number}" for number in gone}
    starts = group_starts(ids)

    def search(depth: int) -> list[tuple[str, float, int | None]]:
        return [(ids[i], float(scores[i]), chunks[i]) for i in top_memories(scores, starts, depth).tolist()]

    everything = [hit for hit in search(len(corpus) + 1) if hit[0] not in hidden]
    assert search_visible(search, k, hidden) == truncate_to_memories(everything, k)
