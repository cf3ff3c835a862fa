"""Lucene's words and scores. Oracle: Lucene 9.9.1 (the jar in PyPI pyserini 1.6.0) with a MultiFieldQueryParser, run by hand."""

from __future__ import annotations

import numpy as np
import pytest

from workbench_engines.lucene_index import (
    LENGTHS,
    LuceneIndex,
    LuceneQueryError,
    LuceneRow,
    best_first,
    fuzzy_words,
    length_byte,
    lucene_query,
    read_query,
    standard_words,
)

TEXTS = (
    "Alice keeps a red bicycle in the shed; the bicycle is old.",
    "The red door of the shed was painted by Bo.",
    "Bo rides a bike, not a bicycle, to the old mill.",
    "it's hbr-4417 again: foo_bar failed at 3.14",
    "Reading " + "very " * 44 + "long red lines",
    "dor mill bicycles",
)
PEOPLE = ("Alice", "Bo", "Bo", "Ana", "Ana Bo", None)


@pytest.fixture(scope="module")
def index() -> LuceneIndex:
    return LuceneIndex([LuceneRow(str(i), None, pair) for i, pair in enumerate(zip(TEXTS, PEOPLE, strict=True))])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It's foo_bar 3.14 a,b 1,000 a.b.c HBR-4417 don’t",
         ["it's", "foo_bar", "3.14", "a", "b", "1,000", "a.b.c", "hbr", "4417", "don’t"]),
        ("naïve 日本語 カタカナ_ab 한국어abc ไทยสวัสดี", ["naïve", "日", "本", "語", "カタカナ_ab", "한국어abc", "ไทยสวัสดี"]),
        ("_ __ a_ .5 user@host.org AT&T C++ 50%", ["a_", "5", "user", "host.org", "at", "t", "c", "50"]),
        ("✓ ❤ 😀 🇩🇪 👩‍👩‍👧", ["❤", "😀", "🇩🇪", "👩‍👩‍👧"]),
        ("x" * 300, ["x" * 255, "x" * 45]),
    ],
)  # fmt: skip
def test_words_are_those_of_the_standard_analyzer(text: str, words: list[str]) -> None:
    assert standard_words(text) == words


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("red", [("1", 0.36733606457710266), ("0", 0.3458217978477478), ("4", 0.16834616661071777)]),
        ("bo", [("1", 0.8085759878158569), ("2", 0.7921149730682373), ("4", 0.19249877333641052)]),
        ("bicycle OR red OR the",
         [("0", 1.4926707744598389), ("2", 0.8854442834854126), ("1", 0.847528338432312), ("4", 0.16834616661071777)]),
        ("hbr-4417 OR foo_bar", [("3", 2.611565351486206)]),
        ("door OR door~", [("1", 1.6327297687530518), ("5", 0.6957336664199829)]),
        ("bycicle OR bycicle~", [("0", 0.48958539962768555), ("2", 0.37799277901649475)]),
        ("bo OR bo~",
         [("1", 1.8899773359298706), ("2", 1.8488249778747559), ("4", 0.38499754667282104), ("0", 0.0), ("3", 0.0), ("5", 0.0)]),
        ("red OR red~1", [("1", 0.7346721291542053), ("0", 0.6916435956954956), ("4", 0.33669233322143555)]),
        ("red OR red~ -bo", [("0", 0.9221914410591125)]),
    ],
)  # fmt: skip
def test_scores_are_lucenes_to_the_last_bit(index: LuceneIndex, query: str, expected: list[tuple[str, float]]) -> None:
    hits, matching = index.search(read_query(query), None)
    assert [(index.row(place).memory_id, score) for place, score in hits] == expected
    assert matching == len(expected)


def test_more_clauses_than_lucene_takes_are_refused(index: LuceneIndex) -> None:
    clauses = read_query(lucene_query(["bo", "red"], 2))
    scores, _ = index.scores(clauses)
    with pytest.raises(LuceneQueryError, match="more than 10 clauses"):
        index.scores(clauses, max_clauses=10)
    assert np.array_equal(index.scores(clauses, max_clauses=None)[0], scores)


def test_fuzzy_words_are_the_nearest_fifty_by_boost_and_code_point() -> None:
    words = [f"ab{chr(code)}" for code in range(ord("Ā"), ord("Ā") + 80)] + ["ba", "abc", "ab"]
    found = fuzzy_words("ab", words, 2)
    assert len(found) == 50
    assert {("ab", 1.0), ("abc", 0.5), ("abĀ", 0.5)} <= {(word, float(boost)) for word, boost in found}
    assert not {"ba", f"ab{words[79][2]}"} & {word for word, _ in found}


@pytest.mark.parametrize(("length", "held"), [(39, 39), (40, 40), (41, 40), (48, 48), (100, 96), (1_000, 984)])
def test_lengths_lose_their_last_bits(length: int, held: int) -> None:
    assert LENGTHS[length_byte(length)] == held


def test_equal_scores_stand_as_a_heap_leaves_them() -> None:
    scores = np.array([1, 2, 2, 2, 1, 2], np.float32)
    assert best_first(scores, 6, "insertion").tolist() == [1, 2, 3, 5, 0, 4]
    assert best_first(scores, 6, "heap").tolist() == [1, 5, 3, 2, 0, 4]


@pytest.mark.parametrize("query", ["--force", "a -", 'a "b c"', "w~3", "a AND b"])
def test_what_is_not_read_is_refused(query: str) -> None:
    with pytest.raises(LuceneQueryError):
        read_query(query)
