"""The Import view: choose files, and see the report on every row."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from typing import IO

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.formats import FORMATS
from cems_workbench.jobs.importing import FileImport, import_files
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import CJK, LANGUAGES, NO_LANGUAGE, TextRule
from cems_workbench.store import ImportOptions, language
from cems_workbench.store.importing import DEFAULT_OPTIONS
from cems_workbench.ui.kit import html, session
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.imports import (
    ERROR_COLUMNS,
    counts_table,
    draw_options,
    error_rows,
    errors_csv,
    notes,
    problems,
)
from cems_workbench.ui.kit.tables import draw_table
from cems_workbench.ui.memories import imports, state

MAX_ERROR_ROWS = 1_000
AUTO = "recognise"
LANGUAGE_NAMES = {
    language.AUTO: "detect from the texts",
    CJK: "Chinese, Japanese, Korean",
    NO_LANGUAGE: "none: unmodified words",
}
TITLES = {True: "title and content", False: "content alone"}
"""The label of a text rule with the title or without."""


def draw(resources: Resources, place: DeltaGenerator) -> None:
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
    imports.draw(resources, place)


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
    rows = counts_table(files)
    if rows:
        number = st.column_config.NumberColumn
        draw_table(
            rows,
            key="memories:counts",
            most=len(rows),
            columns={
                "file": st.column_config.TextColumn("file", width="medium"),
                "format": st.column_config.TextColumn("format", width="small", help="Format that the file was read in"),
                "rows": st.column_config.TextColumn("rows", width="small", help="Kind of rows in the file"),
                "added": number("added", help="New in this store"),
                "updated": number("updated", help="Already here with other values"),
                "unchanged": number("unchanged", help="Already here, unchanged"),
                "left out": number("left out", help="Rows that were left out, or taken in part, listed below"),
            },
        )
    for note in notes(files):
        st.caption(plain(note))
    errors = error_rows(files)
    if errors:
        _errors(files, errors)


def _errors(files: tuple[FileImport, ...], errors: list[tuple[str, int, str, str]]) -> None:
    title, button = st.columns([4, 1], vertical_alignment="bottom")
    title.markdown(f"## {len(errors):,} row{'s' if len(errors) != 1 else ''} left out, or taken in part")
    if len(errors) > MAX_ERROR_ROWS:
        title.caption(f"The first {MAX_ERROR_ROWS:,} are shown; the CSV has all of them.")
    button.download_button(
        "Download as CSV",
        errors_csv(files),
        "left-out-rows.csv",
        "text/csv",
        key="memories:errors:csv",
        on_click="ignore",
        icon=":material/download:",
        width="stretch",
        help="All rows that were left out, or taken in part, with reasons.",
    )
    shown = [dict(zip(ERROR_COLUMNS, row, strict=True)) for row in errors[:MAX_ERROR_ROWS]]
    draw_table(
        shown,
        key="memories:errors",
        most=12,
        columns={
            "file": st.column_config.TextColumn("file", width="medium"),
            "row": st.column_config.NumberColumn("row", width=64, format="%d", help="Line or record number, from 1"),
            "field": st.column_config.TextColumn("field", width="small", help="Invalid field"),
            "reason": st.column_config.TextColumn("reason", width="large", help="Why the row was rejected"),
        },
    )
