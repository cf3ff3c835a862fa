"""The first screen: what the app is for, what store is open, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.builtin import SAMPLE_QUERY
from cems_workbench.errors import counted
from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit.html import draw, excerpt, plain

if TYPE_CHECKING:
    from cems_workbench.pipeline.resources import Resources
    from cems_workbench.records import Query
    from cems_workbench.store import Store

MAX_EXAMPLES = 8
MAX_NAMED = 2
"""Sources named in the line on the store; of more only the number."""
MIN_TOOLTIP_CHARS = 48
"""Characters from which a button label may be truncated, and gets a tooltip."""
PLACEHOLDER = f"What did your agent look for? For example: {SAMPLE_QUERY}"
"""What the empty query box says."""


def draw_start(resources: Resources) -> None:
    """Draw what is open and the three steps, then queries of the store to begin with, or what to type."""
    store = resources.store
    count = counted(store.memories.count(), "memories")
    draw("inspect/start.html", path=store.path, count=count, origin=_origin(store))
    queries = store.queries.read()
    if not queries:
        for memory in store.memories.read(store.memories.newest_by_creation(1)).values():
            about = plain(excerpt(memory.content, 100))
            st.caption(f"This store has no queries yet. Type what your agent would ask, for example about: *{about}*")
        return
    st.markdown("**Or begin with a query of this store:**")
    with st.container(horizontal=True, gap="small"):
        for query in _examples(queries):
            text = plain(query.query)  # labels are Markdown
            whole = text if len(text) > MIN_TOOLTIP_CHARS else None
            st.button(text, key=f"inspect:example:{query.qid}", on_click=state.choose_query, args=(query,), help=whole)


def _examples(queries: Sequence[Query]) -> list[Query]:
    """The sample's query that the guide begins with, then queries of each type in turn."""
    by_type: dict[str | None, list[Query]] = {}
    for query in queries:
        by_type.setdefault(query.type, []).append(query)
    first = [query for query in queries if query.query == SAMPLE_QUERY]
    turns = [of[turn] for turn in range(MAX_EXAMPLES) for of in by_type.values() if turn < len(of)]
    return [*first, *(query for query in turns if query not in first)][:MAX_EXAMPLES]


def _origin(store: Store) -> str:
    """Where the memories are from: live systems, else imported files."""
    sources = [f"{record.probe.get('engine', '')} at {record.address}" for record in store.sources.with_memories()]
    files = [] if sources else [event.name for event in store.imports.read() if event.undone_at is None]
    named = sources or files
    return ", ".join(named[:MAX_NAMED]) + (
        f" and {counted(len(named) - MAX_NAMED, 'more sources' if sources else 'more files')}"
        if len(named) > MAX_NAMED
        else ""
    )
