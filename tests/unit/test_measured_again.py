"""What was measured again stands on the page and in the card of a tuning once, however often it is measured."""

from __future__ import annotations

from benchmarks.tune_workbench import HEAD, with_again
from cems_workbench.config import EvidenceCard, Measured

TUNED = Measured(
    metric="nDCG@10", split="cross-validation", queries=9, baseline=0.4, tuned=0.5, low=0.0, high=0.2, p=0.03
)
CARD = EvidenceCard(
    baseline="start",
    measured=(TUNED,),
    split="5 folds",
    looks=0,
    trials=20,
    seed=0,
    corpus_hash="ab/1",
    evidence_hash="cd",
    versions={},
    date="2026-11-22",
)
PAGE = f"{HEAD}\nThe table.\n\n## Evidence card\n\n```\n{CARD.text}\n```\n"
NEW = "\n## Measured again\n"


def measured(tuned: float) -> tuple[Measured]:
    return (TUNED.model_copy(update={"split": "the sample set, measured again", "tuned": tuned}),)


def test_the_section_stands_before_what_was_tuned_and_the_card_has_both() -> None:
    page, card = with_again(PAGE, NEW, CARD, measured(0.6))
    assert card.measured == (TUNED, *measured(0.6))
    assert page.startswith(HEAD + NEW + "\n## As tuned\n\nThe table.")
    assert card.text in page


def test_measured_once_more_it_replaces_what_was_measured_again() -> None:
    before = with_again(PAGE, "\n## Measured again\nbefore\n", CARD, measured(0.6))
    assert with_again(before[0], NEW, before[1], measured(0.7)) == with_again(PAGE, NEW, CARD, measured(0.7))
