"""Choice of a tool's memory: a missing judged one, the followed one, or any memory of the store by text or id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from cems_workbench.pipeline.explained import explained, not_shown
from cems_workbench.records import Memory
from cems_workbench.store import Selection
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.kit.html import excerpt, plain
from cems_workbench.ui.kit.tables import short_id

MAX_BUTTONS, MAX_MATCHES = 8, 6


def missing(context: InspectContext) -> list[str]:
    """Relevant memories that are not among the results within the target rank, by grade, then by id."""
    shown = {result.memory_id for result in context.trace.results[: context.target]}
    return sorted(context.relevant - shown, key=lambda memory_id: (-context.grades[memory_id], memory_id))


def draw(
    context: InspectContext,
    tool: str,
    *,
    box: Any = st,
    said: str = "",
    help: str | None = None,
    missing_first: bool = False,
) -> str | None:
    """Draw a search of the store (in `box`), the line `said`, and buttons for missing memories and the followed one.
    Returns the memory chosen in the tool for this query, else the followed one; with `missing_first` else the first
    missing one."""
    hidden = {"icon": ":material/search:", "label_visibility": "collapsed"}
    about = "Searches all memories of the store, not only the candidates of this query."
    hint = "Any memory, by text or id"
    box.text_input("Search the store", key=f"inspect:{tool}:search", placeholder=hint, help=about, **hidden)
    if typed := st.session_state[f"inspect:{tool}:search"].strip():
        _draw_matches(context, tool, typed)
    lost, query = missing(context), context.request.query
    last: tuple[str, str] | None = st.session_state.get(f"inspect:{tool}:chosen")
    chosen = last[1] if last is not None and last[0] == query else context.followed
    if chosen is None and missing_first:
        chosen = next(iter(lost), None)
    if said:
        st.caption(said, help=help)
    options = {
        memory_id: f"{context.said(memory_id)} · grade {context.grades[memory_id]}" for memory_id in lost[:MAX_BUTTONS]
    }
    if context.followed is not None:
        options[context.followed] = f"◆ {options.get(context.followed, context.said(context.followed))}"
    memories = _held(context) or context.resources.store.memories.read(options)
    with st.container(horizontal=True, gap="xsmall"):
        for memory_id, label in options.items():
            st.button(
                plain(label),
                key=f"inspect:{tool}:pick:{memory_id}",
                on_click=_choose,
                args=(tool, query, memory_id),
                type="primary" if memory_id == chosen else "secondary",
                help=plain(excerpt(memories[memory_id].content)) if memory_id in memories else None,
            )
        if len(lost) > MAX_BUTTONS:
            st.caption(f"and {len(lost) - MAX_BUTTONS} more")
    return chosen


def stored(context: InspectContext, memory_id: str) -> Memory | None:
    """The memory as it is in the store; None, with a line on the page, if it is there no longer."""
    held = _held(context)
    memory = context.resources.store.memories.get(memory_id) if held is None else held.get(memory_id)
    if memory is None and held is not None:
        st.info(plain(not_shown(context.trace.evidence, memory_id)), icon=":material/block:")
    elif memory is None:
        gone = f"{plain(short_id(memory_id))} is no longer in the store. Choose another memory."
        st.info(gone, icon=":material/delete:")
    return memory


def _held(context: InspectContext) -> Mapping[str, Memory] | None:
    """The memories of an explanation, of which the store knows nothing; None for a search of the store."""
    evidence = context.trace.evidence
    return None if explained(evidence) is None else evidence.memories


def _choose(tool: str, query: str, memory_id: str) -> None:
    """Choose a memory for this query, and clear the search box."""
    st.session_state[f"inspect:{tool}:chosen"] = (query, memory_id)
    st.session_state[f"inspect:{tool}:search"] = ""


def _draw_matches(context: InspectContext, tool: str, typed: str) -> None:
    memories, total = _matches(context, typed)
    bound = "" if memories else not_shown(context.trace.evidence, typed)
    if bound:
        st.info(plain(bound), icon=":material/block:")
    elif not memories:
        st.caption(f"No memory has “{plain(excerpt(typed, 80))}” in its id, title or text.")
        return
    with st.container(gap="xxsmall", key=f"inspect:{tool}-match-list"):
        for memory in memories:
            st.button(
                f"**{plain(short_id(memory.id))}**  {plain(excerpt(memory.content, 140))}",
                key=f"inspect:{tool}:match:{memory.id}",
                on_click=_choose,
                args=(tool, context.request.query, memory.id),
                type="tertiary",
                width="stretch",
            )
        if total > len(memories):
            st.caption(f"{len(memories)} of {total}; add words to narrow the search.")


def _matches(context: InspectContext, text: str) -> tuple[list[Memory], int]:
    """The memory with that id, memories containing the text, then memories sharing words with it; and the total."""
    resources, held = context.resources, _held(context)
    if held is not None:
        found = [one for one in held.values() if text == one.id or text.casefold() in one.content.casefold()]
        return found[:MAX_MATCHES], len(found)
    exact = resources.store.memories.get(text)
    page = resources.store.memories.find(Selection(text=text, sort="id", descending=False), MAX_MATCHES)
    by_id = {memory.id: memory for memory in ([exact] if exact else []) + list(page.memories)}
    total = max(page.total, len(by_id))
    if len(by_id) < MAX_MATCHES:
        near = [memory_id for memory_id, _ in resources.indexes.lexical.search(text, MAX_MATCHES)]
        by_id |= resources.store.memories.read([memory_id for memory_id in near if memory_id not in by_id])
        total = max(total, len(by_id))
    return list(by_id.values())[:MAX_MATCHES], total
