"""Memories' view Audit: what should not be in the store, who gets whose memories, and whether a deleted memory is gone."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import streamlit as st

from cems_workbench.analysis.memory_names import memory_name
from cems_workbench.api.open_store import OpenStore
from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress
from cems_workbench.report.page import result_report
from cems_workbench.results import Result
from cems_workbench.ui.evaluate.state import config_options
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.session import is_kept, kept
from cems_workbench.ui.kit.tables import Column, draw_result, draw_table
from cems_workbench.ui.kit.views import View
from cems_workbench.ui.kit.widgets import download, errors_shown, remembered, show, switch
from cems_workbench.ui.memories import state
from workbench_audit.audit import NEAR, Audit, Finding, audit
from workbench_audit.forgotten import Receipt, forgotten
from workbench_audit.leaks import BYS, Leaks, leak
from workbench_audit.texts import masked
from workbench_transcripts.transcript import transcript_version

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

KEY = "memories:audit"
MAX_ROWS = 12
Found = TypeVar("Found", bound=Result)
PARTS = ("What should not be here", "Who gets whose memories", "Is it gone?")


def draw(resources: Resources, place: DeltaGenerator) -> None:
    """Draw the choice of a part, of queries and config, and what was found."""
    if not resources.store.memories.count():
        st.caption("The store has no memories yet: import some.")
        return
    if state.present().asked_gone:
        st.session_state[f"{KEY}:part"] = PARTS[2]
    part = switch("Part", list(PARTS), f"{KEY}:part")
    with errors_shown():
        _PARTS[part](resources, place)


def _choices(resources: Resources, boxes: Sequence[DeltaGenerator]) -> tuple[str | None, PipelineConfig]:
    """Draw the choice of judged queries and of a config; None: no query is judged."""
    configs = config_options(resources).configs
    sets: list[str] = []
    if resources.store.judgments.read():
        sets = ["all", *(one.name for one in resources.store.query_sets.latest())]
    how: Any = {"placeholder": "none is judged", "disabled": not sets, **remembered(f"{KEY}:set")}
    name = boxes[0].selectbox("Judged queries", sets, **how)
    return name, configs[boxes[1].selectbox("Config", list(configs), **remembered(f"{KEY}:config"))]


def _found(
    slot: str,
    key: tuple[object, ...],
    label: str,
    make: Callable[[OpenStore, Progress], Found],
    resources: Resources,
    place: DeltaGenerator,
) -> Found | None:
    """What was found for these choices; else None, and the button that finds it."""
    at = (resources.store.version, transcript_version(resources.store.path), *key)
    if not is_kept(slot, at) and not st.button(label, f"{slot}:go", icon=":material/search:", type="primary"):
        return None

    def made() -> Found:
        with state.cancellable_job(place, slot, "Stops now; nothing was changed.") as progress:
            return make(OpenStore(resources), progress)

    if is_kept(slot, at):
        return kept(slot, at, made)
    kept(slot, at, made)
    st.rerun()  # without the button


def _draw_audit(resources: Resources, place: DeltaGenerator) -> None:
    boxes = st.columns([3, 3, 3], vertical_alignment="bottom")
    name, config = _choices(resources, boxes)
    near = boxes[2].slider("Near duplicates from a cosine of", 0.8, 1.0, NEAR, 0.01, **remembered(f"{KEY}:near"))

    def make(store: OpenStore, progress: Progress) -> Audit:
        return audit(store, name, config, near=near, progress=progress)

    found = _found(f"{KEY}:found", (name, config, near), "Audit the store", make, resources, place)
    if found is None:
        st.caption(
            "Looks for duplicates, contradictions, junk, secrets, what no turn supports, what is never returned, hubs and what has "
            "expired; says which judged queries each costs, and replays what removing it would do to them. Nothing is changed."
        )
        return
    for line in found.lines:
        st.markdown(f"### {plain(line)}")
    draw_result(found.summary, key=f"{KEY}:kinds")
    for note in found.notes:
        st.caption(plain(note))
    download("Download the report", lambda: result_report(found, datetime.now(UTC)), "audit.html", f"{KEY}:report")
    if not found.findings:
        return
    labels = {f"{kind} · {len(own):,}": kind for kind, own in found.kinds.items()}
    kind = labels[switch("Kind", list(labels), f"{KEY}:kind")]
    rows = found.kinds[kind][:1_000]
    columns: list[Column[Finding]] = [
        Column("memories", found.named, 440),
        Column("why", lambda one: one.why, 300),
    ]
    if found.queries:
        help = "Its removal, replayed; empty: not tried"
        columns.append(Column("queries", lambda one: len(one.queries), 70, help="Queries that it takes a place from"))
        columns.append(Column("without", lambda one: one.effect and one.effect.words, 150, help=help))
    event = draw_table(
        rows,
        columns,
        key=f"{KEY}:rows:{kind}:{state.present().generation}",
        on_select="rerun",
        selection_mode="multi-row",
        most=MAX_ROWS,
    )
    chosen = [rows[row] for row in event["selection"]["rows"] if row < len(rows)]
    st.caption(
        "Tick rows to read the memories, and to delete what would go. Deleted memories can be restored under Deleted."
    )
    if chosen:
        _draw_chosen(chosen, resources)


def _draw_chosen(chosen: Sequence[Finding], resources: Resources) -> None:
    gone = list(dict.fromkeys(key for one in chosen for key in one.remove))
    if gone and session.may("operator"):
        label = f"Delete {len(gone):,}"
        st.button(label, f"{KEY}:delete", on_click=_delete, args=(resources, gone), icon=":material/delete:")
    first = chosen[0]
    texts = resources.store.memories.read(first.ids[:4])
    for column, (key, memory) in zip(st.columns(max(1, len(texts)), border=True), texts.items(), strict=False):
        column.markdown(f"**{'Would go' if key in first.remove else 'Stays'}**")
        column.markdown(plain(masked(memory.content)))
        column.caption(plain(f"{memory.created_at:%Y-%m-%d} · {key}" if memory.created_at else key))
        column.button("Open", f"{KEY}:open:{key}", on_click=state.show_in_browse, args=(key,))


def _delete(resources: Resources, ids: Sequence[str]) -> None:
    with state.guarded("operator"):
        count = sum(resources.store.memories.delete(key) for key in ids)
        state.update(selected=None, deleted=ids[-1] if count == 1 else None)
        state.changed()
        st.toast(f"{count:,} deleted", icon=":material/delete:")


def _draw_leaks(resources: Resources, place: DeltaGenerator) -> None:
    boxes = st.columns([3, 3, 2, 3], vertical_alignment="bottom")
    name, config = _choices(resources, boxes)
    if name is None:
        st.caption("No query of this store is judged: judge some on Label, or import judgments.")
        return
    by = boxes[2].selectbox("Between", BYS, format_func=lambda one: f"{one}s", **remembered(f"{KEY}:by"))
    within = boxes[3].toggle("Search within the project", disabled=by != "project", **remembered(f"{KEY}:within"))
    only = within and by == "project"

    def make(store: OpenStore, progress: Progress) -> Leaks:
        return leak(store, name, config, by=by, only_project=only, progress=progress)

    found = _found(f"{KEY}:leaks", (name, config, by, only), "Ask as the others", make, resources, place)
    if found is None:
        st.caption("Asks each judged query as every other project or author, and lists whose memories come back.")
        return
    show(found.lines, found.tables, found.notes)


def _draw_gone(resources: Resources, place: DeltaGenerator) -> None:
    box, go = st.columns([4, 1], vertical_alignment="bottom")
    asked = state.present().asked_gone
    deleted, _ = resources.store.memories.deleted(200)
    names = {one.memory.id: f"{memory_name(one.memory)} ({one.memory.id})" for one in deleted}
    if asked:
        st.session_state[f"{KEY}:gone:id"] = asked
        state.update(asked_gone="")
    kind: Any = {"index": None, "placeholder": "its id", "accept_new_options": True, "key": f"{KEY}:gone:id"}
    memory_id = box.selectbox("A deleted memory", list(names), format_func=lambda key: names.get(key, key), **kind)
    if not memory_id:
        st.caption(
            "Searches every table, index, list, evidence file and file of the store for its text and for what says the same."
        )
        return
    config = next(iter(config_options(resources).configs.values()))

    def make(store: OpenStore, progress: Progress) -> Receipt:
        return forgotten(store, memory_id, config=config, progress=progress)

    with go:
        found = _found(f"{KEY}:gone", (memory_id,), "Search", make, resources, place)
    if found is not None:
        show(found.lines, found.tables, found.notes)
        download(
            "Download the receipt", lambda: json.dumps(found.to_json(), indent=1), "receipt.json", f"{KEY}:receipt"
        )


_PARTS = dict(zip(PARTS, (_draw_audit, _draw_leaks, _draw_gone), strict=True))

VIEW = View("Audit", 47, draw)
