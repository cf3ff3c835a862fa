"""What a config file says of the evidence it was tuned on, in every form that has comments, and in the card's own file."""

from __future__ import annotations

import pytest

from cems_workbench.config import EvidenceCard, Measured, export_config, preset
from cems_workbench.config.evidence_card import CardReference, card_reference, cited_card, parse_card
from cems_workbench.errors import InputError

CARD = EvidenceCard(
    baseline="cems",
    measured=(
        Measured(metric="nDCG@10", split="hold-out", queries=9, baseline=0.4, tuned=0.5, low=0.0, high=0.2, p=0.03),
    ),
    split="5 folds",
    looks=1,
    trials=20,
    seed=0,
    corpus_hash="5277dcbd4f74/12",
    evidence_hash="fd114efd1b58b344",
    versions={"cems-workbench": "0.1.0"},
    date="2026-11-22",
)
HERE = CardReference("5277dcbd4f74", 12, "fd114efd1b58b344", "2026-11-22")


@pytest.mark.parametrize("form", ["yaml", "toml", "env", "reranker-env", "python"])
def test_the_reference_survives_every_form_that_has_comments(form: str) -> None:
    assert cited_card(export_config(preset("cems").config, form, CARD)) == HERE


def test_a_file_without_a_card_cites_nothing() -> None:
    assert cited_card(export_config(preset("cems").config, "yaml")) is None
    assert cited_card(export_config(preset("cems").config, "json", CARD)) is None


def test_the_card_of_json_is_a_file_of_its_own() -> None:
    assert card_reference(parse_card(CARD.to_json(), "x.card.json")) == HERE


def test_the_store_it_was_tuned_on_matches_and_others_are_named() -> None:
    assert HERE.mismatch("5277dcbd4f74", 12) is None
    assert "another store (5277dcbd4f74)" in str(HERE.mismatch("0123456789ab", 12))
    changed = str(HERE.mismatch("5277dcbd4f74", 15))
    assert "content version 12, now 15" in changed


def test_a_card_that_is_none_is_one_clear_line() -> None:
    with pytest.raises(InputError, match=r"x\.card\.json"):
        parse_card("{", "x.card.json")
    with pytest.raises(InputError, match="looks"):
        parse_card(CARD.to_json().replace('"looks": 1', '"looks": "often"'), "x.card.json")
