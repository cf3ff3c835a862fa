"""The Store and Statistics views: the open folder, opening another one, health of indexes and sources; counts, and duplicates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st
from markupsafe import Markup
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.errors import EmbedderMismatchError, ModelError, StoreError
from cems_workbench.jobs.diagnosis import source_checks
from cems_workbench.models.embedder import TokenEmbedder
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import LANGUAGES, TEXT_FIELDS, ChunkRule
from cems_workbench.store import IndexState, Statistics
from cems_workbench.store.chunks import ChunkStatistics
from cems_workbench.store.text_rule import MAX_FIRST_TOKENS, known_text_rule
from cems_workbench.ui.kit import html, session, widgets
from cems_workbench.ui.kit.charts import LIST_COLOURS
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import HELP, Column, draw_table
from cems_workbench.ui.memories import sources, state
from cems_workbench.ui.memories.sources import language_name, title_box

if TYPE_CHECKING:
    from cems_workbench.store.search.chroma_collection import ChromaState


INDEXES = {
    "lexical": ("Words", "BM25 ranks memories by the words they share with a query; rare words count more."),
    "vectors": (
        "Meaning",
        "The embedding model turns texts into vectors; texts with similar meaning are close together.",
    ),
    "chroma": (
        "Chroma",
        "Texts, vectors and metadata as a collection that any client of Chroma reads; searches go on exactly without it.",
    ),
}
"""Label and description of each kind of index."""
RULES: dict[ChunkRule, str] = {
    "whole": "memories are not split",
    "embedder": "memories longer than the embedding model's limit are split",
    "cems": "memories are split by CEMS's rule",
    "qmd": "memories are split by QMD's rule",
    "openclaw": "memories are split by OpenClaw's rule",
}


def draw(resources: Resources, place: DeltaGenerator) -> None:
    """Draw the folder, the indexes, and the sources if there are any."""
    folder(resources.store.path)
    st.space("small")
    indexes(resources, place)
    if resources.store.sources.read():
        st.space("small")
        st.markdown("## Sources", help=HELP["memories:store:sources"])
        checks = source_checks(sources.asked(resources, place), datetime.now(UTC))
        html.draw("memories/checks.html", checks=checks)


def folder(present: Path | None) -> None:
    """Draw the open folder, and a box to open or create another one; `present` is None if none could be opened."""
    st.markdown("## Folder")
    if present is not None:
        html.draw("memories/open_folder.html", path=present.resolve())
    box, *buttons = st.columns([6, 1, 1], vertical_alignment="bottom")
    box.text_input(
        "Another folder", key="memories:folder", placeholder="/path/to/a/store", help=HELP["memories:folder"]
    )
    for button, label in zip(buttons, ("Open", "Create"), strict=True):
        key = f"memories:folder:{label.lower()}"
        button.button(label, key, HELP[key], partial(_switch, label == "Create"), width="stretch")
    if problem := state.present().folder_problem:
        st.error(plain(problem), icon=":material/block:")


def _switch(create: bool) -> None:
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
    return html.render("memories/indexes.html", columns=HELP["memories:indexes:columns"], indexes=rows)


def chroma_row(state: ChromaState, embedder_id: str | None, version: int) -> IndexState:
    """The Chroma collection as a row of the indexes."""
    note = state.place if state.current else state.line
    return IndexState(
        f"chroma {embedder_id}", version if state.current else None, version, state.current, state.records or 0, note
    )


def _chroma(resources: Resources) -> None:
    """Draw the progress of what brings the Chroma collection up to date, or why it does not."""
    writer = session.chroma_writer(resources)
    if writer is not None and not writer.over:
        text = "Chroma’s collection is brought up to date: {done:,} of {total:,} changes written"
        help = "What is written is kept. The rest follows after the next change, or when the app is opened again."
        widgets.watch_work(lambda: {"chroma": writer}, "chroma", "memories:chroma:stop", text, "Stop", help)
    elif line := session.chroma_line(resources):
        st.caption(f"{plain(line)}.")


def indexes(resources: Resources, place: DeltaGenerator) -> None:
    """Draw the health of both indexes, with Refresh and Rebuild."""
    st.markdown("## Search indexes", help=HELP["memories:indexes"])
    model, problem = _vector_model(resources)
    states = resources.store.indexes.states(model)
    if problem:
        st.error(plain(problem), icon=":material/block:")
    collection = None if model is None else resources.store.indexes.chroma_state(model)
    copies = [] if collection is None else [chroma_row(collection, model, resources.store.content_version)]
    st.html(indexes_html([*states, *copies]))
    if collection is not None and not collection.current and not collection.problem:
        _chroma(resources)
    embedder = resources.embedder
    model = f"{embedder.line}, {embedder.place}" if isinstance(embedder, TokenEmbedder) else embedder.line
    html.draw("memories/embedder.html", model=model, meaning=INDEXES["vectors"][1])
    st.caption(chunks_line(resources.store.chunks.statistics()), help=HELP["memories:store:chunks"])
    _text(resources)
    _language(resources)
    fresh, icon = all(index.fresh for index in states), ":material/refresh:"
    with st.container(horizontal=True, vertical_alignment="center"):
        refresh = st.button("Refresh", key="memories:refresh", disabled=fresh, help=HELP["memories:refresh"])
        rebuild = st.button("Rebuild", key="memories:rebuild", icon=icon, help=HELP["memories:rebuild"])
        if message := state.present().index_message:
            st.caption(plain(message))
    if refresh or rebuild:
        session.require("operator")
        with state.cancellable_job(place, "rebuild") as progress:
            # Marked outdated until done, so that the next rerun resumes an interrupted refresh.
            state.update(indexes_behind=True)
            report = resources.rebuild(progress) if rebuild else resources.embed_anew(progress)
        message = "Everything is up to date."
        if report is not None:
            done, notes = "Rebuilt" if rebuild else "Refreshed", "".join(f" {note}." for note in report.notes)
            message = f"{done} in {report.seconds:.1f} s: {report.embedded:,} texts embedded.{notes}"
        state.update(indexes_behind=False, index_message=message)
        st.rerun()


def _text(resources: Resources) -> None:
    rule = resources.store.texts.rule
    st.caption(f"Searched text: **{rule}**.", help=HELP["memories:text"])
    title, fields, most, button = st.columns([2, 3, 2, 2], vertical_alignment="bottom")
    key = f"memories:text:{rule}"
    with_title = title_box(title, rule, key)
    help = "A line “name: value” for each of these fields that a memory has."
    names = fields.multiselect(
        "Lines before it", TEXT_FIELDS, rule.fields, key=f"{key}:fields", placeholder="none", help=help
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
    said = f"Searched is now: {chosen}. The indexes are refreshed."
    _offer_change(button, "text", partial(resources.store.texts.choose, chosen), chosen == rule, said)


def _language(resources: Resources) -> None:
    spoken = resources.store.language.choice()
    st.caption(f"Language: **{spoken.language}**, {plain(spoken.reason)}.", help=HELP["memories:language"])
    box, button, _ = st.columns([2, 2, 4], vertical_alignment="bottom")
    chosen = box.selectbox(
        "Another language",
        LANGUAGES,
        LANGUAGES.index(spoken.language),
        key=f"memories:language:{spoken.language}",
        format_func=language_name,
        help="Memories, labels and vectors stay; only the lexical index is rebuilt.",
    )
    said = f"Lexical search now uses {chosen}; its index is being rebuilt."
    _offer_change(button, "language", partial(resources.store.language.choose, chosen), chosen == spoken.language, said)


def _offer_change(box: DeltaGenerator, of: str, choose: Callable[[], bool], same: bool, said: str) -> None:
    """Draw the button that changes what is indexed; the page then refreshes the indexes."""

    def change() -> None:
        with state.guarded("operator", "index_message"):
            if choose():
                state.changed()
                state.update(index_message=said, indexes_behind=True)

    key = f"memories:{of}:change"
    box.button(f"Change {of}", key, HELP[key], change, disabled=same, width="stretch")


def chunks_line(cut: ChunkStatistics) -> str:
    """The store's chunk rule and its chunk counts, as Markdown."""
    imported = f" ({cut.given:,} imported with the memories)" if cut.given else ""
    split = f"{cut.memories:,} {'memory' if cut.memories == 1 else 'memories'} in {cut.chunks:,} chunks{imported}"
    return f"Chunks: **{cut.rule}**, {RULES[cut.rule]}; {split if cut.chunks else 'no memory is split'}."


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


MAX_COUNTS = 12
COLOUR = LIST_COLOURS[0]


def draw_statistics(resources: Resources, place: DeltaGenerator) -> None:
    """Draw numbers and counts."""
    memories = resources.store.memories
    statistics = session.kept("memories:counted", resources.store.content_version, memories.statistics)
    if not statistics.memories:
        widgets.empty("Nothing to count yet", "Import memories first, under Import.")
        return
    st.html(numbers_html(statistics))
    undated = f" Without a date, and not shown: {statistics.undated:,}." if statistics.undated else ""
    months = [(f"{month:%Y-%m}", count) for month, count in statistics.months]
    half = f"Characters of the content; half have at most {statistics.median_length:,}."
    categories, projects = (
        [("(none)" if name is None else name, count) for name, count in counts]
        for counts in (statistics.categories, statistics.projects)
    )
    tables: list[tuple[str, str, Sequence[tuple[str, int]]]] = [
        ("Categories", "Memories of each category.", categories),
        ("Projects", "Memories of each project; (none) belongs to no project.", projects),
        ("Created", f"Memories by month of creation.{undated}", months),
        ("Length", half, statistics.lengths),
    ]
    for i, (title, caption, counts) in enumerate(tables):
        if i % 2 == 0:
            places = st.columns(2, gap="large")
        with places[i % 2]:
            st.markdown(f"## {title}")
            st.caption(caption)
            most = max((count for _, count in counts), default=1)
            shown = Column[tuple[str, int]]("memories", itemgetter(1), "medium", "localized", bar=most, colour=COLOUR)
            draw_table(
                counts,
                [Column(title.lower(), itemgetter(0), "medium"), shown],
                key=f"memories:counts:{title}",
                most=MAX_COUNTS,
            )


def numbers_html(statistics: Statistics) -> Markup:
    """The strip of numbers at the top."""

    def day(moment: datetime | None) -> str:
        return "–" if moment is None else moment.date().isoformat()

    figures = {
        "memories": f"{statistics.memories:,}",
        "pinned": f"{statistics.pinned:,}",
        "never accessed": f"{statistics.never_accessed:,}",
        "deleted": f"{statistics.deleted:,}",
        "oldest": day(statistics.first_created),
        "newest": day(statistics.last_created),
        "median length": f"{statistics.median_length:,}",
        "longest": f"{statistics.longest:,}",
    }
    return widgets.numbers((name, value, HELP["memories:numbers"][name]) for name, value in figures.items())
