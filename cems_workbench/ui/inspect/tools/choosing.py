"""Choosing the memory that a tool is about: a judged one that is missing, the followed one, or any of the store by text or id."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Memory
from cems_workbench.store import Selection
from cems_workbench.ui.inspect.look import Look
from cems_workbench.ui.kit.assets import write_stylesheet
from cems_workbench.ui.kit.escape import excerpt, plain
from cems_workbench.ui.kit.tables import short_id

BUTTONS, MATCHES = 8, 6


def missing(look: Look, k: int) -> list[str]:
    """Memories judged relevant that are not among the first k results, the best grade first, then by id."""
    shown = {row.memory_id for row in look.trace.results[:k]}
    lost = [memory_id for memory_id, grade in look.grades.items() if grade > 0 and memory_id not in shown]
    return sorted(lost, key=lambda memory_id: (-look.grades[memory_id], memory_id))


def chosen(look: Look, tool: str) -> str | None:
    """The memory chosen in a tool for the present query; else the followed one; None when there is neither."""
    kept: tuple[str, str] | None = st.session_state.get(f"{tool}:chosen")
    return kept[1] if kept is not None and kept[0] == look.request.query else look.followed


def choose(tool: str, query: str, memory_id: str) -> None:
    """Choose a memory for this query; what was searched for is cleared."""
    st.session_state[f"{tool}:chosen"] = (query, memory_id)
    st.session_state[f"{tool}:search"] = ""


def offer(look: Look, tool: str, lost: Sequence[str], present: str | None) -> None:
    """Buttons for the missing memories and the followed one; the one that is `present` is marked."""
    options = {memory_id: f"{short_id(memory_id)} · grade {look.grades[memory_id]}" for memory_id in lost[:BUTTONS]}
    if look.followed is not None:
        options[look.followed] = f"◆ {options.get(look.followed, short_id(look.followed))}"
    memories = look.resources.store.memories.read(options)
    with st.container(horizontal=True, gap="xsmall"):
        for memory_id, label in options.items():
            text = excerpt(memories[memory_id].content) if memory_id in memories else ""
            st.button(
                plain(label), key=f"{tool}:pick:{memory_id}", on_click=choose, args=(tool, look.request.query, memory_id),
                type="primary" if memory_id == present else "secondary", help=plain(text) or None,
            )  # fmt: skip
        if len(lost) > BUTTONS:
            st.caption(f"and {len(lost) - BUTTONS} more")


def search_box(tool: str) -> None:
    """A search box over the whole store; `offer_matches` draws what it finds."""
    st.text_input(
        "Search the store", key=f"{tool}:search", placeholder="Any memory: words of it, or its id",
        icon=":material/search:", label_visibility="collapsed",
        help="Any memory of the store, whether or not it is a candidate of this query.",
    )  # fmt: skip


def offer_matches(look: Look, tool: str) -> None:
    """A button for each memory that the search box finds."""
    typed: str = st.session_state[f"{tool}:search"].strip()
    if not typed:
        return
    write_stylesheet("choosing")
    found, total = matches(look.resources, typed)
    if not found:
        st.caption(f"No memory has “{plain(excerpt(typed, 80))}” in its id, title or text.")
        return
    with st.container(gap="xxsmall", key=f"{tool}-match-list"):
        for memory in found:
            st.button(
                f"**{plain(short_id(memory.id))}**  {plain(excerpt(memory.content, 140))}",
                key=f"{tool}:match:{memory.id}", on_click=choose, args=(tool, look.request.query, memory.id),
                type="tertiary", width="stretch",
            )  # fmt: skip
        if total > len(found):
            st.caption(f"{len(found)} of {total}; type more words to narrow it.")


def matches(resources: Resources, text: str) -> tuple[list[Memory], int]:
    """The memory of that id, those that have the text literally, then those that share words with it; and how many there are."""
    exact = resources.store.memories.get(text)
    page = resources.store.memories.find(Selection(text=text, sort="id", descending=False), MATCHES)
    found = {memory.id: memory for memory in ([exact] if exact else []) + list(page.memories)}
    total = max(page.total, len(found))
    if len(found) < MATCHES:
        near = [memory_id for memory_id, _ in resources.indexes.lexical.search(text, MATCHES)]
        found |= resources.store.memories.read([memory_id for memory_id in near if memory_id not in found])
        total = max(total, len(found))
    return list(found.values())[:MATCHES], total
