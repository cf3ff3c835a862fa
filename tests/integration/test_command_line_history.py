"""`config-history`: a tuned config is kept with its card, listed, shown and restored to a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cems_workbench.config import EvidenceCard, card_path, dump_config, load_config, preset, read_card, with_values
from cems_workbench.store import Store

Command = Callable[..., Any]
CARD = EvidenceCard(
    baseline="cems",
    measured=(),
    split="5 folds",
    looks=1,
    trials=20,
    seed=0,
    corpus_hash="elsewhere/3",
    evidence_hash="e",
    versions={},
    date="2026-11-22",
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A store, and a tuned config beside its card."""
    Store.open(tmp_path / "store").close()
    config = with_values(preset("cems").config, {"name": "cems-tuned", "fusion.k": 17})
    (tmp_path / "best.yaml").write_text(dump_config(config), encoding="utf-8")
    card_path(tmp_path / "best.yaml").write_text(CARD.to_json(), encoding="utf-8")
    return tmp_path


def test_a_config_is_kept_listed_shown_and_restored(command: Command, place: Path) -> None:
    asked = ("config-history", "--store", "store")
    assert "no config is saved yet" in command(*asked).out
    kept = command(*asked, "--add", "best.yaml", "--why", "temporal questions", "--author", "Ada")
    assert kept.code == 0 and kept.out.startswith("kept as config 1: cems-tuned\n")
    assert "without an evidence card" in command(*asked, "--add", "qmd", "--author", "Bo").out
    listed = command(*asked)
    assert listed.code == 0 and all(word in listed.out for word in ("cems-tuned", "Ada", "temporal", "qmd", "Bo"))
    rows = json.loads(command(*asked, "--json").out)
    assert [(row["id"], row["name"], row["base"], row["evidence"]) for row in rows] == [
        (2, "qmd", None, False),
        (1, "cems-tuned", "cems", True),
    ]
    shown = command(*asked, "1")
    assert "k: 17" in shown.out and "# Evidence card" in shown.out
    assert shown.err.startswith("warning: Its evidence card of 2026-11-22 is from another store (elsewhere)")
    assert json.loads(command(*asked, "1", "--json").out)["config"]["fusion"]["k"] == 17
    assert command(*asked, "1", "--out", "back.toml").code == 0
    assert load_config(place / "back.toml") == load_config(place / "best.yaml")
    assert read_card(place / "back.card.json") == CARD


BAD = {
    "an unknown id": (("7",), "no config 7 in the history"),
    "out without an id": (("--out", "x.yaml"), "name its ID"),
    "add with an id": (("1", "--add", "best.yaml"), "neither an ID nor --out"),
    "a file that is not there": (("--add", "none.yaml", "--author", "Ada"), "none.yaml"),
    "nobody": (("--add", "best.yaml", "--author", " "), "is not a name"),
}


@pytest.mark.parametrize(("arguments", "part"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_done_is_one_line(command: Command, place: Path, arguments: tuple[str, ...], part: str) -> None:
    finished = command("config-history", "--store", "store", *arguments)
    assert finished.code == 2 and part in finished.err and finished.err.count("\n") == 1
