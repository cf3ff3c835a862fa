"""Which lexemes met which text: ts_rank taken apart, on numbers computed by hand."""

from __future__ import annotations

import pytest

from cems_workbench.analysis.text_evidence import lexeme_matches, rank_evidence
from cems_workbench.store.search.postgres import TsRankIndex

EMPTY = TsRankIndex(None)
ONCE = 0.1 / 1.64493406685
TWICE = 0.1 * (1 + 1 / 4) / 1.64493406685


def test_each_lexeme_gives_its_gain_over_the_number_asked_for() -> None:
    found = rank_evidence(EMPTY, "which foxes jumped the moon", {None: "A fox and another fox: they jump."})
    assert [(one.lexeme, one.words, one.count) for one in found.lexemes] == [
        ("fox", ("foxes",), 2),
        ("jump", ("jumped",), 1),
        ("moon", ("moon",), 0),
    ]
    assert [one.part for one in found.lexemes] == pytest.approx([TWICE / 3, ONCE / 3, 0.0])
    assert found.score == pytest.approx((TWICE + ONCE) / 3)
    assert found.share(found.lexemes[0]) == pytest.approx(1.25 / 2.25)
    assert [one.lexeme for one in found.matched] == ["fox", "jump"]
    assert [one.lexeme for one in found.unmatched] == ["moon"]
    assert found.stop_words == ("which", "the") and found.chunk is None


def test_of_a_memorys_chunks_the_best_is_shown() -> None:
    found = rank_evidence(EMPTY, "fox moon", {0: "a fox", 1: "fox and moon", 2: "nothing"})
    assert found.chunk == 1 and found.score == pytest.approx(2 * ONCE / 2)


def test_a_query_ranked_by_distance_has_a_rank_and_no_parts() -> None:
    """One lexeme that is parsed into several is a phrase: `a-wa`, which is what `a-was` leaves, asks for a compound and its parts."""
    found = rank_evidence(EMPTY, "re-rank", {None: "to re-rank twice"})
    assert {one.lexeme for one in found.matched} == {"re-rank", "re", "rank"}
    phrase = rank_evidence(EMPTY, "a-was", {None: "a-was and a-was"})
    assert phrase.by_distance and all(one.part == 0 for one in phrase.lexemes)


def test_a_query_of_stop_words_asks_for_nothing() -> None:
    found = rank_evidence(EMPTY, "what is the", {None: "what is the time"})
    assert not found.lexemes and not found.score and found.stop_words == ("what", "is", "the")


def test_marks_are_the_words_that_give_the_lexemes() -> None:
    text = "The foxes, a fox's den; HBR-4417!"
    found = lexeme_matches(text, ["fox", "hbr"])
    assert [(text[match.start : match.end], match.terms) for match in found] == [
        ("foxes", ("fox",)),
        ("fox's", ("fox",)),
        ("HBR-4417", ("hbr",)),
    ]
