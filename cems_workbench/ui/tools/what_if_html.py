"""The outcome of a what-if as HTML: the headline, lists and stages side by side, and the others that moved. Texts are escaped."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from cems_workbench.analysis.what_if import Moved, Pair, Standing, WhatIf
from cems_workbench.ui.glossary import about
from cems_workbench.ui.memories_escape import excerpt
from cems_workbench.ui.tables import short_id
from cems_workbench.ui.tools.what_if_form import LABELS
from cems_workbench.why import cause, memory_path
from cems_workbench.why.words import ordinal

MOST = 15
RANKS = (
    ("rank", "Rank with the memory as it is stored"),
    ("score", "Score with the memory as it is stored"),
    ("new rank", "Rank with the edited copy"),
    ("new score", "Score with the edited copy"),
)
MOVED = ("moved", "Up or down by so many ranks")

STYLESHEET = """
<style>
.wb-both {font-size:.84rem; overflow-x:auto;}
.wb-both table {border-collapse:collapse; width:100%; font-variant-numeric:tabular-nums;}
.wb-both :is(th, td) {border:0; border-top:1px solid color-mix(in srgb, currentColor 10%, transparent); padding:.24rem .8rem .24rem 0;
  text-align:left; font-weight:400; vertical-align:top; overflow-wrap:anywhere;}
.wb-both thead :is(th, td) {border-top:0; opacity:.74; font-size:.76rem; white-space:nowrap; cursor:help; overflow-wrap:normal;}
.wb-both tbody th {font-weight:600; white-space:nowrap;}
.wb-both .wb-n {white-space:nowrap; overflow-wrap:normal; text-align:right;}
.wb-both .wb-n + td:not(.wb-n) {padding-left:.5rem;}
.wb-both tr.wb-same > * {opacity:.68;}
.wb-both b {font-weight:650;}
.wb-both code, .wb-outcome code {background:none; padding:0; color:inherit;}
.wb-outcome {border-left:3px solid light-dark(#0072B2, #56B4E9); padding:.1rem 0 .1rem .9rem; overflow-wrap:anywhere;}
.wb-outcome p {margin:0;}
.wb-outcome .wb-ranks {font-size:1.08rem; font-weight:600; line-height:1.45;}
.wb-outcome .wb-edit {font-size:.84rem; opacity:.8; padding-top:.25rem;}
</style>
"""


def outcome_html(found: WhatIf) -> str:
    """Where it stood and where it would stand, why, and what was changed."""
    before, after = (("not in the results" if rank is None else ordinal(rank)) for rank in found.rank)
    trace = found.after
    k = max(1, len(trace.results))
    path = memory_path(trace, found.edited.id, k)
    told = "" if path.status == "in the top k" else f"<p>{escape(cause(path, trace))}</p>"
    changes = "; ".join(_change(*change) for change in found.changes)
    return (
        f'<div class="wb-outcome"><p class="wb-ranks">{escape(found.edited.id)}: {escape(before)} → {escape(after)}</p>'
        f'{told}<p class="wb-edit">Changed: {escape(changes)}</p></div>'
    )


def _change(name: str, was: Any, now: Any) -> str:
    label = LABELS.get(name, name)
    if name == "content":
        return f"{label} ({len(was):,} → {len(now):,} characters)"
    return f"{label} {_value(was)} → {_value(now)}"


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if hasattr(value, "date"):
        return str(value.date().isoformat())
    return excerpt(str(value), 40)


def pairs_html(pairs: Sequence[Pair], name: str, of: str) -> str:
    """Lists or stages a row, before and after; where nothing is different the row is quiet."""
    rows = []
    for pair in pairs:
        if pair.before is None and pair.after is None:
            continue
        words = "" if pair.after is None else pair.after.words
        rows.append(
            f'<tr{" class=wb-same" if pair.same else ""}><th title="{escape(about(pair.name))}">{escape(pair.name)}</th>'
            f"{_cells(pair.before, pair.name)}{_cells(pair.after, pair.name)}<td>{_move(pair)}</td><td>{escape(words)}</td></tr>"
        )
    head = f'<th title="{escape(of)}">{escape(name)}</th>{_heads(RANKS)}{_heads((MOVED, ("in words", "What is done with the copy")))}'
    return f'<div class="wb-both"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def others_html(found: WhatIf, moved: Sequence[Moved]) -> str:
    """The other results whose rank is another one."""
    rows = []
    for one in moved[:MOST]:
        evidence = (found.after if one.memory_id in found.after.evidence.memories else found.before).evidence
        rows.append(
            f'<tr><td class="wb-n">{_number(one.before)}</td><td class="wb-n"><b>{_number(one.after)}</b></td>'
            f"<td>{_sign(one.before, one.after)}</td>"
            f'<td title="{escape(one.memory_id)}"><code>{escape(short_id(one.memory_id))}</code></td>'
            f"<td>{escape(excerpt(evidence.memories[one.memory_id].content, 110))}</td></tr>"
        )
    head = _heads((RANKS[0], RANKS[2])) + _heads((MOVED, ("memory", "Id of the memory"), ("text", "How it begins")))
    return f'<div class="wb-both"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _heads(columns: Sequence[tuple[str, str]]) -> str:
    """Header cells with their tooltips; numbers stand to the right."""
    return "".join(
        f'<td{" class=wb-n" if column in RANKS else ""} title="{escape(column[1])}">{escape(column[0])}</td>'
        for column in columns
    )


def _cells(standing: Standing | None, name: str) -> str:
    if standing is None:
        return '<td class="wb-n" title="It does not get here">–</td><td class="wb-n">–</td>'
    rank = _number(standing.rank) if standing.kept else "✕"
    title = "" if standing.kept else ' title="Dropped here"'
    score = "–" if standing.score is None else _score(standing.score, name)
    return f'<td class="wb-n"{title}>{rank}</td><td class="wb-n" title="{standing.score!r}">{score}</td>'


def _score(score: float, name: str) -> str:
    """A date in the recency list, a count in the access list, else four digits."""
    if name == "recency":
        return datetime.fromtimestamp(score, UTC).date().isoformat()
    return f"{score:.0f}" if name == "access" else f"{score:.4f}"


def _move(pair: Pair) -> str:
    """Ranks up or down; nothing where the stage has no ranks."""
    if all(one is None or (one.kept and one.rank is None) for one in (pair.before, pair.after)):
        return ""
    before = pair.before.rank if pair.before is not None and pair.before.kept else None
    after = pair.after.rank if pair.after is not None and pair.after.kept else None
    if (
        pair.before is not None
        and pair.after is not None
        and pair.before.rank == pair.after.rank
        and pair.before.kept == pair.after.kept
    ):
        return "="
    return _sign(before, after)


def _sign(before: int | None, after: int | None) -> str:
    if before is None or after is None:
        return "new" if after is not None else "gone" if before is not None else "="
    return "=" if before == after else f"▲ {before - after}" if after < before else f"▼ {after - before}"


def _number(rank: int | None) -> str:
    return "–" if rank is None else str(rank)
