"""State of the Evaluate page: query set, configs, measures, and cached evaluations.

Evidence and batches are cached for all sessions. Evaluations and the results of views are cached per session, by evidence, config and
judgments, so that switching views is free.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import streamlit as st

from cems_workbench.config import PipelineConfig
from cems_workbench.config.forms.targets import system_of
from cems_workbench.errors import InputError
from cems_workbench.evaluation.evidence_file import EvidenceSet, read_evidence_file
from cems_workbench.evaluation.log_sampling import LoggedQuery
from cems_workbench.evaluation.metrics import Measure
from cems_workbench.jobs.catalogue import PRESENT_NAME, Catalogue, catalogue
from cems_workbench.jobs.evaluation import (
    EvaluationReport,
    LabelledEvidence,
    agreed,
    evaluate_configs,
    labelled_file,
    labelled_selection,
)
from cems_workbench.jobs.factory import RecentCache
from cems_workbench.jobs.query_set_evidence import QuerySelection, measurable, request_for
from cems_workbench.pipeline.explained import explained
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Query, RowError
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.share import SETTING
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.address import Part
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.session import PageState, for_all_sessions

MAX_EVALUATIONS = 24
"""Maximum evaluations cached per session."""
MAX_VIEW_RESULTS = 12
"""Maximum comparisons, ablations and judge comparisons cached per session."""
JUDGES = {"People, else models": None, "People": "human", "Models": "model"}


OPENED_FILE = "(opened evidence file)"
"""Name shown as the query set while an evidence file is open; no query set may have it."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """An evidence file and, if it does not match the current store, the reason."""

    path: Path
    name: str
    reason: str | None


@dataclass(frozen=True)
class LogSample:
    """Outcome of sampling a log: one line on the set, its queries, the judge's scores by qid, rejected rows."""

    line: str
    chosen: tuple[LoggedQuery, ...]
    scores: Mapping[str, float]
    errors: tuple[RowError, ...]


@dataclass(frozen=True)
class EvaluateState:
    """What the page remembers between reruns, besides widget values."""

    file_configs: Mapping[str, PipelineConfig] = field(default_factory=dict)
    """Configs added from files, by name."""
    file_warnings: tuple[str, ...] = ()
    """Warnings of the file added last."""
    opened: OpenedFile | None = None
    """The evidence file in use."""
    offered: OpenedFile | None = None
    """An evidence file of another store, until the user decides whether to use it."""
    log_sample: LogSample | None = None
    """The query set sampled last from a log."""
    next_query_set: str | None = None
    """Selection requested in the previous rerun; the next rerun sets the box to it, as with the two below."""
    next_configs: tuple[str, ...] | None = None
    close_file_box: bool = False
    evaluations: RecentCache = field(default_factory=lambda: RecentCache(MAX_EVALUATIONS))
    views: RecentCache = field(default_factory=lambda: RecentCache(MAX_VIEW_RESULTS))
    fidelities: RecentCache = field(default_factory=lambda: RecentCache(MAX_VIEW_RESULTS))
    """Cached recordings, fidelity comparisons and explanations."""
    uploads: tempfile.TemporaryDirectory[str] | None = None
    """Directory of uploaded evidence files; deleted with the session."""


page = PageState("evaluate", EvaluateState)


def set_widgets() -> None:
    """Set the boxes to selections requested in the previous rerun; called before they are drawn."""
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
    """The comparison set up on the page: config names, query set, whether restricted to each query's project."""

    configs: tuple[str, ...]
    query_set: str
    only_project: bool


def chosen_comparison() -> ChosenComparison | None:
    """The comparison set up on the page, for other pages; None before the page was opened or without a config."""
    configs, query_set = st.session_state.get("evaluate:configs"), st.session_state.get("evaluate:set")
    if not configs or query_set is None:
        return None
    return ChosenComparison(tuple(configs), query_set, bool(st.session_state.get("evaluate:only_project")))


@dataclass(frozen=True)
class Choice:
    """The setup of a measurement: named configs (the first is the baseline), queries, judgments and measures."""

    selection: QuerySelection
    configs: tuple[tuple[str, PipelineConfig], ...]
    kind: str | None
    measures: tuple[Measure, ...]
    opened: OpenedFile | None = None
    """An evidence file used instead of evidence gathered from the store."""

    def second(self, purpose: str) -> str:
        """Hint if only one config is measured: `Add a second config above to ...`, or gather the chosen one."""
        return f"{'Add a second config' if len(self.configs) < 2 else 'Gather the other config'} above {purpose}."

    @property
    def elsewhere(self) -> str:
        """A sentence if Inspect does not search what was measured."""
        return " Inspect searches the open store, not the one this evidence was gathered from." if self.locked else ""

    @property
    def locked(self) -> str | None:
        """Why the evidence must not change; None if it may."""
        return (
            f"the file is read-only, {self.opened.reason}" if self.opened is not None and self.opened.reason else None
        )


def open_measured(
    query: Query, config: EvaluationReport, pinned: EvaluationReport | None, why: tuple[str, int] | None = None
) -> None:
    """Open a query in Inspect as measured: `config` on the sliders, `pinned` as the baseline, `why` as in `inspect.state.show`."""
    baseline = None if pinned is None else (pinned.name, pinned.evaluation.config)
    open_gathered(query, config.labelled.evidence, config.evaluation.config, baseline, why)


def open_gathered(
    query: Query,
    evidence: EvidenceSet,
    config: PipelineConfig,
    baseline: tuple[str, PipelineConfig] | None,
    why: tuple[str, int] | None = None,
) -> None:
    """Open a query in Inspect with the request that its evidence was gathered with."""
    header = evidence.header
    if evidence.external:
        state.open_traced_in_inspect(state.TracedQuery(header.query_set, query.qid, query.query), why=why)
        return
    recorded = evidence.evidences.get(query.qid)
    if recorded is not None and explained(recorded) is not None:
        state.open_evidence(recorded, config, session.resources().store, why=why, switch=True)
        return
    state.open_in_inspect(request_for(query, header.moment, header.only_project), config, baseline, why=why)


def config_options(resources: Resources | None = None) -> Catalogue:
    """All selectable configs. The errors of unreadable ones are drawn, unless they are those of an address, without `resources`."""
    store = (resources or session.resources()).store
    configs = catalogue(store, state.present_config(), page.get().file_configs)
    for problem in configs.problems if resources is not None else ():
        st.warning(plain(problem))
    return configs


FAST_PRESET = "recollection"
"""A preset without rerank or expansion models, so that a first comparison is fast."""


def usual_configs() -> list[str]:
    """The preset of Inspect and the config as set there, or, while unchanged, another preset, of the same target if it has one."""
    preset, system = state.present().preset, system_of(state.present().preset)
    others = [*(system.presets if system is not None else ()), FAST_PRESET, "cems"]
    return [preset, PRESENT_NAME if state.changed_parameters() else next(name for name in others if name != preset)]


def most_judged(resources: Resources) -> str | None:
    """The query set with the most queries that can be measured; None without a set."""
    store = resources.store
    judgments, counts = store.judgments.read(), dict[str, int]()
    for known in sorted(store.query_sets.latest(), key=lambda one: one.name):
        counts[known.name] = len(measurable(store.query_sets.queries(known.name), judgments))
    return max(counts, key=counts.__getitem__, default=None)


def as_set_in_inspect(names: Callable[[], Collection[str] | None]) -> Part:
    """The part of an address with the settings of Inspect, while they are among the configs of these names."""
    return Part(
        SETTING.names,
        lambda: SETTING.get() if PRESENT_NAME in (names() or ()) else {},
        lambda values: SETTING.put(values) if values else None,
        SETTING.entry,
    )


def measured(choice: Choice, resources: Resources) -> tuple[list[EvaluationReport], list[tuple[str, PipelineConfig]]]:
    """Evaluations of configs with gathered evidence, and the configs that must be gathered first."""
    return evaluate_configs(choice.configs, _source(choice, resources), choice.measures, cache=page.get().evaluations)


def cached_result(evaluated: Sequence[EvaluationReport], what: Hashable, make: Callable[[], Result]) -> Result:
    """A value computed from evaluations, cached for the session under `what`."""
    key = (what, *((*one.labelled.key, one.evaluation.config, one.evaluation.measures) for one in evaluated))
    return page.get().views(key, make)


def read_file(file: OpenedFile) -> EvidenceSet:
    """The whole evidence file, cached for all sessions until it changes. Raises InputError."""
    try:
        changed = file.path.stat().st_mtime_ns
    except OSError:
        raise InputError(f"{file.name}: it no longer exists; open it again") from None
    return _read_file(file.path, changed)


@st.cache_resource(show_spinner="Reading the evidence file", max_entries=4)
def _read_file(path: Path, changed_ns: int) -> EvidenceSet:
    return read_evidence_file(path)


def _source(choice: Choice, resources: Resources) -> Callable[[PipelineConfig], LabelledEvidence | None]:
    """A function that returns the labelled evidence of a config: from the store by its gather parameters, or from the opened file."""
    if choice.opened is not None:
        of_file = labelled_file(read_file(choice.opened), choice.kind, for_all_sessions)
        return lambda config: of_file
    grades = agreed(resources.store.judgments.read(), choice.kind)
    return lambda config: labelled_selection(config, choice.selection, grades, resources, for_all_sessions)
