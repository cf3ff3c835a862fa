"""`forgotten` on a store whose labels are a team's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.test_audit_servers import ASKED, SAID, imported, memories

if TYPE_CHECKING:
    from conftest import Command


def test_an_erased_memory_is_gone_from_the_labels_of_a_team(
    command: Command, team: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CEMS_WORKBENCH_TEAM", team)
    memories(command, tmp_path)
    imported(command, tmp_path, "queries", ASKED)
    note = f"as it says: {SAID['m2'][1]}"
    judged = {"qid": "q1", "grade": 0, "judge": "me", "kind": "human"}
    imported(
        command,
        tmp_path,
        "judgments",
        judged | {"memory_id": "m2", "note": note},
        judged | {"memory_id": "m1", "note": "right"},
    )
    dry = json.loads(command("forgotten", "m2", "--erase", "--store", tmp_path / "s", "--json").out)["rows"]
    assert dry["team judgments"] == 1 and dry["memories"] == 1
    erased = command("forgotten", "m2", "--erase", "--apply", "--store", tmp_path / "s", "--json")
    receipt = json.loads(erased.out)
    assert erased.code == 0, [one for one in receipt["places"] if one["holds"] or one.get("problem")]
    assert any(one["name"] == "team judgments" and one["names"] == 1 for one in receipt["places"]), "the grade stays"
