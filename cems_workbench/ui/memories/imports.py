"""The imports on record below the Import view: what each brought, and undo after a look at what it will do."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.errors import InputError, WorkbenchError
from cems_workbench.jobs.importing import plan_undo, undo_import
from cems_workbench.pipeline.resources import Resources
from cems_workbench.store.imports import ImportEvent
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import draw_table
from cems_workbench.ui.memories import state

MAX_ROWS = 200


def draw(resources: Resources, place: DeltaGenerator) -> None:
    """Draw the list with an undo of the selected one, by default the last. Progress is drawn in `place`."""
    if said := state.present().undone:
        st.success(plain(said), icon=":material/undo:")
    events = resources.store.imports.read()
    if not events:
        return
    title, button = st.columns([4, 1], vertical_alignment="bottom")
    title.markdown("## Imports")
    key = f"memories:imports:{state.present().generation}"
    if len(events) > MAX_ROWS:
        st.caption(f"{len(events):,} imports; the last {MAX_ROWS} are shown, the command `imports` lists all.")
    shown = events[:MAX_ROWS]
    draw_table(
        [_row(event) for event in shown],
        key=key,
        on_select="rerun",
        selection_mode="single-row",
        most=8,
        columns={
            "import": st.column_config.NumberColumn("import", width=64, format="%d"),
            "when": st.column_config.TextColumn("when", width=124, help="UTC"),
            "file": st.column_config.TextColumn("file", width="medium"),
            "what it did": st.column_config.TextColumn("what it did", width="large"),
        },
    )
    selection = st.session_state.get(key)
    marked = [shown[row] for row in (selection["selection"]["rows"] if selection else ()) if row < len(shown)]
    chosen = next(iter(marked), None) or next((event for event in events if event.undone_at is None), None)
    with button:
        _undo(resources, place, chosen)


def _row(event: ImportEvent) -> dict[str, object]:
    undone = f"; undone {event.undone_at:%Y-%m-%d %H:%M}" if event.undone_at else ""
    return {
        "import": event.number,
        "when": f"{event.imported_at:%Y-%m-%d %H:%M}",
        "file": event.name,
        "what it did": event.words + undone,
    }


def _undo(resources: Resources, place: DeltaGenerator, event: ImportEvent | None) -> None:
    """Draw the button that opens what the undo of an import will do, and does it once that is confirmed."""
    plan, problem = None, ""
    if event is not None:
        try:
            plan = plan_undo(resources.store, event.number)
        except InputError as error:  # it was undone, and no later undo has brought rows of it back
            problem = str(error)
    label = f"Undo import {event.number}" if event is not None else "Undo"
    with st.popover(
        label,
        icon=":material/undo:",
        key="memories:undo",
        disabled=plan is None,
        width="stretch",
        help=f"{problem or 'Remove what this import added and restore what it replaced'}. Select another one in the table.",
    ):
        if event is None or plan is None:
            return
        st.markdown(f"The undo of **import {event.number}** ({plain(event.name)}) {plain(plan.words)}.")
        for line in plan.stay:
            st.caption(plain(line))
        confirmed = st.button(
            f"Undo import {event.number} now", key=f"memories:undo:{event.number}", type="primary", width="stretch"
        )
    if confirmed:
        _run(resources, place, event)


def _run(resources: Resources, place: DeltaGenerator, event: ImportEvent) -> None:
    try:
        session.require("operator")
        with state.cancellable_job(place, "undo", "Stop here. Undo this import again to continue.") as progress:
            done = undo_import(resources.store, event.number, progress)
    except WorkbenchError as error:
        state.update(problem=str(error))
        st.rerun()
    stay = f" {'. '.join(done.stay)}." if done.stay else ""
    state.update(imports=(), undone=f"Import {event.number} ({event.name}) is undone: {done.done_words}.{stay}")
    state.changed()
    st.rerun()
