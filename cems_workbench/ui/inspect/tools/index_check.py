"""Index check: the exact cosine of every embedding against what this query's vector list, and Chroma's graph alone, answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st
from markupsafe import Markup

from cems_workbench.analysis.index_check import (
    Answer,
    ExactRanking,
    Recall,
    embeddings_of,
    exact_ranking,
    largest_difference,
    recall_at,
    search_filter,
)
from cems_workbench.config import list_depths
from cems_workbench.errors import WorkbenchError
from cems_workbench.pipeline.evidence import RankedList
from cems_workbench.pipeline.gather import EVERYTHING, inner_depth
from cems_workbench.store.search.vector_index import EXACT_ROWS
from cems_workbench.ui.inspect.catalogue import View
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.kit.assets import write_stylesheet
from cems_workbench.ui.kit.escape import excerpt, plain
from cems_workbench.ui.kit.progress import progress_in
from cems_workbench.ui.kit.tables import draw_table, short_id
from cems_workbench.ui.kit.templates import render

AT_ONCE = 20_000
"""Up to so many embeddings are compared as soon as the tool is looked at."""
NEAR = 10
SHOWN = 50
GRAPH = "Chroma's graph"
COMPARED = "inspect:index_check:compared"
COLUMNS = {
    "answer": "Whose first hits are compared with the exactly nearest",
    "how": "How that answer was found",
    "at 10": "Recall at 10: of the 10 exactly nearest memories, how many are among its first 10",
    "at depth": "Recall at the depth of the list: of the exactly nearest memories, how many are in it",
    "score off by": "The largest distance of one of its scores from the exact cosine",
}
GRAPH_HELP = (
    "A vector index walks a graph (HNSW) instead of comparing every embedding: fast, and now and then it misses a near memory. "
    f"Up to {EXACT_ROWS:,} memories the workbench compares them all, so its own list misses none; the graph's answer is what a system "
    "gets that always asks Chroma. What PostgreSQL's index would leave of a hybrid list is Lists → Rows of the vector index."
)


@dataclass(frozen=True)
class Compared:
    """One answer beside the exact one."""

    name: str
    how: str
    near: Recall
    deep: Recall
    off: float
    pooled: bool = False


def draw(context: InspectContext) -> None:
    """The verdict, a row per answer, and who was missed."""
    write_stylesheet("evidence")
    ranked = _list(context)
    if ranked is None:
        st.info("No vector list was searched for this query: there is no index to check.", icon=":material/search_off:")
        return
    vectors = context.resources.indexes.vectors
    where = search_filter(context.request, context.trace.config)
    depth = _depth(context, ranked)
    key = (
        context.request,
        ranked.variant,
        depth,
        where,
        str(context.resources.store.path),
        context.resources.store.content_version,
    )
    last: tuple[object, tuple[ExactRanking, list[Compared]]] | None = st.session_state.get(COMPARED)
    if last is None or last[0] != key:
        ids = vectors.ids(where)
        if not ids:
            st.info("No memory that this query may find has an embedding.", icon=":material/search_off:")
            return
        if len(ids) > AT_ONCE and not st.button(
            f"Compare all {len(ids):,} embeddings", key="inspect:index_check", help="Reads every embedding of the store once.",
        ):  # fmt: skip
            return
        compared = _compared(context, ranked, ids, depth)
        if compared is None:
            return
        last = st.session_state[COMPARED] = (key, compared)
    exact, rows = last[1]
    _draw(context, ranked, exact, rows)


def _depth(context: InspectContext, ranked: RankedList) -> int:
    """Memories of the list that count: as deep as it is, or those of the chunks that a hybrid list is made of."""
    config = context.trace.config
    if config.lists.vector.enabled or not config.lists.hybrid.enabled:
        return list_depths(config)["vector"] or EVERYTHING
    rows = inner_depth(config, context.trace.evidence.searched)
    return len({hit.memory_id for hit in ranked.hits[:rows]})


def _list(context: InspectContext) -> RankedList | None:
    """The vector list that is checked; the choice where there are several."""
    lists = [ranked for ranked in context.trace.evidence.lists if ranked.source == "vector"]
    if len(lists) < 2:
        return lists[0] if lists else None
    variants = context.trace.evidence.variants
    chosen: int = st.selectbox(
        "Vector list", range(len(lists)), key=f"inspect:index_check:{hash(context.request)}",
        format_func=lambda i: f"{lists[i].name}  {excerpt(variants[lists[i].variant or 0].text, 80)}",
        help="Each form of the query was searched on its own.",
    )  # fmt: skip
    return lists[chosen]


def _compared(
    context: InspectContext, ranked: RankedList, ids: Sequence[str], depth: int
) -> tuple[ExactRanking, list[Compared]] | None:
    """The exact ranking and every answer beside it; None after a line that says why there is none."""
    vectors, config = context.resources.indexes.vectors, context.trace.config
    where = search_filter(context.request, config)
    place = st.empty()
    try:
        query = context.resources.embedder.encode_query(context.trace.evidence.variants[ranked.variant or 0].text)
        exact = exact_ranking(query, ids, embeddings_of(vectors), progress_in(place))
        graph = vectors.approximate(query, depth, where)
    except WorkbenchError as error:
        st.error(plain(str(error)))
        return None
    finally:
        place.empty()
    pooled = config.lists.pool.mode == "recent_access"
    walked = not pooled and len(ids) > EXACT_ROWS
    pool = f"exact, of the {config.lists.pool.size:,} last accessed and the lexical hits (Lists → Pool)"
    how = pool if pooled else GRAPH if walked else "exact: every embedding was compared"
    rows = [_row(ranked.name, how, exact, _by_memory(ranked)[:depth], depth, pooled)]
    if not walked:
        rows.append(_row("Chroma alone", GRAPH, exact, graph, depth))
    return exact, rows


def _by_memory(ranked: RankedList) -> list[tuple[str, float]]:
    """Each memory of the list once, by its nearest chunk."""
    best: dict[str, float] = {}
    for hit in ranked.hits:
        best.setdefault(hit.memory_id, hit.score)
    return list(best.items())


def _row(name: str, how: str, exact: ExactRanking, answer: Answer, depth: int, pooled: bool = False) -> Compared:
    off = largest_difference(exact, answer)
    return Compared(name, how, recall_at(exact, answer, NEAR), recall_at(exact, answer, depth), off, pooled)


def _draw(context: InspectContext, ranked: RankedList, exact: ExactRanking, rows: Sequence[Compared]) -> None:
    st.markdown(f"###### {_verdict(rows[0], len(exact))}", help=GRAPH_HELP)
    st.html(answers_html(rows))
    elsewhere = {
        hit.memory_id: other.name
        for other in reversed(context.trace.evidence.lists)
        if other.name != ranked.name and other.source != "recency" and other.source != "access"
        for hit in other.hits
    }
    for row in rows:
        if row.deep.missed:
            _draw_missed(context, row, elsewhere)
        elif row is not rows[0]:
            either = "" if rows[0].deep.missed else " either"
            st.caption(f"{plain(row.name)} would have missed nothing{either}.")


def _verdict(row: Compared, count: int) -> str:
    missed, k = len(row.deep.missed), row.deep.k
    if not missed:
        return f"Nothing was missed: {row.name} holds the {k:,} exactly nearest of {count:,} memories."
    first = row.deep.missed[0].rank
    lost = "The pool left out" if row.pooled else f"{row.name} missed"
    return f"{lost} {missed:,} of the {k:,} exactly nearest memories; the nearest of them stands at rank {first:,}."


def answers_html(rows: Sequence[Compared]) -> Markup:
    """A row per answer: its recall at 10 and at the list's depth, and how far its scores are off."""
    return render("inspect/index_check/answers.html", columns=COLUMNS, rows=rows, depth=f"at {rows[0].deep.k:,}")


def _draw_missed(context: InspectContext, row: Compared, elsewhere: Mapping[str, str]) -> None:
    """Who was missed, and whether another list found it all the same."""
    import pandas as pd

    shown = row.deep.missed[:SHOWN]
    more = f" (the first {SHOWN})" if len(row.deep.missed) > SHOWN else ""
    st.markdown(f"###### Missed by {plain(row.name)}{more}")
    memories = context.resources.store.memories.read([missed.memory_id for missed in shown])
    frame = pd.DataFrame(
        [
            {
                "exact rank": missed.rank,
                "memory": short_id(missed.memory_id),
                "exact cosine": missed.cosine,
                "found by": elsewhere.get(missed.memory_id, ""),
                "content": excerpt(memories[missed.memory_id].content) if missed.memory_id in memories else "",
            }
            for missed in shown
        ]
    )
    number = st.column_config.NumberColumn
    draw_table(
        frame, most=12,
        key=f"inspect:index_check:missed:{row.name}",
        columns={
            "exact rank": number("exact rank", width=80, help="Its place when every embedding is compared"),
            "memory": st.column_config.TextColumn("memory", width=110),
            "exact cosine": number("exact cosine", format="%.4f", width=94, help="Cosine of query and memory"),
            "found by": st.column_config.TextColumn("found by", width=90, help="Another list of this query that has it; empty: none"),
            "content": st.column_config.TextColumn("content", width="large"),
        },
    )  # fmt: skip


VIEW = View("Index check", 40, draw, "Did the vector index miss a memory that is nearer than those it found?")
