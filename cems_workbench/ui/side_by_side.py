"""Lists and stages in columns as HTML: two lines a memory, so that its text has room however narrow a column is."""

from __future__ import annotations

from html import escape

from cems_workbench.pipeline import Trace
from cems_workbench.ui.glossary import about
from cems_workbench.ui.tables import StageRow, short_id, stage_rows


def side_by_side_html(trace: Trace, names: list[str], top: int, followed: str | None = None) -> str:
    """A column per list or stage with its first `top` memories; every text is escaped. The `followed` memory is marked."""
    columns = "".join(
        f'<section><h4 title="{escape(about(name))}">{escape(name)}</h4>'
        f"{''.join(_row(row, row.memory_id == followed) for row in stage_rows(trace, name, top, followed))}</section>"
        for name in names
    )
    return f'<div class="wb-stages">{columns}</div>'


def _row(row: StageRow, followed: bool) -> str:
    classes = "wb-stage" + (" wb-followed" if followed else "") + ("" if row.reason is None else " wb-out")
    sign = '<span class="wb-mark">◆</span> ' if followed else ""
    rank = "✕" if row.reason is not None else row.rank
    what = row.reason if row.reason is not None else row.excerpt
    score = "" if row.score is None else f"{row.score:.4f}"
    return (
        f'<div class="{classes}"><b>{rank}</b><code title="{escape(row.memory_id)}">{sign}{escape(short_id(row.memory_id))}</code>'
        f'<span title="Places won ▲ or lost ▼ in this stage">{row.move}</span><span>{score}</span>'
        f'<p title="{escape(row.excerpt)}">{escape(what)}</p></div>'
    )
