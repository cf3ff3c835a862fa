"""History of saved configs: author, date, reason and measurements, with restore."""

from __future__ import annotations

import streamlit as st

from cems_workbench.config import difference, export_config, file_name
from cems_workbench.errors import WorkbenchError
from cems_workbench.jobs.config_history import evidence_warning, kept_card, restored_config
from cems_workbench.pipeline.resources import Resources
from cems_workbench.store import ConfigRecord
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.toolbar import diff_table, draw_import
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.html import plain, render
from cems_workbench.ui.kit.tables import Column, pick_row
from cems_workbench.ui.kit.widgets import empty
from cems_workbench.ui.tune.state import page


def draw(resources: Resources) -> None:
    """Draw the saved configs, latest first, with restore, rename and download; below them, the import of config files."""
    records = resources.store.configs.history()
    if records:
        _table(records, resources)
    else:
        empty("No config is saved yet", render("tune/nothing_kept.html"))
    st.markdown("## From a file")
    draw_import(resources, "tune:")


def _table(records: list[ConfigRecord], resources: Resources) -> None:
    cards = {record.id: kept_card(record)[0] for record in records}

    def measured(record: ConfigRecord) -> str | None:
        card = cards[record.id]
        last = card.measured[-1] if card is not None and card.measured else None
        return None if last is None else f"{last.metric} {last.baseline:.3f} → {last.tuned:.3f}"

    def matches(record: ConfigRecord) -> str:
        card = cards[record.id]
        return "–" if card is None else "changed" if evidence_warning(card, resources.store) else "same"

    columns: list[Column[ConfigRecord]] = [
        Column("name", lambda record: record.name, 150),
        Column("when", lambda record: f"{record.saved_at:%Y-%m-%d %H:%M}", 116),
        Column("who", lambda record: record.author, 80),
        Column("from", lambda record: record.base, 80),
        Column("measured", measured, 160, help="The last measurement on the evidence card"),
        Column("store", matches, 66, help="Whether it was measured on the current content of this store"),
        Column("why", lambda record: record.why, 200),
    ]
    picked, saved = pick_row(records, columns, key="tune:history", placeholder="–", most=8), page.get().saved_id
    chosen = picked or next((record for record in records if record.id == saved), None)
    if chosen is None:
        st.caption("Select a row to restore a config.")
        return
    _opened(chosen, resources)


def _opened(record: ConfigRecord, resources: Resources) -> None:
    """Draw the config compared with the current one, its card, and its actions."""
    st.markdown(f"**{plain(record.name)}**" + (f"  \n:small[{plain(record.why)}]" if record.why else ""))
    try:
        restored = restored_config(record, resources.store)
    except WorkbenchError as error:
        st.error(plain(f"It cannot be read: {error}"))
        return
    config, card = restored.config, restored.card
    for warning in restored.warnings:
        st.warning(plain(warning), icon=":material/history:")
    changed = difference(state.present_config(), config)
    with st.container(horizontal=True):
        st.button(
            "Restore to the sliders",
            key="tune:restore",
            type="primary",
            icon=":material/settings_backup_restore:",
            on_click=state.use_config,
            args=(config,),
            disabled=not changed,
        )
        st.download_button(
            "YAML",
            export_config(config, "yaml", card),
            file_name(config, "yaml"),
            "text/yaml",
            key="tune:kept_yaml",
            on_click="ignore",
            icon=":material/download:",
        )
        _reword(record, resources)
    if changed:
        diff_table(state.present_config(), config, "tune:kept_diff")
    else:
        st.caption("This is the config set in Inspect.")
    if card is not None:
        with st.expander("Its evidence card"):
            st.code(card.text, language=None, wrap_lines=True)


def _reword(record: ConfigRecord, resources: Resources) -> None:
    box = st.popover("Name and reason", key=f"tune:reword:{record.id}", icon=":material/edit:")
    with box, st.form(f"tune:reword_form:{record.id}", border=False):
        name = st.text_input("Name", record.name, max_chars=80)
        why = st.text_area("Why", record.why, max_chars=2000)
        if st.form_submit_button("Save", type="primary"):
            try:
                session.require("reviewer")
                resources.store.configs.reword(record.id, name=name.strip(), why=why)
            except WorkbenchError as error:
                st.error(plain(str(error)))
                return
            st.rerun()
