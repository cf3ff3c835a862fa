"""Import of memories, from files and from connected live systems, and the status of each source of the store.

A password moves at once from the page to the resources, which hold it in memory; addresses are shown without it.

An empty store: the four ways to fill it, on Inspect and Memories.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import IO, Any

import streamlit as st
from markupsafe import Markup
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.errors import InputError, counted
from cems_workbench.formats import FORMATS
from cems_workbench.jobs import connecting
from cems_workbench.jobs.importing import import_files, moved_labels, plan_undo, undo_import
from cems_workbench.jobs.store_status import SourceStatus, ask_sources, snapshot_line
from cems_workbench.models.embedder import TokenEmbedder
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import CJK, LANGUAGES, NO_LANGUAGE, RowProblem, TextRule
from cems_workbench.settings import Settings
from cems_workbench.sources.address import ANY, credential_variables, importable, installation
from cems_workbench.sources.source import SourceInfo
from cems_workbench.store import ImportOptions, language
from cems_workbench.store.importing import DEFAULT_OPTIONS
from cems_workbench.store.imports import ImportEvent
from cems_workbench.store.rebase import PERHAPS
from cems_workbench.store.sources import SourceRecord
from cems_workbench.ui.kit import html, session
from cems_workbench.ui.kit.address import go
from cems_workbench.ui.kit.forms import draw_options, draw_report
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import HELP, Column, draw_table, draw_values
from cems_workbench.ui.kit.views import views_in
from cems_workbench.ui.kit.widgets import empty
from cems_workbench.ui.label import state as label_state
from cems_workbench.ui.memories import state
from cems_workbench.ui.memories.state import VIEW

MAX_ROWS = 200


def draw_imports(resources: Resources, place: DeltaGenerator) -> None:
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
    event = draw_table(shown, EVENTS, key=key, on_select="rerun", selection_mode="single-row", most=8)
    marked = [shown[row] for row in event["selection"]["rows"] if row < len(shown)]
    chosen = next(iter(marked), None) or next((event for event in events if event.undone_at is None), None)
    with button:
        _undo(resources, place, chosen)
    last = (state.present().labels or (None, None))[1]
    if marked and chosen is not None and chosen.outcome and (last is None or last.event != chosen.number):  # else it is above
        draw_labels(resources, chosen.outcome, chosen.queue)


LABELS: list[Column[tuple[str, str, int]]] = [
    Column("status", lambda row: row[0], 90),
    Column("labels", lambda row: row[2], 72, "%d"),
    Column("what that is", lambda row: row[1], "large"),
]
STATUSES = {
    "valid": "their memory is here, with the text that was judged",
    "moved": "their memory has another id now",
    "merged": "several judged texts are one memory now",
    "split": "the judged text is in several memories now",
    "doubtful": "a memory may have the judged text: a person tells, pair by pair",
    "changed": "their memory has another text now, and no memory has the one that was judged",
    "orphaned": "no memory has the judged text",
}
"""What happened to labels, by status."""


def draw_labels(resources: Resources, outcome: Mapping[str, int], queue: str) -> None:
    """Draw what an import did to the labels (`Rebase.outcome`), and the way to those that a person has to tell."""
    rows = []
    for said, count in outcome.items():
        status, _, how = said.partition(": ")
        status, how = ("doubtful", "") if how == PERHAPS else (status, how)
        rows.append((status, f"{STATUSES[status]}{f': {how}' if how else ''}", count))
    rows.sort(key=lambda row: (list(STATUSES).index(row[0]), -row[2]))
    draw_table(rows, LABELS, key=f"memories:labels:{queue}", most=len(rows))
    decided = {(one.qid, one.memory_id) for one in resources.store.labels.moves()}
    left = set(resources.store.queues.pairs(queue)) - decided
    key, help = f"memories:labels:decide:{queue}", HELP["memories:labels:decide"]
    if left and st.button(f"Decide {counted(len(left), 'doubtful pairs')}", key, help, icon=":material/rule:"):
        label_state.show_queue(queue)
        go("pages/label.py")


EVENTS: list[Column[ImportEvent]] = [
    Column("import", lambda event: event.number, 64, "%d"),
    Column("when", lambda event: f"{event.imported_at:%Y-%m-%d %H:%M}", 124, help="UTC"),
    Column("file", lambda event: event.name, "medium"),
    Column(
        "what it did",
        lambda event: event.words + (f"; undone {event.undone_at:%Y-%m-%d %H:%M}" if event.undone_at else ""),
        "large",
    ),
]


def _undo(resources: Resources, place: DeltaGenerator, event: ImportEvent | None, key: str = "memories:undo", of: str = "") -> None:
    """Draw the button that opens what the undo of an import will do, and does it once that is confirmed."""
    plan, label, problem = None, "Undo", "Remove what this import added and restore what it replaced"
    if event is not None:
        label = f"Undo {of or f'import {event.number}'}"
        try:
            plan = plan_undo(resources.store, event.number)
        except InputError as error:  # it was undone, and no later undo has brought rows of it back
            problem = str(error)
    common: dict[str, Any] = {"icon": ":material/undo:", "disabled": plan is None, "width": "stretch"}
    with st.popover(label, key=key, help=f"{problem}. Select another one in the table.", **common):
        if event is None or plan is None:
            return
        st.markdown(f"The undo of **import {event.number}** ({plain(event.name)}) {plain(plan.words)}.")
        for line in plan.stay:
            st.caption(plain(line))
        confirmed = st.button(f"{label} now", key=f"{key}:{event.number}", type="primary", width="stretch")
    if not confirmed:
        return
    with state.guarded("operator"):
        with state.cancellable_job(place, "undo", "Stop here. Undo this import again to continue.") as progress:
            done = undo_import(resources.store, event.number, progress)
        stay = f" {'. '.join(done.stay)}." if done.stay else ""
        state.update(imports=(), labels=None, undone=f"Import {event.number} ({event.name}) is undone: {done.done_words}.{stay}")
        state.changed()
    st.rerun()


AUTO = "recognise"
LANGUAGE_NAMES = {
    language.AUTO: "detect from the texts",
    CJK: "Chinese, Japanese, Korean",
    NO_LANGUAGE: "none: unmodified words",
}
TITLES = {True: "title and content", False: "content alone"}
"""The label of a text rule with the title or without."""


def draw_importing(resources: Resources, place: DeltaGenerator) -> None:
    """Draw the uploader, and the report of the last import. Progress is drawn in `place`."""
    store, new = resources.store, not resources.store.memories.count()
    key = f"memories:upload:{state.present().generation}"
    files = st.file_uploader("Files to import", accept_multiple_files=True, key=key, help=HELP["memories:upload"])
    for offer in views_in("memories.import").values() if files else ():
        offer.draw(files, resources, place)
    kind, button, sample = st.columns([2, 1, 2], vertical_alignment="bottom")
    formats = "\n".join(f"- `{reader.name}`: {plain(reader.description)}" for reader in FORMATS.values())
    help = f"Format of the files (`--format`). “recognise” detects it per file.\n\n{formats}"
    chosen = kind.selectbox("Format", [AUTO, *FORMATS], key="memories:format", help=help)
    common: dict[str, Any] = {"type": "primary", "width": "stretch", "help": HELP["memories:import"]}
    start = button.button("Import", key="memories:import", disabled=not files, **common)
    spoken, rule = language.AUTO, store.texts.rule
    if new:
        spoken = _language(store.language)
        rule = replace(rule, title=title_box(st, rule, "memories:import", HELP["memories:import:title"]))
    options = draw_options("memories:import")
    if start and files and options is not None:
        reader_name = "auto" if chosen == AUTO else chosen
        _import([(file.name, file) for file in files], resources, place, reader_name, spoken, rule, options)
    if new and SAMPLE_DATA.is_dir():
        with sample:
            offer_sample(resources, place, "import")
    if imports := state.present().imports:
        st.markdown("## Last import")
        draw_report(imports, "memories", "left-out-rows.csv")
        if (found := state.present().labels) is not None:
            title, button = st.columns([4, 1], vertical_alignment="bottom")
            title.markdown("## What it did to labels")
            planned, done = found
            draw_labels(resources, planned.outcome, done.queue if done else "")
            with button:
                if done is not None:
                    _undo(resources, place, resources.store.imports.get(done.event), "memories:labels:undo", "these moves")
    else:
        html.draw("memories/import_hint.html")
    draw_imports(resources, place)


def title_box(box: Any, rule: TextRule, key: str, help: str | None = None) -> bool:
    """Draw whether the title of a memory is searched with its content."""
    at, key = 0 if rule.title else 1, f"{key}:title"
    return bool(box.selectbox("Searched text", (True, False), at, key=key, format_func=TITLES.__getitem__, help=help))


def _language(present: language.Language) -> str:
    before = present.current if present.given else language.AUTO
    names = LANGUAGES if present.given else (language.AUTO, *LANGUAGES)
    key, at = f"memories:import:language:{before}", names.index(before)
    return st.selectbox(
        "Language of the memories", names, at, key=key, format_func=language_name, help=HELP["memories:import:language"]
    )


def language_name(name: str) -> str:
    """The label of a language of lexical search."""
    return LANGUAGE_NAMES.get(name, name.capitalize())


def offer_sample(resources: Resources, place: DeltaGenerator, key: str, **more: Any) -> None:
    """Draw a button that imports the sample data; `more` goes to Streamlit."""
    if st.button("Load the sample memories", f"memories:sample:{key}", HELP["memories:sample"], **more):
        with ExitStack() as stack:
            names = [path for path in sorted(SAMPLE_DATA.iterdir()) if path.suffix in (".jsonl", ".qrels")]
            files = [(path.name, stack.enter_context(path.open("rb"))) for path in names]
            _import(files, resources, place, "auto")


def _import(
    files: Iterable[tuple[str, IO[bytes]]],
    resources: Resources,
    place: DeltaGenerator,
    format: str,
    spoken: str = language.AUTO,
    rule: TextRule | None = None,
    options: ImportOptions = DEFAULT_OPTIONS,
) -> None:
    session.require("operator")
    state.update(imports=(), labels=None, deleted=None, undone="")
    resources.store.language.choose(spoken)
    if rule is not None:
        resources.store.texts.choose(rule)
    with resources.changing(), state.cancellable_job(place, "import") as progress:
        for imported in import_files(files, resources.store, progress, format, options=options):
            # Stored one by one, so that an interrupted import reports its finished files.
            state.update(imports=(*state.present().imports, imported), indexes_behind=True)
        if labels := moved_labels(state.present().imports, resources.store):
            state.update(labels=labels)
        resources.refresh(progress)
    state.changed()
    state.update(indexes_behind=False)
    st.rerun()


KIND, ADDRESS, PASSWORD, MAPPING, EMBEDDER, RATE = (
    f"memories:source:{name}" for name in ("kind", "address", "password", "mapping", "embedder", "rate")
)
OTHER = "Address in an environment variable"
READ_ONLY = "Read-only: nothing is written to the source. A source without any vectors is embedded here."
MAPPING_HINT = "table: public.notes\nid: note_id\ntext: body\nvector: embedding"


def draw(resources: Resources, place: DeltaGenerator) -> None:
    """The form, its result, and a card for each source. Progress is shown in `place`."""
    _form(resources, place)
    present = state.present()
    if present.source_problem:
        st.error(plain(present.source_problem), icon=":material/block:")
    if present.looked is not None:
        st.markdown("## What the source has")
        with st.container(border=True):
            st.html(probe_html(*present.looked))
    if present.connected is not None:
        _draw_connected(present.connected)
    if resources.store.sources.read():
        _cards(resources, place)
    elif present.looked is None and not present.source_problem:
        st.caption(
            "No live system is connected yet. Its memories are imported with their vectors, so that its own searches can be compared."
        )


def _form(resources: Resources, place: DeltaGenerator) -> None:
    st.markdown("## Connect a live system", help=f"{READ_ONLY} The role needs the right to read and no other.")
    kinds = {kind.title: kind for kind in importable()}
    about = {title: f"{title}: {kind.description}" for title, kind in kinds.items()}
    listed: dict[str, Any] = {"index": None, "placeholder": "Choose what keeps the memories", "key": KIND}
    chosen = st.selectbox("System", [*kinds, OTHER], format_func=lambda title: about.get(title, title), **listed)
    if chosen is None:
        return
    kind = kinds.get(chosen)
    if kind is not None and (missing := installation(kind)) is not None:
        st.warning(plain(missing), icon=":material/extension:")
    secret = kind is None or bool(kind.credential_variable)
    box, password = st.columns([3, 1]) if secret else (st.container(), None)
    forms = (ANY,) if kind is None else kind.addresses
    help = "`?user=ID` takes the memories of one user."
    box.text_input("Address", key=ADDRESS, placeholder=forms[0], help=help)
    st.caption(plain(f"As {' or '.join(forms)}"))
    if password is not None:
        variables = ", ".join(credential_variables()) if kind is None else kind.credential_variable
        help = HELP["memories:source:password"].format(variables=variables)
        password.text_input("Password or key", key=PASSWORD, type="password", autocomplete="off", help=help)
    with st.expander("Embedder, rate, and a table of your own", key="memories:source:more"):
        hint = f"{Settings().embedder}, if it reproduces them"
        st.text_input(
            "Embedder that made its vectors", key=EMBEDDER, placeholder=hint, help=HELP["memories:source:embedder"]
        )
        limits: dict[str, Any] = {"min_value": 1, "value": None, "step": 100, "placeholder": "no limit"}
        st.number_input("Rows per second, at most", key=RATE, help=HELP["memories:source:rate"], **limits)
        st.text_area("Mapping", key=MAPPING, height=120, placeholder=MAPPING_HINT, help=HELP["memories:source:mapping"])
    typed = bool(st.session_state[ADDRESS].strip())
    common: dict[str, Any] = {"on_click": _keep_secret, "args": (resources,), "disabled": not typed}
    with st.container(horizontal=True, vertical_alignment="center"):
        looking = st.button("Preview", key="memories:source:look", help=HELP["memories:source:look"], **common)
        taking = st.button(
            "Import memories", key="memories:source:take", type="primary", help=HELP["memories:source:take"], **common
        )
        st.caption(READ_ONLY)
    if not looking and not taking:
        return
    state.update(source_problem="", looked=None, connected=None)
    with state.guarded("operator", "source_problem"):
        spec = _typed(resources)
        if taking:
            import_source(resources, spec, place, st.session_state[EMBEDDER].strip() or None)
        with place, st.spinner("asking the source"):
            state.update(looked=(spec.address.plain, connecting.probe_source(spec)))


def _keep_secret(resources: Resources) -> None:
    """Move a typed password, or one in the address, from the page to the resources."""
    password = st.session_state.get(PASSWORD)
    if password:
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


def _typed(resources: Resources) -> connecting.SourceSpec:
    """The source that the form names. Raises InputError."""
    mapping, address = st.session_state.get(MAPPING, "").strip(), st.session_state[ADDRESS].strip()
    kind = next((each for each in importable() if each.title == st.session_state.get(KIND)), None)
    if kind is not None and address and ":" not in address:  # a path: the chosen kind says how it is read
        address = f"{kind.schemes[0]}:{address}"
    (spec,) = connecting.source_specs(
        resources, address, connecting.read_mapping(mapping, "Mapping") if mapping else None
    )
    return spec


def import_source(
    resources: Resources, spec: connecting.SourceSpec, place: DeltaGenerator, embedder: str | None = None
) -> None:
    """Import one source, with progress and Cancel in `place`, and redraw the page with the result."""
    session.require("operator")
    # Before the import: a cancelled one has changed the store too.
    state.changed()
    state.update(source_problem="", looked=None, connected=None, indexes_behind=False)
    stop = "Stop here. What was imported stays; Resume continues from there."
    with state.guarded("operator", "source_problem"), state.cancellable_job(place, "source", stop) as progress:
        report = connecting.connect(resources, Settings(), [spec], progress, embedder, st.session_state.get(RATE))
        state.update(connected=report)
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


def _draw_connected(report: connecting.ConnectReport) -> None:
    st.markdown("## Last import")
    rows = [row for table in report.tables for row in table.rows]
    draw_values(report.tables[0].columns, rows, key="memories:source:counts", most=len(rows))
    for snapshot in report.sources:
        html.draw("memories/source_said.html", lines=snapshot.lines)
        count = len(snapshot.problems) + snapshot.more_problems
        if count:
            st.markdown(f"## {counted(count, 'rows')} left out, or taken in part")
            if snapshot.more_problems:
                st.caption(f"The first {len(snapshot.problems):,} are listed.")
            draw_table(snapshot.problems, PROBLEMS, key="memories:source:problems", most=12)
    if report.problem:
        st.warning(plain(f"Not searchable yet: {report.problem}"), icon=":material/warning:")


PROBLEMS: list[Column[RowProblem]] = [
    Column("memory", lambda each: each.memory_id, "medium", help="Its id there"),
    Column("field", lambda each: each.field, "small"),
    Column("reason", lambda each: each.reason, "large", help="Why the row or the field was left out"),
]


def _cards(resources: Resources, place: DeltaGenerator) -> None:
    title, again = st.columns([5, 1], vertical_alignment="bottom")
    title.markdown("## Sources of this store")
    help = "Ask each source again whether it answers and how many memories it holds."
    again.button(
        "Ask again",
        key="memories:source:ask",
        on_click=partial(state.update, sources_asked=None),
        width="stretch",
        help=help,
    )
    now = datetime.now(UTC)
    for status in asked(resources, place):
        with st.container(border=True, key=f"memories:source:card:{status.record.id}"):
            st.html(card_html(status, now))
            _card_buttons(resources, status.record, place)


def asked(resources: Resources, place: DeltaGenerator) -> list[SourceStatus]:
    """The status of each source, asked once per content version of the store."""
    embedder = resources.embedder
    ready = not isinstance(embedder, TokenEmbedder) or embedder.loaded  # the page does not wait for weights
    key = (str(resources.store.path), resources.store.content_version, resources.embedder.line if ready else "")
    last = state.present().sources_asked
    if last is None or last[0] != key:
        with place, st.spinner("asking the sources"):
            last = (key, ask_sources(resources.store, resources.embedder if ready else None, resources.address)())
        state.update(sources_asked=last)
    return last[1]


def card_html(status: SourceStatus, now: datetime) -> Markup:
    """The status of a source: reachable, counts, snapshot, vectors, settings."""
    record, probe = status.record, status.probe
    vectors = "good" if status.match is not None and status.match.same else "ok"
    if status.other_embedder or status.contradicted:
        vectors = "warning"
    answers = ("Reachable", "answers", "good") if probe is not None else ("Reachable", status.problem, "warning")
    facts = [
        answers,
        ("Memories", status.rows.removeprefix("memories: "), "warning" if status.difference else "ok"),
        ("Snapshot", snapshot_line(record, now), "ok" if record.complete else "warning"),
        ("Vectors", status.embedder, vectors),
        *([("Not of their texts", "; ".join(status.mismatched), "warning")] if status.mismatched else []),
        *([] if probe is None else _drawn(probe.engine_facts)),
    ]
    engine = record.probe.get("engine", "") if probe is None else probe.engine
    return html.render("memories/source.html", address=record.address, engine=engine, facts=facts)


def _card_buttons(resources: Resources, record: SourceRecord, place: DeltaGenerator) -> None:
    key = f"memories:source:{record.id}"
    with st.container(horizontal=True, vertical_alignment="center"):
        label, help = "Import changes" if record.complete else "Resume", HELP["memories:source:changes"]
        taking = st.button(label, key=f"{key}:take", icon=":material/sync:", help=help)
        with st.popover("Name its embedder", key=f"{key}:naming", help="Name the embedder that made its vectors."):
            label, value = "Embedder that made its vectors", record.embedder or ""
            named = st.text_input(label, value, key=f"{key}:embedder", help=HELP["memories:source:named"]).strip()
            naming = st.button("Compare and use it", key=f"{key}:name", disabled=not named)
        with st.popover("Forget", key=f"{key}:forgetting", help="Remove this source and its memories from the store."):
            st.caption(f"Deletes its {record.memories:,} memories from this store. The source itself is not touched.")
            st.button("Delete them and forget it", key=f"{key}:forget", on_click=_forget, args=(resources, record))
    if taking or naming:
        with state.guarded("operator", "source_problem"):
            import_source(resources, connecting.saved_spec(resources, record), place, named if naming else None)
        st.rerun()


def _forget(resources: Resources, record: SourceRecord) -> None:
    state.update(source_problem="", looked=None, connected=None)
    with state.guarded("operator", "source_problem"):
        count = connecting.forget(resources, Settings(), record.address)
        state.changed()
        st.toast(f"{counted(count, 'memories')} deleted, source removed", icon=":material/link_off:")


def draw_empty(resources: Resources, place: DeltaGenerator) -> None:
    """Draw the ways to fill an empty store. Progress is drawn in `place`."""
    empty(
        "See why your agent recalls the wrong memory, and fix it",
        "This store is empty. Fill it in one of four ways:",
    )
    systems = ", ".join(kind.title for kind in importable())
    ways = (
        (
            "Import files",
            "Import",
            "",
            "JSON Lines, CSV, Markdown notes, and exports of mem0, LangGraph, Zep, LangChain and others.",
        ),
        (
            "Connect a live system",
            "Sources",
            "",
            f"Where mem0, CEMS, LangGraph and others keep memories: {systems}. Read-only.",
        ),
        (
            "Import a trace",
            "Import",
            "openinference-traces",
            "Spans of your own pipeline, by OpenInference, OpenTelemetry or our decorators: which stage lost what.",
        ),
    )
    boxes = st.columns(2, gap="small") + st.columns(2, gap="small")
    with boxes[0].container(border=True, height="stretch"):
        st.markdown("**Look around with the sample**")
        if SAMPLE_DATA.is_dir():
            memories, queries = (
                len((SAMPLE_DATA / f"{name}.jsonl").read_bytes().splitlines()) for name in ("memories", "queries")
            )
            about = f"{memories} memories of a software team and {queries} judged queries"
            st.caption(f"{about}; it takes about half a minute.")
            offer_sample(resources, place, "start", type="primary")
    for box, (title, view, form, text) in zip(boxes[1:], ways, strict=True):
        with box.container(border=True, height="stretch"):
            st.markdown(f"**{title}**")
            st.caption(text)
            more: Any = {"on_click": _open, "args": (view, form)}
            if st.button(title, key=f"inspect:start:{title}", **more):
                go("pages/memories.py")


def _open(view: str, form: str) -> None:
    """Have the Memories page open a view, with a format of files chosen if one is named."""
    st.session_state[VIEW] = view
    if form:
        st.session_state["memories:format"] = form
