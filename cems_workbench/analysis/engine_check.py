"""The running system's lists and answer beside ours: how far its lists are from the exact ones, why, which of our results depend on
that, and its fused answer against our fusion of the same lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isclose

import numpy as np

from cems_workbench.analysis.vector_origins import ExactRanking, IndexComparison, compare, embeddings_of, exact_ranking
from cems_workbench.config import PipelineConfig, list_depths, with_values
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.gather import MAX_DEPTH, Request, engine_depths, search_filter
from cems_workbench.pipeline.list_sources import list_label
from cems_workbench.pipeline.live_engine import LiveEngine, LiveList
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.fusion import FUSION
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.progress import Progress, silent
from cems_workbench.sources.source import NO_TRIAL, ListName, Setting, SourceInfo, Trial
from cems_workbench.store.search.entries import best_per_memory

FIRST = 10
"""Places that are compared."""
EQUAL = 1e-6
"""Relative difference of scores that count as equal: engines compute them in single precision."""


@dataclass(frozen=True, slots=True)
class FusionComparison:
    """The first `k` of the engine's answer beside those of our fusion.

    `others` are memories of the answer that are not among ours, `moved` those that are, at another place; of both, equal scores explain
    none. `tied` are those whose place equal scores explain.
    """

    list: str
    k: int
    others: tuple[str, ...]
    moved: tuple[str, ...]
    tied: tuple[str, ...]

    @property
    def line(self) -> str:
        """ "Fused by the source (source_hybrid:0) and fused here: 3 of the first 10 are others, 2 at other places, 1 only tied"."""
        said = [f"{len(self.others)} of the first {self.k} are others" if self.others else f"the same first {self.k}"]
        said += [f"{len(self.moved)} at other places"] if self.moved else []
        said += [f"{len(self.tied)} only tied"] if self.tied else []
        return f"Fused by the source ({list_label(self.list)}) and fused here: {', '.join(said)}"


def compare_fusions(trace: Trace, k: int = FIRST) -> FusionComparison | None:
    """Compare the engine's own fused answer to the original query with our ranking after fusion; None without one of them."""
    if trace.external:
        return None
    name = next((one.name for one in trace.evidence.lists if one.source == "source_hybrid" and one.hits), None)
    uses = {use.name for use in trace.stage(LISTS).fields.lists}
    fused = trace.run.of(FUSION)
    if name is None or name not in uses or not fused.after.rank[0].any():
        return None
    own = [(row.memory_id, entry) for row in trace.stage(LISTS).rows for entry in row.lists if entry.list == name]
    own.sort(key=lambda pair: pair[1].rank)
    engine = [(memory_id, float(entry.raw or 0.0)) for memory_id, entry in own]
    rank, score = fused.after.rank[0], fused.after.score[0]
    order = np.flatnonzero(rank > 0)
    order = order[np.argsort(rank[order], kind="stable")].tolist()
    ours = [(trace.table.ids[0][c], float(score[c])) for c in order]
    note = (trace.evidence.notes.get("engine") or {}).get("lists", {}).get(name, {})
    return compared(name, engine, ours, k, cut=note.get("returned") == note.get("asked"))


def compared(
    name: str,
    engine: Sequence[tuple[str, float]],
    ours: Sequence[tuple[str, float]],
    k: int = FIRST,
    cut: bool = False,
) -> FusionComparison:
    """Compare the first `k` of two rankings of (memory id, score), best first; the engine's may be shorter, and then decides.

    `cut`: the engine has more rows than it was asked for, so its last ones may tie with others.
    """
    there, _ = _intervals(engine, cut)
    here, absent_here = _intervals(ours, False)
    k = min(k, len(engine))
    ranked_there, ranked_here = ({key: i for i, (key, _) in enumerate(ranking)} for ranking in (engine, ours))
    others, moved, tied = [], [], []
    for memory_id, _ in engine[:k]:
        a, b = there[memory_id], here.get(memory_id, absent_here)
        place = ranked_here.get(memory_id)
        if a[0] <= b[1] and b[0] <= a[1]:
            if place != ranked_there[memory_id]:
                tied.append(memory_id)
        elif place is not None and place < k:
            moved.append(memory_id)
        else:
            others.append(memory_id)
    return FusionComparison(name, k, tuple(others), tuple(moved), tuple(tied))


Interval = tuple[float, float]
"""The first and the last possible place, from 0."""


def _intervals(ranking: Sequence[tuple[str, float]], cut: bool) -> tuple[dict[str, Interval], Interval]:
    """The places by memory id, which go on beyond the end for the last of a `cut` ranking, and those of a memory that is not in it."""
    found: dict[str, Interval] = {}
    start = 0
    for place in range(1, len(ranking) + 1):
        if place < len(ranking) and isclose(ranking[place][1], ranking[start][1], rel_tol=EQUAL):
            continue
        last = inf if cut and place == len(ranking) else place - 1
        for memory_id, _ in ranking[start:place]:
            found[memory_id] = (start, last)
        start = place
    return found, (len(ranking), inf)


COMPARED: tuple[ListName, ...] = ("vector", "ts_rank")
"""Lists that have an exact ranking here."""


@dataclass(frozen=True, slots=True)
class EngineComparison(IndexComparison):
    """One list of the engine compared with the exact one, to the depth that the config keeps.

    `changed` is the setting of the request, None: unchanged.
    """

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

    def tried(self, setting: str, value: str) -> EngineComparison:
        """The engine's vector list with this setting, for this search only. Raises SourceError."""
        return self._compared(Trial({setting: value}), (setting, value))["vector"]

    @property
    def worth_trying(self) -> tuple[Setting, ...]:
        """The settings that may change the vector list."""
        return tuple(each for each in self.probe.settings if each.tries and each.changes == "vector")

    def mending(self) -> list[EngineComparison]:
        """The vector list with each setting that is worth trying, in order, up to a value that fixes it. Raises SourceError."""
        found = []
        for setting in self.worth_trying:
            for value in setting.tries:
                found.append(self.tried(setting.name, value))
                if found[-1].whole:
                    break
        return found

    def _compared(self, trial: Trial, changed: tuple[str, str] | None) -> dict[ListName, EngineComparison]:
        lists = self.engine.search(self.text, self.vector, self.depths, self.scope, trial)
        return {
            name: compare_engine(live, self.exact[name], self.kept[name], changed)
            for name, live in lists.items()
            if name in self.exact
        }


def compare_engine(
    live: LiveList, exact: ExactRanking, kept: int, changed: tuple[str, str] | None = None
) -> EngineComparison:
    """A list of the engine compared with the exact ranking; only `kept` memories count.

    Others do not, because the engine does not apply the query's filter on projects.
    """
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
    where = search_filter(request, config)
    vector = resources.embedder.encode_query(text)
    vectors = resources.indexes.vectors
    exact: dict[ListName, ExactRanking] = {}
    if "vector" in depths:
        exact["vector"] = exact_ranking(vector, vectors.ids(where), embeddings_of(vectors), progress)
    if "ts_rank" in depths:
        best = dict(best_per_memory(resources.full_text(progress).ranking(text, where)))
        exact["ts_rank"] = ExactRanking(tuple(best), np.array(list(best.values())))
    hybrid = config.lists.hybrid
    keeps = list_depths(config)
    kept: dict[ListName, int] = {
        name: hybrid.depth if hybrid.enabled else keeps.get(name) or MAX_DEPTH for name in depths
    }
    left_out = tuple(name for name in every if name not in COMPARED)
    check = EngineCheck(engine, probe, text, vector, depths, where.required_scope, exact, kept, (), left_out)
    return replace(check, lists=tuple(check._compared(NO_TRIAL, None).values()))


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
