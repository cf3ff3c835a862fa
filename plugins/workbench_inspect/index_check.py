"""Index check: recall of this query's vector list, and of Chroma's graph alone, compared with exact search.

For a store imported from a live system also its live index: its own lists compared with exact ones, and settings that improve them.

An answer of an index, here or in a running system, beside the exact one: how far from it, why, and which settings mend it.

Exact is cos(q, m) for every embedding m that passes the query's filter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from cems_workbench.analysis.graph_lists import ExactRanking, Missed, Recall, recall_at
from cems_workbench.config import PipelineConfig, list_depths, with_values
from cems_workbench.config.model import candidate_set_size
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.evidence import RankedList
from cems_workbench.pipeline.gather import CANDIDATE_SETS, MAX_DEPTH, Request, engine_depths, inner_depth, search_filter
from cems_workbench.pipeline.list_sources import provenance_of
from cems_workbench.pipeline.live_engine import LiveEngine, LiveList
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.sources.source import NO_TRIAL, ListName, Setting, SourceInfo, Trial
from cems_workbench.store.search.entries import best_per_memory
from cems_workbench.store.search.vector_index import EXACT_ROWS, VectorIndex
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.kit.html import excerpt, plain
from cems_workbench.ui.kit.session import is_kept, kept
from cems_workbench.ui.kit.tables import Column, draw_table, short_id
from cems_workbench.ui.kit.views import View
from cems_workbench.ui.kit.widgets import errors_shown, progress_bar

BLOCK_ROWS = 2_000
"""Embeddings per block."""
NEAR_DEPTH = 10
"""Depth of the separate recall of the first hits."""

Embeddings = Callable[[Sequence[str]], Mapping[str, Float32]]
"""For each memory its vector, shape (dimension,), or those of its chunks, shape (chunks, dimension)."""


@dataclass(frozen=True, slots=True)
class IndexComparison:
    """Hits compared with the exact ones: recall at `NEAR_DEPTH` and at their own depth, and the largest score difference."""

    near: Recall
    deep: Recall
    off: float


def embeddings_of(vectors: VectorIndex) -> Embeddings:
    """The vectors of the chunks of each memory, shape (chunks, dimension)."""
    return lambda ids: {key: np.stack(list(own.values())) for key, own in vectors.chunk_embeddings(ids).items()}


def exact_ranking(
    query: Float32, ids: Sequence[str], embeddings: Embeddings, progress: Progress = silent
) -> ExactRanking:
    """Rank all of `ids` by the cosine of their nearest chunk with `query` (shape (dimension,)); those without an
    embedding are left out. Raises what `progress` and `embeddings` raise."""
    asked = np.asarray(query, np.float64).reshape(-1)
    asked = asked / max(float(np.linalg.norm(asked)), 1e-12)
    names: list[str] = []
    blocks: list[NDArray[np.float64]] = []
    for start in range(0, len(ids), BLOCK_ROWS):
        found = embeddings(ids[start : start + BLOCK_ROWS])
        if found:
            parts = [np.atleast_2d(own) for own in found.values()]
            matrix = np.concatenate(parts).astype(np.float64)
            cosines = matrix @ asked / np.maximum(np.linalg.norm(matrix, axis=1), 1e-12)
            starts = np.cumsum([0, *(len(own) for own in parts[:-1])])
            blocks.append(np.maximum.reduceat(cosines, starts))
            names += found
        progress("comparing embeddings", min(start + BLOCK_ROWS, len(ids)), len(ids))
    cosines = np.concatenate(blocks) if blocks else np.empty(0)
    order = sorted(range(len(names)), key=lambda i: (-cosines[i], names[i]))
    return ExactRanking(tuple(names[i] for i in order), cosines[order])


def largest_difference(exact: ExactRanking, answer: Sequence[tuple[str, float]]) -> float:
    """The largest distance of a score in the answer from the exact cosine; 0 for an empty answer."""
    known = dict(zip(exact.ids, exact.cosines.tolist(), strict=True))
    return max((abs(score - known[memory_id]) for memory_id, score in answer if memory_id in known), default=0.0)


def compare(exact: ExactRanking, answer: Sequence[tuple[str, float]], depth: int) -> IndexComparison:
    """The hits of `depth` memories compared with the exact ones."""
    near, deep = (recall_at(exact, answer, k) for k in (NEAR_DEPTH, depth))
    return IndexComparison(near, deep, largest_difference(exact, answer))


ENGINES_COMPARED: tuple[ListName, ...] = ("vector", "ts_rank")
"""Lists that have an exact ranking here."""


@dataclass(frozen=True, slots=True)
class EngineComparison(IndexComparison):
    """One list of the engine compared with the exact one, to the depth that the config keeps. `changed` is the setting
    of the request, None: unchanged."""

    live: LiveList
    changed: tuple[str, str] | None = None

    @property
    def whole(self) -> bool:
        """Whether no memory of the exact list is missing."""
        return not self.deep.missed


@dataclass(frozen=True, slots=True, eq=False)
class EngineCheck:
    """The engine's hits for one text compared with the exact ones; it can be queried again with other settings."""

    engine: LiveEngine
    probe: SourceInfo
    text: str
    vector: np.ndarray
    depths: Mapping[ListName, int]
    scope: str | None
    exact: Mapping[ListName, ExactRanking]
    kept: Mapping[ListName, int]
    """Memories that the config keeps of each list."""
    lists: tuple[EngineComparison, ...]
    not_compared: tuple[ListName, ...] = ()
    """Lists of the engine that are on and have no exact ranking here."""

    @property
    def worth_trying(self) -> tuple[Setting, ...]:
        """The settings that may change the vector list."""
        return tuple(each for each in self.probe.settings if each.tries and each.changes == "vector")

    def mending(self) -> list[EngineComparison]:
        """The vector list with each setting that is worth trying, in order, up to a value that fixes it. Raises SourceError."""
        found = []
        for setting in self.worth_trying:
            for value in setting.tries:
                found.append(self.compared(Trial({setting.name: value}), (setting.name, value))["vector"])
                if found[-1].whole:
                    break
        return found

    def compared(self, trial: Trial, changed: tuple[str, str] | None) -> dict[ListName, EngineComparison]:
        """The engine's lists with these settings, for this search only, by name. Raises SourceError."""
        lists = self.engine.search(self.text, self.vector, self.depths, self.scope, trial)
        compared = (name for name in lists if name in self.exact)
        return {name: compare_engine(lists[name], self.exact[name], self.kept[name], changed) for name in compared}


def compare_engine(
    live: LiveList, exact: ExactRanking, kept: int, changed: tuple[str, str] | None = None
) -> EngineComparison:
    """A list of the engine compared with the exact ranking; only `kept` memories count. Others do not, because the
    engine does not apply the query's filter on projects."""
    passing = set(exact.ids)
    answer = [hit for hit in best_per_memory(live.hits) if hit[0] in passing]
    found = compare(exact, answer, kept)
    return EngineComparison(found.near, found.deep, found.off, live, changed)


def check_engine(
    engine: LiveEngine,
    resources: Resources,
    request: Request,
    text: str,
    config: PipelineConfig,
    progress: Progress = silent,
) -> EngineCheck:
    """Request the engine's lists of one text, and compare each with the exact one. Raises SourceError and ModelError."""
    probe = engine.info()
    # The engine is asked here even if the config has the workbench's lists.
    asked = with_values(config, {"lists.answered_by": "source"})
    every = engine_depths(asked, probe, request.query, resources.store.language.current)
    depths = {name: depth for name, depth in every.items() if name in ENGINES_COMPARED}
    where = search_filter(request, config, resources)
    vector = resources.embedder.encode_query(text)
    vectors = resources.indexes.vectors
    exact: dict[ListName, ExactRanking] = {}
    if "vector" in depths:
        exact["vector"] = exact_ranking(vector, vectors.ids(where), embeddings_of(vectors), progress)
    if "ts_rank" in depths:
        best = dict(best_per_memory(resources.full_text(progress).ranking(text, where)))
        exact["ts_rank"] = ExactRanking(tuple(best), np.array(list(best.values())))
    hybrid, keeps = config.lists.hybrid, list_depths(config)
    kept = {name: hybrid.depth if hybrid.enabled else keeps.get(name) or MAX_DEPTH for name in depths}
    left_out = tuple(name for name in every if name not in ENGINES_COMPARED)
    check = EngineCheck(engine, probe, text, vector, depths, where.required_scope, exact, kept, (), left_out)
    return replace(check, lists=tuple(check.compared(NO_TRIAL, None).values()))


def cause(found: EngineComparison, probe: SourceInfo) -> str:
    """Why a list of the engine differs from the exact one, in a sentence; if it does not, what the engine says of it, or nothing."""
    live, missed = found.live, found.deep.missed
    if not missed:
        return "; ".join(live.notes)
    if live.name == "ts_rank":
        return f"{len(missed)} memories rank otherwise there: another text search configuration, or rows changed since the snapshot."
    short = live.shortfall(probe.vectors)
    if short:
        limit = limiting(live, probe.settings)
        if limit is None:
            return f"{short}: what its index found was filtered afterwards."
        return f"{short}: {limit.name} is {limit.value}" + (f", {limit.unit}." if limit.unit else ".")
    if probe.index is None:
        return "Its search is exact: its rows changed since the snapshot. Connect again."
    return f"Its index is approximate ({probe.index}) and passed them by."


def limiting(live: LiveList, settings: Sequence[Setting]) -> Setting | None:
    """The setting that explains a short list: a number of rows that the list did not exceed, although more were requested."""
    own = [each for each in settings if each.changes == live.name]
    numbers = [each for each in own if each.value.isdigit() and int(each.value) > 0]
    fitting = [each for each in numbers if live.returned <= int(each.value) < live.asked]
    return min(fitting, key=lambda each: int(each.value), default=None)


MAX_IMMEDIATE = 20_000
"""Embeddings up to which the comparison starts when the tool is opened."""
MAX_ROWS = 50
COMPARED = "inspect:index_check:compared"
LIVE, TRIED = "inspect:index_check:live", "inspect:index_check:tried"
GRAPH_HELP = (
    "A vector index searches a graph (HNSW) instead of comparing all embeddings: fast, but it can miss near memories. "
    "The workbench compares all of them, so its list misses none; where Chroma’s collection is open, and up to "
    f"{EXACT_ROWS:,} memories, the graph’s list is shown too: what a system returns that searches it. "
    "For a hybrid list, Lists → Rows of the vector index simulates PostgreSQL’s index."
)


Checked = tuple[str, str, IndexComparison]
"""A list compared with the exact one: its name, how it was computed, and the comparison."""
LIVE_HELP = (
    "Requests the live system’s own lists for this query, and compares them with exact ones: all vectors of the "
    "snapshot, all texts ranked by ts_rank. Read-only."
)


def draw(context: InspectContext) -> None:
    """Draw the check of the store's index, and of the live one if the store was imported from a live system."""
    ranked = _list(context)
    with errors_shown():
        _draw_own(context, ranked)
    engine = context.resources.engine()
    if engine is not None:
        st.divider()
        _draw_live(context, engine, (ranked.variant if ranked else None) or 0)


def _draw_own(context: InspectContext, ranked: RankedList | None) -> None:
    """Draw the verdict, one row per list, and the missed memories."""
    if ranked is None:
        st.info("No vector list was searched for this query: there is no index to check.", icon=":material/search_off:")
        return
    trace, store = context.trace, context.resources.store
    where, depth = search_filter(context.request, trace.config, context.resources), _depth(context, ranked)
    whose = provenance_of(trace.evidence.notes, ranked.name)
    key = (context.request, ranked.variant, whose, depth, where, str(store.path), store.content_version)
    ids = [] if is_kept(COMPARED, key) else context.resources.indexes.vectors.ids(where)
    if not ids and not is_kept(COMPARED, key):
        st.info("No memory in the scope of this query has an embedding.", icon=":material/search_off:")
        return
    if len(ids) > MAX_IMMEDIATE and not st.button(f"Compare all {len(ids):,} embeddings", "inspect:index_check"):
        return
    exact, rows = kept(COMPARED, key, lambda: _compared(context, ranked, ids, depth))
    chosen = CANDIDATE_SETS.get(trace.config.lists.candidate_set.mode)
    st.markdown(f"## {_verdict(rows[0], len(exact), pooled=bool(chosen))}", help=GRAPH_HELP)
    draw_table(rows, ANSWERS, key="inspect:index_check:answers", most=2)
    elsewhere = _found_by(context, ranked.name)
    for name, _, found in rows:
        if found.deep.missed:
            _draw_missed(context, name, found, elsewhere)


def _depth(context: InspectContext, ranked: RankedList) -> int:
    """The depth of the comparison: the list's, or that of the vector part of a hybrid list."""
    config = context.trace.config
    if config.lists.vector.enabled or not config.lists.hybrid.enabled:
        return list_depths(config)["vector"] or MAX_DEPTH
    rows = inner_depth(config, context.trace.evidence.query, context.trace.evidence.language)
    if provenance_of(context.trace.evidence.notes, ranked.name):
        return rows  # rows omitted by the engine count as missed
    return len({hit.memory_id for hit in ranked.hits[:rows]})


def _list(context: InspectContext) -> RankedList | None:
    """The vector list to check; draws a choice if there are several."""
    lists = [ranked for ranked in context.trace.evidence.lists if ranked.source == "vector"]
    if len(lists) < 2:
        return lists[0] if lists else None
    variants = context.trace.evidence.variants
    chosen: int = st.selectbox(
        "Vector list",
        range(len(lists)),
        key=f"inspect:index_check:{hash(context.request)}",
        format_func=lambda i: f"{lists[i].name}  {excerpt(variants[lists[i].variant or 0].text, 80)}",
        help="Each query variant was searched separately.",
    )
    return lists[chosen]


def _compared(
    context: InspectContext, ranked: RankedList, ids: Sequence[str], depth: int
) -> tuple[ExactRanking, list[Checked]]:
    """The exact ranking, and the list and that of the graph compared with it."""
    vectors, config, evidence = context.resources.indexes.vectors, context.trace.config, context.trace.evidence
    with progress_bar() as progress:
        query = context.resources.embedder.encode_query(evidence.text_for("vector", ranked.variant or 0))
        exact = exact_ranking(query, ids, embeddings_of(vectors), progress)
        how = provenance_of(evidence.notes, ranked.name) or "exact: all embeddings compared"
        if not provenance_of(evidence.notes, ranked.name) and config.lists.candidate_set.mode in CANDIDATE_SETS:
            pool = CANDIDATE_SETS[config.lists.candidate_set.mode].format(size=candidate_set_size(config))
            how = f"exact, of {pool} (Lists → Candidate set)"
        answer = best_per_memory([(hit.memory_id, hit.score, hit.chunk) for hit in ranked.hits])[:depth]
        rows = [(ranked.name, how, compare(exact, answer, depth))]
        if context.resources.graph_open or len(ids) <= EXACT_ROWS:  # else the collection may take minutes to write
            where = search_filter(context.request, config, context.resources)
            graph = compare(exact, vectors.approximate(query, depth, where), depth)
            rows.append(("Chroma alone", "Chroma's graph", graph))
    return exact, rows


def _found_by(context: InspectContext, name: str) -> dict[str, str]:
    """By memory, the first other list that contains it."""
    return {
        hit.memory_id: other.name
        for other in reversed(context.trace.evidence.lists)
        if other.name != name and other.source != "recency" and other.source != "access"
        for hit in other.hits
    }


def _verdict(row: Checked, count: int, nearest: str = "exact nearest", *, pooled: bool = False) -> str:
    name, _, found = row
    missed, k = found.deep.missed, found.deep.k
    if not missed:
        return f"No misses: {name} contains the {k:,} {nearest} of {count:,} memories."
    lost = "The candidate set left out" if pooled else f"{name} missed"
    return f"{lost} {len(missed):,} of the {k:,} {nearest} memories; the first of them has rank {missed[0].rank:,}."


def _recall(of: Recall) -> str:
    return f"{'✕' if of.missed else '✓'} {of.found:,} of {of.k:,}"


ANSWERS: list[Column[Checked]] = [
    Column("answer", lambda row: row[0], 110, help="The list compared with the exact nearest memories"),
    Column("how", lambda row: row[1], 210, help="How the list was computed"),
    Column("at 10", lambda row: _recall(row[2].near), 84, help="Of the 10 nearest, those among its first 10"),
    Column("at depth", lambda row: _recall(row[2].deep), 104, help="Of the nearest, those in it, at its depth"),
    Column("score off by", lambda row: row[2].off, 90, "%.1e", "Largest difference of a score from the exact one"),
]


def _draw_missed(
    context: InspectContext, name: str, found: IndexComparison, elsewhere: Mapping[str, str], score: str = "cosine"
) -> None:
    """Draw the missed memories, and other lists that found them; `score` is the score of the exact list."""
    missed = found.deep.missed
    shown, more = missed[:MAX_ROWS], f" (the first {MAX_ROWS})" if len(missed) > MAX_ROWS else ""
    st.markdown(f"## Missed by {plain(name)}{more}")
    memories = context.resources.store.memories.read([missed.memory_id for missed in shown])

    def text(one: Missed) -> str:
        return excerpt(memories[one.memory_id].content) if one.memory_id in memories else ""

    other = "Another list of this query that contains it; empty: none"
    columns: list[Column[Missed]] = [
        Column("exact rank", lambda one: one.rank, 80, help="Rank by exact search"),
        Column("memory", lambda one: short_id(one.memory_id), 110),
        Column(f"exact {score}", lambda one: one.cosine, 94, "%.4f", f"The {score} of query and memory"),
        Column("found by", lambda one: elsewhere.get(one.memory_id, ""), 90, help=other),
        Column("content", text, "large"),
    ]
    draw_table(shown, columns, most=12, key=f"inspect:index_check:missed:{name}")


def _draw_live(context: InspectContext, engine: LiveEngine, variant: int) -> None:
    """Draw the engine's lists of this variant compared with exact ones, after a request."""
    st.markdown("## The live index", help=LIVE_HELP)
    where = engine.name
    text, config = context.trace.evidence.text_for("vector", variant), context.trace.config
    key = (context.request, text, config, engine.address, context.resources.store.content_version)
    ask = f"Query {plain(where)}"
    if not is_kept(LIVE, key) and not st.button(ask, "inspect:index_check:ask", LIVE_HELP, icon=":material/hub:"):
        return

    def make() -> EngineCheck:
        st.session_state.pop(TRIED, None)
        with progress_bar() as progress:
            return check_engine(engine, context.resources, context.request, text, config, progress)

    check = kept(LIVE, key, make)
    st.caption(plain(f"{check.probe.engine} at {where}, index: {check.probe.index_line}"))
    for each in check.lists:
        _draw_live_list(context, check, each, where)
    if check.not_compared:
        st.caption(f"Not compared: {', '.join(check.not_compared)}; there is no exact ranking of them here.")
    _draw_settings(check, key)


def _draw_live_list(context: InspectContext, check: EngineCheck, found: EngineComparison, where: str) -> None:
    """Draw one list of the engine: its recall, the cause of misses, and the missed memories."""
    live, exact = found.live, check.exact[found.live.name]
    took = f"{live.asked:,} rows requested, {live.returned:,} returned in {1000 * live.seconds:.0f} ms"
    row = (f"{live.name} of {where}", took, found)
    nearest = "exact nearest" if live.name == "vector" else "best ranked"
    st.markdown(f"**{plain(_verdict(row, len(exact), nearest))}**  {plain(cause(found, check.probe))}")
    draw_table([row], ANSWERS, key=f"inspect:index_check:answers:{live.name}", most=1)
    if live.unknown:
        count, first = len(live.unknown), live.unknown[0][0]
        line = f"{count:,} of its rows are not in the snapshot, the first at position {first:,}: import them"
        st.warning(f"{line} under Memories → Sources.", icon=":material/sync_problem:")
    if found.deep.missed:
        mine = next((each.name for each in context.trace.evidence.lists if each.source == live.name), "")
        _draw_missed(context, row[0], found, _found_by(context, mine), "cosine" if live.name == "vector" else "rank")


def _draw_settings(check: EngineCheck, key: object) -> None:
    """Draw the settings tried for one search, and the first values that restore full recall."""
    vector = next((each for each in check.lists if each.live.name == "vector"), None)
    if vector is None or vector.whole:
        return
    if not check.worth_trying:
        st.caption("None of its settings can be changed for a single search.")
        return
    names = ", ".join(setting.name for setting in check.worth_trying)
    help = f"Searches again with other values of {plain(names)}, each for that search only."
    label = "Try settings on the live engine"
    if not is_kept(TRIED, key) and not st.button(label, "inspect:index_check:try", help, icon=":material/tune:"):
        return
    with st.spinner("searching with other settings"):
        tried = kept(TRIED, key, check.mending)
    whole = [each for each in tried if each.whole]
    best = whole[0] if whole else max(tried, key=lambda each: each.deep.found)
    named = " or ".join(" = ".join(each.changed or ()) for each in whole or [best])
    words = f"{named} finds {f'all {best.deep.k:,}' if whole else f'{best.deep.found:,} of {best.deep.k:,}'}."
    st.markdown(f"**{plain(words)}**")
    draw_table([vector, *tried], TRIED_COLUMNS, key="inspect:index_check:settings", most=12)


TRIED_COLUMNS: list[Column[EngineComparison]] = [
    Column("setting", lambda each: " = ".join(each.changed) if each.changed else "current", "medium"),
    Column("rows", lambda each: each.live.returned, help="Rows returned"),
    Column("recall at 10", lambda each: _recall(each.near)),
    Column("recall", lambda each: _recall(each.deep)),
    Column("ms", lambda each: 1000 * each.live.seconds, None, "%.1f", "Search time there, in milliseconds"),
]


VIEW = View("Index check", 40, draw, "Did the vector index miss a memory that is closer than those it found?")
