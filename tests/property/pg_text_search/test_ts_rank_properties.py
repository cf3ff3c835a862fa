"""PostgreSQL's ranks and rows: what holds of any text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pg_text_search.heap import MAX_ROW_BYTES, HeapRow, compressed_size, order_of_lengths, row_length
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


LENGTHS = st.lists(st.integers(93, MAX_ROW_BYTES) | st.sampled_from([200, 1700, 1900]), max_size=120)


@given(LENGTHS)
def test_order_is_a_permutation(lengths: list[int]) -> None:
    assert sorted(order_of_lengths(lengths)) == list(range(len(lengths)))


@given(st.integers(93, MAX_ROW_BYTES), st.integers(0, 200))
def test_rows_of_one_length_lie_in_the_order_of_insertion(length: int, count: int) -> None:
    assert order_of_lengths([length] * count) == list(range(count))


@given(LENGTHS, LENGTHS)
def test_later_rows_leave_earlier_ones_where_they_lie(lengths: list[int], later: list[int]) -> None:
    assert [row for row in order_of_lengths(lengths + later) if row < len(lengths)] == order_of_lengths(lengths)


@given(LENGTHS)
def test_lengths_that_fill_up_to_the_same_multiple_of_eight_are_the_same(lengths: list[int]) -> None:
    assert order_of_lengths(lengths) == order_of_lengths([-(-length // 8) * 8 for length in lengths])


@given(st.text(max_size=800), st.integers(1, 900), st.integers(0, 3))
def test_no_row_is_longer_than_a_quarter_of_a_page(text: str, dimension: int, repeats: int) -> None:
    lexemes = {word.replace("\0", ""): [1] for word in text.split()}
    assert row_length(HeapRow(text * repeats, dimension, lexemes)) <= MAX_ROW_BYTES


@given(st.binary(max_size=600) | st.text("ab ", max_size=600).map(str.encode), st.integers(0, 500))
def test_compression_saves_a_quarter_or_nothing_and_may_end_early(value: bytes, enough: int) -> None:
    size = compressed_size(value)
    assert size is None or size < len(value) * 3 / 4
    partly = compressed_size(value, enough)
    assert partly == size or (partly is not None and partly > enough)
