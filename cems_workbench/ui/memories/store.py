"""The Store view: which folder is open, opening another one, the health of the search indexes, and of the sources."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import streamlit as st
from markupsafe import Markup
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.errors import EmbedderMismatchError, ModelError, StoreError, WorkbenchError
from cems_workbench.jobs.diagnosis import source_checks
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import LANGUAGES, ChunkRule
from cems_workbench.store import IndexState, RefreshReport
from cems_workbench.store.chunks import ChunkStatistics
from cems_workbench.ui.kit import reviewer, shared_resources, templates
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.memories import sources, state
from cems_workbench.ui.memories.importing import language_name

COLUMNS = {
    "Index": "What a search looks memories up in.",
    "State": "Whether it has every change of the store.",
    "Texts": "How many texts are in it: one for each chunk, and one for each memory that has none.",
    "Version": "The store counts its changes: at which change the index was built, and which is the present one.",
    "Note": "Why it has to be built again, if it has to.",
}
INDEXES = {
    "lexical": ("Words", "BM25 ranks memories by the words they share with a query; rare words count more."),
    "vectors": ("Meaning", "The embedding model turns texts into vectors; texts of like meaning lie close together."),
}
"""Each index's name and what it is, by its kind."""
RULES: dict[ChunkRule, str] = {
    "whole": "no memory is cut",
    "embedder": "memories that the embedding model cannot read at once are cut",
    "cems": "memories are cut as CEMS does",
    "qmd": "memories are cut as QMD does",
}
CHUNKS = (
    "A memory in chunks is searched chunk by chunk, and stands where its best one does. `import --chunks RULE` chooses how memories "
    "are cut."
)

LANGUAGE = (
    "Search by words reduces them to stems and leaves out stopwords, both of this language. Corrections of typos follow it; the "
    "detectors know English only. Danish and Norwegian share too many words to be told apart: choose between them here."
)


def draw(resources: Resources, place: DeltaGenerator) -> None:
    """The folder on top, the indexes below, and the sources where there are any."""
    folder(resources.store.path)
    st.space("small")
    indexes(resources, place)
    if resources.store.sources.read():
        st.space("small")
        st.markdown(
            "## Sources",
            help="The running systems that memories were taken from; the view Sources takes what changed.",
        )
        found = source_checks(sources.asked(resources, place), datetime.now(UTC))
        templates.draw("memories/checks.html", checks=found)


def folder(present: Path | None) -> None:
    """The open folder, and a box to open or create another one; `present` is None when none could be opened."""
    st.markdown("## Folder")
    if present is not None:
        templates.draw("memories/open_folder.html", path=present.resolve())
    box, open_button, create_button = st.columns([6, 1, 1], vertical_alignment="bottom")
    box.text_input(
        "Another folder",
        key="memories:folder",
        placeholder="/path/to/a/store",
        help="A folder on the machine that runs this app, where its store is or in one of CEMS_WORKBENCH_FOLDERS.",
    )
    open_button.button(
        "Open",
        key="memories:folder:open",
        on_click=_switch,
        args=(False,),
        width="stretch",
        help="Close the present store and work with the one in this folder.",
    )
    create_button.button(
        "Create",
        key="memories:folder:create",
        on_click=_switch,
        args=(True,),
        width="stretch",
        help="Make an empty store in this folder, which may not exist yet, and work with it.",
    )
    if problem := state.present().folder_problem:
        st.error(plain(problem), icon=":material/block:")


def _switch(create: bool) -> None:
    """Open or create the folder that was typed; after a refusal the store that is open stays open."""
    typed = st.session_state.get("memories:folder", "").strip()
    try:
        reviewer.require("operator")
        opened = shared_resources.switch(typed, create=create)
    except WorkbenchError as error:
        state.update(folder_problem=str(error))
        return
    state.forget_store()
    state.update(store=str(opened.store.path))
    st.toast("Store created" if create else "Store opened", icon=":material/folder_open:")


def indexes_html(states: Sequence[IndexState]) -> Markup:
    """A row per index: what it is, whether it is up to date, how much is in it."""
    rows = []
    for index in states:
        kind, _, model = index.name.partition(" ")
        name, meaning = INDEXES.get(kind, (kind, ""))
        built = "–" if index.version is None else f"{index.version:,}"
        rows.append(
            {
                "name": name,
                "meaning": meaning,
                "model": model or "BM25",
                "fresh": index.fresh,
                "rows": f"{index.rows:,}",
                "version": f"{built} of {index.content_version:,}",
                "note": index.note or "–",
            }
        )
    return templates.render("memories/indexes.html", columns=COLUMNS, indexes=rows)


def indexes(resources: Resources, place: DeltaGenerator) -> None:
    """The health of both indexes, bringing them up to date, rebuilding them."""
    st.markdown(
        "## Search indexes",
        help="They are made from the memories and can be made again at any time. The version counts the changes of the "
        "store: an index is up to date when it was built from the present one. In a large store vectors are found by a graph of neighbors "
        "(HNSW); the latest changes are compared one by one until they are moved into it.",
    )
    model, problem = _vector_model(resources)
    states = resources.store.indexes.states(model)
    if problem:
        st.error(plain(problem), icon=":material/block:")
    st.html(indexes_html(states))
    templates.draw("memories/embedder.html", model=resources.embedder.line, meaning=INDEXES["vectors"][1])
    st.caption(chunks_line(resources.store.chunks.statistics()), help=CHUNKS)
    _language(resources)
    with st.container(horizontal=True, vertical_alignment="center"):
        refresh = st.button(
            "Bring up to date",
            key="memories:refresh",
            disabled=all(index.fresh for index in states),
            help="Add the latest changes. After a change of the embedding model every memory is embedded; the vectors of the "
            "former one stay.",
        )
        rebuild = st.button(
            "Rebuild",
            key="memories:rebuild",
            icon=":material/refresh:",
            help="Delete both indexes and build them again. Every memory is embedded again.",
        )
        if message := state.present().index_message:
            st.caption(message)
    if refresh or rebuild:
        reviewer.require("operator")
        with state.work(place, "rebuild") as progress:
            # Behind until it is done: when it is interrupted, the next run of the page goes on.
            state.update(indexes_behind=True, compared=None)
            report = resources.rebuild(progress) if rebuild else resources.embed_anew(progress)
        state.update(
            indexes_behind=False, index_message=_outcome("Rebuilt" if rebuild else "Brought up to date", report)
        )
        st.rerun()


def _language(resources: Resources) -> None:
    """The language of search by words, why it is that one, and another to choose."""
    spoken = resources.store.language.choice()
    st.caption(f"Language: **{spoken.language}**, {plain(spoken.reason)}.", help=LANGUAGE)
    box, button, _ = st.columns([2, 2, 4], vertical_alignment="bottom")
    key = f"memories:language:{spoken.language}"
    chosen = box.selectbox(
        "Another language",
        LANGUAGES,
        LANGUAGES.index(spoken.language),
        key=key,
        format_func=language_name,
        help="Memories, labels and vectors stay; only the index of words is built anew.",
    )
    button.button(
        "Change language",
        key="memories:language:change",
        disabled=chosen == spoken.language,
        width="stretch",
        on_click=_speak,
        args=(resources, key),
        help="Search by words in this language from now on, and build its index anew.",
    )


def _speak(resources: Resources, key: str) -> None:
    try:
        reviewer.require("operator")
        name = st.session_state[key]
        if not resources.store.language.choose(name):
            return
    except WorkbenchError as error:
        state.update(index_message=plain(str(error)))
        return
    state.changed()
    state.update(index_message=f"Search by words works in {name} from now on; its index is built anew.")


def chunks_line(cut: ChunkStatistics) -> str:
    """The store's chunk rule, and how much there is by it, as Markdown."""
    given = f" ({cut.given:,} came with the memories)" if cut.given else ""
    there = (
        "no memory has any"
        if not cut.chunks
        else f"{_some(cut.memories, 'memory', 'memories')} in {cut.chunks:,} chunks{given}"
    )
    return f"Chunks: **{cut.rule}**, {RULES[cut.rule]}; {there}."


def _some(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"


def _vector_model(resources: Resources) -> tuple[str | None, str]:
    """The id under which the vectors are kept; None while a server that must say its revision does not. And why no search is possible."""
    try:
        model = resources.embedder.model_id
        resources.store.indexes.check(model, None)
    except (EmbedderMismatchError, StoreError) as refusal:
        return model, f"No search is possible: {refusal}"
    except ModelError as error:
        return None, f"The embedding model cannot be reached: {error}"
    return model, ""


def _outcome(done: str, report: RefreshReport | None) -> str:
    if report is None:
        return "Everything was up to date."
    notes = "".join(f" {plain(note)}." for note in report.notes)
    return f"{done} in {report.seconds:.1f} s: {report.embedded:,} texts embedded.{notes}"
