"""Bundled search result of the sample set, shown until a search has run on the page."""

from __future__ import annotations

import streamlit as st

from cems_workbench.config import EvidenceCard, PipelineConfig, preset
from cems_workbench.jobs.catalogue import named
from cems_workbench.jobs.config_history import restored_config
from cems_workbench.jobs.sample_figures import SampleFigures, sample_figures
from cems_workbench.jobs.tuning_summary import CROSS_VALIDATED, GainRow, headline_of
from cems_workbench.pipeline.resources import Resources
from cems_workbench.tuning.holdout import Gain
from cems_workbench.ui.inspect.transfer import diff_table
from cems_workbench.ui.kit.html import render
from cems_workbench.ui.kit.widgets import draw_bundled_notice
from cems_workbench.ui.tune.result import gains_html
from cems_workbench.ui.tune.state import VIEW


def draw(resources: Resources, query_set: str | None = None) -> bool:
    """Draw the bundled result if the store holds the unmodified sample set; False if nothing was drawn."""
    figures = sample_figures(resources, query_set)
    if figures is None:
        return False
    restored = restored_config(figures.tuned, resources.store)
    assert restored.card is not None, "bundled results include a card"
    _draw(figures, restored.config, restored.card)
    return True


def _draw(figures: SampleFigures, config: PipelineConfig, card: EvidenceCard) -> None:
    base = preset(card.baseline).config
    first = card.measured[0]
    gained = Gain(first.queries, first.baseline, first.tuned, first.low, first.high, first.p)
    about = " · ".join(
        (f"Sample set, baseline {card.baseline}", f"{card.trials} configs", card.relevance, f"seed {card.seed}")
    )
    st.html(
        render(
            "tune/verdict.html",
            headline=headline_of(first.metric, card.baseline, not card.kept, gained),
            about=about,
            doubt="",
        )
    )
    draw_bundled_notice(
        "tune",
        figures,
        "A search under Set up measures on this machine.",
        "Choose this baseline",
        lambda: _choose(card.baseline),
    )
    st.html(
        gains_html([GainRow(CROSS_VALIDATED, "chosen on the other folds, scored on each fold", gained)], first.metric)
    )
    st.caption(f"Split: {card.split}; these stay sealed.")
    st.markdown("## Changed parameters")
    diff_table(base, named(base.name, config), "tune:shipped")
    with st.expander("Its evidence card"):
        st.code(card.text, language=None, wrap_lines=True)


def _choose(baseline: str) -> None:
    st.session_state["tune:baseline"] = baseline
    st.session_state[VIEW] = "Set up"
