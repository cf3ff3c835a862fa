"""Lists and stages in columns as HTML: two lines a memory, so that its text has room however narrow a column is."""

from __future__ import annotations

from html import escape

from cems_workbench.analysis.ranks import Against
from cems_workbench.pipeline import Trace
from cems_workbench.ui.inspect.baseline import sign, words
from cems_workbench.ui.inspect.glossary import about
from cems_workbench.ui.inspect.tables import StageRow, stage_rows
from cems_workbench.ui.kit.tables import short_id


def side_by_side_html(
    trace: Trace, names: list[str], top: int, followed: str | None = None, against: Against | None = None
) -> str:
    """A column per list or stage with its first `top` memories; every text is escaped. The `followed` memory is marked.

    A rank's move is that within the stage; or, with a pinned baseline, that `against` the same list or stage of its replay.
    """

    def column(name: str) -> str:
        rows = stage_rows(trace, name, top, followed)
        drawn = "".join(_row(row, row.memory_id == followed, _move(row, name, against)) for row in rows)
        return f'<section><h4 title="{escape(about(name))}">{escape(name)}</h4>{drawn}</section>'

    return f'<div class="wb-stages">{"".join(column(name) for name in names)}</div>'


def _move(row: StageRow, name: str, against: Against | None) -> str:
    if against is None:
        return f'<span title="Places won ▲ or lost ▼ in this stage">{row.move}</span>'
    delta = against.delta(row.memory_id, name)
    return f'<span class="wb-delta" title="{escape(words(delta, against.name))}">{sign(delta)}</span>'


def _row(row: StageRow, followed: bool, move: str) -> str:
    classes = "wb-stage" + (" wb-followed" if followed else "") + ("" if row.reason is None else " wb-out")
    sign = '<span class="wb-mark">◆</span> ' if followed else ""
    rank = "✕" if row.reason is not None else row.rank
    what = row.reason if row.reason is not None else row.excerpt
    score = "" if row.score is None else f"{row.score:.4f}"
    return (
        f'<div class="{classes}"><b>{rank}</b><code title="{escape(row.memory_id)}">{sign}{escape(short_id(row.memory_id))}</code>'
        f"{move}<span>{score}</span>"
        f'<p title="{escape(row.excerpt)}">{escape(what)}</p></div>'
    )
