"""`ways` over memories that real systems wrote (benchmarks/record/talks.py), against places that were judged by hand.

tests/recordings/talks/SYSTEM.json    what the system gives out of its store
tests/recordings/talks/judged.jsonl   each way: system, qid, the place and why, judged from question, answer, turns and memories
                                      before `ways` was run
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cems_workbench.builtin import DEFAULT_PRESET

if TYPE_CHECKING:
    from conftest import Command

TALKS = Path(__file__).resolve().parents[1] / "recordings" / "talks"
SESSIONS = 8
"""Those that the systems were given."""
AGREED = {"mem0": 0.85, "langmem": 0.85}
"""Measured: 33 and 34 of 38."""


def begun(talk: dict[str, Any]) -> dict[str, Any]:
    """The conversation up to the last session that the systems were given, and the questions about it."""

    def within(name: str) -> bool:
        number = re.search(r"\d+", name)
        return number is None or int(number[0]) <= SESSIONS

    kept = {name: value for name, value in talk.items() if name.startswith(("session", "speaker")) and within(name)}
    asked = [
        one
        for one in talk["qa"]
        if one["category"] != 5 and one["evidence"] and all(map(within, re.findall(r"D\d+", " ".join(one["evidence"]))))
    ]
    return {**kept, "qa": asked}


@pytest.mark.parametrize("system", sorted(AGREED))
def test_places_are_those_that_were_judged_by_hand(system: str, shared: Path, command: Command, tmp_path: Path) -> None:
    talk = json.loads((shared / "data" / "locomo" / "30.json").read_text("utf-8"))
    (tmp_path / "30.json").write_text(json.dumps(begun(talk)), "utf-8")
    options = ("--store", tmp_path / "s")
    assert command("import", TALKS / f"{system}.json", *options).code == 0
    assert command("transcript", tmp_path / "30.json", *options).code == 0
    found = json.loads(command("ways", "30", "--preset", DEFAULT_PRESET, *options, "--json").out)["ways"]
    places = {(way["query"], way["answer"]): way["place"] for way in found}
    rows = [json.loads(line) for line in (TALKS / "judged.jsonl").read_text("utf-8").splitlines()]
    asked = {f"q{i:03d}": (one["question"], str(one.get("answer"))) for i, one in enumerate(talk["qa"], 1)}
    judged = [(row["place"], places[asked[row["qid"]]]) for row in rows if row["system"] == system]
    assert len(judged) >= 30
    agreed = sum(ours == theirs for ours, theirs in judged) / len(judged)
    assert agreed >= AGREED[system], Counter(one for one in judged if one[0] != one[1])
