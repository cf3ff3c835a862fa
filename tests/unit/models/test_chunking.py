"""Cutting a text by each rule, and the tokens that it is counted by."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np
import pytest

from cems_workbench.models import tokens
from cems_workbench.models.chunking import (
    CEMS_STEP,
    CEMS_TOKENS,
    QMD_TOKENS,
    Piece,
    cems_pieces,
    cutter,
    embedder_pieces,
    openclaw_pieces,
    qmd_pieces,
)
from cems_workbench.models.protocol import Float32
from cems_workbench.progress import Progress, silent
from cems_workbench.records import titled


class WordEmbedder:
    """Reads ten words of a text; a word longer than five letters is two tokens."""

    model_id = "words"
    dimension = 2
    room = 10

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        return np.ones((len(texts), 2), np.float32)

    def spans(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        return [[match.span() for match in re.finditer(r"\S{1,5}", text)] for text in texts]

    def truncated(self, texts: Sequence[str]) -> list[bool]:
        return [len(spans) > self.room for spans in self.spans(texts)]


class SilentEmbedder:
    """Does not say how much it reads."""

    model_id = "silent"
    dimension = 2

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        return np.ones((len(texts), 2), np.float32)


class StatingEmbedder(SilentEmbedder):
    """On a server that says how much it reads."""

    def token_limit(self) -> int | None:
        return 512


def numbered(count: int) -> str:
    return " ".join(f"w{i}" for i in range(count))


def of_tokens(count: int) -> str:
    text = " hello" * count
    assert tokens.count(text) == count
    return text


def test_cems_keeps_a_text_of_800_tokens_as_one_chunk() -> None:
    text = of_tokens(CEMS_TOKENS)
    assert cems_pieces(text) == [Piece(0, text)]


def test_cems_begins_a_chunk_every_680_tokens_while_that_is_inside_the_text() -> None:
    pieces = cems_pieces(of_tokens(1361))
    assert [tokens.count(piece.text) for piece in pieces] == [800, 681, 1]
    assert [piece.start for piece in pieces] == [0, 680 * 6, 1360 * 6]
    assert len(cems_pieces(of_tokens(1360))) == 2


def test_cems_chunk_that_begins_within_a_character_starts_at_that_character() -> None:
    text = "🦊" * 600
    size = tokens.count("🦊" * 2) - tokens.count("🦊")
    first, second = cems_pieces(text)[:2]
    assert size > 1 and first.start == 0
    assert second.start == CEMS_STEP // size if not CEMS_STEP % size else text[second.start] == "🦊"


def test_embedder_leaves_what_it_reads_whole() -> None:
    assert embedder_pieces([(None, numbered(10)), ("a title", numbered(7))], WordEmbedder()) == [[], []]


def test_embedder_windows_overlap_and_reach_both_ends() -> None:
    text = numbered(25)
    (pieces,) = embedder_pieces([(None, text)], WordEmbedder())
    assert [piece.text.split() for piece in pieces] == [
        [f"w{i}" for i in range(begin, end)] for begin, end in ((0, 10), (9, 19), (18, 25))
    ]
    assert all(text[piece.start :].startswith(piece.text) for piece in pieces)


def test_embedder_windows_leave_room_for_the_title() -> None:
    embedder = WordEmbedder()
    (pieces,) = embedder_pieces([("two words", numbered(12))], embedder)
    assert len(pieces) > 1
    assert all(len(embedder.spans([titled("two words", piece.text)])[0]) <= embedder.room for piece in pieces)


def test_title_that_fills_the_embedder_leaves_half_to_the_content() -> None:
    (pieces,) = embedder_pieces([(numbered(30), numbered(12))], WordEmbedder())
    assert max(len(piece.text.split()) for piece in pieces) == 5


def test_embedder_that_does_not_say_its_limit_is_taken_to_read_256_tokens_and_a_note_says_so() -> None:
    found = cutter("embedder", SilentEmbedder())
    assert "does not say" in found.note and "256 tokens are assumed" in found.note
    assert found.label == "embedder/1: silent, 170"
    (pieces,) = found.cut([(None, of_tokens(400))])
    assert [tokens.count(piece.text) for piece in pieces] == [170, 170, 112]
    assert found.cut([(None, of_tokens(170))]) == [[]]


def test_embedder_on_a_server_that_says_its_limit_gets_two_thirds_of_it_and_no_note() -> None:
    found = cutter("embedder", StatingEmbedder())
    assert (found.label, found.note) == ("embedder/1: silent, 341", "")
    (pieces,) = found.cut([(None, of_tokens(400))])
    assert max(tokens.count(piece.text) for piece in pieces) == 341


def test_a_short_memory_of_many_tokens_is_cut_too() -> None:
    """170 tokens are 43 characters where every byte of a character of four is a token of its own."""
    rare = "\U000131f3" * 60
    assert tokens.count(rare) > 170
    found = cutter("embedder", SilentEmbedder())
    assert found.over < len(rare)
    (pieces,) = found.cut([(None, rare)])
    assert len(pieces) > 1 and all(tokens.count(piece.text) <= 170 for piece in pieces)


def test_label_of_the_embedder_rule_names_the_embedder_and_its_limit() -> None:
    assert cutter("embedder", WordEmbedder()).label == "embedder/1: words, 10"


def test_qmd_cuts_at_a_heading_near_the_end_of_the_window() -> None:
    text = "a" * 2300 + "\n## Heading\n" + "b " * 1000
    first, second = qmd_pieces(text)[:2]
    assert first.text == "a" * 2300
    assert second.start == 2300 - 405


def test_qmd_prefers_a_heading_far_back_to_a_line_end_at_the_target() -> None:
    text = "a" * 2150 + "\n# Heading\n" + "b" * 500 + "\n" + "c" * 3000
    assert len(qmd_pieces(text)[0].text) == 2150


def test_qmd_does_not_cut_inside_a_code_block() -> None:
    block = "\n```\n" + "x = 1\n" * 100 + "\n```\n"
    text = "a" * 2250 + block + "b " * 800
    assert len(qmd_pieces(text)[0].text) == 2250


@pytest.mark.parametrize("text", ["🦊" * 3000, "ab1?" * 4000, "\n".join("é" * 50 for _ in range(200))])
def test_qmd_chunks_have_900_tokens_at_most(text: str) -> None:
    pieces = qmd_pieces(text)
    assert max(tokens.count(piece.text) for piece in pieces) <= QMD_TOKENS
    assert all(text[piece.start : piece.start + len(piece.text)] == piece.text for piece in pieces)


def test_openclaw_takes_whole_lines_up_to_1600_characters_and_the_last_320_again() -> None:
    """Lines of 99 and a line end: 16 fill 1,600; the next piece has the last 3 of them, 300, and 13 more."""
    lines = [f"{number:03}".ljust(99, ".") for number in range(30)]
    first, second, third = openclaw_pieces("\n".join(lines))
    assert first == Piece(0, "\n".join(lines[:16]))
    assert second == Piece(1300, "\n".join(lines[13:29]))
    assert third == Piece(2600, "\n".join(lines[26:]))
    assert openclaw_pieces("\n".join(lines[:15])) == []


def test_openclaw_parts_a_line_at_1600_characters() -> None:
    """A part fills a piece with its line end, so that nothing of it is repeated; the end of a shorter line is, up to what is left."""
    long = "x" * 1600 + "y" * 200
    assert openclaw_pieces(long) == [Piece(0, "x" * 1600), Piece(1281, "x" * 319 + "\n" + "y" * 200)]


def test_known_texts_have_the_tokens_that_openai_publishes() -> None:
    # https://github.com/openai/openai-cookbook, How_to_count_tokens_with_tiktoken
    assert tokens.encode("tiktoken is great!") == [83, 1609, 5963, 374, 2294, 0]
    assert tokens.count("antidisestablishmentarianism") == 6
    assert tokens.encode("お誕生日おめでとう") == [33334, 45918, 243, 21990, 9080, 33334, 62004, 16556, 78699]


def test_ranks_are_those_that_tiktoken_expects() -> None:
    digest = hashlib.sha256(tokens.RANKS.read_bytes()).hexdigest()
    assert digest == "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"


def test_what_looks_like_a_special_token_is_ordinary_text() -> None:
    assert tokens.decode(tokens.encode("a <|endoftext|> b")) == "a <|endoftext|> b"
    assert tokens.count("<|endoftext|>") > 1


def test_half_a_character_is_a_replacement_character() -> None:
    ids = tokens.encode("🦊")
    assert len(ids) > 1
    assert tokens.decode(ids[:1]) == "\ufffd"
    assert sum(tokens.lengths(ids)) == len("🦊".encode())
