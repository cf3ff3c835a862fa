"""The Deleted view: deleted memories, and restoring them."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.kit import widgets
from cems_workbench.ui.kit.tables import draw_table
from cems_workbench.ui.memories import state
from cems_workbench.ui.memories.fields import FIELDS, title_and_text

MAX_ROWS = 1_000


def draw(resources: Resources, _: DeltaGenerator) -> None:
    """Draw a table of deleted memories; selected ones can be restored."""
    deleted, total = resources.store.memories.deleted(MAX_ROWS)
    if not deleted:
        widgets.empty(
            "No deleted memories",
            "Deleted memories are kept here, hidden from every search, until you restore them.",
        )
        return
    key = f"memories:deleted:{state.present().generation}"
    ids = [entry.memory.id for entry in deleted]
    marked = [ids[row] for row in _rows(key) if row < len(ids)]
    text, button = st.columns([4, 1], vertical_alignment="bottom")
    shown = f" The latest {MAX_ROWS:,} are shown." if total > len(deleted) else ""
    text.caption(f"{total:,} deleted. Select the rows to restore.{shown}")
    button.button(
        f"Restore {len(marked)}" if marked else "Restore",
        key="memories:restore",
        on_click=state.restore,
        args=(resources, *marked),
        disabled=not marked,
        icon=":material/undo:",
        width="stretch",
        help="Restore the selected memories.",
    )
    rows = [
        {
            "id": entry.memory.id,
            "deleted": f"{entry.deleted_at:%Y-%m-%d %H:%M}",
            "memory": title_and_text(entry.memory),
            "category": entry.memory.category,
            "project": entry.memory.project,
        }
        for entry in deleted
    ]
    draw_table(
        rows,
        key=key,
        on_select="rerun",
        selection_mode="multi-row",
        most=14,
        columns={
            "id": st.column_config.TextColumn("id", width=84, pinned=True, help=FIELDS["id"]),
            "deleted": st.column_config.TextColumn("deleted", width=124, help="When it was deleted, UTC"),
            "memory": st.column_config.TextColumn("memory", width=400, help=FIELDS["memory"]),
            "category": st.column_config.TextColumn("category", width=96, help=FIELDS["category"]),
            "project": st.column_config.TextColumn("project", width=90, help=FIELDS["project"]),
        },
    )


def _rows(key: str) -> Sequence[int]:
    """The selected rows, as last reported by the browser."""
    event = st.session_state.get(key)
    return event["selection"]["rows"] if event else ()
