"""The words of a command line that is proposed, wherever it is proposed: for the next command, a row of `memory`, or `blame`.

This module loads nothing, so that a command can name the next one without it.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

COMMAND_NAMES = ("cems-workbench", "cems_workbench")


def words_of(name: str, *arguments: str | Path, options: Iterable[str] = ()) -> list[str]:
    """The words of a command: its name, arguments and options. An argument that begins with a dash comes after `--`."""
    texts = [str(argument) for argument in arguments]
    if any(text.startswith("-") for text in texts):
        return [*name.split(), *options, "--", *texts]
    return [*name.split(), *texts, *options]


def command_line(words: Sequence[str]) -> str:
    """The words after the program's name as a line for a shell, with the program as it was called."""
    return shlex.join([*program(), *words])


def program() -> list[str]:
    """How this program was called: `cems-workbench`, or the Python that was typed with `-m cems_workbench`."""
    typed = sys.orig_argv
    if typed[1:3] == ["-m", "cems_workbench"]:
        return typed[:3]
    script = Path(sys.argv[0]) if sys.argv else Path()
    if script.name in COMMAND_NAMES and script.is_file():
        found = shutil.which(script.name)
        # A script of a virtual environment that is not active has to be named by its path.
        return [script.name if found and Path(found).samefile(script) else str(script)]
    return ["python", "-m", "cems_workbench"]


def asked_options(
    project: str | None = None,
    as_of: datetime | None = None,
    only_project: bool = False,
    variants: Sequence[str] = (),
    searched: str | None = None,
    engine_queries: Mapping[str, str] = MappingProxyType({}),
    without: Sequence[int] = (),
) -> list[str]:
    """The options of `search`, `why` and others that ask a query again: the fields of a request, and the variants that are left out."""
    # One word with `=`: a value that begins with a dash stays a value.
    words = [f"--project={project}"] if project else []
    words += ["--only-project"] if only_project else []
    words += [f"--as-of={as_of.isoformat()}"] if as_of is not None else []
    words += [f"--variant={text}" for text in variants]
    words += [f"--searched={searched}"] if searched is not None else []
    words += [f"--engine-query={name}={text}" for name, text in engine_queries.items()]
    return words + [f"--without-variant={number}" for number in without]


@dataclass(frozen=True, slots=True)
class ProposedCommand:
    """A command to type: its name, arguments and options, to which those that chose store and config are added."""

    name: str
    arguments: tuple[str, ...]
    options: tuple[str, ...] = ()

    def words(self, options: Iterable[str] = ()) -> list[str]:
        """The words of the command with further options."""
        return words_of(self.name, *self.arguments, options=[*self.options, *options])

    def line(self, options: Iterable[str] = ()) -> str:
        return shlex.join(self.words(options))


def why_command(
    query: str, memory_id: str, *, cutoff: int | None = None, options: Iterable[str] = ()
) -> ProposedCommand:
    """`why` for a memory and a query; a memory below rank `cutoff` counts as missing, None: below the result limit."""
    limit = [] if cutoff is None else [f"--cutoff={cutoff}"]
    return ProposedCommand("why", (query, memory_id), (*limit, *options))
