"""The honest view: the same run scored by a cosine threshold, a model and people, so that the one that misleads is seen."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from cems_workbench.evaluation.relevance_sources import RelevanceSources, relevance_sources
from cems_workbench.jobs.evaluation import EvaluatedConfig
from cems_workbench.ui.evaluate.state import made_of
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.tables import draw_table

HELP = {
    "hit@1": "Share of the queries whose first result this judge calls relevant",
    "hit@5": "Share of the queries with a result among the first five that this judge calls relevant",
    "P@3": "Share of the first three results that this judge calls relevant",
    "share labelled": "Share of the first five results of each query that this judge has graded",
    "results": "Results that both labelled",
    "agree": "Share of these on which they agree",
    "kappa": "Cohen’s kappa: agreement beyond chance; 1 is full, 0 is chance",
    "relevant to one alone": "Results that only the first, and only the second of the two calls relevant",
}


def draw(measured: Sequence[EvaluatedConfig]) -> None:
    """One config's run under every judge."""
    by_name = {evaluated.name: evaluated for evaluated in measured}
    name = st.selectbox("Config", list(by_name), key="evaluate:honest", persist_state="session")
    view = _view(by_name[name])
    st.caption(
        "The same results, called relevant or not by each judge. The figure depends on the judge: ACE reported "
        "100 % by a cosine threshold, and 80 % when a cross-encoder judged the same run.",
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
    return made_of([evaluated], "honest view", lambda: relevance_sources(evaluated.batch, evaluated.evaluation))
