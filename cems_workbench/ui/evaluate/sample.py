"""Bundled results of the sample set, shown until something is measured on the page."""

from __future__ import annotations

import streamlit as st

from cems_workbench.evaluation.saved_comparison import read_comparison
from cems_workbench.jobs.sample_figures import sample_figures
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.evaluate.compare import draw_saved
from cems_workbench.ui.evaluate.state import Choice
from cems_workbench.ui.kit.widgets import draw_bundled_notice


def draw(choice: Choice, resources: Resources) -> None:
    """Draw the bundled comparison if the store holds the unmodified sample set; else nothing."""
    if choice.opened is not None or choice.selection.project_only or choice.kind == "model":
        return
    figures = sample_figures(resources, choice.selection.query_set)
    if figures is None:
        return
    names = list(figures.measured.presets)
    st.markdown("## Presets on the sample set")
    draw_bundled_notice(
        "evaluate",
        figures,
        "Gather measures the configs chosen above on this machine.",
        "Choose these presets",
        lambda: _choose(names),
    )
    draw_saved(read_comparison(figures.experiment.card or {}))


def _choose(names: list[str]) -> None:
    st.session_state["evaluate:configs"] = names
