"""The Sources view: connect a running system, take what it holds, and see how each source of the store stands.

A password is handed to the resources, which keep it in memory, and taken out of the page at once; what is shown is the address without it.
"""

from __future__ import annotations

from datetime import UTC, datetime

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
from cems_workbench.settings import Settings
from cems_workbench.sources.kinds import ANY, credential_variables, importable
from cems_workbench.sources.source import SourceInfo
from cems_workbench.store.sources import SourceRecord
from cems_workbench.ui.kit import reviewer, templates
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.tables import draw_table
from cems_workbench.ui.memories import state

ADDRESS, PASSWORD, MAPPING, EMBEDDER, RATE = (
    f"memories:source:{name}" for name in ("address", "password", "mapping", "embedder", "rate")
)
READ_ONLY = "Only read: nothing is ever written to the source, and nothing is embedded."


def draw(resources: Resources, place: DeltaGenerator) -> None:
    """The form, what became of it, and a card for each source. Progress is shown in `place`."""
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
        templates.draw("memories/source_forms.html", forms=_address_forms())


def _address_forms() -> list[tuple[str, str, str]]:
    """System, form of address, what it is; a row for each form."""
    rows = [(kind.title, form, kind.description) for kind in importable() for form in kind.addresses]
    return [*rows, ("Any", ANY, "the address in an environment variable, such as env:DATABASE_URL")]


def _form(resources: Resources, place: DeltaGenerator) -> None:
    st.markdown("## Connect a running system", help=f"{READ_ONLY} The role needs the right to read and no other.")
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
            placeholder=f"{Settings().embedder}, if it makes the same vectors",
            help="A path, hub id, `ollama:MODEL`, or `openai:MODEL` on an OpenAI-compatible server. Left empty, the one that is set is "
            "taken when it makes 20 of the stored vectors again.",
        )
        st.number_input(
            "Rows a second, at most",
            min_value=1,
            value=None,
            step=100,
            key=RATE,
            placeholder="as they come",
            help="For a system that is busy: no more chunks, or memories without any, are read a second on average. Also for Take what "
            "changed.",
        )
        st.text_area(
            "Mapping",
            key=MAPPING,
            height=120,
            placeholder="table: public.notes\nid: note_id\ntext: body\nvector: embedding",
            help="YAML that says which columns of which table are id, text and vector; only for a table that is neither CEMS’s nor "
            "mem0’s. docs/use/sources.md has the other fields.",
        )
    with st.container(horizontal=True, vertical_alignment="center"):
        typed = bool(st.session_state[ADDRESS].strip())
        looking = st.button(
            "Look",
            key="memories:source:look",
            on_click=_keep_secret,
            args=(resources,),
            disabled=not typed,
            help="Report what is there: engine, counts, index, settings and what is missing. Nothing is taken.",
        )
        taking = st.button(
            "Take memories",
            key="memories:source:take",
            type="primary",
            on_click=_keep_secret,
            args=(resources,),
            disabled=not typed,
            help="Take memories, chunks, vectors and relations into this store. What was taken before is only read where it changed.",
        )
        st.caption(READ_ONLY)
    if not looking and not taking:
        return
    try:
        reviewer.require("operator")
        there = _typed(resources)
    except InputError as error:
        state.update(source_problem=str(error), looked=None, connected=None)
        return
    if taking:
        take(resources, there, place, st.session_state[EMBEDDER].strip() or None)
    state.update(source_problem="", looked=None, connected=None)
    try:
        with place, st.spinner("asking what is there"):
            state.update(looked=(there.address.plain, probe_source(there)))
    except WorkbenchError as error:
        state.update(source_problem=str(error))


def _keep_secret(resources: Resources) -> None:
    """Hand a typed password to the resources, and empty the box; one in the address is taken out of it."""
    password = st.session_state[PASSWORD]
    st.session_state[PASSWORD] = ""
    try:
        address = _typed(resources).address
    except InputError:  # said when the button is answered
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
    (there,) = source_specs(
        resources, st.session_state[ADDRESS].strip(), read_mapping(mapping, "Mapping") if mapping else None
    )
    return there


def take(resources: Resources, there: SourceSpec, place: DeltaGenerator, embedder: str | None = None) -> None:
    """Connect one source, with progress and Cancel in `place`, and draw the page anew with what became of it."""
    reviewer.require("operator")
    # Already now: a run that is cancelled has changed the store too.
    state.changed()
    state.update(source_problem="", looked=None, connected=None, indexes_behind=False)
    try:
        with state.cancellable_job(
            place, "source", "Stop here. What was taken stays; Take what changed goes on from there."
        ) as progress:
            found = connect(resources, Settings(), [there], progress, embedder, st.session_state.get(RATE))
        state.update(connected=found)
    except WorkbenchError as error:
        state.update(source_problem=str(error))
    st.rerun()


def probe_html(address: str, probe: SourceInfo) -> Markup:
    """What a source says of itself, and what it lacks."""
    return templates.render("memories/source.html", address=address, engine=probe.engine, facts=_drawn(probe.facts))


def _drawn(facts: list[tuple[str, str]]) -> list[tuple[str, str, str]]:
    """Facts as the template takes them; a setting keeps the name that the engine gives it."""
    return [
        (name if "." in name or "_" in name else name.capitalize(), value, "warning" if name == "missing" else "ok")
        for name, value in facts
    ]


def _draw_probe(address: str, probe: SourceInfo) -> None:
    st.markdown("## What is there")
    with st.container(border=True):
        st.html(probe_html(address, probe))


def _draw_connected(found: ConnectReport) -> None:
    st.markdown("## Last taken")
    rows = [row for report, _ in found.sources for row in report.counts]
    number = st.column_config.NumberColumn
    draw_table(
        rows,
        key="memories:source:counts",
        most=len(rows),
        columns={
            "rows": st.column_config.TextColumn("rows", width="small", help="What was taken"),
            "added": number("added", help="New in this store"),
            "updated": number("updated", help="Already here, and changed there since"),
            "unchanged": number("unchanged", help="Already here as they are there; not read again"),
            "deleted": number("deleted", help="Gone there, and so deleted here"),
        },
    )
    for report, said in found.sources:
        read, *notes = report.lines
        templates.draw("memories/source_said.html", lines=[read, *([said] if said else []), *notes])
        _problems(report)
    if found.problem:
        st.warning(plain(f"Not searchable yet: {found.problem}"), icon=":material/warning:")


def _problems(report: SnapshotReport) -> None:
    """The rows that were not taken, or not whole."""
    count = len(report.problems) + report.more_problems
    if not count:
        return
    st.markdown(f"## {count:,} row{'s' if count != 1 else ''} left out, or not whole")
    if count > len(report.problems):
        st.caption(f"The first {len(report.problems):,} are listed.")
    draw_table(
        [{"memory": each.memory_id, "field": each.field, "reason": each.reason} for each in report.problems],
        key="memories:source:problems",
        most=12,
        columns={
            "memory": st.column_config.TextColumn("memory", width="medium", help="Its id there"),
            "field": st.column_config.TextColumn("field", width="small"),
            "reason": st.column_config.TextColumn(
                "reason", width="large", help="Why it was not taken, or what of it was not"
            ),
        },
    )


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
    """How each source stands, asked once for every content of the store."""
    ready = _ready(resources)
    key = (str(resources.store.path), resources.store.content_version, resources.embedder.line if ready else "")
    last = state.present().sources_asked
    if last is None or last[0] != key:
        with place, st.spinner("asking the sources"):
            last = (key, ask_sources(resources.store, resources.embedder if ready else None, resources.address)())
        state.update(sources_asked=last)
    return last[1]


def forget_answers() -> None:
    """Ask the sources anew at the next run."""
    state.update(sources_asked=None)


def _ready(resources: Resources) -> bool:
    """Whether the embedder can be asked now: nobody is to wait here while weights are loaded."""
    embedder = resources.embedder
    return not isinstance(embedder, TokenEmbedder) or embedder.loaded


def card_html(status: SourceStatus, now: datetime) -> Markup:
    """How a source stands: reachable, what is there and here, the snapshot, the vectors."""
    record, probe = status.record, status.probe
    answers = ("Reachable", "answers", "good") if probe is not None else ("Reachable", status.problem, "warning")
    facts = [
        answers,
        ("Memories", status.rows.removeprefix("memories: "), "warning" if status.difference else "ok"),
        ("Snapshot", snapshot_line(record, now), "ok" if record.complete else "warning"),
        ("Vectors", status.embedder, _vectors_state(status)),
        *([] if probe is None else _drawn(probe.engine_facts)),
    ]
    engine = record.probe.get("engine", "") if probe is None else probe.engine
    return templates.render("memories/source.html", address=record.address, engine=engine, facts=facts)


def _vectors_state(status: SourceStatus) -> str:
    if status.other_embedder or status.contradicted:
        return "warning"
    return "good" if status.match is not None and status.match.same else "ok"


def _card_buttons(resources: Resources, record: SourceRecord, place: DeltaGenerator) -> None:
    key = f"memories:source:{record.id}"
    with st.container(horizontal=True, vertical_alignment="center"):
        taking = st.button(
            "Take what changed" if record.complete else "Resume",
            key=f"{key}:take",
            icon=":material/sync:",
            help="Read what is new or changed there, and delete here what is gone there.",
        )
        with st.popover("Name its embedder", key=f"{key}:naming", help="Say which embedder made its vectors."):
            named = st.text_input(
                "Embedder that made its vectors",
                record.embedder or "",
                key=f"{key}:embedder",
                help="A path, hub id, `ollama:MODEL` or `openai:MODEL`. It is compared with 20 of the stored vectors.",
            ).strip()
            naming = st.button("Compare and use it", key=f"{key}:name", disabled=not named)
        with st.popover("Forget", key=f"{key}:forgetting", help="Delete what was taken of it from this store."):
            st.caption(f"Deletes its {record.memories:,} memories from this store. The source itself is not touched.")
            st.button("Delete them and forget it", key=f"{key}:forget", on_click=_forget, args=(resources, record))
    if taking or naming:
        try:
            there = saved_spec(resources, record)
        except InputError as error:
            state.update(source_problem=str(error))
            st.rerun()
        take(resources, there, place, named if naming else None)


def _forget(resources: Resources, record: SourceRecord) -> None:
    state.update(source_problem="", looked=None, connected=None)
    try:
        reviewer.require("operator")
        count = forget(resources, Settings(), record.address)
    except WorkbenchError as error:
        state.update(source_problem=str(error))
        return
    state.changed()
    st.toast(f"{count:,} memories deleted, the source forgotten", icon=":material/link_off:")
