"""The Evaluate page: compare configs on judged queries, with recorded answers of a live system, or over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from cems_workbench.jobs.evaluation import EvaluatedConfig
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.evaluate import breakdown, compare, experiments, fidelity, losses, setup
from cems_workbench.ui.evaluate.state import Choice, measured
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.html import begin_page
from cems_workbench.ui.kit.widgets import errors_shown, switch

VIEWS: Mapping[str, Callable[[Sequence[EvaluatedConfig], Choice, Resources], None]] = {
    "Losses": lambda evaluated, choice, resources: losses.draw(evaluated, choice),
    "Compare": lambda evaluated, choice, resources: compare.draw(evaluated, choice),
    "By type": lambda evaluated, choice, resources: breakdown.draw_types(evaluated),
    "By query": lambda evaluated, choice, resources: breakdown.draw_queries(evaluated, choice),
    "Compare judges": lambda evaluated, choice, resources: breakdown.draw_judges(evaluated),
    "Calibrate": lambda evaluated, choice, resources: breakdown.draw_calibration(evaluated, choice),
    "Ablation": breakdown.draw_ablation,
    "Experiments": experiments.draw_experiments,
}

JUDGED, RECORDED, OVER_TIME = "Judged queries", "Recorded answers", "Over time"
"""What configs are compared with: judgments, recorded answers, or earlier measurements."""


@session.show_errors
def main() -> None:
    """Draw the page: the basis of comparison, the choice, the offer to gather, and the chosen view."""
    begin_page("Evaluate")
    resources = session.open_or_explain()
    if resources is None:
        return
    against = switch("Compare with", (JUDGED, RECORDED, OVER_TIME), "evaluate:against")
    if against != JUDGED:
        fidelity.draw(resources) if against == RECORDED else experiments.draw_over_time(resources)
        session.warm_up(resources)
        return
    choice = setup.choose(resources)
    session.warm_up(resources)
    if choice is None:
        return
    with errors_shown():
        evaluated, missing = measured(choice, resources)
        if setup.offer(missing, evaluated, choice, resources):
            st.rerun()
        if evaluated:
            setup.draw_answered(evaluated, choice, resources)
            _views(evaluated, choice, resources)
        else:
            setup.draw_sample(choice, resources)


def _views(evaluated: Sequence[EvaluatedConfig], choice: Choice, resources: Resources) -> None:
    """Draw the chosen view of the evaluations."""
    if not evaluated[0].batch.queries:
        st.info("No query has both evidence and a judgment of this kind.")
        return
    view = switch("View", list(VIEWS), "evaluate:view")
    own = view == "Ablation"  # it shows the gaps of each row itself
    if not own and setup.draw_missing_scores(
        "evaluate", setup.of_evaluated(evaluated), resources, locked=choice.locked
    ):
        st.rerun()
    VIEWS[view](evaluated, choice, resources)
