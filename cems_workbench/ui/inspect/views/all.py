"""The views below the ranking; only the chosen one is computed and drawn."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from cems_workbench.analysis.ranks import Against
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.stages.assembly import ASSEMBLY
from cems_workbench.pipeline.stages.fusion import FUSION
from cems_workbench.pipeline.stages.rerank import RERANK
from cems_workbench.ui.inspect import baseline, follow, state, tables
from cems_workbench.ui.inspect.baseline import COLUMN, HELP
from cems_workbench.ui.inspect.glossary import FACTORS, about
from cems_workbench.ui.inspect.look import Look
from cems_workbench.ui.inspect.results import context_text
from cems_workbench.ui.inspect.tools.catalogue import TOOLS
from cems_workbench.ui.inspect.views import contributions as charts
from cems_workbench.ui.inspect.views.alignment import draw_alignment
from cems_workbench.ui.inspect.views.contributions import draw_queries
from cems_workbench.ui.inspect.views.health import draw_health
from cems_workbench.ui.inspect.views.judge import draw_judge
from cems_workbench.ui.inspect.views.query import draw_lists, draw_query
from cems_workbench.ui.inspect.views.rank_flow import draw_rank_flow
from cems_workbench.ui.inspect.views.stages import side_by_side_html
from cems_workbench.ui.inspect.views.threshold import draw_threshold
from cems_workbench.ui.kit import handles
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.tables import ROW, short_id

SIDE_BY_SIDE = ("fusion", "rerank", "adjust", "assembly")
TOP = 20
HAPPENED, WHY = "What happened", "Why, and what if"
BUDGET_HELP = (
    "Tokens the results take, of the budget (a token is counted as 4 characters). Candidates: every memory some list found. "
    "diverse (mmr): results that say the same are held back (Assembly in the sidebar)."
)


def draw(trace: Trace, request: Request) -> None:
    """Let the user choose a memory to follow and a view or a tool, and draw that."""
    st.space("small")
    followed = follow.choose(trace)
    if followed is not None:
        st.html(follow.path_html(trace, followed))
    section = HAPPENED
    if TOOLS:
        section = st.segmented_control(
            "Section", (HAPPENED, WHY), default=HAPPENED, required=True, key=state.SECTION, label_visibility="collapsed"
        )  # fmt: skip
    if section == WHY:
        name = st.pills(
            "Tool", list(TOOLS), default=next(iter(TOOLS)), key=state.TOOL, required=True, label_visibility="collapsed"
        )
        tool = TOOLS[name or next(iter(TOOLS))]
        st.caption(tool.question)
        tool.draw(Look(trace, request, handles.resources(), followed))
        return
    against = baseline.against(trace, request)
    views: dict[str, Callable[[], None]] = {
        "Contributions": lambda: contributions(trace, against),
        "Query": lambda: draw_query(trace, request),
        "Lists": lambda: draw_lists(trace),
        "Stages": lambda: side_by_side(trace, followed, against),
        "Rank flow": lambda: draw_rank_flow(Look(trace, request, handles.resources(), followed), against),
        "Journey": lambda: journey(trace, followed, against),
        "Threshold": lambda: draw_threshold(trace),
        "Rerank": lambda: rerank(trace, request, followed, against),
        "Adjust": lambda: adjust(trace, followed, against),
        "Judge": lambda: draw_judge(trace, request, handles.resources(), followed, against),
        "Context": lambda: context(trace),
    }
    chosen = st.segmented_control(
        "View", list(views), default="Contributions", required=True, key=state.VIEW, label_visibility="collapsed"
    )
    views[chosen or "Contributions"]()


def nothing_found(trace: Trace) -> None:
    """No results: which stage lost them, and what to do."""
    emptied = next((stage.name for stage in trace.stages if stage.candidates_in and not stage.candidates_out), None)
    if emptied in (None, "lists"):
        text = "No list that is switched on has a hit. Try other words, another project, or switch a list on in the sidebar."
    else:
        text = f"The {emptied} stage dropped every candidate. Loosen its parameters in the sidebar, or see the journey below."
    st.info(text, icon=":material/search_off:")


def budget_line(trace: Trace) -> str:
    """Tokens, how the results were chosen, and out of how many."""
    budget = trace.config.assembly.max_tokens
    tokens = f"{trace.tokens_used} tokens" + (f" of {budget}" if budget is not None else "")
    diverse = " · diverse (mmr)" if trace.stage(ASSEMBLY).fields.strategy == "mmr" else ""
    return f"{tokens}{diverse} · {len(trace.evidence.memories)} candidates"


def contributions(trace: Trace, against: Against | None) -> None:
    """What each list gave each candidate."""
    if not trace.stage(FUSION).kept:
        st.caption("No candidate reached the fusion.")
        return
    st.caption(
        "What each list gave the first candidates after fusion. Solid: base, from weight and rank. Hatched: bonus.",
        help="vector:0 is the vector list of variant 0, the query as it is. "
        "rrf: base = list weight × variant weight / (k + rank). The bonus for ranks 1 to 3 is not weighted. "
        "Hover a bar for its numbers.",
    )
    st.plotly_chart(
        charts.contributions_figure(trace, against=against), key="contributions", config={"displayModeBar": False}
    )
    draw_queries(trace)


def side_by_side(trace: Trace, followed: str | None, against: Against | None) -> None:
    """Lists and stages in columns."""
    options = tables.stage_options(trace)
    chosen = st.pills(
        "Lists and stages", options, selection_mode="multi", default=[name for name in SIDE_BY_SIDE if name in options],
        key="stages", help="Up to five columns stand side by side: lists with their normalised score, stages with theirs.",
    )  # fmt: skip
    names = [name for name in options if name in (chosen or ())][:5]
    if not names:
        st.caption("Choose a list or a stage above.")
        return
    st.html(side_by_side_html(trace, names, TOP, followed, against))


def journey(trace: Trace, followed: str | None, against: Against | None) -> None:
    """A memory a row, its rank in every list and stage."""
    st.caption("The rank of each memory in every list and stage; empty: not there. Memories in the results come first.")
    frame = tables.journey_table(trace, 40, followed, against)
    narrow = {name: st.column_config.NumberColumn(name, width=72, help=about(name)) for name in frame.columns[2:-2]}
    st.dataframe(
        tables.marked(frame, followed),
        hide_index=True,
        height=_height(len(frame), 24),
        row_height=ROW,
        placeholder="",
        column_config={
            **narrow,
            COLUMN: st.column_config.TextColumn(COLUMN, width=96, help=HELP),
            "memory": st.column_config.TextColumn("memory", width=92, pinned=True),
            "lost at": st.column_config.TextColumn(
                "lost at", width=78, help="The stage that dropped it; empty: in the results"
            ),
            "why": st.column_config.TextColumn("why", width="medium", help="Why that stage dropped it"),
            "content": st.column_config.TextColumn("content", width="large"),
        },
    )


def rerank(trace: Trace, request: Request, followed: str | None, against: Against | None) -> None:
    """The blend of retrieval and reranker."""
    if RERANK.is_off(trace.config):
        st.info("Reranking is off. Choose a reranker in the sidebar under Rerank; late interaction needs no server.")
        return
    health = trace.stage(RERANK).fields.health
    if health is None:
        st.info("Not reranked: there are no more candidates than the result limit (skip if few).")
        return
    spread = "" if health.min is None else f", raw {health.min:.3f} to {health.max:.3f}"
    st.caption(
        f"{health.scored} of the first {health.head} candidates scored, {health.failed} failed, "
        f"{health.not_scored} never scored{spread}.",
        help="score = weight × retrieval + (1 − weight) × unit, or the unit score alone with “replace”.",
    )
    draw_health(trace, request, handles.resources())
    _blend(trace, followed, against)
    draw_alignment(trace, followed)


def _blend(trace: Trace, followed: str | None, against: Against | None) -> None:
    """A candidate a row: what each side gave it."""
    number = st.column_config.NumberColumn
    st.dataframe(
        tables.marked(tables.rerank_table(trace, against), followed),
        hide_index=True,
        height=_height(len(trace.stage(RERANK).rows), 18),
        row_height=ROW,
        placeholder="",
        column_config={
            "before": number("before", width=58, help="Rank before reranking"),
            "after": number("after", width=50, help="Rank after reranking; empty: dropped"),
            COLUMN: st.column_config.TextColumn(COLUMN, width=96, help=HELP),
            "memory": st.column_config.TextColumn("memory", width=92),
            "score": st.column_config.ProgressColumn(
                "score", format="%.4f", min_value=0, max_value=1, width=112, color="#0072B2",
                help="What the next stage gets: from retrieval + from reranker",
            ),
            "from retrieval": number("from retrieval", format="%.4f", width=100, help="weight × retrieval"),
            "from reranker": number("from reranker", format="%.4f", width=100, help="(1 − weight) × unit"),
            "weight": number("weight", format="%.2f", width=64, help="Share of the retrieval score at this rank; empty: no blend"),
            "retrieval": number("retrieval", format="%.4f", width=76, help="Retrieval score at this rank"),
            "unit": number("unit", format="%.4f", width=70, help="Raw scaled to 0–1 and clamped"),
            "raw": number("raw", format="%.4f", width=70, help="What the model said"),
            "outcome": st.column_config.TextColumn(
                "outcome", width=92, help="scored, failed (flagged), not scored, or in the tail"
            ),
            "text read": st.column_config.TextColumn(
                "text read", width="large", help="The exact text the model was given"
            ),
        },
    )  # fmt: skip


def adjust(trace: Trace, followed: str | None, against: Against | None) -> None:
    """The factor chain."""
    st.caption("Each factor multiplies the score; an empty cell is a factor that does not apply.")
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    frame = tables.adjust_table(trace, 60, against)
    factors = {name: number(name.replace("_", " "), format="%.4f", width=82, help=FACTORS[name]) for name in FACTORS}
    st.dataframe(
        tables.marked(frame, followed),
        hide_index=True,
        height=_height(len(frame), 18),
        row_height=ROW,
        placeholder="",
        column_config={
            "rank": number("rank", width=50, help="Rank after this stage"),
            COLUMN: text(COLUMN, width=96, help=HELP),
            "memory": text("memory", width=92),
            "score in": number("score in", format="%.4f", width=74, help="Score before this stage"),
            "score": number(
                "score", format="%.4f", width=70, help="Score in, times every factor, within 0–1 if clamped"
            ),
            **factors,
            "age (days)": number(
                "age (days)", format="%.1f", width=82, help="Days since the date that decay counts from"
            ),
            "before clamp": number(
                "before clamp", format="%.4f", width=94, help="The product before it was cut to 0–1"
            ),
            "content": text("content", width=320),
        },
    )


def _height(rows: int, most: int) -> int:
    """Height of a table with its header, that scrolls past `most` rows."""
    return ROW * (min(max(rows, 1), most) + 1) + 4


def context(trace: Trace) -> None:
    """The text an agent would get."""
    if not trace.results:
        st.caption("There is no context: nothing was selected.")
        return
    strategy = trace.stage(ASSEMBLY).fields.strategy
    skipped = trace.skipped_for_budget
    listed = ", ".join(plain(short_id(memory_id)) for memory_id in skipped[:4])
    left_out = f" {len(skipped)} did not fit: {listed}{' …' if len(skipped) > 4 else ''}." if skipped else ""
    st.caption(
        f"{trace.tokens_used} tokens, assembled by {strategy}.{left_out}",
        help="greedy: in order of score, what fits the token budget. mmr: the same, but what says something new goes first. "
        "Tokens are counted as ceil(characters / 4) of each content. Texts are shown as they are, never rendered.",
    )
    st.code(context_text(trace), language=None, wrap_lines=True)
