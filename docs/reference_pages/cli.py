"""docs/reference/cli.md: every command with its arguments and options, read from the Typer application."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import typer

from cems_workbench.cli.main import commands
from docs.reference_pages.markdown import code, notice, table, table_cell

PLACEHOLDERS = {int: "N", float: "X", Path: "PATH", str: "TEXT"}
"""The placeholder of a value of each type, for an option that declares no `metavar`."""
HEAD = f"""\
# Command line

In a checkout: `.venv/bin/python -m cems_workbench COMMAND`. Installed: `cems-workbench COMMAND`. Every command takes `--help`.

Exit codes: 0 done, 1 a check failed, 2 bad input (one line, no traceback), 130 interrupted. Commands can run while the app is
open: processes take the store's lock in turn, and one that waits longer than 0.3 s reports which process holds it.

{notice("the commands' own help")}
"""


def document() -> str:
    """The whole page: a table of the commands, then a section for each."""
    sections = list(_commands(typer.main.get_command(commands)))
    overview = table(
        ("command", "what it does"),
        ([f"[{name}](#{name.replace(' ', '-')})", table_cell(_summary(command))] for name, command in sections),
    )
    return "\n".join([HEAD, overview, *("\n" + _section(name, command) for name, command in sections)]) + "\n"


def _commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(full name, command) of every command that is shown, groups resolved, by name."""
    for name, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _summary(command: Any) -> str:
    return str(command.help or "").strip().split("\n\n")[0].replace("\n", " ")


def _section(name: str, command: Any) -> str:
    hints = typing.get_type_hints(command.callback, include_extras=True)
    parameters = [parameter for parameter in command.params if not parameter.hidden]
    arguments = [parameter for parameter in parameters if parameter.param_type_name == "argument"]
    options = [parameter for parameter in parameters if parameter.param_type_name == "option"]
    usage = " ".join([name, *map(_argument, arguments), *(["[OPTIONS]"] if options else [])])
    blocks = [f"## {name}", _paragraphs(command.help), f"    cems-workbench {usage}"]
    rows = [(code(_argument(one)), table_cell(one.help or "")) for one in arguments]
    rows += [(code(_option(one, hints.get(one.name))), table_cell(one.help or "")) for one in options]
    if rows:
        blocks.append(table(("argument or option", "meaning"), rows))
    return "\n\n".join(blocks)


def _paragraphs(text: str | None) -> str:
    return "\n\n".join(" ".join(part.split()) for part in (text or "").strip().split("\n\n"))


def _argument(argument: Any) -> str:
    name = str(argument.metavar or argument.name.upper()) + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _option(option: Any, hint: Any) -> str:
    names = ", ".join(option.opts)
    if option.is_flag:
        return " / ".join([names, *option.secondary_opts])
    return f"{names} {option.metavar or _placeholder(hint)}"


def _placeholder(hint: Any) -> str:
    """The placeholder of a value of an annotated type: its choices, otherwise N, X, PATH or TEXT."""
    origin = typing.get_origin(hint)
    if origin is Literal:
        return "|".join(map(str, typing.get_args(hint)))
    if origin is typing.Annotated or origin in (list, tuple):
        return _placeholder(typing.get_args(hint)[0])
    if origin in (typing.Union, types.UnionType):
        return _placeholder(next(one for one in typing.get_args(hint) if one is not type(None)))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "|".join(str(one.value) for one in hint)
    return PLACEHOLDERS.get(hint, "TEXT")
