"""Configs kept in a store and taken back, with a warning where their evidence is of something else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cems_workbench.config import EvidenceCard, preset, with_values
from cems_workbench.errors import InputError
from cems_workbench.jobs.catalogue import evidence_warning, keep_config, restored_config
from cems_workbench.records import Memory, ParsedInput
from cems_workbench.store import Store
from cems_workbench.tuning.tune import corpus_hash


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store") as opened:
        yield opened


def card(corpus: str, **changes: Any) -> EvidenceCard:
    values: dict[str, Any] = {
        "baseline": "cems",
        "measured": (),
        "split": "5 folds",
        "looks": 1,
        "trials": 20,
        "seed": 0,
        "corpus_hash": corpus,
        "evidence_hash": "e",
        "versions": {},
        "date": "2026-11-22",
    }
    return EvidenceCard(**(values | changes))


def test_a_kept_config_is_restored_as_it_was_with_its_card(store: Store) -> None:
    config = with_values(preset("qmd").config, {"name": "mine: é", "fusion.k": 17, "filter.min_score": None})
    evidence = card(corpus_hash(store.identity, store.content_version))
    kept = keep_config(store, config, author="Ada", why="temporal", base="qmd", card=evidence)
    found = restored_config(store.configs.get(kept.id), store)
    assert found.config == config and found.card == evidence and found.warnings == ()
    renamed = store.configs.reword(kept.id, name="other")
    assert restored_config(renamed, store).config == config.model_copy(update={"name": "other"})
    assert restored_config(keep_config(store, config, author="Ada"), store).card is None


def test_evidence_of_another_corpus_or_of_an_earlier_state_of_this_one_warns_in_one_line(store: Store) -> None:
    now = corpus_hash(store.identity, store.content_version)
    assert evidence_warning(card(now), store) is None and evidence_warning(None, store) is None
    for other in ("elsewhere/0", "c0ffee", f"{store.identity}", ""):
        warning = evidence_warning(card(other), store)
        assert warning and "from another store" in warning and "\n" not in warning
    kept = keep_config(store, preset("cems").config, author="Ada", card=card(now))
    store.add(ParsedInput("t", "t", memories=(Memory("a", "1"),)))
    (warning,) = restored_config(kept, store).warnings
    assert "content version 0, now 1" in warning and "Evaluate it again" in warning


def test_a_config_of_another_version_is_read_as_far_as_it_goes(store: Store) -> None:
    text = "version: 1\nname: old\nfusion:\n  k: 21\n  warp: 3\ngap:\n  ratio: 7\n"
    found = restored_config(store.configs.add("old", text, author="Ada", card={"looks": 1}), store)
    assert found.config.fusion.k == 21 and found.config.name == "old"
    assert found.card is None and len(found.warnings) == 2
    assert "fusion.warp" in found.warnings[0] and "gap.ratio" in found.warnings[0]
    assert found.warnings[1] == "its evidence card cannot be read by this version (baseline)"
    now = card(corpus_hash(store.identity, store.content_version)).model_dump(mode="json")
    carded = restored_config(store.configs.add("old", text, author="Ada", card=now), store)
    assert "what is here is not what was measured" in carded.warnings[1]


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "x: !!python/object:os.system {}"])
def test_what_is_no_config_at_all_is_refused(store: Store, text: str) -> None:
    record = store.configs.add("broken", text, author="Ada")
    with pytest.raises(InputError, match=f"config {record.id}"):
        restored_config(record, store)
