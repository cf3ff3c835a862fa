"""Journey: the rank of each memory in all lists and stages, where it was lost, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.analysis.ranks import RESULTS, RankComparison, lists_in_use, loss, ranked_ids, ranked_stages
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.list_provenance import provenance_of
from cems_workbench.pipeline.stages import LISTS
from cems_workbench.pipeline.wording import list_index, list_label
from cems_workbench.ui.inspect.baseline import COLUMN, HELP
from cems_workbench.ui.inspect.catalogue import View
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.glossary import LOST_HELP, about
from cems_workbench.ui.inspect.tables import follow_table, with_deltas, with_staleness
from cems_workbench.ui.kit.html import excerpt

if TYPE_CHECKING:
    import pandas as pd

MAX_ROWS = 40


def draw(context: InspectContext) -> None:
    """Draw one row per memory with its rank in all lists and stages."""
    st.caption("The rank of each memory in all lists and stages; empty: not included. Results come first.")
    frame = journey_table(context.trace, MAX_ROWS, context.followed, context.against, context.target)
    text = st.column_config.TextColumn
    ranks = {
        name: st.column_config.NumberColumn(
            list_label(name), width=72 if list_index(name) is None else 104, help=_help(context.trace, name)
        )
        for name in frame.columns[2:-2]
    }
    follow_table(
        with_staleness(frame, context.trace),
        context.followed,
        key="inspect:journey_table",
        most=24,
        columns={
            **ranks,
            COLUMN: text(COLUMN, width=96, help=HELP),
            "memory": text("memory", width=92, pinned=True),
            "lost at": text("lost at", width=78, help=LOST_HELP.format(k=context.target)),
            "why": text("why", width="medium", help="Effect of that stage on it"),
            "content": text("content", width="large"),
        },
    )


def _help(trace: Trace, name: str) -> str:
    """Description of a list or stage, and which system returned it."""
    whose = provenance_of(trace.evidence, name)
    return f"{about(name)} {whose.capitalize()}." if whose else about(name)


def journey_table(
    trace: Trace, top: int, followed: str | None = None, against: RankComparison | None = None, k: int | None = None
) -> pd.DataFrame:
    """One row per memory, one column per list and stage with its rank; and where it was lost (`loss`), and why.

    With a baseline, its lost results are included, and every memory has its rank difference in the results.
    """
    import pandas as pd

    lists, stages = lists_in_use(trace), ranked_stages(trace)
    shown = [result.memory_id for result in trace.results] + (against.gone() if against is not None else [])
    fused = [memory_id for memory_id in ranked_ids(trace) if memory_id not in shown]
    shown += fused[: max(0, top - len(shown))]
    if followed is not None and followed not in shown:
        shown.append(followed)
    in_lists = trace.stage(LISTS).by_id
    memories = {**(against.before.evidence.memories if against is not None else {}), **trace.evidence.memories}
    rows = []
    for memory_id in shown:
        found = in_lists.get(memory_id)  # a baseline gathered separately may have other memories
        hits = {hit.list: hit.rank for hit in found.lists if hit.kept} if found is not None else {}
        path = dict(trace.path(memory_id))
        lost = loss(trace, memory_id, k)
        ranks = [path[stage].rank_out if stage in path else None for stage in stages]
        text = excerpt(memories[memory_id].content)
        found_lists = (hits.get(name) for name in lists)
        stage, why = (lost.stage, lost.reason) if lost is not None else ("", "")
        rows.append([memory_id, stage, *found_lists, *ranks, why, text])
    frame = pd.DataFrame(rows, columns=["memory", "lost at", *lists, *stages, "why", "content"])
    return with_deltas(frame.astype({name: "Int64" for name in [*lists, *stages]}), against, RESULTS, "memory")


VIEW = View("Journey", 60, draw, external=True)
