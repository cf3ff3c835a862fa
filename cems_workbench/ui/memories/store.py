"""The Store view: the open folder, opening another one, health of indexes and sources."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import streamlit as st
from markupsafe import Markup
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.errors import EmbedderMismatchError, ModelError, StoreError
from cems_workbench.jobs.diagnosis import source_checks
from cems_workbench.models.embedder import TokenEmbedder
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import LANGUAGES, TEXT_FIELDS, ChunkRule, TextRule
from cems_workbench.store import IndexState, RefreshReport
from cems_workbench.store.chunks import ChunkStatistics
from cems_workbench.store.text_rule import MAX_FIRST_TOKENS, known_text_rule
from cems_workbench.ui.kit import html, session
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.memories import sources, state
from cems_workbench.ui.memories.importing import TITLES, language_name

COLUMNS = {
    "Index": "The structure used by searches.",
    "State": "Whether it contains every change of the store.",
    "Texts": "Number of indexed texts: one per chunk, and one per memory without chunks.",
    "Version": "The store numbers its changes: the change at which the index was built, and the latest one.",
    "Note": "Why it must be rebuilt, if so.",
}
INDEXES = {
    "lexical": ("Words", "BM25 ranks memories by the words they share with a query; rare words count more."),
    "vectors": (
        "Meaning",
        "The embedding model turns texts into vectors; texts with similar meaning are close together.",
    ),
}
"""Label and description of each kind of index."""
RULES: dict[ChunkRule, str] = {
    "whole": "memories are not split",
    "embedder": "memories longer than the embedding model's limit are split",
    "cems": "memories are split by CEMS's rule",
    "qmd": "memories are split by QMD's rule",
}
CHUNKS_HELP = (
    "Chunks are searched separately; a memory has the rank of its best chunk. `import --chunks RULE` sets how memories are "
    "split."
)

TEXT_HELP = (
    "Which text of a memory is embedded and searched. Systems differ in this more than in formulas: mem0, engram and ACE read the content "
    "alone. `import --text content` sets it too."
)
LANGUAGE_HELP = (
    "Language of the stemmer and stop words of lexical search, and of typo corrections; the detectors support English only. Danish and "
    "Norwegian are too similar to be detected: choose one of them here."
)


def draw(resources: Resources, place: DeltaGenerator) -> None:
    """Draw the folder, the indexes, and the sources if there are any."""
    folder(resources.store.path)
    st.space("small")
    indexes(resources, place)
    if resources.store.sources.read():
        st.space("small")
        st.markdown(
            "## Sources",
            help="Live systems that memories were imported from; update them in the view Sources.",
        )
        checks = source_checks(sources.asked(resources, place), datetime.now(UTC))
        html.draw("memories/checks.html", checks=checks)


def folder(present: Path | None) -> None:
    """Draw the open folder, and a box to open or create another one; `present` is None if none could be opened."""
    st.markdown("## Folder")
    if present is not None:
        html.draw("memories/open_folder.html", path=present.resolve())
    box, open_button, create_button = st.columns([6, 1, 1], vertical_alignment="bottom")
    box.text_input(
        "Another folder",
        key="memories:folder",
        placeholder="/path/to/a/store",
        help="A folder on the machine that runs this app: next to its store, or in one of CEMS_WORKBENCH_FOLDERS.",
    )
    open_button.button(
        "Open",
        key="memories:folder:open",
        on_click=_switch,
        args=(False,),
        width="stretch",
        help="Close the current store and open the one in this folder.",
    )
    create_button.button(
        "Create",
        key="memories:folder:create",
        on_click=_switch,
        args=(True,),
        width="stretch",
        help="Create an empty store in this folder, which may not exist yet, and open it.",
    )
    if problem := state.present().folder_problem:
        st.error(plain(problem), icon=":material/block:")


def _switch(create: bool) -> None:
    """Open or create the typed folder; after an error the current store stays open."""
    typed = st.session_state.get("memories:folder", "").strip()
    with state.guarded("operator", "folder_problem"):
        opened = session.switch(typed, create=create)
        state.forget_store()
        state.update(store=str(opened.store.path))
        st.toast("Store created" if create else "Store opened", icon=":material/folder_open:")


def indexes_html(states: Sequence[IndexState]) -> Markup:
    """One row per index: kind, state, number of texts."""
    rows = []
    for index in states:
        kind, _, model = index.name.partition(" ")
        rows.append((index, *INDEXES.get(kind, (kind, "")), model or "BM25"))
    return html.render("memories/indexes.html", columns=COLUMNS, indexes=rows)


def indexes(resources: Resources, place: DeltaGenerator) -> None:
    """Draw the health of both indexes, with Refresh and Rebuild."""
    st.markdown(
        "## Search indexes",
        help="Derived from the memories, and can be rebuilt at any time. The version numbers the store's changes: an index is "
        "up to date if it was built from the latest one. Vectors are searched exactly; a config that "
        "asks for Chroma's graph (lists.vector.index) has it made when it is asked.",
    )
    model, problem = _vector_model(resources)
    states = resources.store.indexes.states(model)
    if problem:
        st.error(plain(problem), icon=":material/block:")
    st.html(indexes_html(states))
    embedder = resources.embedder
    model = f"{embedder.line}, {embedder.place}" if isinstance(embedder, TokenEmbedder) else embedder.line
    html.draw("memories/embedder.html", model=model, meaning=INDEXES["vectors"][1])
    st.caption(chunks_line(resources.store.chunks.statistics()), help=CHUNKS_HELP)
    _text(resources)
    _language(resources)
    with st.container(horizontal=True, vertical_alignment="center"):
        refresh = st.button(
            "Refresh",
            key="memories:refresh",
            disabled=all(index.fresh for index in states),
            help="Index the latest changes. After a change of the embedding model all memories are embedded; the vectors of the "
            "previous model are kept.",
        )
        rebuild = st.button(
            "Rebuild",
            key="memories:rebuild",
            icon=":material/refresh:",
            help="Delete both indexes and rebuild them. All memories are embedded again.",
        )
        if message := state.present().index_message:
            st.caption(plain(message))
    if refresh or rebuild:
        session.require("operator")
        with state.cancellable_job(place, "rebuild") as progress:
            # Marked outdated until done, so that the next rerun resumes an interrupted refresh.
            state.update(indexes_behind=True, compared=None)
            report = resources.rebuild(progress) if rebuild else resources.embed_anew(progress)
        state.update(indexes_behind=False, index_message=_outcome("Rebuilt" if rebuild else "Refreshed", report))
        st.rerun()


def _text(resources: Resources) -> None:
    """Draw which text of a memory is embedded and searched, and a choice of another one."""
    rule = resources.store.texts.rule
    st.caption(f"Searched text: **{rule}**.", help=TEXT_HELP)
    title, fields, most, button = st.columns([2, 3, 2, 2], vertical_alignment="bottom")
    key = f"memories:text:{rule}"
    with_title = title.selectbox(
        "Searched text", (True, False), 0 if rule.title else 1, key=f"{key}:title", format_func=lambda on: TITLES[on]
    )
    names = fields.multiselect(
        "Lines before it",
        TEXT_FIELDS,
        rule.fields,
        key=f"{key}:fields",
        placeholder="none",
        help="A line “name: value” for each of these fields that a memory has.",
    )
    tokens = most.number_input(
        "First tokens",
        min_value=1,
        max_value=MAX_FIRST_TOKENS,
        value=rule.first_tokens,
        step=1,
        key=f"{key}:tokens",
        placeholder="all",
        help="Only the first tokens of that text are embedded and searched; empty is all.",
    )
    chosen = known_text_rule(with_title, names, tokens)
    button.button(
        "Change text",
        key="memories:text:change",
        disabled=chosen == rule,
        width="stretch",
        on_click=_change_text,
        args=(resources, chosen),
        help="Use this text from now on. Texts that differ are embedded again.",
    )


def _change_text(resources: Resources, rule: TextRule) -> None:
    with state.guarded("operator", "index_message"):
        if resources.store.texts.choose(rule):
            state.changed()
            state.update(index_message=f"Searched is now: {rule}. The indexes are refreshed.", indexes_behind=True)


def _language(resources: Resources) -> None:
    """Draw the language of lexical search, the reason for it, and a choice of another one."""
    spoken = resources.store.language.choice()
    st.caption(f"Language: **{spoken.language}**, {plain(spoken.reason)}.", help=LANGUAGE_HELP)
    box, button, _ = st.columns([2, 2, 4], vertical_alignment="bottom")
    key = f"memories:language:{spoken.language}"
    chosen = box.selectbox(
        "Another language",
        LANGUAGES,
        LANGUAGES.index(spoken.language),
        key=key,
        format_func=language_name,
        help="Memories, labels and vectors stay; only the lexical index is rebuilt.",
    )
    button.button(
        "Change language",
        key="memories:language:change",
        disabled=chosen == spoken.language,
        width="stretch",
        on_click=_change_language,
        args=(resources, key),
        help="Use this language for lexical search, and rebuild its index.",
    )


def _change_language(resources: Resources, key: str) -> None:
    with state.guarded("operator", "index_message"):
        name = st.session_state[key]
        if resources.store.language.choose(name):
            state.changed()
            state.update(index_message=f"Lexical search now uses {name}; its index is being rebuilt.")


def chunks_line(cut: ChunkStatistics) -> str:
    """The store's chunk rule and its chunk counts, as Markdown."""
    imported = f" ({cut.given:,} imported with the memories)" if cut.given else ""
    there = (
        "no memory is split"
        if not cut.chunks
        else f"{_count_text(cut.memories, 'memory', 'memories')} in {cut.chunks:,} chunks{imported}"
    )
    return f"Chunks: **{cut.rule}**, {RULES[cut.rule]}; {there}."


def _count_text(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"


def _vector_model(resources: Resources) -> tuple[str | None, str]:
    """(Id of the vectors' embedder; None while a server does not report its revision. Why no search is possible, or empty.)"""
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
        return "Everything is up to date."
    notes = "".join(f" {note}." for note in report.notes)
    return f"{done} in {report.seconds:.1f} s: {report.embedded:,} texts embedded.{notes}"
