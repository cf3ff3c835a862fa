"""Compare judges: the same run scored by a cosine threshold, a model and people, which shows misleading ones."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from cems_workbench.evaluation.relevance_sources import RelevanceSources, relevance_sources
from cems_workbench.jobs.evaluation import EvaluatedConfig
from cems_workbench.ui.evaluate.state import cached_result
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import draw_table

HELP = {
    "hit@1": "Share of queries whose first result is relevant by this judge",
    "hit@5": "Share of queries with a relevant result among the first five, by this judge",
    "P@3": "Share of the first three results that are relevant by this judge",
    "share labelled": "Share of the first five results that this judge has graded",
    "results": "Results that both have graded",
    "agree": "Share of these with the same verdict",
    "kappa": "Cohen’s kappa: agreement beyond chance; 1 is full agreement, 0 is chance",
    "relevant to one alone": "Results that only the first judge, and only the second judge calls relevant",
}


def draw(measured: Sequence[EvaluatedConfig]) -> None:
    """Draw one config's run scored by every judge."""
    by_name = {evaluated.name: evaluated for evaluated in measured}
    name = st.selectbox("Config", list(by_name), key="evaluate:honest", persist_state="session")
    view = _view(by_name[name])
    st.caption(
        "The same results, scored by each judge. The value depends on the judge: ACE reported 100 % with a cosine threshold, and 80 % with "
        "a cross-encoder for the same run.",
        help="cosine: similarity to the query of at least 0.45. model judge: its score above its threshold (Judge in Inspect). "
        "people: a human grade of 2 or 3.",
    )
    for line in view.warnings:
        st.warning(plain(line), icon=":material/warning:")
    for i, table in enumerate(view.tables()):
        if not table.rows:
            continue
        columns = {
            column: st.column_config.NumberColumn(column, format="%.3f", width=110, help=HELP.get(column))
            for column in table.columns
            if column not in ("judge", "judges", "relevant to one alone", "results")
        }
        draw_table(
            [dict(zip(table.columns, row, strict=True)) for row in table.rows],
            key=f"evaluate:honest:{i}",
            placeholder="–",
            columns=columns,
        )


def _view(evaluated: EvaluatedConfig) -> RelevanceSources:
    return cached_result([evaluated], "honest view", lambda: relevance_sources(evaluated.batch, evaluated.evaluation))
