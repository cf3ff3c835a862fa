"""Context: the text passed to an agent."""

from __future__ import annotations

import streamlit as st

from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.stages import ASSEMBLY
from cems_workbench.platform.bidi import neutralise
from cems_workbench.ui.inspect.context import InspectContext, View, token_count_text
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import short_id

MAX_NAMED = 4
"""Maximum omitted memories named."""


def draw(context: InspectContext) -> None:
    """Draw how the context was assembled, what did not fit, and the literal text."""
    trace = context.trace
    if not trace.results:
        st.caption("The context is empty: no memory was selected.")
        return
    strategy, skipped = trace.stage(ASSEMBLY).fields.strategy, trace.skipped_for_budget
    listed = ", ".join(plain(short_id(memory_id)) for memory_id in skipped[:MAX_NAMED])
    left_out = f" {len(skipped)} did not fit: {listed}{' …' if len(skipped) > MAX_NAMED else ''}." if skipped else ""
    st.caption(
        f"{trace.tokens_used} tokens, assembled by {strategy}.{left_out}",
        help="greedy: by score, as far as the token budget allows. mmr: the same, but preferring novel results. "
        f"{token_count_text(trace.config.assembly)} Texts are shown literally.",
    )
    st.code(neutralise(context_text(trace)), language=None, wrap_lines=True)


def context_text(trace: Trace) -> str:
    """The context for an agent: the results' texts in order, separated by blank lines."""
    return "\n\n".join(f"[{result.rank}] {result.content}" for result in trace.results)


VIEW = View("Context", 110, draw)
