"""The lexicon of technical terms: the shipped one, and a project's own words over it.

The shipped file says what is in it and why. A project dictionary is a file of the same form, whose words are added.

Source: PIPELINE.md, "query" (domain signal).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path

from cems_workbench.errors import InputError


@cache
def shipped_terms() -> frozenset[str]:
    """The shipped technical terms, in lower case and in the singular; read once."""
    text = (files("cems_workbench.pipeline") / "lexicons" / "technical_terms.txt").read_text(encoding="utf-8")
    return frozenset(words_of(text.splitlines()))


def technical_terms(project_dictionary: Path | None = None) -> frozenset[str]:
    """The shipped terms with those of a project dictionary; a missing file adds nothing. Raises InputError."""
    if project_dictionary is None:
        return shipped_terms()
    try:
        lines = project_dictionary.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return shipped_terms()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{project_dictionary}: not readable as a list of words: {error}") from None
    return shipped_terms().union(words_of(lines))


def words_of(lines: Iterable[str]) -> list[str]:
    """The words of a lexicon's lines in lower case; a line that starts with `#` is a comment."""
    return [word for line in lines if not line.lstrip().startswith("#") for word in line.lower().split()]
