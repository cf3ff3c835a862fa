"""Labels needed: how many more queries tell a loss between two configs, and which to label first (`evaluation.power`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from operator import attrgetter

import streamlit as st

from cems_workbench.errors import counted
from cems_workbench.evaluation.grades import as_judged
from cems_workbench.evaluation.labelling.queue import make_queue
from cems_workbench.evaluation.power import Movable, power_of
from cems_workbench.evaluation.verdict import verdict_measure
from cems_workbench.jobs.evaluation import EvaluationReport
from cems_workbench.ui.evaluate.state import Choice, cached_result
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.address import go
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import HELP, Column, draw_table
from cems_workbench.ui.kit.widgets import errors_shown, remembered, show
from cems_workbench.ui.label import state as label_state

COLUMNS: Sequence[Column[Movable]] = (
    Column("query", attrgetter("query"), "large"),
    Column("pairs", lambda one: len(one.unjudged), 72, "%d", "Results within the cut-off that nobody judged"),
    Column("difference", attrgetter("now"), 96, "%+.3f", "Of the second config from the first; empty while nothing relevant is known"),
    Column("lowest", attrgetter("lowest"), 96, "%+.3f", "What labels can make of it"),
    Column("highest", attrgetter("highest"), 96, "%+.3f", "What labels can make of it"),
)


def draw(measured: Sequence[EvaluationReport], choice: Choice) -> None:
    """Draw, once it is asked for, what the first two configs' differences can tell, and the way to the labels that tell more."""
    both = list(measured[:2])
    if not st.toggle("How many labels it takes", **remembered("evaluate:power")):
        return
    evidences = [one.labelled.evidence.evidences for one in both]
    grades, gathered = both[0].labelled.grades, both[0].labelled.evidence.queries
    named, measure = [one.evaluation.config for one in both], verdict_measure(both[0].evaluation.measures)
    with errors_shown():
        queries = as_judged(gathered, grades.answerable)
        found = cached_result(both, "power", lambda: power_of(queries, evidences, grades.grades, named, measure))
        show(found.lines, found.tables[:1], [note for note in found.notes if not note.startswith("lowest")])
        if not found.movable:
            return
        first = found.movable[: found.shown]
        st.markdown("## Queries to label first", help=HELP["evaluate:power:first"])
        draw_table(first, COLUMNS, key="evaluate:power:first", most=8)
        label = f"Label {counted(len(found.pairs), 'pairs')} of these {counted(len(first), 'queries')}"
        if not choice.locked and st.button(label, "evaluate:power:label", icon=":material/rule:"):
            session.require("reviewer")
            name = f"first-{datetime.now(UTC):%Y%m%d-%H%M%S}"
            about = {"query_set": choice.selection.query_set, "compared": [plain(one.name) for one in both]}
            session.resources().store.queues.save(make_queue(name, found.pairs, "query", settings=about))
            label_state.show_queue(name)
            go("pages/label.py")
