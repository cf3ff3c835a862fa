"""Evaluate: configs measured and compared on judged queries, honestly; what is worth keeping is kept."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from cems_workbench.errors import WorkbenchError
from cems_workbench.pipeline.resources import Resources
from cems_workbench.runs.evaluation import EvaluatedConfig
from cems_workbench.ui.evaluate import ablation as evaluate_ablation
from cems_workbench.ui.evaluate import choose as evaluate_choose
from cems_workbench.ui.evaluate import compare as evaluate_compare
from cems_workbench.ui.evaluate import experiments as evaluate_experiments
from cems_workbench.ui.evaluate import gather as evaluate_gather
from cems_workbench.ui.evaluate import honest as evaluate_honest
from cems_workbench.ui.evaluate import queries as evaluate_queries
from cems_workbench.ui.evaluate.state import Choice, measured
from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit import handles
from cems_workbench.ui.kit.assets import write_stylesheet
from cems_workbench.ui.kit.escape import plain

VIEWS = ("Compare", "By type", "By query", "Honest view", "Ablation", "Experiments")


def main() -> None:
    """Draw the page: the choice, what has to be gathered for it, and the chosen view."""
    state.prepare()
    write_stylesheet("workbench")
    try:
        resources = handles.resources()
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/lock:")
        return
    choice = evaluate_choose.choose(resources)
    handles.warm_up(resources)
    if choice is None:
        return
    try:
        found, missing = measured(choice, resources)
        if evaluate_gather.offer(missing, found, choice, resources):
            st.rerun()
        if found:
            _views(found, choice, resources)
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/block:")


def _views(found: Sequence[EvaluatedConfig], choice: Choice, resources: Resources) -> None:
    """The chosen view of what was measured."""
    if not found[0].batch.queries:
        st.info("No query has both evidence and a judgment of this kind.")
        return
    chosen = st.segmented_control(
        "View",
        VIEWS,
        default="Compare",
        required=True,
        key="ev:view",
        label_visibility="collapsed",
        persist_state="session",
    )
    if chosen == "Compare":
        evaluate_compare.draw(found)
    elif chosen == "By type":
        evaluate_queries.draw_types(found)
    elif chosen == "By query":
        evaluate_queries.draw_queries(found, choice)
    elif chosen == "Honest view":
        evaluate_honest.draw(found)
    elif chosen == "Ablation":
        evaluate_ablation.draw(found)
    elif chosen == "Experiments":
        evaluate_experiments.draw(found, choice, resources)
