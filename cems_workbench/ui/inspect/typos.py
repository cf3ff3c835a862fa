"""Learned and refused typo corrections of the store: list and forget them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st
from markupsafe import Markup

from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit.html import render

if TYPE_CHECKING:
    from cems_workbench.pipeline.resources import Resources
    from cems_workbench.store import LearnedPair

MAX_ROWS = 40


def draw_typos(resources: Resources) -> None:
    """Draw a popover with the pairs and buttons to forget one or all, which search the query again."""
    popover = st.popover(
        "Typos",
        icon=":material/spellcheck:",
        key="inspect:typos",
        type="tertiary",
        on_change="rerun",
        help="Corrections used in searches; they are tried first when the same typo occurs again.",
    )
    if not popover.open:
        return
    with popover:
        pairs = resources.store.corrections.read()
        if not pairs:
            st.caption("Nothing is learned yet. A typo that a search corrects is listed here.")
            return
        learned = sum(not pair.refused for pair in pairs)
        st.caption(
            f"{learned} learned, {len(pairs) - learned} refused. Latest first.",
            help="Learned: used first, regardless of similarity. Refused: rejected by the LLM, so never used. A forgotten pair "
            "can be learned again.",
        )
        with st.container(height=320 if len(pairs) > 7 else "content", border=False):
            for pair in pairs[:MAX_ROWS]:
                _draw_pair(pair, resources)
        if len(pairs) > MAX_ROWS:
            st.caption(f"and {len(pairs) - MAX_ROWS} older ones")
        st.button(
            "Forget all learned",
            key="inspect:typos_forget_all",
            icon=":material/delete_sweep:",
            disabled=not learned,
            on_click=_forget_all,
            args=(resources,),
            help="Refused pairs stay refused.",
        )


def pair_html(pair: LearnedPair) -> Markup:
    """Typo → correction, and how often it was accepted."""
    return render("inspect/pair.html", pair=pair, day=f"{pair.last_at:%Y-%m-%d}")


def _draw_pair(pair: LearnedPair, resources: Resources) -> None:
    text, button = st.columns([4, 2], vertical_alignment="center")
    text.html(pair_html(pair))
    button.button(
        "Forget",
        key=f"inspect:typo:{pair.typo}:{pair.correction}",
        on_click=_forget,
        width="stretch",
        args=(resources, pair.typo, pair.correction),
    )


def _forget(resources: Resources, typo: str, correction: str) -> None:
    resources.store.corrections.forget(typo, correction)
    state.forget_evidence()


def _forget_all(resources: Resources) -> None:
    resources.store.corrections.forget_learned()
    state.forget_evidence()
