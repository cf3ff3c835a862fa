"""The cells of a CSV: the guard against formula injection, and text that stands for something else.

A spreadsheet runs a cell that begins with = + - @ (or their full-width forms), a tab or a line end as a formula.
`guarded` puts an apostrophe before such text and `restored` takes it off. Text that begins with apostrophes followed by
one of these is guarded too, so that restored(guarded(text)) is the text, always (OWASP, "CSV Injection").
"""

from __future__ import annotations

import re
from typing import Any

from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.files import parse_json, type_name

BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_FORMULA = re.compile(r"'*[=+\-@＝＋－＠\t\r\n]")
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")


def guarded(text: str) -> str:
    """The text as a cell that no spreadsheet takes for a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def restored(cell: str) -> str:
    """The text that `guarded` made the cell from."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell, 1) else cell


def blank_guarded(text: str) -> str:
    """As `guarded`, with the guard of Quepid: a blank, which it and the Search Relevance Workbench cut off when they read."""
    return f" {text}" if _FORMULA.match(text) else text


def blank_restored(cell: str) -> str:
    """The text that `blank_guarded` made the cell from."""
    return cell[1:] if cell.startswith(" ") and _FORMULA.match(cell, 1) else cell


def number(cell: str) -> Any:
    """A number where the cell is one, else the cell itself, for the check of its field to refuse."""
    cell = cell.strip()
    if _WHOLE.fullmatch(cell):
        return int(cell)
    return float(cell) if _DECIMAL.fullmatch(cell) else cell


def flag(cell: str) -> Any:
    """true, false, 1, 0, yes or no in any case, else the cell itself."""
    return BOOLEANS.get(cell.strip().lower(), cell)


def tags(field: str, cell: str) -> list[Any]:
    """A JSON array of tags, or tags separated by semicolons; raises FieldError."""
    if not cell.lstrip().startswith("["):
        return [tag.strip() for tag in cell.split(";") if tag.strip()]
    try:
        items = parse_json(cell)
    except ValueError as error:
        raise FieldError(field, f"begins like a JSON array but {error}") from None
    if not isinstance(items, list):
        raise FieldError(field, f"must be a list of strings, found {type_name(items)}")
    return items
