"""How far a memory says what a claim says: values, negations, windows, and the marked words."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.analysis.support import (
    COSINE,
    LACKING,
    WINDOW,
    ClaimWords,
    Overlap,
    base_score,
    judged,
    words_of,
)
from cems_workbench.analysis.text_evidence import idf
from cems_workbench.records import Memory
from cems_workbench.store.search.lexical.lexical_index import LexicalIndex

EMPTY = LexicalIndex()


class Counted(LexicalIndex):
    """An index of 100 texts with these document frequencies."""

    def __init__(self, **frequencies: int) -> None:
        super().__init__()
        self.document_count = 100
        self._known = frequencies

    def document_frequency(self, term: str) -> int:
        return self._known.get(term, 0)


def overlap(claim: str, content: str, title: str | None = None, index: LexicalIndex = EMPTY) -> Overlap:
    return ClaimWords(claim, index).overlap(Memory("m", content, title=title))


@pytest.mark.parametrize(
    ("claim", "content"),
    [
        ("It ends after sixty days", "60 days"),
        ("The rent is 1340 euros", "€1,340 warm"),
        ("You move in November", "from 2026-11-01"),
        ("Mondays are free", "on Monday"),
        ("never in June", "not in June"),
    ],
)
def test_values_and_negations_are_compared_by_what_they_mean(claim: str, content: str) -> None:
    found = overlap(claim, content)
    assert found.share > 0 and not found.lacking
    assert {content[start:end] for start, end in found.content}


def test_parts_of_an_identifier_are_no_evidence_of_it() -> None:
    assert overlap("The key is C01X00T47", "version 00 of 01").lacking == ("C01X00T47",)


def test_share_is_the_weight_of_the_words_in_common() -> None:
    index = Counted(tenant=50, limit=10, **{"600": 1})
    found = overlap("the tenant limit is 600", "every tenant has its limit", index=index)
    common, rare, value = idf(50, 100), idf(10, 100), 2 * idf(1, 100)
    assert found.share == pytest.approx((common + rare) / (common + rare + value))
    assert found.lacking == ("600",) and found.lacking_share == pytest.approx(value / (common + rare + value))
    expected = (COSINE * 0.5 + (1 - COSINE) * found.share) * (1 - LACKING * found.lacking_share)
    assert base_score(0.5, found) == pytest.approx(expected)
    assert base_score(-0.2, found) == base_score(None, found)


def test_words_far_from_each_other_do_not_add_up() -> None:
    filler = " ".join(f"word{number}" for number in range(2 * WINDOW))
    near, far = overlap("moving november", "moving november"), overlap("moving november", f"moving {filler} november")
    assert near.share == 1 and far.share < 1
    # But a value that is anywhere in the memory is not lacking.
    assert not overlap("we move in November", f"move {filler} November").lacking


def test_the_title_belongs_to_every_window() -> None:
    filler = " ".join(f"word{number}" for number in range(3 * WINDOW))
    assert overlap("moving to berlin", f"{filler} berlin", title="Moving").share == 1


@given(st.text(max_size=200), st.text(max_size=300), st.text(max_size=40))
def test_marks_are_words_of_the_texts(claim: str, content: str, title: str) -> None:
    found = overlap(claim, content, title)
    assert 0 <= found.share <= 1 and 0 <= found.lacking_share <= 1
    for text, spans in ((claim, found.claim), (title, found.title), (content, found.content)):
        assert all(0 <= start < end <= len(text) for start, end in spans)
        assert list(spans) == sorted(spans)
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))


@given(st.text(alphabet="abcdefg 0123456789.,-", min_size=1, max_size=60))
def test_a_text_supports_itself_fully(text: str) -> None:
    words = words_of(text)
    if words and len(words) <= WINDOW:
        found = overlap(text, text)
        assert found.share == pytest.approx(1) and not found.lacking


NOTES = "The consumer had lost its connection without noticing. Alerts I silenced: KubeJobFailed until 3 July."
CLAIM = "Notice for ours must be out by the end of July."


@pytest.mark.parametrize(
    ("claim", "content", "reason"),
    [
        (
            "Notice for ours must be out by the end of July",
            "We move. Notice for ours must be out by the end of July.",
            "",
        ),
        ("Elias paid 12,400 euros for the car", "Elias paid €12,400 for the car.", ""),
        ("Jon lost his job", "Jon: Hey Gina! I lost my job yesterday.", ""),
        ("Gina lost her job", "Jon: Hey Gina! I lost my job yesterday.", "“Gina” is not in the passage"),
        (
            "Every task is retried five times",
            "Every task is retried three times, with five minutes between.",
            "three times",
        ),
        (
            "The finance export is ready since 21 June",
            "The finance export, ready since 21 July, has May and June.",
            "21 July",
        ),
        ("Dark mode is built", "Dark mode is not built.", "“built” is negated in one of the two"),
        ("The insurance paid for the bike", "The insurance paid nothing for the bike.", "“paid” is negated"),
        ("The export was signed by Ostrow", "The export waits for Ostrow to sign.", "not said there as done: “signed”"),
        ("Dad has turned 70 in May", "Dad turns 70 in May.", "not said there as done: “turned”"),
        ("You paid 12,400 euros for the car", "Elias paid €12,400 for the car.", "there it is Elias"),
        ("Your lips swelled up", "Elias' lips swelled up.", "there it is Elias'"),
        ("Henrik signs off the export", "Henrik owns the collectors, Dunja signs off the export.", "are apart there"),
        (
            "The blue doors are locked with the key in the lobby.",
            "Only the red doors are locked with the key in the lobby; the blue doors are locked by the guard.",
            "are apart there",
        ),
        ("The office has ten rooms", "Has the office ten rooms?", "not in the passage: ten"),
        (CLAIM, NOTES, "“Notice” and “July” are apart there"),
    ],
)
def test_same_words_do_not_support_what_is_denied_planned_or_of_another(claim: str, content: str, reason: str) -> None:
    """Issue 66, 2026-11-29: "Notice for ours" by an on-call note with "noticing"; obsidian-mind#199 (2026-08-03): "A here; B there"."""
    verdict, said = judged(overlap(claim, content), 0.8)
    assert reason in said and (verdict == "supports") == (not reason)


def test_a_value_that_is_elsewhere_refuses_and_a_number_word_leaves_it_open() -> None:
    assert judged(overlap("The limit is 800 requests", "The limit is 600 requests."), 0.9)[0] == "no"
    assert judged(overlap("Logs are kept two weeks", "Logs are kept 14 days."), 0.9)[0] == "cannot tell"
    assert judged(overlap("The cello is new", "Nothing of the kind."), 0.1)[0] == "no"
