"""Untrusted text on its way to the screen or to a spreadsheet: always shown, never interpreted, and in the order that it has."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

from cems_workbench.formats.base.cells import guarded
from cems_workbench.platform.bidi import neutralise

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_LINK = re.compile(r"(://|\bwww(?=\.)|@(?=[-\w]+\.))")
JOINER = "\u2060"
"""No width and no break: it stands where a bare address would be taken for a link."""


def plain(text: str) -> str:
    """Text as Markdown that shows it literally, on one line; for messages that Streamlit renders as Markdown."""
    whole = _LINK.sub(rf"\1{JOINER}", " ".join(neutralise(text).split()))
    return _PUNCTUATION.sub(r"\\\1", whole)


def excerpt(text: str, length: int = 160) -> str:
    """The beginning of a text on one line."""
    line = " ".join(neutralise(text[: 4 * length]).split())
    return line if len(line) <= length else line[: length - 1] + "…"


def tick(text: str, length: int = 28) -> str:
    """A label for Plotly, which reads a little HTML in its texts; names that are too long are often told apart by their ends."""
    line = " ".join(text.split())
    if len(line) > length:
        line = f"{line[: length // 2]}…{line[1 + length // 2 - length :]}"
    return literal(line)


def literal(text: str) -> str:
    """The whole text for Plotly, as it is; `tick` is for labels, where there is little room."""
    return neutralise(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def csv_bytes(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """A CSV file in UTF-8 with a byte order mark (Excel asks for one), every cell guarded."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(header)
    writer.writerows([guarded(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return out.getvalue().encode("utf-8-sig")
