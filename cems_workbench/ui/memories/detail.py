"""One memory in full: its text as it is, what is known of it, its relations and judgments; editing and deleting it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any

import streamlit as st

from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Memory, Relation
from cems_workbench.ui.kit.escape import excerpt, plain
from cems_workbench.ui.kit.tables import ROW
from cems_workbench.ui.memories import edit as memories_edit
from cems_workbench.ui.memories import state
from cems_workbench.ui.memories.terms import FIELDS, JUDGMENTS, RELATIONS


def draw(resources: Resources, memory_id: str | None) -> None:
    """The picked memory, or a line that says how to pick one."""
    memory = resources.store.memories.get(memory_id) if memory_id is not None else None
    if memory is None:
        st.html('<p class="wb-mem-hint">Pick a row to read a memory in full, edit or delete it.</p>')
        return
    editing = state.get("editing")
    with st.container(horizontal=True, vertical_alignment="center", key="mem-title"):
        st.html(title_html(memory))
        st.button(
            "Edit", key="mem:edit", on_click=state.edit, args=(True,), disabled=editing, icon=":material/edit:",
            help="Change the text or the facts of this memory.",
        )  # fmt: skip
        st.button(
            "Delete", key="mem:delete", on_click=state.delete, args=(resources, memory.id), icon=":material/delete:",
            help="Hide it from every search. It can be restored at any time.",
        )  # fmt: skip
        st.button(
            "Close", key="mem:close", on_click=state.select, args=(None,), type="tertiary", icon=":material/close:",
            help="Back to the table alone.",
        )  # fmt: skip
    # The form asks for more room than a text, whose lines are read best when they are not long.
    left, right = st.columns([3, 2] if editing else 2, gap="medium")
    with left:
        if editing:
            memories_edit.draw(resources, memory)
        else:
            if state.get("notice"):
                st.caption(state.get("notice"))
            st.html(text_html(memory))
    with right:
        st.html(facts_html(memory))
        _relations(resources, memory)
        _judgments(resources, memory)


def title_html(memory: Memory) -> str:
    """Id and title, escaped."""
    title = f"<span>{escape(memory.title)}</span>" if memory.title else ""
    return f'<div class="wb-mem-title"><code>{escape(memory.id)}</code>{title}</div>'


def text_html(memory: Memory) -> str:
    """The whole content, escaped, with its line breaks."""
    return f'<div class="wb-text wb-mem-text">{escape(memory.content)}</div>'


def facts_html(memory: Memory) -> str:
    """Everything known of a memory besides its text, escaped."""
    facts: list[tuple[str, str | None]] = [
        ("Category", memory.category),
        ("Project", memory.project),
        ("Session", memory.session),
        ("Author", memory.author),
        ("Tags", ", ".join(memory.tags)),
        ("Scope", memory.scope),
        ("Created", _moment(memory.created_at)),
        ("Last accessed", _moment(memory.last_accessed)),
        ("Accesses", f"{memory.access_count:,}"),
        ("Feedback", f"{memory.relevant_count:,} relevant, {memory.noise_count:,} noise"),
        ("Priority", f"{memory.priority:g}"),
        ("Importance", memory.importance),
        ("Pinned", "yes" if memory.pinned else "no"),
        ("Source", memory.source_ref),
        ("Length", f"{len(memory.content):,} characters"),
    ]
    rows = "".join(
        f'<span title="{escape(FIELDS[name.lower()])}">{name}</span><div>{escape(value or "–")}</div>'
        for name, value in facts
    )
    return f'<div class="wb-mem-facts">{rows}</div>'


def relation_rows(memory_id: str, relations: Sequence[Relation], others: Mapping[str, Memory]) -> list[dict[str, Any]]:
    """A row per relation, as seen from `memory_id`: → leads away from it, ← comes to it."""
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
    st.markdown(f"###### Relations ({len(relations)})", help=RELATIONS)
    if not relations:
        st.caption("None leads to or from this memory.")
        return
    others = resources.store.memories.read({end for edge in relations for end in (edge.source_id, edge.target_id)})
    rows = relation_rows(memory.id, relations, others)
    key = f"mem:relations:{state.get('generation')}:{state.get('selected')}"
    st.dataframe(
        rows,
        key=key,
        on_select=lambda: _follow(key, [row["memory"] for row in rows]),
        selection_mode="single-row",
        hide_index=True,
        row_height=ROW,
        height=_height(len(rows)),
        placeholder="",
        column_config={
            "": st.column_config.TextColumn("", width=30, help="→ from this memory, ← to it"),
            "kind": st.column_config.TextColumn("kind", width=86, help="What the one is to the other"),
            "memory": st.column_config.TextColumn("memory", width=66, help="Its id; pick a row to open it"),
            "content": st.column_config.TextColumn("content", width=220, help="How the other memory begins"),
            "weight": st.column_config.NumberColumn("weight", width=64, format="%.2f", help="Strength, 0 to 1"),
        },
    )


def _follow(key: str, ids: Sequence[str]) -> None:
    rows = st.session_state[key]["selection"]["rows"]
    if rows:
        state.select(ids[rows[0]])
        state.put(generation=state.get("generation") + 1)  # the table above marks the row of the new memory


def _judgments(resources: Resources, memory: Memory) -> None:
    judged = resources.store.judgments.of_memory(memory.id)
    st.markdown(f"###### Judgments ({len(judged)})", help=JUDGMENTS)
    if not judged:
        st.caption("No query has been judged with this memory.")
        return
    st.dataframe(
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
        key="mem:judgments",
        hide_index=True,
        row_height=ROW,
        height=_height(len(judged)),
        placeholder="",
        column_config={
            "grade": st.column_config.NumberColumn(
                "grade", width=56, format="%d", help="0 not relevant … 3 answers it"
            ),
            "query": st.column_config.TextColumn("query", width=230, help="What was searched for"),
            "judge": st.column_config.TextColumn("judge", width=70, help="Who graded it"),
            "kind": st.column_config.TextColumn("kind", width=64, help="A person's judgment, or a model's"),
            "qid": st.column_config.TextColumn("qid", width=60, help="The name of the query"),
        },
    )


def _height(rows: int) -> int:
    return ROW * (min(rows, 6) + 1) + 4


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment:%Y-%m-%d %H:%M} UTC"


def undo_bar(resources: Resources) -> None:
    """After a deletion: what was deleted, and a button that brings it back."""
    memory_id = state.get("undo")
    if memory_id is None:
        return
    with st.container(horizontal=True, vertical_alignment="center", key="mem-undo"):
        st.html(f'<div class="wb-mem-undo">Deleted <code>{escape(memory_id)}</code></div>', width="content")
        st.button(
            "Undo", key="mem:undo:button", on_click=state.restore, args=(resources, memory_id), icon=":material/undo:",
            help="Bring this memory back as it was.",
        )  # fmt: skip
        st.button(
            "Dismiss", key="mem:undo:dismiss", on_click=state.put, kwargs={"undo": None}, type="tertiary",
            help="Hide this line. The memory stays under Deleted.",
        )  # fmt: skip


def problem_line() -> None:
    """The last refusal of the store, in one line."""
    if state.get("problem") and not state.get("editing"):
        st.error(plain(state.get("problem")), icon=":material/block:")
