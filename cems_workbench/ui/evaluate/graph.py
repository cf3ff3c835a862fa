"""Graph recall: what Chroma's graph finds of the exactly nearest memories of the queries, and which relevant ones it misses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from cems_workbench.config import list_depths, with_values
from cems_workbench.jobs.evaluation import EvaluationReport
from cems_workbench.jobs.graph_recall import graph_recall
from cems_workbench.pipeline.resources import Resources
from cems_workbench.results import Report
from cems_workbench.ui.evaluate.state import Choice, open_gathered
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.session import is_kept, kept
from cems_workbench.ui.kit.tables import Column, pick_row
from cems_workbench.ui.kit.widgets import errors_shown, progress_bar, show, switch

KEPT = "evaluate:graph:found"


def draw_graph(measured: Sequence[EvaluationReport], choice: Choice, resources: Resources) -> None:
    """Draw the recall by ef_search, once it is asked for; a missed memory opens in Inspect under the first config with the graph."""
    if choice.locked:
        st.info(plain(f"The evidence is that of another store, whose graph is not here.{choice.elsewhere}"))
        return
    base = measured[0]
    depth = list_depths(base.evaluation.config)["vector"] or 10
    depths = {f"first {k:,}": k for k in sorted({10, depth})}
    k = depths[switch("Compare", list(depths), "evaluate:graph:k", labelled=True)]
    key = (base.labelled.key, choice.selection.query_set, k, str(resources.store.path), resources.store.content_version)
    if is_kept(KEPT, key):
        return _draw(kept(KEPT, key, Report), base, k)
    st.caption("Chroma’s graph is searched for every query with each ef_search. The collection is not changed.")
    if st.button("Search the graph", "evaluate:graph:search", icon=":material/hub:"):
        with errors_shown():
            grades = dict(zip(base.batch.qids, base.batch.grades, strict=True))
            least, config = base.evaluation.relevant_from, base.evaluation.config
            with progress_bar() as progress:
                found = graph_recall(choice.selection, grades, least, config, resources, k, progress=progress)
            kept(KEPT, key, lambda: found)
            st.rerun()


def _draw(found: Report, base: EvaluationReport, k: int) -> None:
    recall, missed = found.tables
    show(found.lines, [recall], found.notes)
    columns: list[Column[tuple[Any, ...]]] = [
        Column(name, lambda row, i=i: row[i], "large" if name == "query" else "small")  # type: ignore[misc]
        for i, name in enumerate(missed.columns)
    ]
    if not missed.rows:
        return
    st.markdown(f"## {missed.title.capitalize()}")
    picked = pick_row(missed.rows, columns, key=f"evaluate:graph:missed:{k}", most=10)
    st.caption("Tick the box of a row to open its query in Inspect with the graph on, and why the memory is missing.")
    if picked is not None:
        query = next(query for query in base.batch.queries if query.qid == picked[0])
        config = base.evaluation.config
        on = with_values(config, {"lists.vector.index": "graph", "lists.vector.ef_search": picked[4]})
        open_gathered(query, base.labelled.evidence, on, (config.name, config), (picked[2], k))
