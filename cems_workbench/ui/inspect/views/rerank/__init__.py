"""Rerank: health of the reranker's scores, the blend with retrieval scores, and token alignment."""

from __future__ import annotations

import streamlit as st

from cems_workbench.pipeline.stages import RERANK
from cems_workbench.pipeline.stages.rerank import NOT_READ
from cems_workbench.ui.inspect.catalogue import View
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.views.rerank.alignment import draw_alignment
from cems_workbench.ui.inspect.views.rerank.blend import draw_blend
from cems_workbench.ui.inspect.views.rerank.health import draw_health


def draw(context: InspectContext) -> None:
    """Draw counts, health, blend and tokens; or why nothing was reranked."""
    trace = context.trace
    if RERANK.is_off(trace.config):
        st.info("Reranking is off. Choose a reranker in the sidebar under Rerank; late interaction needs no server.")
        return
    health = trace.stage(RERANK).fields.health
    if health is None:
        st.info("Not reranked: there are no more candidates than the result limit (skip if few).")
        return
    spread = "" if health.min is None else f", raw {health.min:.3f} to {health.max:.3f}"
    unread = f", {health.not_read} {NOT_READ}" if health.not_read else ""
    st.caption(
        f"{health.scored} of the first {health.head} candidates scored, {health.failed} failed, "
        f"{health.not_scored} never scored{unread}{spread}.",
        help="score = weight × retrieval + (1 − weight) × unit, or only the unit score with “replace”.",
    )
    draw_health(context)
    draw_blend(context)
    draw_alignment(context)


VIEW = View("Rerank", 80, draw)
