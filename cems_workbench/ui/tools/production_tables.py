"""The tables of "Against production": who stands where, which stage is most like it, and whose scores they are."""

from __future__ import annotations

import streamlit as st

from cems_workbench.analysis.fidelity import (
    Agreement,
    Likeness,
    Production,
    ScoreMap,
    likenesses,
    most_like,
    overlap_at,
    placements,
    score_maps,
)
from cems_workbench.ui import tables
from cems_workbench.ui.glossary import about
from cems_workbench.ui.look import Look
from cems_workbench.ui.memories_escape import excerpt

ROW = 30
DEPTHS = (1, 3, 5, 10, 20)
TAU_HELP = "Kendall's tau: 1 the same order, 0 no relation, −1 reversed."
RBO_HELP = "Rank-biased overlap, 0 to 1: how alike two rankings are, where the top counts most."


def numbers_html(production: Production, ours: list[str], found: Agreement) -> str:
    """Overlap at each depth, tau and rank-biased overlap."""
    cells = [
        (f"top {k}", f"{shared} of {k}", f"Memories that the first {k} of both have in common")
        for k, shared in overlap_at(production.order, ours, DEPTHS).items()
    ]
    cells += [("tau", f"{found.tau:.3f}", TAU_HELP), ("RBO", f"{found.rbo:.3f}", RBO_HELP)]
    if production.unknown:
        cells.append(("unknown", str(len(production.unknown)), "Found neither by their id nor by their text"))
    body = "".join(f'<div title="{title}"><span>{name}</span><b>{value}</b></div>' for name, value, title in cells)
    columns = min(8, len(cells))
    return f'<div class="wb-mem-numbers" style="grid-template-columns:repeat({columns}, minmax(0,1fr))">{body}</div>'


def draw_placements(look: Look, production: Production) -> None:
    """A memory a row: its rank there and here, and where our trace dropped it."""
    import pandas as pd

    frame = pd.DataFrame(_rows(look, production))
    frame = frame.sort_values("production", kind="stable", na_position="last", ignore_index=True)
    frame = frame.astype({"production": "Int64", "ours": "Int64"})
    text, number = st.column_config.TextColumn, st.column_config.NumberColumn
    st.dataframe(
        tables.marked(frame, look.followed),
        hide_index=True,
        height=ROW * (min(len(frame), 14) + 1) + 4,
        row_height=ROW,
        placeholder="",
        column_config={
            "production": number("production", width=84, help="Rank that production gave it; empty: not returned"),
            "ours": number("ours", width=52, help="Rank in the results above; empty: not there"),
            "memory": text("memory", width=110),
            "lost at": text("lost at", width=110, help="The stage of this trace that dropped it"),
            "why": text("why", width=280),
            "content": text("content", width=420),
        },
    )


def _rows(look: Look, production: Production) -> list[dict[str, str | int | None]]:
    """The placements, and the rows of the answer that no memory matches."""
    memories = look.resources.store.memories(production.order)
    rows: list[dict[str, str | int | None]] = []
    for one in placements(production, look.trace):
        memory = memories.get(one.memory_id) or look.trace.evidence.memories[one.memory_id]
        called = production.by_text.get(one.memory_id)
        why = one.reason or ("production did not return it" if one.production is None else "")
        rows.append(
            {
                "production": one.production, "ours": one.ours, "memory": one.memory_id, "lost at": one.lost_at or "",
                "why": f"{why} (found by its text; called {called})".strip() if called else why,
                "content": excerpt(memory.content),
            }
        )  # fmt: skip
    for rank, answer in production.unknown:
        rows.append(
            {
                "production": rank, "ours": None, "memory": answer.memory_id or "", "lost at": "not in this store",
                "why": "no memory has this id or this text", "content": excerpt(answer.content or ""),
            }
        )  # fmt: skip
    return rows


def draw_stages(look: Look, production: Production) -> None:
    """Which list's or stage's order is most like production's."""
    found = likenesses(production.order, look.trace)
    best = most_like(found)
    st.markdown("###### Stage by stage", help="The order that each list and each stage puts out, beside production's.")
    if best is None or not best.shared:
        st.caption("No list and no stage holds any of production’s memories.")
        return
    what = f"the output of the {best.name} stage" if best.stage else f"the list {best.name}"
    st.caption(f"Production’s order is most like {what}: RBO {best.rbo:.3f}.")
    st.dataframe(
        [_likeness(one, one == best, len(production.order)) for one in found],
        hide_index=True,
        height=ROW * (len(found) + 1) + 4,
        row_height=ROW,
        placeholder="",
        width=560,
        column_config={
            "name": st.column_config.TextColumn(
                "list or stage", width=150, help="◆ the one that is most like production"
            ),
            "holds": st.column_config.TextColumn(
                "holds", width=84, help="How many of production's memories are in it at all"
            ),
            "tau": st.column_config.NumberColumn(
                "tau", format="%.3f", width=70, help=f"{TAU_HELP} Over the memories that it holds."
            ),
            "RBO": st.column_config.ProgressColumn(
                "RBO", format="%.3f", min_value=0, max_value=1, width=180, color="#0072B2", help=RBO_HELP
            ),
        },
    )


def _likeness(one: Likeness, best: bool, count: int) -> dict[str, str | float | None]:
    return {
        "name": f"{'◆ ' if best else ''}{one.name}",
        "holds": f"{one.shared} of {count}",
        "tau": one.tau,
        "RBO": one.rbo,
    }


def draw_scores(look: Look, production: Production) -> None:
    """Whether production's scores are a straight map of one of ours."""
    if not production.scores:
        return
    found = score_maps(production.scores, look.trace)
    st.markdown(
        "###### Scores", help="production = slope × our score + offset, fitted over the memories that both have."
    )
    if not found:
        st.caption("Fewer than three memories have a score in both, or all scores are the same: nothing can be said.")
        return
    st.caption(_scores_sentence(found[0]), help=about(found[0].name) or None)


def _scores_sentence(best: ScoreMap) -> str:
    sign = "+" if best.intercept >= 0 else "−"
    line = f"{best.slope:.4g} × {best.name} {sign} {abs(best.intercept):.4g}"
    if best.exact:
        same = abs(best.slope - 1) < 1e-6 and abs(best.intercept) < 1e-6
        shown = f"those of {best.name}" if same else line
        return f"Production’s scores are {shown}, to their last digit ({best.count} memories)."
    return (
        f"No score of ours maps straight onto production’s. Nearest: {line}, R² {best.r2:.3f}, off by up to {best.worst:.3g} "
        f"({best.count} memories)."
    )
