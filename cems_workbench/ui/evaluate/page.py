"""The Evaluate page: compare configs on judged queries, with recorded answers of a live system, or over time."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from cems_workbench.jobs.evaluation import EvaluationReport
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.evaluate import breakdown, compare, experiments, graph, losses, setup
from cems_workbench.ui.evaluate.state import Choice, measured
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.html import begin_page
from cems_workbench.ui.kit.views import View, views_in
from cems_workbench.ui.kit.widgets import errors_shown, switch

VIEWS = (
    View("Losses", 10, lambda evaluated, choice, resources: losses.draw(evaluated, choice)),
    View("Compare", 20, lambda evaluated, choice, resources: compare.draw(evaluated, choice)),
    View("By type", 30, lambda evaluated, choice, resources: breakdown.draw_types(evaluated)),
    View("By query", 40, lambda evaluated, choice, resources: breakdown.draw_queries(evaluated, choice)),
    View("Compare judges", 50, lambda evaluated, choice, resources: breakdown.draw_judges(evaluated)),
    View("Calibrate", 60, lambda evaluated, choice, resources: breakdown.draw_calibration(evaluated, choice)),
    View("Ablation", 70, breakdown.draw_ablation),
    View("Graph recall", 75, graph.draw_graph),
    View("Experiments", 80, experiments.draw_experiments),
)


@session.show_errors
def main() -> None:
    """Draw the page: what configs are compared with, and its comparison."""
    begin_page("Evaluate")
    resources = session.open_or_explain()
    if resources is None:
        return
    bases = views_in("evaluate.against", *AGAINST)
    bases[switch("Compare with", list(bases), "evaluate:against")].draw(resources)
    session.warm_up(resources)


def _draw_judged(resources: Resources) -> None:
    """Draw the choice of judged queries and configs, the offer to gather, and the chosen view."""
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


def _views(evaluated: Sequence[EvaluationReport], choice: Choice, resources: Resources) -> None:
    if not evaluated[0].batch.queries:
        st.info("No query has both evidence and a judgment of this kind.")
        return
    views = views_in("evaluate", *VIEWS)
    view = switch("View", list(views), "evaluate:view")
    own = view == "Ablation"  # it shows the gaps of each row itself
    if not own and setup.draw_missing_scores(
        "evaluate", setup.of_evaluated(evaluated), resources, locked=choice.locked
    ):
        st.rerun()
    views[view].draw(evaluated, choice, resources)


AGAINST = (View("Judged queries", 10, _draw_judged), View("Over time", 30, experiments.draw_over_time))
