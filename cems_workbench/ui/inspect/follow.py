"""One memory followed through every stage: rank and score before and after, and what changed them."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st
from markupsafe import Markup

from cems_workbench.analysis.found_chunk import found_chunk
from cems_workbench.analysis.ranks import loss, ranked_ids, stage_words
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.stages.result import StageRow
from cems_workbench.pipeline.stages.stage import AnyStage
from cems_workbench.platform.bidi import neutralise
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.kit.html import excerpt, render


@dataclass(frozen=True, slots=True)
class Step:
    """The texts of a memory in one stage; `lost`: the stage that lost it."""

    stage: AnyStage
    ranks: str
    scores: str
    kept: bool
    lost: bool
    words: str


def draw(context: InspectContext) -> None:
    """Draw the choice of a memory to follow, and its path."""
    trace = context.trace
    ranked = ranked_ids(trace)
    rest = [memory_id for memory_id in sorted(trace.evidence.memories) if memory_id not in set(ranked)]
    if context.followed is None:
        state.follow(None)
    st.selectbox(
        "Follow a memory",
        [*ranked, *rest],
        index=None,
        key=state.FOLLOW,
        placeholder="Follow a memory through every stage",
        label_visibility="collapsed",
        format_func=lambda memory_id: f"{neutralise(memory_id)}  {_text(trace, memory_id, 90)}",
    )
    if context.followed is not None:
        st.html(path_html(trace, context.followed, context.target))


def path_html(trace: Trace, memory_id: str, k: int | None = None) -> Markup:
    """A memory's path through the stages, with the one that lost it; `k` is the target rank of `loss`."""
    lost = loss(trace, memory_id, k)
    rows = [(stage, trace.stage(stage).by_id.get(memory_id)) for stage in trace.run.stages]
    steps = [
        _step(trace, stage, row, lost is not None and lost.stage == stage.name)
        for stage, row in rows
        if row is not None
    ]
    return render(
        "inspect/path.html",
        memory_id=memory_id,
        text=_text(trace, memory_id, 140),
        steps=steps,
        found=found_chunk(trace, memory_id),
    )


def _step(trace: Trace, stage: AnyStage, row: StageRow, lost: bool) -> Step:
    ranks = f"{_rank(row.rank_in)} → {_rank(row.rank_out)}" if row.rank_in or row.rank_out else "–"
    scores = f"{_score(row.score_in)} → {_score(row.score)}"
    words = row.reason or stage.detail(row, trace.config)
    if not words and stage.works_on == "ranking":
        words = stage_words(trace, stage, row.memory_id)
    return Step(stage, ranks, scores, row.kept, lost, words)


def _text(trace: Trace, memory_id: str, length: int) -> str:
    return excerpt(trace.evidence.memories[memory_id].content, length)


def _rank(rank: int | None) -> str:
    return "–" if rank is None else str(rank)


def _score(score: float | None) -> str:
    return "–" if score is None else f"{score:.4f}"
