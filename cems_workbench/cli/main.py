"""The command line: the same capabilities as the app, without a browser.

Exit codes: 0 done, 1 a check failed, 2 bad input (one line, no traceback), 3 a check cannot tell, 130 interrupted.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from cems_workbench import __version__, extensions
from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.cli.options import grouped, open_existing_store
from cems_workbench.cli.terminal import first_search, say, say_next
from cems_workbench.command_words import command_line, words_of
from cems_workbench.errors import NoMemoriesError, WorkbenchError, user_message
from cems_workbench.platform.waiting import NOTICES
from cems_workbench.serve.wire import INTERRUPTED, without_switch


class _Commands(typer.core.TyperGroup):
    """The commands; --no-serve may stand anywhere in the line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, without_switch(args))


IN_ORDER = (
    ("serve", "app"),
    ("import_", "import imports reindex connect"),
    ("query", "search replay why what-if memory blame"),
    ("evaluate", "gather fill-scores evaluate compare power drift calibrate graph-recall"),
    ("tune", "tune config-history export"),
    ("label", "dataset judgments agreement"),
    ("serve", "mcp serve"),
    ("label", "sample"),
    ("ci", "watch"),
    ("serve", "doctor"),
)
"""Modules and commands of ours in the order of the help; they stand at the places 10, 20, 30, …"""
GROUPS = {"ci": "ci:group", "report": "report:group", "team": "serve:team_commands"}
COMMANDS = {name: f"{module}:{name.replace('-', '_')}_command" for module, names in IN_ORDER for name in names.split()}
COMMANDS |= GROUPS
"""Module and function of each command, or group of commands."""
CLASSES = {"connect": "ConnectCommand"}
"""Commands with a class of their module."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of another package, or a group of commands; by default it is the last of them in the help, where groups follow commands."""

    name: str
    run: Callable[..., None] | typer.Typer
    place: int = 1000


ADDED = extensions.Registry(extensions.COMMANDS, Command, taken=COMMANDS)

if TYPE_CHECKING:
    from cems_workbench.analysis.of_query import Operation

    commands: typer.Typer


def __getattr__(name: str) -> Any:
    """`commands`: all of them, built when they are asked for (PEP 562)."""
    if name == "commands":
        return _registered(_all())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _registered(names: tuple[str, ...]) -> typer.Typer:
    """These commands; a command imports the modules of no other, and building the options of all takes as long as opening a store."""
    root = typer.Typer(
        name="cems_workbench",
        cls=_Commands,
        help="Inspect and tune memory retrieval, stage by stage.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    root.callback()(_root)
    for name in names:
        kind = None
        if name not in COMMANDS and name in _operations():
            from cems_workbench.cli.query import operation_command

            command = operation_command(_operations()[name])
        elif name in COMMANDS:
            module_name, _, attribute = COMMANDS[name].partition(":")
            module = import_module(f"cems_workbench.cli.{module_name}")
            command, kind = getattr(module, attribute), getattr(module, CLASSES.get(name, ""), None)
        else:
            command = ADDED[name].run
        if isinstance(command, typer.Typer):
            root.add_typer(command, name=name)
        else:
            root.command(name, cls=kind)(grouped(command))
    return root


def _operations() -> Mapping[str, Operation]:
    """The operations on an answered query, which are commands too."""
    from cems_workbench.analysis.of_query import OPERATIONS

    return OPERATIONS


def _all() -> tuple[str, ...]:
    """The names of all commands in the order of their places."""
    places = {name: 10 * i for i, name in enumerate(COMMANDS, 1)}
    places |= {name: added.place for name, added in ADDED.items()}
    places |= {name: added.place for name, added in _operations().items()}
    return tuple(sorted(places, key=places.__getitem__))


def _version(wanted: bool) -> None:
    if wanted:
        say(f"cems_workbench {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
    no_serve: bool = typer.Option(
        False, "--no-serve", help="Run this command in its own process, anywhere in the line; see serve."
    ),
) -> None:
    pass


class _Warnings(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(f"warning: {' '.join(record.getMessage().split())}", err=True)


_WARNINGS = _Warnings(logging.WARNING)
"""One for all commands of a process."""


def _command(arguments: Sequence[str]) -> Callable[..., Any]:
    """The command that the arguments name, with its options; all commands where they name none."""
    named = without_switch(list(arguments))[:1]
    return _built(tuple(named) if named and _is_command(named[0]) else _all())


def _is_command(name: str) -> bool:
    """Whether there is a command of this name; the entry points are read only for one that is not ours."""
    return name in COMMANDS or name in ADDED or name in _operations()


@cache
def _built(names: tuple[str, ...]) -> Callable[..., Any]:
    return typer.main.get_command(_registered(names))


def main() -> None:
    """Run the command line; every user error becomes one line on stderr and exit code 2."""
    logging.getLogger("cems_workbench").addHandler(_WARNINGS)
    NOTICES.notify(lambda line: say(line, err=True))
    try:
        code = _command(sys.argv[1:])(sys.argv[1:] or ["--help"], standalone_mode=False) or 0
        if not sys.argv[1:]:
            say()
            say_next(*_to_begin_with())
        if code == INTERRUPTED:
            say("interrupted; finished work is kept", err=True)
        sys.exit(code)
    except typer.TyperException as error:  # a missing argument, an unknown option
        message = error.format_message().replace(": Value error, ", ": ")  # pydantic's prefix, which typer leaves
        _refuse(f"{message}{'' if message.endswith(('.', '?')) else '.'} {_help()}")
    except NoMemoriesError as error:
        sample = words_of("import", SAMPLE_DATA.name, options=_store_option(sys.argv))
        _refuse(f"{error}; the bundled sample: {command_line(sample)}")
    except BrokenPipeError:
        # The interpreter flushes stdout at exit and would report the broken pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        line = user_message(error)
        if line is None:
            raise
        _refuse(line)


def _to_begin_with() -> list[list[str] | None]:
    """What to type first: the import of the sample, or with memories in the default store a search and the app."""
    try:
        with open_existing_store(None) as store:
            search_first = first_search(store)
    except NoMemoriesError:
        search_first = None
    except WorkbenchError:
        return [words_of("doctor")]
    return [search_first or words_of("import", SAMPLE_DATA.name), words_of("app") if search_first else None]


def _help() -> str:
    typed = "".join(without_switch(sys.argv[1:])[:1])
    return f"See {command_line([typed, '--help'] if _is_command(typed) else ['--help'])}"


def _store_option(arguments: list[str]) -> list[str]:
    for i, word in enumerate(arguments):
        if word == "--store" or word.startswith("--store="):
            return arguments[i : i + 1 + ("=" not in word)]
    return []


def _refuse(message: str) -> NoReturn:
    say(f"error: {' '.join(message.split())}", err=True)
    sys.exit(2)
