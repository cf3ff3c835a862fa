"""Experiments: save a comparison with its config, note and values; reopen, measure again, or download it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from cems_workbench.config import dump_config
from cems_workbench.errors import InputError, WorkbenchError
from cems_workbench.evaluation.comparison import Comparison
from cems_workbench.evaluation.report import experiment_card, markdown_report, per_query_rows, trec_run
from cems_workbench.evaluation.saved_comparison import read_comparison
from cems_workbench.jobs.evaluation import EvaluatedConfig
from cems_workbench.jobs.timeline import MADE_KEY, made_with
from cems_workbench.pipeline.resources import Resources
from cems_workbench.platform.atomic_write import safe_stem
from cems_workbench.store import ConfigRecord
from cems_workbench.ui.evaluate.compare import compared, draw_saved
from cems_workbench.ui.evaluate.state import Choice
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.html import csv_bytes, plain
from cems_workbench.ui.kit.tables import Column, pick_row


def _of(experiment: ConfigRecord, name: str) -> Any:
    """A value of the saved card; None if it has none."""
    return (experiment.card or {}).get(name)


def _mean(experiment: ConfigRecord, measure: str) -> float | None:
    """The mean of the saved config, the last of its comparison."""
    configs = _of(experiment, "configs")
    if not isinstance(configs, list) or not configs:
        return None
    mean: float | None = configs[-1].get("measures", {}).get(measure, {}).get("mean")
    return mean


COLUMNS: list[Column[ConfigRecord]] = [
    Column("kept", lambda one: one.id),
    Column("name", lambda one: one.name),
    Column("when", lambda one: f"{one.saved_at:%Y-%m-%d %H:%M}"),
    Column("query set", lambda one: _of(one, "query_set")),
    Column("nDCG@10", lambda one: _mean(one, "nDCG@10"), None, "%.3f", "Value of the saved config"),
    Column("hit@5", lambda one: _mean(one, "hit@5"), None, "%.3f", "Value of the saved config"),
    Column("baseline", lambda one: _of(one, "baseline")),
    Column("evidence", lambda one: str(_of(one, "content_hash") or "")[:12], help="Start of the evidence hash"),
    Column("note", lambda one: one.why, "large"),
]


def draw(measured: Sequence[EvaluatedConfig], choice: Choice, resources: Resources) -> None:
    """Draw the form to save or download the current comparison, and the saved experiments."""
    comparison = compared(measured)
    _draw_save(comparison, measured, choice, resources)
    _downloads(comparison, measured, choice)
    st.markdown("## Saved experiments")
    experiments = resources.store.configs.experiments()
    if not experiments:
        st.caption("No experiment is saved yet. Save a comparison with its config, its values and your note.")
        return
    picked = pick_row(experiments, COLUMNS, key="evaluate:kept_table", placeholder="–", most=8)
    if picked is not None:
        _draw_experiment(picked)


def _draw_save(
    comparison: Comparison, measured: Sequence[EvaluatedConfig], choice: Choice, resources: Resources
) -> None:
    with st.form("evaluate:keep", border=False):
        name_box, note_box, button_box = st.columns([2, 4, 1], vertical_alignment="bottom")
        name = name_box.text_input("Save as", value=measured[-1].name, max_chars=120)
        note = note_box.text_input("Note", max_chars=500, placeholder="what you tried, and why")
        pressed = button_box.form_submit_button("Save", icon=":material/bookmark_add:", width="stretch")
    if not pressed:
        return
    if not name.strip():
        st.error("Enter a name.")
        return
    last = measured[-1]
    card = experiment_card(comparison, choice.selection.query_set, _hash(measured))
    card |= {MADE_KEY: made_with(last.labelled, last.evaluation.config)}
    config = measured[-1].evaluation.config.model_copy(update={"name": name.strip()})
    try:
        session.require("reviewer")
        saved = resources.store.configs.add_experiment(
            name.strip(), dump_config(config), note.strip(), card, session.reviewer() or ""
        )
    except WorkbenchError as error:
        st.error(plain(str(error)))
        return
    st.success(f"Saved as experiment {saved.id}. You can choose its config above.", icon=":material/bookmark:")


def _hash(measured: Sequence[EvaluatedConfig]) -> str:
    return str(measured[-1].content_hash)


def _downloads(comparison: Comparison, measured: Sequence[EvaluatedConfig], choice: Choice) -> None:
    name, whole = safe_stem(choice.selection.query_set, "queries", 40), (choice.selection.query_set, _hash(measured))
    files: list[tuple[str, str, str, Callable[[], str | bytes], str | None]] = [
        ("Report (Markdown)", "md", "text/markdown", lambda: markdown_report(comparison, *whole), None),
        ("Per query (CSV)", "csv", "text/csv", lambda: csv_bytes(*per_query_rows(comparison)), None),
        (
            "Everything (JSON)",
            "json",
            "application/json",
            lambda: json.dumps(experiment_card(comparison, *whole), ensure_ascii=False, indent=1),
            None,
        ),
        (
            "Run (TREC)",
            "run",
            "text/plain",
            lambda: _run(measured[-1]),
            f"The results of {plain(measured[-1].name)}, in the run format of trec_eval and ir-measures.",
        ),
    ]
    box = st.container(horizontal=True)
    for label, suffix, kind, write, help in files:
        key = f"evaluate:{suffix}"
        box.download_button(label, write, f"{name}.{suffix}", kind, key=key, on_click="ignore", help=help)


def _run(evaluated: EvaluatedConfig) -> str:
    try:
        return trec_run(evaluated.batch, evaluated.evaluation)
    except ValueError as error:
        return f"# {error}\n"


def _draw_experiment(experiment: ConfigRecord) -> None:
    """Draw a saved experiment: its values of that time, and its config."""
    st.markdown(f"**{plain(experiment.name)}**" + (f"  \n:small[{plain(experiment.why)}]" if experiment.why else ""))
    try:
        saved = read_comparison(experiment.card or {})
    except InputError as error:
        st.caption(plain(f"{error}."))
    else:
        draw_saved(saved)
    option = f"{experiment.name} (kept {experiment.id})"
    left, right = st.columns(2)
    if option not in st.session_state.get("evaluate:configs", ()):
        left.button(
            "Measure it again",
            key="evaluate:again",
            icon=":material/replay:",
            on_click=_choose,
            args=(option,),
            help="Adds its config to those chosen above.",
        )
    else:
        left.caption("Its config is already chosen above.")
    right.download_button(
        "Config (YAML)",
        experiment.config_yaml,
        f"experiment-{experiment.id}.yaml",
        "text/yaml",
        key="evaluate:kept_yaml",
        on_click="ignore",
    )


def _choose(option: str) -> None:
    st.session_state["evaluate:configs"] = [*st.session_state.get("evaluate:configs", []), option]
