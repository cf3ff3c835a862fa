"""Signs that a later text contradicts an earlier one: slots, words of change, negations, and what must be none."""

from __future__ import annotations

import pytest

from cems_workbench.analysis.supersession_signals import profile_of, signals_of
from cems_workbench.records import Memory
from cems_workbench.store.search.lexical.tokenizer import terms_of


def signs(older, newer, language="english", titles=(None, None)):
    """The signs of two texts whose terms are all rare."""
    one, other = Memory("o", older, title=titles[0]), Memory("n", newer, title=titles[1])
    return signals_of(profile_of(one, language), profile_of(other, language), lambda term: 1.0)


def marked(text: str, spans) -> set[str]:
    return {text[span.start : span.end] for span in spans if span.field == "content"}


@pytest.mark.parametrize(
    ("older", "newer", "words"),
    [
        ("Tenants may send 600 requests per minute.", "Tenants may send 1,200 requests per minute.", "600 → 1200"),
        ("The pager is handed over on Monday.", "The pager is handed over on Wednesday.", "Monday → Wednesday"),
        ("The service runs on Python 3.12 here.", "The service runs on Python 3.13 here.", "3.12 → 3.13"),
        ("Tasks are retried three times.", "Tasks are retried 5 times.", "3 → 5"),
        ("LIMIT_MB=20 for uploads", "LIMIT_MB=50 for uploads", "20 → 50"),
        ("The camera cost €840 in all.", "The camera cost €1,690 in all.", "€840 → €1690"),
        ("Mira edits in Emacs every day.", "Mira edits in Neovim every day.", "“Emacs” → “Neovim”"),
    ],
)
def test_another_value_in_the_same_slot_is_a_sign_with_both_marked(older, newer, words):
    found = signs(older, newer)
    assert words in found.words and found.slot >= 0.25
    assert marked(older, found.older_spans) and marked(newer, found.newer_spans)
    assert marked(older, found.older_spans).isdisjoint(marked(newer, found.newer_spans) & set(words.split(" → ")))


def test_the_same_value_or_one_without_a_common_slot_is_none():
    assert signs("Send 600 requests per minute.", "600 requests per minute at most").slot == 0
    assert signs("Elias ate 7 plums.", "Backups are kept 14 days.").slot == 0


def test_titles_that_share_a_subject_are_a_slot():
    found = signs("We use it.", "We like it.", titles=("Package manager: npm", "Package manager: pnpm"))
    assert found.slot == 1 and "“Package manager: npm” → “Package manager: pnpm”" in found.words
    assert {span.field for span in (*found.older_spans, *found.newer_spans)} == {"title"}


def test_a_word_of_change_counts_fully_only_near_a_shared_term():
    near = signs("We are going to move to Pankow.", "The move to Pankow is off after all.")
    assert near.change == 1 and {"is off", "after all"} & marked(
        "The move to Pankow is off after all.", near.newer_spans
    )
    assert signs("The pottery course.", "Nothing but the weather changed in May.").change == 0.5
    assert signs("The pottery course.", "The pottery course is nice.").change == 0


def test_a_negation_counts_only_if_the_newer_text_alone_has_it():
    assert signs("Dark mode is built.", "Dark mode will not be built.").negation == 1
    assert signs("Dark mode will not be built.", "Dark mode will not be built in May.").negation == 0
    assert signs("Dark mode will not be built.", "Dark mode is built.").negation == 0


def test_two_wordings_of_one_fact_are_the_same_and_their_names_no_sign():
    found = signs(
        "Parquet files of Solberg carry int96 timestamps", "int96 timestamps are in Parquet files of Solberg: carry"
    )
    assert found.same > 0.8 and found.slot < 0.3


def test_a_store_of_another_language_has_digits_and_dates_only():
    older, newer = (
        "Der Umzug ist am 2026-11-01, wir zahlen 900",
        "Der Umzug ist am 2026-12-01 now no longer, wir zahlen 950",
    )
    found = signs(older, newer, "german")
    assert (found.change, found.negation) == (0, 0) and found.slot > 0
    assert signs("Termin am Monday", "Termin am Friday", "german").slot == 0


def test_texts_of_any_length_and_shape_are_read_to_a_limit():
    for text in ("", " ", "?", "x" * 100_000, "7 " * 50_000, "now " * 50_000):
        found = signs(text, text + " 8")
        assert min(found.slot, found.change, found.negation, found.same) >= 0 and found.length <= 1


def test_a_value_is_no_part_of_its_own_slot_in_any_language():
    profile = profile_of(Memory("m", "LIMIT_MB=20 gilt, sagt HäuserB7 allen HäuserB7"), "german")
    own = [value for value in profile.values if value.kind == "name"]
    assert own and not any(set(terms_of(value.text, "german")) & value.slot.keys() for value in own)
