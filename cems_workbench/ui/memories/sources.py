"""The Sources view: connect a live system, import its memories, and the status of each source of the store.

A password moves at once from the page to the resources, which hold it in memory; addresses are shown without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

import streamlit as st
from markupsafe import Markup
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.errors import InputError, WorkbenchError
from cems_workbench.jobs.connecting import (
    ConnectReport,
    SnapshotReport,
    SourceSpec,
    connect,
    forget,
    probe_source,
    read_mapping,
    saved_spec,
    source_specs,
)
from cems_workbench.jobs.source_status import SourceStatus, ask_sources, snapshot_line
from cems_workbench.models.embedder import TokenEmbedder
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import RowProblem
from cems_workbench.settings import Settings
from cems_workbench.sources.address import ANY, credential_variables, importable
from cems_workbench.sources.source import SourceInfo
from cems_workbench.store.sources import SourceRecord
from cems_workbench.ui.kit import html, session
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import Column, draw_table
from cems_workbench.ui.memories import state

ADDRESS, PASSWORD, MAPPING, EMBEDDER, RATE = (
    f"memories:source:{name}" for name in ("address", "password", "mapping", "embedder", "rate")
)
READ_ONLY = "Read-only: nothing is written to the source. A source without any vectors is embedded here."


def draw(resources: Resources, place: DeltaGenerator) -> None:
    """The form, its result, and a card for each source. Progress is shown in `place`."""
    _form(resources, place)
    present = state.present()
    if present.source_problem:
        st.error(plain(present.source_problem), icon=":material/block:")
    if present.looked is not None:
        _draw_probe(*present.looked)
    if present.connected is not None:
        _draw_connected(present.connected)
    if resources.store.sources.read():
        _cards(resources, place)
    elif present.looked is None and not present.source_problem:
        html.draw("memories/source_forms.html", forms=_address_forms())


def _address_forms() -> list[tuple[str, str, str]]:
    """System, form of address, what it is; a row for each form."""
    rows = [(kind.title, form, kind.description) for kind in importable() for form in kind.addresses]
    return [*rows, ("Any", ANY, "the address in an environment variable, such as env:DATABASE_URL")]


def _form(resources: Resources, place: DeltaGenerator) -> None:
    st.markdown("## Connect a live system", help=f"{READ_ONLY} The role needs the right to read and no other.")
    box, password = st.columns([3, 1])
    box.text_input(
        "Address",
        key=ADDRESS,
        placeholder="postgresql://reader@db.example/cems",
        help=f"{', '.join(kind.title for kind in importable())}, or `{ANY}` for an address in an environment variable. `?user=ID` takes "
        "the memories of one user.",
    )
    password.text_input(
        "Password or key",
        key=PASSWORD,
        type="password",
        autocomplete="off",
        help="Held in memory until the app ends, and nowhere else. Empty: from the environment "
        f"({', '.join(credential_variables())}) or .pgpass.",
    )
    with st.expander("Embedder, rate, and a table of your own", key="memories:source:more"):
        st.text_input(
            "Embedder that made its vectors",
            key=EMBEDDER,
            placeholder=f"{Settings().embedder}, if it reproduces them",
            help="A path, hub id, `ollama:MODEL`, or `openai:MODEL` on an OpenAI-compatible server. Empty: the configured one, if it "
            "reproduces 20 of the stored vectors.",
        )
        st.number_input(
            "Rows per second, at most",
            min_value=1,
            value=None,
            step=100,
            key=RATE,
            placeholder="no limit",
            help="For busy systems: at most so many chunks (or memories without chunks) are read per second on average. Also for Import "
            "changes.",
        )
        st.text_area(
            "Mapping",
            key=MAPPING,
            height=120,
            placeholder="table: public.notes\nid: note_id\ntext: body\nvector: embedding",
            help="YAML that names the table and its columns id, text and vector, or single fields; not needed for tables of memory "
            "libraries. docs/use/sources.md has the fields.",
        )
    with st.container(horizontal=True, vertical_alignment="center"):
        typed = bool(st.session_state[ADDRESS].strip())
        looking = st.button(
            "Preview",
            key="memories:source:look",
            on_click=_keep_secret,
            args=(resources,),
            disabled=not typed,
            help="Show engine, counts, index, settings and what is missing. Nothing is imported.",
        )
        taking = st.button(
            "Import memories",
            key="memories:source:take",
            type="primary",
            on_click=_keep_secret,
            args=(resources,),
            disabled=not typed,
            help="Import memories, chunks, vectors and relations into this store. Later imports read only changes.",
        )
        st.caption(READ_ONLY)
    if not looking and not taking:
        return
    try:
        session.require("operator")
        spec = _typed(resources)
    except InputError as error:
        state.update(source_problem=str(error), looked=None, connected=None)
        return
    if taking:
        import_source(resources, spec, place, st.session_state[EMBEDDER].strip() or None)
    state.update(source_problem="", looked=None, connected=None)
    try:
        with place, st.spinner("asking the source"):
            state.update(looked=(spec.address.plain, probe_source(spec)))
    except WorkbenchError as error:
        state.update(source_problem=str(error))


def _keep_secret(resources: Resources) -> None:
    """Move a typed password, or one in the address, from the page to the resources."""
    password = st.session_state[PASSWORD]
    st.session_state[PASSWORD] = ""
    try:
        address = _typed(resources).address
    except InputError:  # shown when the button is handled
        return
    if password:
        address = address.with_secret(password, "the page")
    if address.secret is not None:
        resources.know_address(address)
    if not st.session_state[ADDRESS].strip().startswith("env:"):
        st.session_state[ADDRESS] = address.plain


def _typed(resources: Resources) -> SourceSpec:
    """The source that the form names. Raises InputError."""
    mapping = st.session_state.get(MAPPING, "").strip()
    (spec,) = source_specs(
        resources, st.session_state[ADDRESS].strip(), read_mapping(mapping, "Mapping") if mapping else None
    )
    return spec


def import_source(resources: Resources, spec: SourceSpec, place: DeltaGenerator, embedder: str | None = None) -> None:
    """Import one source, with progress and Cancel in `place`, and redraw the page with the result."""
    session.require("operator")
    # Before the import: a cancelled one has changed the store too.
    state.changed()
    state.update(source_problem="", looked=None, connected=None, indexes_behind=False)
    try:
        with state.cancellable_job(
            place, "source", "Stop here. What was imported stays; Resume continues from there."
        ) as progress:
            report = connect(resources, Settings(), [spec], progress, embedder, st.session_state.get(RATE))
        state.update(connected=report)
    except WorkbenchError as error:
        state.update(source_problem=str(error))
    st.rerun()


def probe_html(address: str, probe: SourceInfo) -> Markup:
    """The description of a source, with what it lacks."""
    return html.render("memories/source.html", address=address, engine=probe.engine, facts=_drawn(probe.facts))


def _drawn(facts: list[tuple[str, str]]) -> list[tuple[str, str, str]]:
    """(name, value, state) for the template; names of settings stay as the engine has them."""
    return [
        (name if "." in name or "_" in name else name.capitalize(), value, "warning" if name == "missing" else "ok")
        for name, value in facts
    ]


def _draw_probe(address: str, probe: SourceInfo) -> None:
    st.markdown("## What the source has")
    with st.container(border=True):
        st.html(probe_html(address, probe))


def _draw_connected(report: ConnectReport) -> None:
    st.markdown("## Last import")
    rows = [row for snapshot, _ in report.sources for row in snapshot.counts]
    draw_table(rows, COUNTS, key="memories:source:counts", most=len(rows))
    for snapshot, embedder_line in report.sources:
        read, *notes = snapshot.lines
        html.draw("memories/source_said.html", lines=[read, *([embedder_line] if embedder_line else []), *notes])
        _problems(snapshot)
    if report.problem:
        st.warning(plain(f"Not searchable yet: {report.problem}"), icon=":material/warning:")


def _problems(report: SnapshotReport) -> None:
    """The rows that were left out, or taken in part."""
    count = len(report.problems) + report.more_problems
    if not count:
        return
    st.markdown(f"## {count:,} row{'s' if count != 1 else ''} left out, or taken in part")
    if count > len(report.problems):
        st.caption(f"The first {len(report.problems):,} are listed.")
    draw_table(report.problems, PROBLEMS, key="memories:source:problems", most=12)


COUNTS: list[Column[Mapping[str, Any]]] = [
    Column("rows", itemgetter("rows"), "small", help="What was imported"),
    Column("added", itemgetter("added"), help="New in this store"),
    Column("updated", itemgetter("updated"), help="Changed in the source since the last import"),
    Column("unchanged", itemgetter("unchanged"), help="Same in both; not read again"),
    Column("deleted", itemgetter("deleted"), help="No longer in the source, so deleted here"),
]
PROBLEMS: list[Column[RowProblem]] = [
    Column("memory", lambda each: each.memory_id, "medium", help="Its id there"),
    Column("field", lambda each: each.field, "small"),
    Column("reason", lambda each: each.reason, "large", help="Why the row or the field was left out"),
]


def _cards(resources: Resources, place: DeltaGenerator) -> None:
    title, again = st.columns([5, 1], vertical_alignment="bottom")
    title.markdown("## Sources of this store")
    again.button(
        "Ask again",
        key="memories:source:ask",
        on_click=forget_answers,
        width="stretch",
        help="Ask each source again whether it answers and how many memories it holds.",
    )
    now = datetime.now(UTC)
    for status in asked(resources, place):
        with st.container(border=True, key=f"memories:source:card:{status.record.id}"):
            st.html(card_html(status, now))
            _card_buttons(resources, status.record, place)


def asked(resources: Resources, place: DeltaGenerator) -> list[SourceStatus]:
    """The status of each source, asked once per content version of the store."""
    ready = _ready(resources)
    key = (str(resources.store.path), resources.store.content_version, resources.embedder.line if ready else "")
    last = state.present().sources_asked
    if last is None or last[0] != key:
        with place, st.spinner("asking the sources"):
            last = (key, ask_sources(resources.store, resources.embedder if ready else None, resources.address)())
        state.update(sources_asked=last)
    return last[1]


def forget_answers() -> None:
    """Ask the sources again at the next run."""
    state.update(sources_asked=None)


def _ready(resources: Resources) -> bool:
    """Whether the embedder is loaded: the page does not wait for weights."""
    embedder = resources.embedder
    return not isinstance(embedder, TokenEmbedder) or embedder.loaded


def card_html(status: SourceStatus, now: datetime) -> Markup:
    """The status of a source: reachable, counts, snapshot, vectors, settings."""
    record, probe = status.record, status.probe
    answers = ("Reachable", "answers", "good") if probe is not None else ("Reachable", status.problem, "warning")
    facts = [
        answers,
        ("Memories", status.rows.removeprefix("memories: "), "warning" if status.difference else "ok"),
        ("Snapshot", snapshot_line(record, now), "ok" if record.complete else "warning"),
        ("Vectors", status.embedder, _vectors_state(status)),
        *([("Not of their texts", "; ".join(status.mismatched), "warning")] if status.mismatched else []),
        *([] if probe is None else _drawn(probe.engine_facts)),
    ]
    engine = record.probe.get("engine", "") if probe is None else probe.engine
    return html.render("memories/source.html", address=record.address, engine=engine, facts=facts)


def _vectors_state(status: SourceStatus) -> str:
    if status.other_embedder or status.contradicted:
        return "warning"
    return "good" if status.match is not None and status.match.same else "ok"


def _card_buttons(resources: Resources, record: SourceRecord, place: DeltaGenerator) -> None:
    key = f"memories:source:{record.id}"
    with st.container(horizontal=True, vertical_alignment="center"):
        taking = st.button(
            "Import changes" if record.complete else "Resume",
            key=f"{key}:take",
            icon=":material/sync:",
            help="Import new and changed memories, and delete those that the source no longer has.",
        )
        with st.popover("Name its embedder", key=f"{key}:naming", help="Name the embedder that made its vectors."):
            named = st.text_input(
                "Embedder that made its vectors",
                record.embedder or "",
                key=f"{key}:embedder",
                help="A path, hub id, `ollama:MODEL` or `openai:MODEL`. It is compared with 20 of the stored vectors.",
            ).strip()
            naming = st.button("Compare and use it", key=f"{key}:name", disabled=not named)
        with st.popover("Forget", key=f"{key}:forgetting", help="Remove this source and its memories from the store."):
            st.caption(f"Deletes its {record.memories:,} memories from this store. The source itself is not touched.")
            st.button("Delete them and forget it", key=f"{key}:forget", on_click=_forget, args=(resources, record))
    if taking or naming:
        try:
            spec = saved_spec(resources, record)
        except InputError as error:
            state.update(source_problem=str(error))
            st.rerun()
        import_source(resources, spec, place, named if naming else None)


def _forget(resources: Resources, record: SourceRecord) -> None:
    state.update(source_problem="", looked=None, connected=None)
    with state.guarded("operator", "source_problem"):
        count = forget(resources, Settings(), record.address)
        state.changed()
        st.toast(f"{count:,} memories deleted, source removed", icon=":material/link_off:")
