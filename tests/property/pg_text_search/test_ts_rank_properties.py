"""What holds of lexemes and ts_rank for any text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pg_text_search.parser import stem, tokens
from pg_text_search.ts_rank import (
    GAINS,
    LAST_POSITION,
    STOP_WORDS,
    TsQueryError,
    lexemes,
    matches,
    or_query,
    ts_rank,
)

TEXTS = st.text() | st.text("ab1.-_@:/ é<>&;#\"'=~+\\", max_size=40)
WORDS = st.lists(st.sampled_from(["cat", "dogs", "re-rank", "x1", "-7", "a.b", "v1.2.3"]), min_size=1, max_size=6)


@given(TEXTS)
def test_tokens_are_pieces_of_the_text_in_their_order(text: str) -> None:
    start = 0
    for _, token in tokens(text):
        assert token
        start = text.index(token, start)  # A compound's or URL's parts begin where it does, or later.


@given(TEXTS)
def test_positions_ascend_from_one_and_no_two_lexemes_share_one(text: str) -> None:
    found = lexemes(text)
    for positions in found.values():
        assert list(positions) == sorted(set(positions))
        assert positions[0] >= 1 and positions[-1] <= LAST_POSITION
    everywhere = [position for positions in found.values() for position in positions]
    assert len(everywhere) == len(set(everywhere))
    assert STOP_WORDS.isdisjoint(found) or any(stem(word) in STOP_WORDS for word in text.lower().split())


@given(TEXTS, TEXTS)
def test_a_text_after_another_has_its_lexemes_at_later_positions(first: str, second: str) -> None:
    if "<" not in first + second:  # A tag or a script may reach from one text into the other.
        joined = lexemes(f"{first} x {second}")
        assert set(lexemes(first)) <= set(joined)


@given(TEXTS)
def test_every_query_is_answered_or_refused(text: str) -> None:
    try:
        query = or_query(text)
    except TsQueryError:
        return
    rank = ts_rank(lexemes(text), query)
    assert 0 <= rank < GAINS[-1] + 1e-6 or query.ranks_pairs
    if matches(lexemes(text), query):
        assert rank > 0


@given(WORDS, st.randoms(use_true_random=False))
def test_the_order_and_the_number_of_a_querys_words_do_not_matter(words: list[str], random) -> None:
    shuffled = words * 2
    random.shuffle(shuffled)
    assert or_query(" ".join(words)) == or_query(" ".join(shuffled))


@given(WORDS, WORDS)
def test_a_word_more_in_a_text_never_lowers_its_rank(words: list[str], query: list[str]) -> None:
    asked = or_query(" ".join(query))
    assert ts_rank(lexemes(" ".join([*words, query[0]])), asked) >= ts_rank(lexemes(" ".join(words)), asked)


@given(st.text("abcdeilnostuyé-", max_size=14))
def test_stems_never_grow_by_more_than_the_e_of_hoping(word: str) -> None:
    assert len(stem(word)) <= len(word)
