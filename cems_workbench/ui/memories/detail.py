"""One memory in full: text, fields, relations and judgments; edit and delete.

Edit form of a memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import streamlit as st
from markupsafe import Markup

from cems_workbench.analysis.memory_use import UseRow
from cems_workbench.analysis.supersession import stored_standings
from cems_workbench.errors import InputError
from cems_workbench.models import tokens
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import IMPORTANCE, NEWER_FIRST, OLDER_FIRST, Chunk, Memory, Relation
from cems_workbench.ui.inspect.state import open_in_inspect
from cems_workbench.ui.kit import html, session
from cems_workbench.ui.kit.html import excerpt, plain
from cems_workbench.ui.kit.memory_form import (
    DAY_HELP,
    FIELDS,
    edited_memory,
    form_values,
    optional_choice,
)
from cems_workbench.ui.kit.tables import draw_table
from cems_workbench.ui.memories import across, state

LABELS = {
    "content": "Content",
    "title": "Title",
    "category": "Category",
    "project": "Project",
    "session": "Session",
    "tags": "Tags",
    "priority": "Priority",
    "pinned": "Pinned",
    "importance": "Importance",
    "scope": "Scope",
    "created_at": "Created",
    "last_accessed": "Last accessed",
    "valid_from": "Valid from",
    "valid_until": "Valid until",
}


def draw_edit(resources: Resources, memory: Memory) -> None:
    """Draw the form; its callbacks save or cancel before the rerun."""
    facets = resources.store.memories.facets()
    values, generation = form_values(memory, LABELS), state.present().generation
    keys = {name: f"memories:{generation}:{name}" for name in LABELS}
    for name, value in values.items():
        st.session_state.setdefault(keys[name], value)
    with st.form(f"memories:form:{generation}"):
        st.text_area(
            "Content", key=keys["content"], height=180, help="The text that is searched and passed to the agent."
        )
        st.text_input("Title", key=keys["title"], help="A few words; searched with the content.")
        left, right = st.columns(2)
        with left:
            optional_choice("Category", keys["category"], facets.categories, "Kind of memory, such as preference.")
        with right:
            optional_choice("Project", keys["project"], facets.projects, "Project of the memory; empty for none.")
        left, right = st.columns(2)
        left.text_input("Session", key=keys["session"], help="Conversation it was written in.")
        right.selectbox("Scope", ["personal", "shared"], key=keys["scope"], help="Who may find it.")
        st.multiselect(
            "Tags",
            values["tags"],
            key=keys["tags"],
            accept_new_options=True,
            placeholder="type a tag",
            help="Keywords for this page. Type one and press Enter.",
        )
        left, right = st.columns(2)
        left.number_input(
            "Priority", 1.0, 2.0, step=0.1, key=keys["priority"], help="1 to 2: a factor of the search score."
        )
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
            st.form_submit_button(
                "Save",
                type="primary",
                key="memories:save",
                on_click=_save,
                args=(resources, memory, keys),
                help="Save the changes and refresh the search indexes.",
            )
            st.form_submit_button(
                "Cancel",
                key="memories:edit:cancel",
                on_click=state.edit,
                args=(False,),
                help="Discard the changes.",
            )


def _save(resources: Resources, memory: Memory, keys: Mapping[str, str]) -> None:
    try:
        typed = {name: st.session_state[key] for name, key in keys.items()}
        after = edited_memory(memory, typed, LABELS)
    except InputError as error:
        state.update(problem=str(error))
        return
    if state.save(resources, after, memory):
        st.toast("Saved", icon=":material/check:")


RELATIONS_HELP = "Links between memories, such as one that supersedes another. Select a row to open the other memory."
CHUNKS_HELP = "Long memories are split into chunks, which are searched separately. The rule is chosen at import."
JUDGMENTS_HELP = "How well this memory answers a query, graded by a person or a model. Used to measure searches."
MAX_TABLE_ROWS = 6
ACROSS = "memories:across"
ACROSS_ABOUT = (
    "Which judged queries want this memory, return it, return it although they judge it irrelevant, or lose it."
)


def draw_detail(resources: Resources, memory_id: str | None) -> None:
    """Draw the selected memory, or a hint to select one."""
    memory = resources.store.memories.get(memory_id) if memory_id is not None else None
    if memory is None:
        html.draw("memories/hint.html", text="Select a row to read, edit or delete a memory.")
        return
    shown = state.present()
    with st.container(horizontal=True, vertical_alignment="center", key="memories:title"):
        html.draw("memories/title.html", id=memory.id, title=memory.title)
        st.button(
            "Edit",
            key="memories:edit",
            on_click=state.edit,
            args=(True,),
            icon=":material/edit:",
            disabled=shown.editing or not session.may("operator"),
            help="Change the text or the fields of this memory.",
        )
        st.button(
            "Delete",
            key="memories:delete",
            on_click=state.delete,
            args=(resources, memory.id),
            icon=":material/delete:",
            disabled=not session.may("operator"),
            help="Hide it from every search. You can restore it at any time.",
        )
        st.button(
            "Close",
            key="memories:close",
            on_click=state.select,
            args=(None,),
            type="tertiary",
            icon=":material/close:",
            help="Back to the table.",
        )
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
        _chunks(resources, memory)
        _relations(resources, memory)
        _judgments(resources, memory)
    _across(resources, memory.id)


def _across(resources: Resources, memory_id: str) -> None:
    """Draw the panel on all judged queries, counted while it is open."""
    panel = st.expander("Across queries", key=ACROSS, icon=":material/query_stats:", on_change="rerun")
    if not panel.open:
        return
    with panel:
        st.caption(ACROSS_ABOUT)
        across.draw(resources, memory_id, "memories:across", _open_row)
    if (row := state.present().opening) is not None:
        state.update(opening=None)
        open_in_inspect(*row[:2], why=row[2])


def _open_row(counted: across.Counted, row: UseRow) -> None:
    # A callback may not leave the page; the run that follows does.
    state.update(opening=(counted.request(row), counted.asked.config, (row.memory_id, counted.asked.k)))


def standing_lines(resources: Resources, memory: Memory) -> list[str]:
    """ "superseded by m312 (157 days later)", "expired 2026-03-01", "supersedes m249": a line each, as of now."""
    relations, now = resources.store.relations, datetime.now(UTC)
    own = stored_standings([memory], relations.superseding([memory.id]), now).get(memory.id, "")
    older = [
        edge.target_id if edge.source_id == memory.id else edge.source_id
        for edge in relations.of_memory(memory.id)
        if edge.kind in (NEWER_FIRST if edge.source_id == memory.id else OLDER_FIRST)
    ]
    return [*(own.split("; ") if own else ()), *(f"supersedes {other}" for other in dict.fromkeys(older))]


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


def chunk_rows(chunks: Sequence[Chunk]) -> list[dict[str, Any]]:
    """One row per chunk: number, start in the content, size in cl100k tokens, first words."""
    return [
        {
            "#": chunk.seq + 1,
            "start": chunk.start,
            "tokens": tokens.count(chunk.text),
            "content": excerpt(chunk.text),
        }
        for chunk in chunks
    ]


def _chunks(resources: Resources, memory: Memory) -> None:
    chunks = resources.store.chunks.read([memory.id]).get(memory.id, ())
    if not chunks:
        return
    st.markdown(f"## Chunks ({len(chunks)})", help=CHUNKS_HELP)
    number = st.column_config.NumberColumn
    draw_table(
        chunk_rows(chunks),
        key=f"memories:chunks:{memory.id}",
        most=MAX_TABLE_ROWS,
        columns={
            "#": number("#", width=40, help="Position in the memory"),
            "start": number("start", width=64, help="First character; empty: unknown"),
            "tokens": number("tokens", width=64, help="Size in cl100k tokens (OpenAI’s encoding)"),
            "content": st.column_config.TextColumn("content", width=280, help="First words"),
        },
    )


def relation_rows(memory_id: str, relations: Sequence[Relation], others: Mapping[str, Memory]) -> list[dict[str, Any]]:
    """One row per relation: → starts at `memory_id`, ← ends at it."""
    rows = []
    for relation in relations:
        outgoing = relation.source_id == memory_id
        other = relation.target_id if outgoing else relation.source_id
        text = excerpt(others[other].content) if other in others else ""
        direction = "→" if outgoing else "←"
        rows.append({"": direction, "kind": relation.kind, "memory": other, "content": text, "weight": relation.weight})
    return rows


def _relations(resources: Resources, memory: Memory) -> None:
    relations = resources.store.relations.of_memory(memory.id)
    st.markdown(f"## Relations ({len(relations)})", help=RELATIONS_HELP)
    if not relations:
        st.caption("This memory has no relations.")
        return
    others = resources.store.memories.read({end for edge in relations for end in (edge.source_id, edge.target_id)})
    rows = relation_rows(memory.id, relations, others)
    key = f"memories:relations:{state.present().generation}:{memory.id}"
    draw_table(
        rows,
        key=key,
        on_select=lambda: _follow(key, [row["memory"] for row in rows]),
        selection_mode="single-row",
        most=MAX_TABLE_ROWS,
        columns={
            "": st.column_config.TextColumn("", width=30, help="→ from this memory, ← to it"),
            "kind": st.column_config.TextColumn("kind", width=86, help="Kind of the relation"),
            "memory": st.column_config.TextColumn("memory", width=66, help="Its id; select a row to open it"),
            "content": st.column_config.TextColumn("content", width=220, help="First words of the other memory"),
            "weight": st.column_config.NumberColumn("weight", width=64, format="%.2f", help="Strength, 0 to 1"),
        },
    )


def _follow(key: str, ids: Sequence[str]) -> None:
    rows = st.session_state[key]["selection"]["rows"]
    if rows:
        state.select(ids[rows[0]])
        state.update(generation=state.present().generation + 1)  # so that the table above selects the new memory


def _judgments(resources: Resources, memory: Memory) -> None:
    judged = resources.store.judgments.of_memory(memory.id)
    st.markdown(f"## Judgments ({len(judged)})", help=JUDGMENTS_HELP)
    if not judged:
        st.caption("No query has been judged with this memory.")
        return
    draw_table(
        [
            {
                "grade": judgment.grade,
                "query": query,
                "judge": judgment.judge,
                "kind": judgment.kind,
                "qid": judgment.qid,
            }
            for judgment, query in judged
        ],
        key="memories:judgments",
        most=MAX_TABLE_ROWS,
        columns={
            "grade": st.column_config.NumberColumn(
                "grade", width=56, format="%d", help="0 not relevant … 3 answers it"
            ),
            "query": st.column_config.TextColumn("query", width=230, help="Query text"),
            "judge": st.column_config.TextColumn("judge", width=70, help="Who graded it"),
            "kind": st.column_config.TextColumn("kind", width=64, help="Judged by a person or a model"),
            "qid": st.column_config.TextColumn("qid", width=60, help="Id of the query"),
        },
    )


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment:%Y-%m-%d %H:%M} UTC"


def undo_bar(resources: Resources) -> None:
    """Draw the last deletion with Undo."""
    memory_id = state.present().deleted
    if memory_id is None:
        return
    with st.container(horizontal=True, vertical_alignment="center", key="memories:undo"):
        st.html(html.render("memories/undo.html", id=memory_id), width="content")
        st.button(
            "Undo",
            key="memories:undo:button",
            on_click=state.restore,
            args=(resources, memory_id),
            icon=":material/undo:",
            help="Restore this memory.",
        )
        st.button(
            "Dismiss",
            key="memories:undo:dismiss",
            on_click=state.dismiss_undo,
            type="tertiary",
            help="Hide this line. The memory stays under Deleted.",
        )


def problem_line() -> None:
    """Draw the store's last error, in one line."""
    shown = state.present()
    if shown.problem and not shown.editing:
        st.error(plain(shown.problem), icon=":material/block:")
