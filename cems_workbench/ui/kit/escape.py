"""Escaping of untrusted text for the screen and for spreadsheets: shown literally, bidi controls neutralised."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

from cems_workbench.platform.bidi import neutralise

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_LINK = re.compile(r"(://|\bwww(?=\.)|@(?=[-\w]+\.))")
JOINER = "\u2060"
"""Zero-width, non-breaking: inserted where Markdown would turn a bare address into a link."""


def plain(text: str) -> str:
    """Escape text for Streamlit's Markdown, on one line."""
    whole = _LINK.sub(rf"\1{JOINER}", " ".join(neutralise(text).split()))
    return _PUNCTUATION.sub(r"\\\1", whole)


def excerpt(text: str, length: int = 160) -> str:
    """The start of a text, on one line."""
    line = " ".join(neutralise(text[: 4 * length]).split())
    return line if len(line) <= length else line[: length - 1] + "…"


def tick(text: str, length: int = 28) -> str:
    """A label for Plotly, which interprets some HTML. Long names lose their middle, since their ends often distinguish them."""
    line = " ".join(text.split())
    if len(line) > length:
        line = f"{line[: length // 2]}…{line[1 + length // 2 - length :]}"
    return literal(line)


def literal(text: str) -> str:
    """The full text escaped for Plotly; use `tick` for labels, which must be short."""
    return neutralise(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def csv_bytes(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """A CSV file in UTF-8 with a byte order mark (Excel asks for one), every text cell guarded against formulas."""
    from cems_workbench.formats.base.cells import guarded

    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(header)
    writer.writerows([guarded(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return out.getvalue().encode("utf-8-sig")
