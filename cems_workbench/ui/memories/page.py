"""The Memories page: import, sources, edit, statistics, index health, and opening another store.

Its views Browse (search, filters, table, and the selected memory) and Deleted, whose memories can be restored, are here.

One memory in full: text, fields, relations and judgments; edit and delete, and the form of an edit.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from functools import partial
from typing import Any

import streamlit as st
from markupsafe import Markup
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.analysis.memory_names import with_names
from cems_workbench.analysis.supersession import stored_standings
from cems_workbench.errors import InputError, WorkbenchError
from cems_workbench.models import tokens
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import IMPORTANCE, NEWER_FIRST, OLDER_FIRST, Chunk, Judgment, Memory, Relation
from cems_workbench.store import Facets, Selection
from cems_workbench.store.memories import DeletedMemory
from cems_workbench.store.statistics import Sort
from cems_workbench.ui.inspect.state import open_in_inspect
from cems_workbench.ui.kit import html, session, widgets
from cems_workbench.ui.kit.address import followed, memory, widget
from cems_workbench.ui.kit.forms import DAY_HELP, FIELDS, edited_memory, form_values, optional_choice, title_and_text
from cems_workbench.ui.kit.html import begin_page, excerpt, plain
from cems_workbench.ui.kit.tables import HELP, Column, draw_table
from cems_workbench.ui.kit.views import View, views_in
from cems_workbench.ui.kit.widgets import remembered, switch
from cems_workbench.ui.memories import across, sources, state, store

_TYPED = ("content", "title", "category", "project", "session", "tags", "priority", "pinned", "importance", "scope")
_DATED = ("created_at", "last_accessed", "valid_from", "valid_until")
LABELS = {name: name.removesuffix("_at").replace("_", " ").capitalize() for name in (*_TYPED, *_DATED)}


def draw_edit(resources: Resources, memory: Memory) -> None:
    """Draw the form; its callbacks save or cancel before the rerun."""
    facets = resources.store.memories.facets()
    values, generation = form_values(memory, LABELS), state.present().generation
    keys = {name: f"memories:{generation}:{name}" for name in LABELS}
    for name, value in values.items():
        st.session_state.setdefault(keys[name], value)
    with st.form(f"memories:form:{generation}"):
        st.text_area("Content", key=keys["content"], height=180, help=HELP["memories:edit:content"])
        st.text_input("Title", key=keys["title"], help="A few words; searched with the content.")
        left, right = st.columns(2)
        with left:
            optional_choice("Category", keys["category"], facets.categories, "Kind of memory, such as preference.")
        with right:
            optional_choice("Project", keys["project"], facets.projects, "Project of the memory; empty for none.")
        left, right = st.columns(2)
        left.text_input("Session", key=keys["session"], help="Conversation it was written in.")
        right.selectbox("Scope", ["personal", "shared"], key=keys["scope"], help="Who may find it.")
        help, hint = "Keywords for this page. Type one and press Enter.", "type a tag"
        st.multiselect("Tags", values["tags"], key=keys["tags"], accept_new_options=True, placeholder=hint, help=help)
        left, right = st.columns(2)
        left.number_input("Priority", 1.0, 2.0, step=0.1, key=keys["priority"], help=HELP["memories:edit:priority"])
        right.selectbox("Importance", IMPORTANCE, key=keys["importance"], help="How much it matters.")
        left, right = st.columns(2)
        left.text_input("Created", key=keys["created_at"], help=DAY_HELP)
        right.text_input("Last accessed", key=keys["last_accessed"], help=DAY_HELP)
        left, right = st.columns(2)
        left.text_input("Valid from", key=keys["valid_from"], help=f"From when on it holds. {DAY_HELP}")
        right.text_input("Valid until", key=keys["valid_until"], help=f"Expired from this moment on. {DAY_HELP}")
        st.toggle("Pinned", key=keys["pinned"], help="A pinned memory is never dropped because of its age.")
        if problem := state.present().problem:
            st.error(plain(problem), icon=":material/block:")
        with st.container(horizontal=True):
            save, cancel = partial(_save, resources, memory, keys), partial(state.edit, False)
            st.form_submit_button("Save", HELP["memories:edit:save"], save, key="memories:save", type="primary")
            st.form_submit_button("Cancel", "Discard the changes.", cancel, key="memories:edit:cancel")


def _save(resources: Resources, memory: Memory, keys: Mapping[str, str]) -> None:
    try:
        typed = {name: st.session_state[key] for name, key in keys.items()}
        after = edited_memory(memory, typed, LABELS)
    except InputError as error:
        state.update(problem=str(error))
        return
    if state.save(resources, after, memory):
        st.toast("Saved", icon=":material/check:")


MAX_ROWS_BESIDE = 6
ACROSS = "memories:across"


def draw_detail(resources: Resources, memory_id: str | None) -> None:
    """Draw the selected memory, or a hint to select one."""
    memory = resources.store.memories.get(memory_id) if memory_id is not None else None
    if memory is None:
        html.draw("memories/hint.html", text="Select a row to read, edit or delete a memory.")
        return
    shown = state.present()
    with st.container(horizontal=True, vertical_alignment="center", key="memories:title"):
        html.draw("memories/title.html", id=memory.id, title=memory.title)
        locked, delete = not session.may("operator"), partial(state.delete, resources, memory.id)
        edit, icon, off = partial(state.edit, True), ":material/edit:", shown.editing or locked
        st.button("Edit", key="memories:edit", icon=icon, on_click=edit, disabled=off, help=HELP["memories:edit"])
        icon = ":material/delete:"
        st.button(
            "Delete", key="memories:delete", icon=icon, on_click=delete, disabled=locked, help=HELP["memories:delete"]
        )
        close, icon, help = partial(state.select, None), ":material/close:", "Back to the table."
        st.button("Close", key="memories:close", type="tertiary", icon=icon, on_click=close, help=help)
    # The form needs more width than a text, whose lines should stay short.
    left, right = st.columns([3, 2] if shown.editing else 2, gap="medium")
    with left:
        if shown.editing:
            draw_edit(resources, memory)
        else:
            if shown.notice:
                st.caption(shown.notice)
            html.draw("memories/text.html", content=memory.content)
    with right:
        if lines := standing_lines(resources, memory):
            st.html(html.render("memories/standing.html", lines=lines))
        st.html(facts_html(memory))
        if chunks := resources.store.chunks.read([memory.id]).get(memory.id, ()):
            st.markdown(f"## Chunks ({len(chunks)})", help=HELP["memories:chunks"])
            draw_table(chunks, CHUNKS, key=f"memories:chunks:{memory.id}", most=MAX_ROWS_BESIDE)
        _relations(resources, memory)
        judged = resources.store.judgments.of_memory(memory.id)
        st.markdown(f"## Judgments ({len(judged)})", help=HELP["memories:judgments"])
        if judged:
            draw_table(judged, JUDGED, key="memories:judgments", most=MAX_ROWS_BESIDE)
        else:
            st.caption("No query has been judged with this memory.")
    _across(resources, memory.id)


def _across(resources: Resources, memory_id: str) -> None:
    panel = st.expander("Across queries", key=ACROSS, icon=":material/query_stats:", on_change="rerun")
    if not panel.open:
        return
    with panel:
        st.caption(HELP["memories:across"])
        across.draw(resources, memory_id, "memories:across", lambda *row: state.update(opening=row))
    # A callback may not leave the page; the run that follows does.
    if (row := state.present().opening) is not None:
        state.update(opening=None)
        open_in_inspect(*row[:2], why=row[2])


def standing_lines(resources: Resources, memory: Memory) -> list[str]:
    """ "superseded by “Staying in our flat” (157 days later)", "expired 2026-03-01", "supersedes …": a line each, as of now."""
    relations, now = resources.store.relations, datetime.now(UTC)
    own = stored_standings([memory], relations.superseding([memory.id]), now).get(memory.id, "")
    older = [
        edge.target_id if edge.source_id == memory.id else edge.source_id
        for edge in relations.of_memory(memory.id)
        if edge.kind in (NEWER_FIRST if edge.source_id == memory.id else OLDER_FIRST)
    ]
    lines = [*(own.split("; ") if own else ()), *(f"supersedes {other}" for other in dict.fromkeys(older))]
    return with_names(lines, resources.store)


def facts_html(memory: Memory) -> Markup:
    """All fields of a memory besides its text, each with its meaning."""
    facts: list[tuple[str, str | None]] = [
        ("Category", memory.category),
        ("Project", memory.project),
        ("Session", memory.session),
        ("Author", memory.author),
        ("Tags", ", ".join(memory.tags)),
        ("Scope", memory.scope),
        ("Created", _moment(memory.created_at)),
        ("Last accessed", _moment(memory.last_accessed)),
        ("Valid from", _moment(memory.valid_from)),
        ("Valid until", _moment(memory.valid_until)),
        ("Accesses", f"{memory.access_count:,}"),
        ("Feedback", f"{memory.relevant_count:,} relevant, {memory.noise_count:,} noise"),
        ("Priority", f"{memory.priority:g}"),
        ("Importance", memory.importance),
        ("Pinned", "yes" if memory.pinned else "no"),
        ("Source", memory.source_ref),
        ("Length", f"{len(memory.content):,} characters"),
    ]
    return html.render("memories/facts.html", facts=[(name, value, FIELDS[name.lower()]) for name, value in facts])


CHUNKS: list[Column[Chunk]] = [
    Column("#", lambda chunk: chunk.seq + 1, 40, help="Position in the memory"),
    Column("start", lambda chunk: chunk.start, 64, help="First character; empty: unknown"),
    Column("tokens", lambda chunk: tokens.count(chunk.text), 64, help="Size in cl100k tokens (OpenAI’s encoding)"),
    Column("content", lambda chunk: excerpt(chunk.text), 280, help="First words"),
]


def _relations(resources: Resources, memory: Memory) -> None:
    relations = resources.store.relations.of_memory(memory.id)
    st.markdown(f"## Relations ({len(relations)})", help=HELP["memories:relations"])
    if not relations:
        st.caption("This memory has no relations.")
        return
    others = resources.store.memories.read({end for edge in relations for end in (edge.source_id, edge.target_id)})

    def other(edge: Relation) -> str:
        return edge.target_id if edge.source_id == memory.id else edge.source_id

    def content(edge: Relation) -> str:
        return excerpt(others[other(edge)].content) if other(edge) in others else ""

    columns: list[Column[Relation]] = [
        Column("", lambda edge: "→" if edge.source_id == memory.id else "←", 30, help="→ from this memory, ← to it"),
        Column("kind", lambda edge: edge.kind, 86, help="Kind of the relation"),
        Column("memory", other, 66, help="Its id; select a row to open it"),
        Column("content", content, 220, help="First words of the other memory"),
        Column("weight", lambda edge: edge.weight, 64, "%.2f", "Strength, 0 to 1"),
    ]
    key = f"memories:relations:{state.present().generation}:{memory.id}"
    draw_table(relations, columns, key=key, on_pick=lambda edge: _follow(other(edge)), most=MAX_ROWS_BESIDE)


def _follow(memory_id: str) -> None:
    state.select(memory_id)
    state.update(generation=state.present().generation + 1)  # so that the table above selects the new memory


JUDGED: list[Column[tuple[Judgment, str]]] = [
    Column("grade", lambda row: row[0].grade, 56, "%d", "0 not relevant … 3 answers it"),
    Column("query", lambda row: row[1], 230, help="Query text"),
    Column("judge", lambda row: row[0].judge, 70, help="Who graded it"),
    Column("kind", lambda row: row[0].kind, 64, help="Judged by a person or a model"),
    Column("qid", lambda row: row[0].qid, 60, help="Id of the query"),
]


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment:%Y-%m-%d %H:%M} UTC"


def undo_bar(resources: Resources) -> None:
    """Draw the last deletion with Undo."""
    memory_id = state.present().deleted
    if memory_id is None:
        return
    with st.container(horizontal=True, vertical_alignment="center", key="memories:undo"):
        st.html(html.render("memories/undo.html", id=memory_id), width="content")
        undo, icon = partial(state.restore, resources, memory_id), ":material/undo:"
        st.button("Undo", key="memories:undo:button", on_click=undo, icon=icon, help="Restore this memory.")
        gone, help = partial(state.ask_if_gone, memory_id), "Searches everything of the store for its text."
        st.button("Is it gone?", key="memories:undo:gone", on_click=gone, type="tertiary", help=help)
        key, help = "memories:undo:dismiss", "Hide this line. The memory stays under Deleted."
        st.button("Dismiss", key=key, on_click=partial(state.update, deleted=None), type="tertiary", help=help)


def problem_line() -> None:
    """Draw the store's last error, in one line."""
    shown = state.present()
    if shown.problem and not shown.editing:
        st.error(plain(shown.problem), icon=":material/block:")


MAX_ROWS = 1_000


def draw_deleted(resources: Resources, _: DeltaGenerator) -> None:
    """Draw a table of deleted memories; selected ones can be restored."""
    deleted, total = resources.store.memories.deleted(MAX_ROWS)
    if not deleted:
        widgets.empty(
            "No deleted memories", "Deleted memories are kept here, hidden from every search, until you restore them."
        )
        return
    key = f"memories:deleted:{state.present().generation}"
    ids = [entry.memory.id for entry in deleted]
    event = st.session_state.get(key)  # as last reported by the browser
    marked = [ids[row] for row in (event["selection"]["rows"] if event else ()) if row < len(ids)]
    text, button = st.columns([4, 1], vertical_alignment="bottom")
    shown = f" The latest {MAX_ROWS:,} are shown." if total > len(deleted) else ""
    text.caption(f"{total:,} deleted. Select the rows to restore.{shown}")
    label, restore = f"Restore {len(marked)}" if marked else "Restore", partial(state.restore, resources, *marked)
    icon, off, help = ":material/undo:", not marked, "Restore the selected memories."
    button.button(label, "memories:restore", help, restore, icon=icon, disabled=off, width="stretch")
    draw_table(deleted, DELETED, key=key, on_select="rerun", selection_mode="multi-row", most=14)


DELETED: list[Column[DeletedMemory]] = [
    Column("id", lambda entry: entry.memory.id, 84, help=FIELDS["id"], pinned=True),
    Column("deleted", lambda entry: f"{entry.deleted_at:%Y-%m-%d %H:%M}", 124, help="When it was deleted, UTC"),
    Column("memory", lambda entry: title_and_text(entry.memory), 400, help=FIELDS["memory"]),
    Column("category", lambda entry: entry.memory.category, 96, help=FIELDS["category"]),
    Column("project", lambda entry: entry.memory.project, 90, help=FIELDS["project"]),
]


PAGE_SIZE = 200
MAX_TABLE_ROWS = 12
NONE = "(none)"
OUT_OF_DATE = "out of date"
SORTS: dict[str, tuple[Sort, bool]] = {
    "Newest first": ("created", True),
    "Oldest first": ("created", False),
    "Last accessed": ("accessed", True),
    "Most accessed": ("accesses", True),
    "Highest priority": ("priority", True),
    "Most important": ("importance", True),
    "Longest": ("length", True),
    "Shortest": ("length", False),
    "By id": ("id", False),
}
PINNED = ("pinned", "not pinned")
FILTERS = ("text", "categories", "projects", "sessions", "authors", "importance", "pinned", "created")


def draw_browse(resources: Resources, place: DeltaGenerator) -> None:
    """Draw filters, table and the selected memory; an empty state if the store is empty."""
    total = resources.store.memories.count()
    if not total:
        from cems_workbench.ui.memories.sources import draw_empty

        draw_empty(resources, place)
        return
    selection = filters(resources.store.memories.facets())
    number = max(1, int(st.session_state.get(state.PAGE, 1)))
    summary = st.container()
    page = resources.store.memories.find(selection, PAGE_SIZE, (number - 1) * PAGE_SIZE)
    pages = max(1, math.ceil(page.total / PAGE_SIZE))
    if number > pages:  # memories were deleted since
        st.session_state[state.PAGE] = number = pages
        page = resources.store.memories.find(selection, PAGE_SIZE, (number - 1) * PAGE_SIZE)
    with summary:
        _summary(page.total, total, number)
    if page.memories:
        _table(resources, page.memories, selection.sort)
    if pages > 1:
        st.pagination(pages, key=state.PAGE)
    picked = state.present().selected
    if page.memories or picked is not None:  # without rows there is nothing to select
        draw_detail(resources, picked)


def filters(facets: Facets) -> Selection:
    """Draw the search box and filters; their selection. They keep their values across views and pages."""

    def common(name: str) -> dict[str, Any]:
        return remembered(f"memories:find:{name}") | {"on_change": _first_page}

    def several(
        box: DeltaGenerator, label: str, name: str, values: Sequence[tuple[str | None, int]]
    ) -> tuple[str | None, ...]:
        options = [NONE if value is None else value for value, _ in values]
        chosen = box.multiselect(label, options, placeholder="any", accept_new_options=True, **common(name))
        return tuple(None if value == NONE else value for value in chosen)

    search, order = st.columns([4, 1], vertical_alignment="bottom")
    text = search.text_input("Search", placeholder="exact text", icon=":material/search:", **common("text"))
    sort = order.selectbox("Order", list(SORTS), **common("order"))
    authors = [name for name, _ in facets.authors if name is not None]
    first = 4 if authors else 3
    boxes = [*st.columns(first, vertical_alignment="bottom"), *st.columns(3, vertical_alignment="bottom")]
    categories = several(boxes[0], "Category", "categories", facets.categories)
    projects = several(boxes[1], "Project", "projects", facets.projects)
    sessions = several(boxes[2], "Session", "sessions", facets.sessions)
    users = several(boxes[3], "Author", "authors", facets.authors) if authors else ()
    importance = boxes[first].multiselect("Importance", IMPORTANCE[::-1], placeholder="any", **common("importance"))
    pinned = boxes[first + 1].selectbox("Pinned", PINNED, index=None, placeholder="any", **common("pinned"))
    limits: dict[str, Any] = {"min_value": date(1970, 1, 1), "max_value": date(2100, 12, 31), "format": "YYYY-MM-DD"}
    days = boxes[first + 2].date_input("Created", value=[], **limits, **common("created"))
    span = tuple(days) if isinstance(days, tuple) else (days,)
    column, descending = SORTS[sort]
    return Selection(
        text=text.strip(),
        categories=categories,
        projects=projects,
        sessions=sessions,
        authors=users,
        importance=tuple(importance),
        pinned=None if pinned is None else pinned == "pinned",
        created_from=span[0] if span else None,
        created_to=span[1] if len(span) > 1 else None,
        sort=column,
        descending=descending,
    )


def _first_page() -> None:
    st.session_state[state.PAGE] = 1


def clear_filters() -> None:
    """Clear all filters."""
    cleared: dict[str, Any] = {"text": "", "pinned": None, "created": []}
    for name in FILTERS:
        st.session_state.pop(f"memories:find:{name}", None)
        st.session_state[f"memories:find:{name}"] = cleared.get(name, [])
    _first_page()


def _summary(matching: int, total: int, number: int) -> None:
    first, last = (number - 1) * PAGE_SIZE + 1, min(number * PAGE_SIZE, matching)
    counted = f"{matching:,} of {total:,} memories match" if matching != total else f"All {total:,} memories"
    shown = f" · {first:,}–{last:,} shown" if matching > PAGE_SIZE else ""
    with st.container(horizontal=True, vertical_alignment="center", key="memories:summary"):
        st.html(html.render("memories/hint.html", text=counted + shown), width="content")
        off, help = matching == total, "Show all memories again."
        st.button("Clear filters", "memories:clear", help, clear_filters, type="tertiary", disabled=off)
    if not matching:
        widgets.empty("No memory matches", "Use fewer words, or clear the filters.")


def standings(resources: Resources, memories: Sequence[Memory]) -> dict[str, str]:
    """By id, which of these memories are superseded, by which, or have expired, in words."""
    relations, now = resources.store.relations, datetime.now(UTC)
    edges = relations.superseding([memory.id for memory in memories])
    found = stored_standings(memories, edges, now)
    return dict(zip(found, with_names(list(found.values()), resources.store), strict=True))


def _day(moment: datetime | None) -> date | None:
    return None if moment is None else moment.date()


COLUMNS: list[Column[Memory]] = [
    Column("memory", title_and_text, 350, help=FIELDS["memory"], pinned=True),
    Column(
        "author",
        lambda memory: memory.author,
        96,
        help="Who said it, or whose memory it is: the user of an agent's memory.",
    ),
    Column("created", lambda memory: _day(memory.created_at), 92, "YYYY-MM-DD", "Day, UTC."),
    Column("category", lambda memory: memory.category, 112, help=FIELDS["category"]),
    Column("project", lambda memory: memory.project, 118, help=FIELDS["project"]),
    Column("session", lambda memory: memory.session, 92, help=FIELDS["session"]),
    Column("accessed", lambda memory: _day(memory.last_accessed), 92, "YYYY-MM-DD", "Day of the last access, UTC."),
    Column("accesses", lambda memory: memory.access_count, 78, "localized", FIELDS["accesses"]),
    Column("priority", lambda memory: memory.priority, 70, "%.2f", FIELDS["priority"]),
    Column("pinned", lambda memory: "pinned" if memory.pinned else None, 66, help=FIELDS["pinned"]),
    Column("importance", lambda memory: memory.importance, 88, help=FIELDS["importance"]),
    Column("id", lambda memory: memory.id, 84, help=FIELDS["id"]),
]
LENGTH: Column[Memory] = Column("length", lambda memory: len(memory.content), 70, "localized", FIELDS["length"])
"""Shown if the table is sorted by it."""


def columns(
    sort: Sort, ids: Sequence[str] = (), standing: Mapping[str, str] | None = None, authors: bool = True
) -> list[Column[Memory]]:
    """The columns in order: the sort column is next to the memory, visible on narrow screens. So is "out of date"
    (`standing`, in words by id) if one of the rows visible at first is; it is the last if only one further down is, and
    left out if none is."""
    by_name = {column.name: column for column in (*COLUMNS, LENGTH)}
    first = [by_name[name] for name in dict.fromkeys(("memory", sort))]
    others = [column for column in COLUMNS if column not in first and (authors or column.name != "author")]
    if not standing:
        return [*first, *others]
    words = Column[Memory](OUT_OF_DATE, lambda memory: standing.get(memory.id), 220, help=FIELDS[OUT_OF_DATE])
    visible = any(memory_id in standing for memory_id in ids[:MAX_TABLE_ROWS])
    return [*first, words, *others] if visible else [*first, *others, words]


def _table(resources: Resources, memories: Sequence[Memory], sort: Sort) -> None:
    ids = [memory.id for memory in memories]
    shown = state.present()
    # The selection is a row index, so a table of other rows needs another key.
    key = f"memories:table:{shown.generation}:{hashlib.sha256(repr(ids).encode()).hexdigest()[:10]}"
    draw_table(
        memories,
        columns(sort, ids, standings(resources, memories), any(memory.author for memory in memories)),
        key=key,
        on_select=lambda: state.select(next((ids[row] for row in st.session_state[key]["selection"]["rows"]), None)),
        selection_mode="single-row",
        selection_default={"selection": {"rows": [ids.index(shown.selected)] if shown.selected in ids else []}},
        most=MAX_TABLE_ROWS,
    )


VIEWS = (
    View("Browse", 10, draw_browse),
    View("Import", 20, sources.draw_importing),
    View("Sources", 30, sources.draw),
    View("Statistics", 40, store.draw_statistics),
    View("Deleted", 50, draw_deleted),
    View("Store", 60, store.draw),
)
CHANGING = ("Import", "Sources", "Deleted", "Store", "Audit")
"""The views of operators alone."""


ADDRESS = (
    widget("view", state.VIEW, entry=True, choices=lambda: views_in("memories", *VIEWS), usual="Browse"),
    widget("text", "memories:find:text"),
    widget("order", "memories:find:order", choices=lambda: SORTS, usual=next(iter(SORTS))),
    *(widget(name, f"memories:find:{name}", many=100) for name in ("categories", "projects", "sessions", "authors")),
    widget("importance", "memories:find:importance", many=len(IMPORTANCE), choices=lambda: IMPORTANCE),
    widget("pinned", "memories:find:pinned", choices=lambda: PINNED),
    widget("created", "memories:find:created", date, many=2),
    widget("page", state.PAGE, int, usual=1, span=(1, 1_000_000)),
    memory("memory", lambda: state.present().selected, state.select, entry=True),
)
"""What the page shows: the view, the filters, and the memory in full."""


def header(resources: Resources) -> None:
    """Draw the number of memories and the store's folder."""
    count = resources.store.memories.count()
    words = f"{count:,} {'memory' if count == 1 else 'memories'}"
    html.draw("memories/head.html", count=words, path=resources.store.path)


@session.show_errors
def main() -> None:
    """Draw the page."""
    begin_page("Memories", "memories")
    resources = session.open_or_explain()
    if resources is None:
        store.folder(None)
        return
    state.reset_for(str(resources.store.path))
    with followed("memories", *ADDRESS):
        _draw(resources)
    session.warm_up(resources)


def _draw(resources: Resources) -> None:
    header(resources)
    views = views_in("memories", *VIEWS)
    view = switch("View", [name for name in views if name not in CHANGING or session.may("operator")], state.VIEW)
    # Permanent placeholders, so that their content does not move the page below.
    progress, messages = st.empty(), st.container()
    with messages:
        problem_line()
        undo_bar(resources)
    try:
        views[view].draw(resources, progress)
        state.refresh_indexes(resources, progress)
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/block:")
