"""Words of the command line that were renamed after 0.1.0: an old one does what the present one does, with one line on stderr.

A rename is one row of `WORDS`. A parameter is renamed in `config.forms.yaml_form`, a name of the Python API by `deprecated`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

WORDS: Mapping[str, str] = {}
"""Present word by the old one: a command (`"embed": "reindex"`), one of a group in full (`"report figures": "report plots"`), or an option
after its present command (`"sample --by": "--strategy"`)."""

log = logging.getLogger(__name__)


@cache  # a process says it once
def report(old: str, new: str) -> None:
    """Warn that a word is an old one."""
    log.warning("%s is now %s; the old name still works", old, new)


def present_arguments(arguments: Sequence[str], groups: Iterable[str] = ()) -> list[str]:
    """A command line with the present names of its command and options; `groups` are the commands that have commands.

    Values are left alone, as is everything after `--`.
    """
    length = 2 if arguments and arguments[0] in groups else 1
    typed = " ".join(arguments[:length])
    command = _present(typed)
    present = list(arguments[:length]) if command == typed else command.split()
    for place, word in enumerate(arguments[length:], length):
        if word == "--":
            return [*present, *arguments[place:]]
        option, equals, value = word.partition("=")
        present.append(f"{_present(f'{command} {option}', option)}{equals}{value}")
    return present


def _present(old: str, otherwise: str | None = None) -> str:
    if old in WORDS:
        report(old, WORDS[old])
    return WORDS.get(old, old if otherwise is None else otherwise)  # an argument may be empty
