"""Output of the command line: the only place that writes to a terminal, and it writes plain text only.

Control characters move a cursor, set a title or hide a line; directional overrides show a text in another order than it has. Each is
shown as a replacement character, in JSON as its escape, so that values are unchanged.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
import unicodedata
from typing import Any

import typer

from cems_workbench.platform.bidi import REPLACEMENT

_SHAPES_WORDS = "\u200c\u200d\u200e\u200f"
"""Zero-width joiners, within words of several scripts and within emoji, and the marks next to right-to-left words."""
_SUSPECT = re.compile(r"[^\n\t -~\u00a0-\u00ac\u00ae-\u024f]")


def literal(text: str) -> str:
    """The text with a replacement character for each that acts on a terminal; line breaks and tabs stay."""
    return _SUSPECT.sub(lambda match: REPLACEMENT if _is_control(match[0]) else match[0], text)


def say(text: str = "", *, err: bool = False) -> None:
    """Print a line of words."""
    typer.echo(literal(text), err=err)


def say_wrapped(text: str, *, err: bool = False) -> None:
    """Print words, wrapped at words to fit the terminal; ids and numbers stay whole."""
    width = shutil.get_terminal_size().columns
    for line in textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False):
        say(line, err=err)


def put(text: str) -> None:
    """Print a document, such as a config: unmodified to a file or a pipe, as `say` does to a terminal."""
    typer.echo(literal(text) if sys.stdout.isatty() else text, nl=False)


def put_json(values: Any) -> None:
    """Print plain values as JSON that any reader accepts (no NaN)."""
    text = json.dumps(values, ensure_ascii=False, indent=1, allow_nan=False)
    typer.echo(_SUSPECT.sub(lambda match: json.dumps(match[0])[1:-1] if _is_control(match[0]) else match[0], text))


def _is_control(character: str) -> bool:
    """Whether a character does something other than being shown: controls, formats, half a surrogate pair, other line ends."""
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in _SHAPES_WORDS
