"""The default preset is the same on the page and on the command line, and every command names it."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from cems_workbench.builtin import DEFAULT_PRESET
from cems_workbench.cli.main import commands
from cems_workbench.cli.options import chosen_config
from cems_workbench.config import preset_names
from cems_workbench.ui.inspect import state

TAKES_A_PRESET = {
    "search",
    "replay",
    "why",
    "blame",
    "memory",
    "what-if",
    "gather",
    "fill-scores",
    "evaluate",
    "compare",
    "drift",
    "calibrate",
    "fidelity",
    "tune",
    "watch",
    "doctor",
}


@pytest.mark.parametrize("named", [None, *preset_names(), "cmes"])
def test_the_page_and_a_command_begin_with_the_same_preset(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], named: str | None
) -> None:
    monkeypatch.delenv("CEMS_WORKBENCH_PRESET") if named is None else monkeypatch.setenv("CEMS_WORKBENCH_PRESET", named)
    page = state._initial()
    assert chosen_config(None, None, None) == page.config
    assert page.preset == (named if named in preset_names() else DEFAULT_PRESET)
    assert (page.config_error or "") in capsys.readouterr().err


def test_every_command_with_a_preset_states_the_choices_and_the_default() -> None:
    group = typer.main.get_command(commands)
    options = {
        name: parameter.help or ""
        for name, command in group.commands.items()  # type: ignore[attr-defined]
        for parameter in command.params
        if parameter.name == "preset"
    }
    assert options.keys() == TAKES_A_PRESET
    for name, said in options.items():
        assert all(choice in said for choice in preset_names()), name
        assert "(default: " in said
    assert CliRunner().invoke(commands, ["export", "--help"]).output.count("memory_agent_messages") == 1
