"""An answer of an index, here or in a running system, beside the exact one: how far from it, why, and which settings mend it.

Exact is cos(q, m) for every embedding m that passes the query's filter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cems_workbench.analysis.graph_lists import ExactRanking, Recall, recall_at
from cems_workbench.config import PipelineConfig, list_depths, with_values
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.gather import MAX_DEPTH, Request, engine_depths, search_filter
from cems_workbench.pipeline.live_engine import LiveEngine, LiveList
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.sources.source import NO_TRIAL, ListName, Setting, SourceInfo, Trial
from cems_workbench.store.search.entries import best_per_memory
from cems_workbench.store.search.vector_index import VectorIndex

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


COMPARED: tuple[ListName, ...] = ("vector", "ts_rank")
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
    depths = {name: depth for name, depth in every.items() if name in COMPARED}
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
    left_out = tuple(name for name in every if name not in COMPARED)
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
