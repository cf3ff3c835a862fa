"""Tables of memories: the followed one is marked, a selected one is followed, and columns on staleness and the pinned baseline;
what Chroma's graph gives for the vector lists, where this process has the collection open; and the late-interaction (MaxSim) alignment,
each query token, its best match in the text, and its contribution to the score.

adds(t) = idf(t) * cosine(t) / sum of all idf        their sum is the raw score
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeVar

import streamlit as st
from markupsafe import Markup

from cems_workbench.analysis.graph_lists import GraphList, compared_lists, graph_lists
from cems_workbench.analysis.ranks import RankComparison
from cems_workbench.analysis.supersession import stale_words
from cems_workbench.errors import WorkbenchError
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.evidence import ModelScore
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.baseline import COLUMN, HELP, delta_sign
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.html import excerpt, plain, render
from cems_workbench.ui.kit.tables import Column, draw_table

GRAPH_HELP = (
    "Rank in the answer of Chroma’s graph (HNSW) to the same query; empty: missed. The list itself compares all vectors and misses none; a "
    "system that searches a graph gets the other answer."
)
GRAPH = "inspect:graph"
"""Session key of the last such answers."""
NOT_HERE = "How far an answer of Chroma’s graph is from this list is shown once the collection is open."


def compared_with_graph(context: InspectContext) -> dict[str, GraphList]:
    """The graph's answers for the vector lists, by list; empty while the collection is not open, or where the lists are not exact."""
    trace, resources = context.trace, context.resources
    vector, version = trace.config.lists.vector, resources.store.content_version
    key = (context.request, trace.evidence, vector, trace.config.query, version)
    if not session.is_kept(GRAPH, key) and not (compared_lists(trace.evidence, trace.config) and resources.graph_open):
        return {}
    return session.kept(GRAPH, key, lambda: _searched(context))


def _searched(context: InspectContext) -> dict[str, GraphList]:
    trace = context.trace
    try:
        found = graph_lists(trace.evidence, trace.config, context.request, context.resources)
        return {one.list: one for one in found}
    except WorkbenchError as error:  # the page goes on: its lists need no graph
        st.toast(plain(f"Chroma’s graph cannot be searched: {error}"), icon=":material/warning:")
        return {}


def draw_graph_line(context: InspectContext, name: str, found: Mapping[str, GraphList]) -> None:
    """Draw below a list what the graph missed of it, or why that is not known yet; nothing below a list that is not exact."""
    if name in found:
        st.caption(plain(found[name].line), help=GRAPH_HELP)
        return
    exact = name in compared_lists(context.trace.evidence, context.trace.config)
    if exact and (line := session.chroma_line(context.resources)):
        st.caption(f"{plain(line)}.", help=NOT_HERE)


CONTINUATION = "##"
"""Prefix of a wordpiece that continues a word."""
COLUMNS = {
    "query": "Query token in bold; the rest of its word is muted",
    "met": "Most similar token of the text; … before it: continues a word",
    "cosine": "Similarity of the two contextual token vectors; 1: identical",
    "idf": "Rarity of the token in this store’s memories; rare tokens count more",
    "adds": "Contribution to the raw score: idf × cosine / sum of idf",
}


def alignment(score: ModelScore | None) -> list[Mapping[str, Any]]:
    """The saved token alignment of a pair; empty if missing or unreadable."""
    kept = score.detail.get("alignment") if score is not None and score.detail else None
    return [entry for entry in kept if _readable(entry)] if isinstance(kept, (list, tuple)) else []


def _readable(entry: Any) -> bool:
    """Whether an entry has the expected form; evidence may come from an untrusted file."""
    if not isinstance(entry, Mapping):
        return False
    numbers = [entry.get(name) for name in ("idf", "cosine")]
    finite = all(isinstance(value, (int, float)) and math.isfinite(value) for value in numbers)
    return finite and all(isinstance(entry.get(name), str) for name in ("query", "text"))


def token_matches(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tokens in query order, each with the rest of its word (`before`, `after`) and what it `adds` to the score."""
    total = sum(entry["idf"] for entry in entries)
    tokens = []
    for i, entry in enumerate(entries):
        start, end = i, i + 1
        while start and entries[start]["query"].startswith(CONTINUATION):
            start -= 1
        while end < len(entries) and entries[end]["query"].startswith(CONTINUATION):
            end += 1
        pieces = [joined(other["query"]) for other in entries[start:end]]
        word = {
            "before": "".join(pieces[: i - start]),
            "piece": pieces[i - start],
            "after": "".join(pieces[i - start + 1 :]),
        }
        adds = entry["idf"] * entry["cosine"] / total if total > 0 else 0.0
        inside = continues_word(entry["text"])
        tokens.append({**entry, **word, "adds": adds, "inside": inside, "met": joined(entry["text"])})
    return tokens


def joined(token: str) -> str:
    """A wordpiece without the continuation prefix."""
    return token.removeprefix(CONTINUATION) if continues_word(token) else token


def continues_word(token: str) -> bool:
    """Whether a wordpiece continues a word. The prefix alone is a word."""
    return token.startswith(CONTINUATION) and len(token) > len(CONTINUATION)


def alignment_html(score: ModelScore) -> Markup:
    """One row per query token: a bar for the cosine, and the numbers; the last row is their sum."""
    return render("inspect/alignment.html", columns=COLUMNS, tokens=token_matches(alignment(score)), raw=score.raw)


OUT_OF_DATE = "out of date"
Row = TypeVar("Row")
OF_ROW: Callable[[Any], str] = attrgetter("memory_id")
"""The memory of a stage's row."""


def follow_table(
    rows: Sequence[Row],
    columns: Sequence[Column[Row]],
    followed: str | None,
    *,
    memory: Callable[[Row], str] = OF_ROW,
    **options: Any,
) -> None:
    """Draw a table of memories, which has a column "memory"; the followed one is marked, and a selected row is
    followed. `memory` is the id of a row's memory; `options` are those of `draw_table`."""

    def signed(row: Row) -> str:
        return f"◆ {memory(row)}" if memory(row) == followed else memory(row)

    draw_table(
        rows,
        [replace(column, cell=signed) if column.name == "memory" else column for column in columns],
        on_pick=lambda row: state.follow(memory(row)),
        marked=lambda row: memory(row) == followed,
        **options,
    )


def stale_columns(trace: Trace, rows: Sequence[Row], memory: Callable[[Row], str] = OF_ROW) -> list[Column[Row]]:
    """A column that says by which memory each one is superseded, or that it has expired; none if none is."""
    words = {memory(row): stale_words(trace, memory(row)) for row in rows}
    if not any(words.values()):
        return []
    help = "By which memory it is superseded, and where that one is; or when it expired"
    return [Column(OUT_OF_DATE, lambda row: words[memory(row)], 300, help=help)]


def delta_columns(against: RankComparison | None, name: str) -> list[Column[Any]]:
    """A column with each memory's rank difference from the baseline in the list or stage `name`; none without a baseline."""
    if against is None:
        return []
    return [Column(COLUMN, lambda row: delta_sign(against.delta(OF_ROW(row), name)), 96, help=HELP)]


def content_column(trace: Trace, width: int) -> Column[Any]:
    """The first words of each memory."""
    return Column("content", lambda row: excerpt(trace.evidence.memories[OF_ROW(row)].content), width)
