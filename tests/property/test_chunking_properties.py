"""What holds of the chunks of any text."""

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
