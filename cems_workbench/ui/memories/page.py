"""The Memories page: import, sources, edit, statistics, index health, and opening another store.

Its views Browse (search, filters, table, and the selected memory) and Deleted, whose memories can be restored, are here.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.analysis.memory_names import with_names
from cems_workbench.analysis.supersession import stored_standings
from cems_workbench.errors import WorkbenchError
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import IMPORTANCE, Memory
from cems_workbench.store import Facets, Selection
from cems_workbench.store.memories import DeletedMemory
from cems_workbench.store.statistics import Sort
from cems_workbench.ui.kit import html, session, widgets
from cems_workbench.ui.kit.address import followed, memory, widget
from cems_workbench.ui.kit.forms import FIELDS, title_and_text
from cems_workbench.ui.kit.html import begin_page, plain
from cems_workbench.ui.kit.tables import Column, draw_table
from cems_workbench.ui.kit.views import View, views_in
from cems_workbench.ui.kit.widgets import remembered, switch
from cems_workbench.ui.memories import detail, sources, state, store

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
        from cems_workbench.ui.memories.empty import draw_empty

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
        detail.draw_detail(resources, picked)


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
        detail.problem_line()
        detail.undo_bar(resources)
    try:
        views[view].draw(resources, progress)
        state.refresh_indexes(resources, progress)
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/block:")
