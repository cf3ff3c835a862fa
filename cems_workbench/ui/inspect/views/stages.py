"""Stages: lists and stages as columns, two lines per memory, so that texts fit into narrow columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st
from markupsafe import Markup

from cems_workbench.analysis.ranks import RankComparison, lists_in_use, ranked_stages
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.list_provenance import provenance_of
from cems_workbench.pipeline.stages import ADJUST, ASSEMBLY, FUSION, LISTS, RERANK
from cems_workbench.pipeline.wording import list_label
from cems_workbench.ui.inspect.baseline import delta_sign, delta_text
from cems_workbench.ui.inspect.catalogue import View
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.glossary import about
from cems_workbench.ui.kit.html import excerpt, plain, render

DEFAULT_COLUMNS = tuple(stage.name for stage in (FUSION, RERANK, ADJUST, ASSEMBLY))
MAX_COLUMNS, MAX_ROWS = 5, 20
MOVED_HELP = "Places gained ▲ or lost ▼ in this stage"


@dataclass(frozen=True, slots=True)
class StageRow:
    """A memory in a list or stage: rank, score, change as sign and words, and its text, or why it was dropped."""

    memory_id: str
    rank: int | None
    score: float | None
    move: str
    moved: str
    excerpt: str
    dropped: str | None = None
    followed: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """The top memories of a list or stage."""

    name: str
    rows: Sequence[StageRow]
    provenance: str = ""
    """For a list returned by a live system: a note on that."""

    @property
    def title(self) -> str:
        """The display name."""
        return list_label(self.name)

    @property
    def about(self) -> str:
        """Description of the list or stage."""
        return about(self.name)


def draw(context: InspectContext) -> None:
    """Draw the choice of lists and stages, and their columns."""
    options = [*lists_in_use(context.trace), *ranked_stages(context.trace)]
    chosen = st.pills(
        "Lists and stages",
        options,
        selection_mode="multi",
        format_func=lambda name: plain(list_label(name)),
        default=[name for name in DEFAULT_COLUMNS if name in options],
        key="inspect:stages",
        help="Up to five columns side by side: lists with their normalised scores, stages with their scores.",
    )
    names = [name for name in options if name in (chosen or ())][:MAX_COLUMNS]
    if not names:
        st.caption("Choose a list or a stage above.")
        return
    st.html(side_by_side_html(context.trace, names, MAX_ROWS, context.followed, context.against))


def side_by_side_html(
    trace: Trace, names: Sequence[str], top: int, followed: str | None = None, against: RankComparison | None = None
) -> Markup:
    """One column per list or stage with its first `top` memories. The `followed` memory is marked, and added last if it ranks lower.

    Rank changes are those of the stage or, with a pinned baseline (`against`), relative to the same list or stage of its replay.
    """
    columns = []
    for name in names:
        ranked = _in_stage(trace, name) if name in ranked_stages(trace) else _in_list(trace, name)
        first = ranked[:top] + [row for row in ranked[top:] if row[0] == followed]
        rows = [_row(trace, name, row, followed, against) for row in first]
        columns.append(Column(name, rows, provenance_of(trace.evidence, name)))
    return render("inspect/stages.html", columns=columns, compared=against is not None)


Ranked = tuple[str, int | None, int | None, float | None, str | None]
"""Memory id, rank, rank before the stage, score, and reason for being dropped."""


def _in_stage(trace: Trace, name: str) -> list[Ranked]:
    return [
        (row.memory_id, row.rank_out, row.rank_in, row.score, None if row.kept else row.reason)
        for row in trace.stage(name).rows
    ]


def _in_list(trace: Trace, name: str) -> list[Ranked]:
    hits = [
        (hit.rank, row.memory_id, hit.normalized)
        for row in trace.stage(LISTS).rows
        for hit in row.lists
        if hit.list == name and hit.kept
    ]
    return [(memory_id, rank, None, score, None) for rank, memory_id, score in sorted(hits)]


def _row(trace: Trace, name: str, ranked: Ranked, followed: str | None, against: RankComparison | None) -> StageRow:
    memory_id, rank, before, score, dropped = ranked
    if against is not None:
        delta = against.delta(memory_id, name)
        move, moved = delta_sign(delta), delta_text(delta, against.name)
    else:
        move, moved = _move(before - rank) if rank and before else "", MOVED_HELP
    text = excerpt(trace.evidence.memories[memory_id].content)
    return StageRow(memory_id, rank, score, move, moved, text, dropped, memory_id == followed)


def _move(places: int) -> str:
    return "=" if places == 0 else f"▲ {places}" if places > 0 else f"▼ {-places}"


VIEW = View("Stages", 40, draw, external=True)
