"""An operation on an answered query, registered once, is a command with a report, a tool for agents, a tool of the page, and in Python."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cems_workbench as cw
from cems_workbench.analysis.of_query import OPERATIONS, Operation
from cems_workbench.mcp.protocol import ServedStore
from cems_workbench.mcp.queries import OfQuery, operation_tool
from cems_workbench.mcp.server import WorkbenchServer
from cems_workbench.pipeline import Trace
from cems_workbench.results import Report, Table
from tests.event_loop import run
from tests.integration.mcp_store import FIRST_THREE, QUERY, made

if TYPE_CHECKING:
    from conftest import Command

QUESTION = "How long are the results?"


def lengths(trace: Trace) -> Report:
    rows = tuple((one.rank, one.memory_id, len(one.content), one.content) for one in trace.results)
    return Report("lengths", [f"{len(rows)} results"], [Table(("rank", "memory", "characters", "content"), rows)])


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(OPERATIONS, "_items", {"lengths": Operation("lengths", QUESTION, lengths)})
    return made(tmp_path_factory.mktemp("operations") / "store")


def test_an_operation_is_on_every_surface(command: Command, store: Path) -> None:
    with cw.open_store(store) as opened:
        answer = cw.search(opened, QUERY, cw.load_config("cems", FIRST_THREE))
        found = answer.ask("lengths")
        with pytest.raises(cw.InputError, match="widths: no such operation; there are lengths"):
            answer.ask("widths")
    changes = [word for name, value in FIRST_THREE.items() for word in ("--set", f"{name}={value}")]
    asked = ["lengths", QUERY, "--preset", "cems", *changes, "--store", store]
    shown = command(*asked, "--ids", "--html", "lengths.html")
    assert shown.code == 0 and shown.out.startswith("3 results") and answer.ids[0] in shown.out
    assert json.loads(command(*asked, "--json").out) == json.loads(json.dumps(found.to_json()))
    assert QUESTION in command("--help").out and answer.ids[0] in Path("lengths.html").read_text()
    served = ServedStore(store)
    assert "lengths" in [tool.name for tool in run(WorkbenchServer(served).list_tools())]
    reply = operation_tool(OPERATIONS["lengths"]).answer(
        served, OfQuery(query=QUERY, config="cems", changes=FIRST_THREE)
    )
    served.close()
    assert [row["memory"] for row in reply["rows"]] == list(answer.ids) and "text" not in reply["rows"][0]
    assert reply["rows"][0]["untrusted"]["content"]
    (view,) = importlib.reload(importlib.import_module("cems_workbench.ui.inspect.tools.operations")).VIEW
    assert (view.title, view.question) == ("Lengths", QUESTION)
