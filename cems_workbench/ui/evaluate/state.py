"""What the Evaluate page remembers between runs, and what it measures: the query set, the configs, the measures, the evaluations.

Evidence and batches are kept for all sessions. An evaluation, and what a view makes of it, is kept for the session by the evidence it
was made from, its config, and the judgments, so that a change of view costs nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import streamlit as st

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.evaluation.evidence_file import EvidenceSet, read_evidence_file
from cems_workbench.evaluation.log_sampling import LoggedQuery
from cems_workbench.evaluation.metrics import Measure
from cems_workbench.jobs.caching import RecentCache
from cems_workbench.jobs.catalogue import Catalogue, catalogue
from cems_workbench.jobs.evaluation import (
    EvaluatedConfig,
    LabelledEvidence,
    agreed,
    evaluate_configs,
    labelled_file,
    labelled_selection,
)
from cems_workbench.jobs.query_set_evidence import QuerySelection
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import RowError
from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.job_cache import for_all_sessions
from cems_workbench.ui.kit.state import PageState

EVALUATIONS_KEPT = 24
"""Evaluations that a session keeps."""
VIEWS_KEPT = 12
"""Comparisons, ablations and honest views that a session keeps."""
JUDGES = {"People, else models": None, "People": "human", "Models": "model"}


OPENED_FILE = "(opened evidence file)"
"""What the query set is called while an evidence file is measured on; no set can have a name with these brackets and be told apart."""

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """An evidence file and, when it is not of the open store as it is now, why."""

    path: Path
    name: str
    reason: str | None


@dataclass(frozen=True)
class LogSample:
    """What became of a log: one line on the set that was made, its queries, the judge's scores by qid, the rows that were left out."""

    line: str
    chosen: tuple[LoggedQuery, ...]
    scores: Mapping[str, float]
    errors: tuple[RowError, ...]


@dataclass(frozen=True)
class EvaluateState:
    """What the page remembers between runs, beside what its widgets are set to."""

    file_configs: Mapping[str, PipelineConfig] = field(default_factory=dict)
    """Configs that were brought in from files, by the name they are chosen by."""
    file_warnings: tuple[str, ...] = ()
    """What the file that was brought in last could not say."""
    opened: OpenedFile | None = None
    """The evidence file that is measured on."""
    offered: OpenedFile | None = None
    """An evidence file of another store, until somebody says whether it is used."""
    log_sample: LogSample | None = None
    left_out: tuple[str, ...] = ()
    """Queries that the gathering in the run before could not search, with the reason; shown once."""
    next_query_set: str | None = None
    """Chosen by what was opened or made in the run before; the next run sets the box to it, as with the two below."""
    next_configs: tuple[str, ...] | None = None
    close_file_box: bool = False
    evaluations: RecentCache = field(default_factory=lambda: RecentCache(EVALUATIONS_KEPT))
    views: RecentCache = field(default_factory=lambda: RecentCache(VIEWS_KEPT))
    fidelities: RecentCache = field(default_factory=lambda: RecentCache(VIEWS_KEPT))
    """Answers that were read, what was measured of them, and what explains it."""
    uploads: tempfile.TemporaryDirectory[str] | None = None
    """Where uploaded evidence files are; it is gone with the session."""


page = PageState("evaluate", EvaluateState)


def set_widgets() -> None:
    """Set the boxes to what was opened or made in the run before; called before any of them is drawn."""
    present = page.get()
    if present.next_query_set is not None:
        st.session_state["evaluate:set"] = present.next_query_set
    if present.next_configs is not None:
        st.session_state["evaluate:configs"] = list(present.next_configs)
    if present.close_file_box:
        st.session_state["evaluate:file"] = False
    page.update(next_query_set=None, next_configs=None, close_file_box=False)


@dataclass(frozen=True, slots=True)
class ChosenComparison:
    """What the page is set to compare: the names of configs, the name of the query set, whether within each query's project."""

    configs: tuple[str, ...]
    query_set: str
    project_only: bool


def chosen_comparison() -> ChosenComparison | None:
    """The comparison that the page is set to, for other pages; None before it was opened, and while it has no config."""
    configs, query_set = st.session_state.get("evaluate:configs"), st.session_state.get("evaluate:set")
    if not configs or query_set is None:
        return None
    return ChosenComparison(tuple(configs), query_set, bool(st.session_state.get("evaluate:project_only")))


@dataclass(frozen=True)
class Choice:
    """What is to be measured on what: named configs (the first is the baseline), the queries, the judgments and the measures."""

    selection: QuerySelection
    configs: tuple[tuple[str, PipelineConfig], ...]
    kind: str | None
    measures: tuple[Measure, ...]
    opened: OpenedFile | None = None
    """The evidence file that everything is measured on, instead of evidence gathered from the store."""

    def second(self, purpose: str) -> str:
        """What to do where only one config is measured: `Add a second config above to ...`, or gather the one that is chosen."""
        return f"{'Add a second config' if len(self.configs) < 2 else 'Gather the other config'} above {purpose}."

    @property
    def locked(self) -> str | None:
        """Why nothing may be added to the evidence; None where something may."""
        return (
            f"the file is read-only, {self.opened.reason}" if self.opened is not None and self.opened.reason else None
        )


def config_options(resources: Resources) -> Catalogue:
    """Every config that can be chosen; of one that cannot be read it is said why."""
    configs = catalogue(resources.store, state.present_config(), page.get().file_configs)
    for problem in configs.problems:
        st.warning(plain(problem))
    return configs


def measured(choice: Choice, resources: Resources) -> tuple[list[EvaluatedConfig], list[tuple[str, PipelineConfig]]]:
    """The configs whose evidence is there, measured, and those whose evidence has to be gathered first."""
    return evaluate_configs(choice.configs, _source(choice, resources), choice.measures, cache=page.get().evaluations)


def made_of(evaluated: Sequence[EvaluatedConfig], what: Hashable, make: Callable[[], Made]) -> Made:
    """What a view makes of evaluations, kept for the session; `what` tells what it is."""
    key = (what, *((*one.labelled.key, one.evaluation.config, one.evaluation.measures) for one in evaluated))
    return page.get().views(key, make)


def read_file(file: OpenedFile) -> EvidenceSet:
    """The whole evidence file, kept for all sessions as long as it is unchanged. Raises InputError."""
    try:
        changed = file.path.stat().st_mtime_ns
    except OSError:
        raise InputError(f"{file.name}: it is no longer there; open it again") from None
    return _read_file(file.path, changed)


@st.cache_resource(show_spinner="Reading the evidence file", max_entries=4)
def _read_file(path: Path, changed_ns: int) -> EvidenceSet:
    return read_evidence_file(path)


def _source(choice: Choice, resources: Resources) -> Callable[[PipelineConfig], LabelledEvidence | None]:
    """The labelled evidence of a config: that of the store for its gather parameters, or that of the opened file for all."""
    if choice.opened is not None:
        of_file = labelled_file(read_file(choice.opened), choice.kind, for_all_sessions)
        return lambda config: of_file
    grades = agreed(resources.store.judgments.read(), choice.kind)
    return lambda config: labelled_selection(config, choice.selection, grades, resources, for_all_sessions)
