"""cl100k tokens, from ranks that travel with the package."""

from __future__ import annotations

import hashlib

from cems_workbench.models import tokens


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
