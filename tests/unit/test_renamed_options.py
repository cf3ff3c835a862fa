"""Old names of commands and options: each still does what the present name does, with one line that says so."""

from __future__ import annotations

import logging
import subprocess
import sys
from enum import Enum
from functools import cache
from typing import Any

import pytest
import typer

from cems_workbench import renamed
from cems_workbench.cli.main import commands

OPTIONS = [
    (command, old, new, message)
    for table, message in ((renamed.OPTIONS, "{}"), (renamed.LIST_OPTIONS, "{}, repeatable"))
    for command, options in table.items()
    for old, new in options.items()
]


def line(old: str, new: str) -> str:
    return f"{old} is now {new}; the old name still works"


@cache
def root() -> Any:
    """The whole command line, built once."""
    return typer.main.get_command(commands)


def leaf(command: str) -> Any:
    """The command of a path such as `report why`."""
    found: Any = root()
    for name in command.split():
        found = found.commands[name]
    return found


def value_of(param: Any) -> list[str]:
    """A value that the option accepts; none for a flag."""
    if getattr(param, "is_flag", False):
        return []
    default = getattr(param, "default", None)
    return [default.value if isinstance(default, Enum) else "3"]


def received(arguments: list[str], command: str) -> dict[str, Any]:
    """What the function of the command would be called with."""
    function = leaf(command)
    calls: list[dict[str, Any]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(function, "callback", lambda **values: calls.append(values))
        root()(arguments, standalone_mode=False)
    return calls[0]


def required(command: str, present: str) -> list[str]:
    """The other arguments and options that the command cannot run without."""
    words: list[str] = []
    for param in leaf(command).params:
        if param.required and present not in param.opts:
            named = param.opts[0].startswith("--")
            words = [*words, param.opts[0], *value_of(param)] if named else [*value_of(param), *words]
    return words


@pytest.fixture(autouse=True)
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(renamed, "_reported", {})
    caplog.set_level(logging.WARNING, renamed.__name__)
    return caplog


@pytest.mark.parametrize(("command", "old", "new", "message"), OPTIONS, ids=[f"{one[0]} {one[1]}" for one in OPTIONS])
def test_old_option_is_the_new_one(
    command: str, old: str, new: str, message: str, lines: pytest.LogCaptureFixture
) -> None:
    params = leaf(command).params
    param = next(param for param in params if new in param.opts)
    assert not [each for each in params if old in each.opts], "a second meaning of the same word"
    value, others = value_of(param), required(command, new)
    expected = received([*command.split(), *others, new, *value], command)
    assert not lines.messages
    assert received([*command.split(), *others, old, *value], command) == expected
    assert lines.messages == [f"{command} {old} is now {message.format(new)}; the old name still works"]
    if value:
        assert received([*command.split(), *others, f"{old}={value[0]}"], command) == expected
    assert old not in leaf(command).get_help(typer.Context(leaf(command))).replace(new, "").split()


@pytest.mark.parametrize(("old", "new"), renamed.COMMANDS.items())
def test_old_command_is_the_new_one(old: str, new: str, lines: pytest.LogCaptureFixture) -> None:
    others = required(new, "")
    expected = received([*new.split(), *others], new)
    assert not lines.messages
    assert received([*old.split(), *others], new) == expected
    assert lines.messages == [f"{old} is now {new}; the old name still works"]


def test_old_option_prints_one_line_on_stderr() -> None:
    def run(option: str) -> subprocess.CompletedProcess[str]:
        arguments = [sys.executable, "-m", "cems_workbench", "export", "cems", option, "json"]
        return subprocess.run(arguments, capture_output=True, text=True, check=True)

    old, new = run("--to"), run("--format")
    assert old.stdout == new.stdout and not new.stderr
    assert old.stderr == "warning: export --to is now --format; the old name still works\n"
