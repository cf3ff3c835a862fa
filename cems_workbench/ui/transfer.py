"""Taking a config away, and bringing one in with its differences shown first."""

from __future__ import annotations

import streamlit as st

from cems_workbench.config import (
    FORM_TITLES,
    FORMS,
    PipelineConfig,
    difference,
    export_config,
    field_spec,
    file_name,
    import_config,
)
from cems_workbench.errors import InputError
from cems_workbench.ui import state
from cems_workbench.ui.changed import shown
from cems_workbench.ui.memories_escape import plain


def draw_transfer() -> None:
    """A popover with downloads and the import of a config."""
    popover = st.popover(
        "Config", icon=":material/swap_vert:", key="transfer", on_change="rerun", help="Export or import"
    )
    if not popover.open:
        return
    with popover:
        st.caption("Export", help="Every parameter is stated.")
        buttons = st.container(horizontal=True)
        for form in FORMS:
            text = export_config(state.config(), form)
            name = file_name(state.config(), form)
            buttons.download_button(FORM_TITLES[form], text, name, key=form, on_click="ignore")
        upload = st.file_uploader(
            "Import a config",
            ["yaml", "yml", "json", "toml", "env", "py"],
            key="config_file",
            help="Any form of the export. A .env is laid over the config that is set.",
        )
        if upload is not None:
            _offer(upload.name, upload.getvalue())


def _offer(name: str, content: bytes) -> None:
    try:
        result = import_config(content.decode("utf-8-sig"), state.config(), source=name)
    except UnicodeDecodeError:
        st.error(f"{name}: not UTF-8 text")
        return
    except InputError as error:
        st.error(str(error))
        return
    imported = result.config
    for warning in result.warnings:
        st.warning(plain(warning))
    rows = diff_rows(state.config(), imported)
    if not rows:
        st.caption("The file has the values that are set.")
        return
    st.caption(f"{len(rows)} parameters would change:")
    st.dataframe(
        rows,
        hide_index=True,
        height=min(38 + 35 * len(rows), 320),
        width=600,
        column_config={
            "parameter": st.column_config.TextColumn("parameter", width=190),
            "now": st.column_config.TextColumn("now", width=150, help="The value that is set"),
            "file": st.column_config.TextColumn("file", width=150, help="The value in the file"),
            "effect": st.column_config.TextColumn(
                "effect",
                width=80,
                help="instant: replayed from the evidence at hand. gathers: evidence is fetched again",
            ),
        },
    )
    st.button("Use this config", key="take", type="primary", on_click=state.take, args=(imported,))


def diff_rows(old: PipelineConfig, new: PipelineConfig) -> list[dict[str, str]]:
    """One row per parameter in which two configs differ."""
    return [
        {
            "parameter": path,
            "now": shown(was),
            "file": shown(will),
            "effect": "instant" if field_spec(path).kind == "replay" else "gathers",
        }
        for path, was, will in difference(old, new)
    ]
