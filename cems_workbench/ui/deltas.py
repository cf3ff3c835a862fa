"""Rank deltas against the baseline in signs and words; the sign, never a colour, says which way."""

from __future__ import annotations

from html import escape

from cems_workbench.analysis.ranks import Against, RankDelta, loss
from cems_workbench.ui.memories_escape import excerpt

COLUMN = "vs. baseline"
HELP = (
    "Places won ▲ or lost ▼ against the pinned baseline, at this place of the pipeline. =: the same rank. new: the baseline does "
    "not rank it. gone: only the baseline ranks it, and where. —: neither does."
)


def sign(delta: RankDelta) -> str:
    """The delta in a cell."""
    if delta.move in ("up", "down"):
        return f"{'▲' if delta.places > 0 else '▼'} {abs(delta.places)}"
    if delta.move == "gone":
        return f"gone, was {delta.before}"
    return {"same": "=", "new": "new"}.get(delta.move, "—")


def words(delta: RankDelta, name: str) -> str:
    """The delta in a tooltip; `name` is the baseline's."""
    if delta.move == "up":
        return f"Up from rank {delta.before} in the baseline {name}"
    if delta.move == "down":
        return f"Down from rank {delta.before} in the baseline {name}"
    if delta.move == "gone":
        return f"Rank {delta.before} in the baseline {name}, none now"
    return {"same": f"The same rank as in the baseline {name}", "new": f"Not ranked by the baseline {name}"}.get(
        delta.move, "Ranked by neither"
    )


def gone_html(against: Against) -> str:
    """Who left the results, with the baseline's rank, where each was lost now and why; empty when nobody did."""
    gone = against.gone()
    if not gone:
        return ""
    rows = "".join(_gone(against, memory_id) for memory_id in gone)
    count = f"{len(gone)} result{'s' if len(gone) != 1 else ''}"
    return f'<div class="wb-gone"><h6>Left the top k: {count} of the baseline {escape(against.name)}</h6>{rows}</div>'


def _gone(against: Against, memory_id: str) -> str:
    lost = loss(against.now, memory_id)
    where = "no list has it" if lost is None else f"lost at {lost.stage}: {lost.reason}"
    text = excerpt(against.now.evidence.memories[memory_id].content, 240)
    return (
        f'<div><b title="Its rank in the baseline">✕ was {against.delta(memory_id).before}</b><code>{escape(memory_id)}</code>'
        f"<span>{escape(where)}</span><p>{escape(text)}</p></div>"
    )
