"""One memory in full: text, fields, relations and judgments; edit and delete, and the form of an edit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial

import streamlit as st
from markupsafe import Markup

from cems_workbench.analysis.memory_names import with_names
from cems_workbench.analysis.supersession import stored_standings
from cems_workbench.errors import InputError
from cems_workbench.models import tokens
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import IMPORTANCE, NEWER_FIRST, OLDER_FIRST, Chunk, Judgment, Memory, Relation
from cems_workbench.ui.inspect.state import open_in_inspect
from cems_workbench.ui.kit import html, session
from cems_workbench.ui.kit.forms import DAY_HELP, FIELDS, edited_memory, form_values, optional_choice
from cems_workbench.ui.kit.html import excerpt, plain
from cems_workbench.ui.kit.tables import HELP, Column, draw_table
from cems_workbench.ui.memories import across, state

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


MAX_TABLE_ROWS = 6
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
            draw_table(chunks, CHUNKS, key=f"memories:chunks:{memory.id}", most=MAX_TABLE_ROWS)
        _relations(resources, memory)
        judged = resources.store.judgments.of_memory(memory.id)
        st.markdown(f"## Judgments ({len(judged)})", help=HELP["memories:judgments"])
        if judged:
            draw_table(judged, JUDGED, key="memories:judgments", most=MAX_TABLE_ROWS)
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
    draw_table(relations, columns, key=key, on_pick=lambda edge: _follow(other(edge)), most=MAX_TABLE_ROWS)


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
