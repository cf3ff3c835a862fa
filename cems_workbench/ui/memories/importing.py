"""The Import view: choose files, and see the report on every row.

The imports on record below the Import view: what each brought, and undo after a look at what it will do.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from typing import IO

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.errors import InputError, WorkbenchError
from cems_workbench.formats import FORMATS
from cems_workbench.jobs.importing import FileImport, import_files, plan_undo, undo_import
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import CJK, LANGUAGES, NO_LANGUAGE, TextRule
from cems_workbench.store import ImportOptions, language
from cems_workbench.store.importing import DEFAULT_OPTIONS
from cems_workbench.store.imports import ImportEvent
from cems_workbench.ui.kit import html, session
from cems_workbench.ui.kit.forms import COUNTS, count_rows, draw_errors, draw_options, notes, problems
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import Column, draw_table
from cems_workbench.ui.memories import state

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


def _undone(event: ImportEvent) -> str:
    return f"; undone {event.undone_at:%Y-%m-%d %H:%M}" if event.undone_at else ""


EVENTS: list[Column[ImportEvent]] = [
    Column("import", lambda event: event.number, 64, "%d"),
    Column("when", lambda event: f"{event.imported_at:%Y-%m-%d %H:%M}", 124, help="UTC"),
    Column("file", lambda event: event.name, "medium"),
    Column("what it did", lambda event: event.words + _undone(event), "large"),
]


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


MAX_ERROR_ROWS = 1_000
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
    files = st.file_uploader(
        "Files to import",
        accept_multiple_files=True,
        key=f"memories:upload:{state.present().generation}",
        help="Memories, relations, queries, judgments or logs of queries and answers; one or several files, in any order. "
        "Importing a file again changes nothing; changed rows are updated.",
    )
    kind, button, sample = st.columns([2, 1, 2], vertical_alignment="bottom")
    chosen = kind.selectbox(
        "Format",
        [AUTO, *FORMATS],
        key="memories:format",
        help="Format of the files (`--format`). “recognise” detects it per file.\n\n"
        + "\n".join(f"- `{reader.name}`: {plain(reader.description)}" for reader in FORMATS.values()),
    )
    start = button.button(
        "Import",
        key="memories:import",
        type="primary",
        disabled=not files,
        width="stretch",
        help="Import the files above. Rows that are left out are listed; all others are stored.",
    )
    spoken = language.AUTO if resources.store.memories.count() else _language(resources.store.language)
    rule = resources.store.texts.rule
    if not resources.store.memories.count():
        with_title = st.selectbox(
            "Searched text",
            (True, False),
            0 if rule.title else 1,
            key="memories:import:title",
            format_func=lambda on: TITLES[on],
            help="Which text of a memory is embedded and searched. You can change it later in the view Store, and add fields to it.",
        )
        rule = replace(rule, title=with_title)
    options = draw_options("memories:import")
    if start and files and options is not None:
        reader_name = "auto" if chosen == AUTO else chosen
        _import([(file.name, file) for file in files], resources, place, reader_name, spoken, rule, options)
    if not resources.store.memories.count() and SAMPLE_DATA.is_dir():
        with sample:
            offer_sample(resources, place, "import")
    _report(state.present().imports)
    draw_imports(resources, place)


def _language(present: language.Language) -> str:
    """Draw the choice of the language for a store without memories; auto is offered until it has one."""
    before = present.current if present.given else language.AUTO
    names = LANGUAGES if present.given else (language.AUTO, *LANGUAGES)
    return st.selectbox(
        "Language of the memories",
        names,
        names.index(before),
        key=f"memories:import:language:{before}",
        format_func=language_name,
        help="Language of stemmer and stop words. Detected from the first texts if they are clear, otherwise English. "
        "Danish and Norwegian are too similar to be detected: choose one of them. You can change it later in the view Store.",
    )


def language_name(name: str) -> str:
    """The label of a language of lexical search."""
    return LANGUAGE_NAMES.get(name, name.capitalize())


def offer_sample(resources: Resources, place: DeltaGenerator, key: str) -> None:
    """Draw a button that imports the sample data."""
    if st.button(
        "Load the sample memories",
        key=f"memories:sample:{key}",
        help="Memories of a fictional engineer, with judged queries.",
    ):
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
    state.update(imports=(), deleted=None, undone="")
    resources.store.language.choose(spoken)
    if rule is not None:
        resources.store.texts.choose(rule)
    with resources.changing(), state.cancellable_job(place, "import") as progress:
        for imported in import_files(files, resources.store, progress, format, options=options):
            # Stored one by one, so that an interrupted import reports its finished files.
            state.update(imports=(*state.present().imports, imported), indexes_behind=True)
        resources.refresh(progress)
    state.changed()
    state.update(indexes_behind=False)
    st.rerun()


def _report(files: tuple[FileImport, ...]) -> None:
    if not files:
        html.draw("memories/import_hint.html")
        return
    st.markdown("## Last import")
    for line in problems(files):
        st.error(plain(line), icon=":material/block:")
    if rows := count_rows(files):
        draw_table(rows, COUNTS, key="memories:counts", most=len(rows))
    for note in notes(files):
        st.caption(plain(note))
    title = "## {count} left out, or taken in part"
    draw_errors(files, title, "memories:errors", "left-out-rows.csv", 12, MAX_ERROR_ROWS)
