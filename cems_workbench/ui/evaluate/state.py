"""What the Evaluate page measures: the query set, the configs, the measures, and the evaluations of them, kept for the session.

Evidence and batches are kept for all sessions. An evaluation is kept for the session by the evidence it was made from, its config, and
the judgments, so that a change of view costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.metrics import Measure
from cems_workbench.pipeline.resources import Resources
from cems_workbench.runs.caching import RecentCache
from cems_workbench.runs.catalogue import Catalogue, catalogue
from cems_workbench.runs.evaluation import (
    EvaluatedConfig,
    LabelledEvidence,
    agreed,
    evaluate_configs,
    labelled_file,
    labelled_selection,
)
from cems_workbench.runs.gathering import QuerySelection
from cems_workbench.ui.evaluate.files import Opened, read
from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.run_cache import for_all_sessions

EVALUATIONS_KEPT = 24
"""Evaluations that a session keeps."""
JUDGES = {"People, else models": None, "People": "human", "Models": "model"}


@dataclass(frozen=True)
class Choice:
    """What is to be measured on what: named configs (the first is the baseline), the queries, the judgments and the measures."""

    selection: QuerySelection
    configs: tuple[tuple[str, PipelineConfig], ...]
    kind: str | None
    measures: tuple[Measure, ...]
    opened: Opened | None = None
    """The evidence file that everything is measured on, instead of evidence gathered from the store."""


def config_options(resources: Resources) -> Catalogue:
    """Every config that can be chosen; of one that cannot be read it is said why."""
    found = catalogue(resources.store, state.config(), st.session_state.get("ev:imported", {}))
    for problem in found.problems:
        st.warning(plain(problem))
    return found


def measured(choice: Choice, resources: Resources) -> tuple[list[EvaluatedConfig], list[tuple[str, PipelineConfig]]]:
    """The configs whose evidence is there, measured, and those whose evidence has to be gathered first."""
    evaluations: RecentCache = st.session_state.setdefault("ev:kept", RecentCache(EVALUATIONS_KEPT))
    return evaluate_configs(choice.configs, _source(choice, resources), choice.measures, cache=evaluations)


def _source(choice: Choice, resources: Resources) -> Callable[[PipelineConfig], LabelledEvidence | None]:
    """The labelled evidence of a config: that of the store for its gather parameters, or that of the opened file for all."""
    if choice.opened is not None:
        of_file = labelled_file(read(choice.opened), choice.kind, for_all_sessions)
        return lambda config: of_file
    grades = agreed(resources.store.judgments.read(), choice.kind)
    return lambda config: labelled_selection(config, choice.selection, grades, resources, for_all_sessions)
