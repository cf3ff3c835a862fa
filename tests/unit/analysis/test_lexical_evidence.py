"""Which words met which memory: BM25 taken apart, on numbers computed by hand."""

from __future__ import annotations

from math import log
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.analysis.text_evidence import idf, lexical_evidence, matches
from cems_workbench.progress import silent
from cems_workbench.records import Memory, indexed_text
from cems_workbench.store.search.directory.segment_directory import segments_of
from cems_workbench.store.search.entries import Document
from cems_workbench.store.search.lexical import lexical_merge
from cems_workbench.store.search.lexical.lexical_index import LexicalIndex
from cems_workbench.store.search.lexical.tokenizer import tokenize

FOX, DOG, BIRD = Memory("a", "red fox"), Memory("b", "red red dog jumps"), Memory("c", "bird of the blue", title="Sky")


@pytest.fixture
def index(tmp_path: Path) -> LexicalIndex:
    """Three memories of 2, 4 and 3 terms: the mean length is 3."""
    rows = [Document(memory.id, indexed_text(memory), None, "personal") for memory in (FOX, DOG, BIRD)]
    manifest = lexical_merge.build(tmp_path, iter(rows), len(rows), 1, silent)
    return LexicalIndex.open(tmp_path, segments_of(manifest))


def test_a_term_gives_idf_times_its_saturated_frequency(index: LexicalIndex) -> None:
    found = lexical_evidence(index, "a red dog", DOG)
    red, dog = found.terms
    rare = log(1 + 1.5 / 2.5)  # in 2 of 3
    assert (red.term, red.tf, red.df, red.asked) == ("red", 2, 2, 1)
    assert red.idf == pytest.approx(rare)
    assert red.part == pytest.approx(rare * 2 / (2 + 1.5 * (0.25 + 0.75 * 4 / 3)))
    assert (dog.tf, dog.df) == (1, 1)
    assert dog.part == pytest.approx(log(1 + 2.5 / 1.5) * 1 / (1 + 1.5 * (0.25 + 0.75 * 4 / 3)))
    assert [term.term for term in found.matched] == ["dog", "red"]  # the rarer one gives more
    assert found.share(red) + found.share(dog) == pytest.approx(1)


def test_the_parts_sum_to_the_score_in_the_list(index: LexicalIndex) -> None:
    for query in ("red dog", "red red dog", "jumping red foxes", "blue sky bird"):
        scores = dict(index.search(query, 10))
        assert scores
        for memory in (FOX, DOG, BIRD):
            score = lexical_evidence(index, query, memory).score
            assert score == pytest.approx(scores.get(memory.id, 0.0), abs=1e-6)


def test_a_word_asked_twice_counts_twice_in_one_row(index: LexicalIndex) -> None:
    once, twice = (lexical_evidence(index, query, FOX).terms[0] for query in ("red", "red and red"))
    assert twice.asked == 2
    assert twice.part == pytest.approx(2 * once.part)


def test_unmatched_terms_and_stop_words_are_named(index: LexicalIndex) -> None:
    found = lexical_evidence(index, "where is the blue fox or wolf", FOX)
    assert [(term.term, term.df) for term in found.unmatched] == [("blue", 1), ("wolf", 0)]
    assert found.stop_words == ("where", "is", "the", "or")
    assert [term.term for term in found.matched] == ["fox"]


def test_the_title_is_searched_too(index: LexicalIndex) -> None:
    assert [term.term for term in lexical_evidence(index, "sky", BIRD).matched] == ["sky"]


def test_a_memory_that_is_not_indexed_has_no_part(index: LexicalIndex) -> None:
    found = lexical_evidence(index, "red", Memory("new", "red"))
    assert (found.score, found.matched) == (0, ())
    assert lexical_evidence(LexicalIndex(), "red", FOX).score == 0


def test_a_query_of_stop_words_has_no_term(index: LexicalIndex) -> None:
    found = lexical_evidence(index, "who are they", FOX)
    assert (found.terms, found.score) == ((), 0)
    assert found.stop_words == ("who", "are", "they")


def test_idf_is_that_of_lucene() -> None:
    assert idf(0, 9) == pytest.approx(log(1 + 9.5 / 0.5))
    assert idf(9, 9) == pytest.approx(log(1 + 0.5 / 9.5))


def test_matches_are_the_words_as_they_stand() -> None:
    text = "Jumping <b>dogs</b> jumped; getUserById did not"
    found = matches(text, {"jump", "dog", "user"})
    assert [(text[match.start : match.end], match.terms) for match in found] == [
        ("Jumping", ("jump",)),
        ("dogs", ("dog",)),
        ("jumped", ("jump",)),
        ("getUserById", ("user",)),
    ]


def test_a_text_that_nfkc_changes_keeps_its_own_positions() -> None:
    text = "the \ufb01sh … swims"  # the ligature fi is one character, two after NFKC
    assert [(text[match.start : match.end], match.terms) for match in matches(text, {"fish", "swim"})] == [
        ("\ufb01sh", ("fish",)),
        ("swims", ("swim",)),
    ]


@given(st.text(max_size=120))
def test_every_match_gives_its_terms_and_none_overlaps_another(text: str) -> None:
    wanted = set(tokenize(text))
    found = matches(text, wanted)
    ends = [0, *(match.end for match in found)]
    for match, before in zip(found, ends, strict=False):
        assert before <= match.start < match.end <= len(text)
        assert set(match.terms) <= set(tokenize(text[match.start : match.end]))
    assert {term for match in found for term in match.terms} == wanted or any(ord(c) > 127 for c in text)
