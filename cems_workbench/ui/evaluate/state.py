"""What the Evaluate page measures: the query set, the configs, the measures, and the evaluations of them, kept for the session.

An evaluation is kept by the evidence it was made from, its config, and the judgments, so that a change of view costs nothing.

The configs of the history, to be chosen where configs are chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from cems_workbench.config import PipelineConfig, parse_config, preset, preset_names
from cems_workbench.errors import WorkbenchError
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.evaluate import Evaluation, evaluate
from cems_workbench.evaluation.evidence_file import EvidenceSet
from cems_workbench.evaluation.grades import Grades, agreed_grades
from cems_workbench.evaluation.metrics import Measure
from cems_workbench.pipeline.resources import Resources
from cems_workbench.runs.gathering import Wanted, path_for, read_for
from cems_workbench.ui.evaluate.files import Opened, read
from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit.escape import plain


def kept_configs(resources: Resources) -> dict[str, PipelineConfig]:
    """The configs of the history that can be read, the latest first, by a name that tells them apart."""
    found = {}
    for one in resources.store.history.list():
        try:
            found[f"{one.name} (history {one.id})"] = parse_config(one.config_yaml, one.name)
        except WorkbenchError:
            continue  # the History of the Tune page says why
    return found


NOW = "as set in Inspect"
KEPT = 24
"""Evaluations that a session keeps."""
JUDGES = {"People, else models": None, "People": "human", "Models": "model"}


@dataclass(frozen=True)
class Choice:
    """What is to be measured on what: named configs (the first is the baseline), the queries, the judgments and the measures."""

    wanted: Wanted
    configs: tuple[tuple[str, PipelineConfig], ...]
    kind: str | None
    measures: tuple[Measure, ...]
    opened: Opened | None = None
    """The evidence file that everything is measured on, instead of evidence gathered from the store."""


@dataclass(frozen=True)
class Measured:
    """A config's evaluation and the batch it was made on."""

    name: str
    batch: LabelledBatch
    evaluation: Evaluation
    content_hash: str


def config_options(resources: Resources) -> dict[str, PipelineConfig]:
    """Every config that can be chosen, by name: the sliders of Inspect, the presets, those brought in or kept, experiments."""
    options = {NOW: state.config()}
    options |= {name: preset(name).config for name in preset_names()}
    options |= st.session_state.get("ev:imported", {})
    options |= kept_configs(resources)
    for kept in resources.store.experiments():
        name = f"{kept.name} (kept {kept.id})"
        try:
            options[name] = parse_config(kept.config_yaml, name)
        except WorkbenchError as error:
            st.warning(plain(f"{name} cannot be read: {error}"))
    return options


def named(name: str, config: PipelineConfig) -> PipelineConfig:
    """The config under the name it was chosen by, which tables and reports show."""
    return config.model_copy(update={"name": name})


@st.cache_resource(show_spinner=False, max_entries=8)
def _read(
    path: Path, changed_ns: int, _config: PipelineConfig, _wanted: Wanted, _resources: Resources
) -> EvidenceSet | None:
    return read_for(_config, _wanted, _resources)


@st.cache_resource(show_spinner=False, max_entries=8)
def _batch(
    content_hash: str, grades_key: str, _evidence: EvidenceSet, _wanted: Wanted, _grades: Grades
) -> LabelledBatch:
    return LabelledBatch(_wanted.queries, _evidence.evidences, _grades, _evidence.seconds_per_query)


@st.cache_resource(show_spinner=False, max_entries=4)
def _batch_of_file(content_hash: str, kind: str | None, _evidence: EvidenceSet) -> LabelledBatch:
    return LabelledBatch.of(_evidence, kind)


def measured(choice: Choice, resources: Resources) -> tuple[list[Measured], list[tuple[str, PipelineConfig]]]:
    """The configs whose evidence is there, measured, and those whose evidence has to be gathered first."""
    if choice.opened is not None:
        return _measured_on_file(choice, choice.opened), []
    judgments = [one for one in resources.store.judgments() if choice.kind in (None, one.kind)]
    grades = agreed_grades(judgments, choice.kind)
    mark = str(hash(tuple(judgments)))
    found, missing = [], []
    for name, config in choice.configs:
        path = path_for(config, choice.wanted, resources)
        changed = path.stat().st_mtime_ns if path.is_file() else 0
        kept = _read(path, changed, config, choice.wanted, resources) if changed else None
        if kept is None:
            _read.clear()  # a gather that was broken off is read again when it is complete
            missing.append((name, config))
            continue
        batch = _batch(kept.content_hash, mark, kept, choice.wanted, grades)
        made = _evaluated(batch, named(name, config), choice.measures, (kept.content_hash, mark))
        found.append(Measured(name, batch, made, kept.content_hash))
    return found, missing


def _measured_on_file(choice: Choice, file: Opened) -> list[Measured]:
    """Every config on the same evidence, with the judgments that are in it."""
    evidence = read(file)
    batch = _batch_of_file(evidence.content_hash, choice.kind, evidence)
    key = (evidence.content_hash, f"file {choice.kind}")
    return [
        Measured(name, batch, _evaluated(batch, named(name, config), choice.measures, key), evidence.content_hash)
        for name, config in choice.configs
    ]


def _evaluated(
    batch: LabelledBatch, config: PipelineConfig, measures: Sequence[Measure], key: tuple[str, str]
) -> Evaluation:
    kept: dict[object, Evaluation] = st.session_state.setdefault("ev:kept", {})
    whole = (key, config, tuple(measures))
    if whole not in kept:
        while len(kept) >= KEPT:
            kept.pop(next(iter(kept)))
        kept[whole] = evaluate(batch, config, measures)
    return kept[whole]
