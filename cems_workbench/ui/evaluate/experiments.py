"""Experiments: save a comparison with its config, note and values; reopen, measure again, or download it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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
from cems_workbench.ui.kit.tables import pick_row


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
    picked = pick_row(
        [_row(experiment) for experiment in experiments],
        key="evaluate:kept_table",
        placeholder="–",
        most=8,
        columns={
            "nDCG@10": st.column_config.NumberColumn("nDCG@10", format="%.3f", help="Value of the saved config"),
            "hit@5": st.column_config.NumberColumn("hit@5", format="%.3f", help="Value of the saved config"),
            "note": st.column_config.TextColumn("note", width="large"),
            "evidence": st.column_config.TextColumn("evidence", help="Start of the evidence hash"),
        },
    )
    if picked is not None:
        _draw_experiment(experiments[picked])


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
    box = st.container(horizontal=True)
    name = safe_stem(choice.selection.query_set, "queries", 40)
    box.download_button(
        "Report (Markdown)",
        lambda: markdown_report(comparison, choice.selection.query_set, _hash(measured)),
        f"{name}.md",
        "text/markdown",
        key="evaluate:md",
        on_click="ignore",
    )
    box.download_button(
        "Per query (CSV)",
        lambda: csv_bytes(*per_query_rows(comparison)),
        f"{name}.csv",
        "text/csv",
        key="evaluate:csv",
        on_click="ignore",
    )
    box.download_button(
        "Everything (JSON)",
        lambda: _json(experiment_card(comparison, choice.selection.query_set, _hash(measured))),
        f"{name}.json",
        "application/json",
        key="evaluate:json",
        on_click="ignore",
    )
    box.download_button(
        "Run (TREC)",
        lambda: _run(measured[-1]),
        f"{name}.run",
        "text/plain",
        key="evaluate:run",
        on_click="ignore",
        help=f"The results of {plain(measured[-1].name)}, in the run format of trec_eval and ir-measures.",
    )


def _json(card: dict[str, Any]) -> str:
    return json.dumps(card, ensure_ascii=False, indent=1)


def _run(evaluated: EvaluatedConfig) -> str:
    try:
        return trec_run(evaluated.batch, evaluated.evaluation)
    except ValueError as error:
        return f"# {error}\n"


def _row(experiment: ConfigRecord) -> dict[str, Any]:
    card = experiment.card or {}
    return {
        "kept": experiment.id,
        "name": experiment.name,
        "when": experiment.saved_at.strftime("%Y-%m-%d %H:%M"),
        "query set": card.get("query_set"),
        "nDCG@10": _mean(card, "nDCG@10"),
        "hit@5": _mean(card, "hit@5"),
        "baseline": card.get("baseline"),
        "evidence": str(card.get("content_hash") or "")[:12],
        "note": experiment.why,
    }


def _mean(card: Mapping[str, Any], measure: str) -> float | None:
    configs = card.get("configs")
    if not isinstance(configs, list) or not configs:
        return None
    mean: float | None = configs[-1].get("measures", {}).get(measure, {}).get("mean")
    return mean


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
