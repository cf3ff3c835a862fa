"""replay(evidence, config) -> Trace: every stage after gathering, as a pure function.

    evidence -> CandidateTable (depends on no parameter, made once per evidence) -> the stages, over arrays -> Trace

No model, no search, no file, no clock, no randomness: the same evidence and config give the same trace on any machine.
`run` is the same thing over a batch of queries without making traces; a single query is a batch of one. The table of a single evidence is
cached (weakly), so that moving a slider only runs the stages.

A trace says what every stage did to every candidate of one query, as typed rows, which are made from the stages' arrays on first access.
Every chart, "why not", export and test reads the trace and nothing else.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property, lru_cache
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline.evidence import VARIANT_KINDS, Evidence, Hit, ModelScore, RankedList
from cems_workbench.pipeline.list_sources import LIST_SOURCES, SOURCES
from cems_workbench.pipeline.missing_evidence import Need, unmet
from cems_workbench.pipeline.nested import nested_table, with_nested
from cems_workbench.pipeline.recorded import heads, passed_on, ways
from cems_workbench.pipeline.stages import stages_of
from cems_workbench.pipeline.stages.assembly import ASSEMBLY
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.pipeline.stages.query import no_candidates
from cems_workbench.pipeline.stages.result import (
    FieldsT,
    RowT,
    ScoreNeed,
    StageArrays,
    StageFields,
    StageRow,
    StageTrace,
    field_names,
    plain_fields,
)
from cems_workbench.pipeline.stages.stage import AnyStage, PipelineRun, Stage, StageInput
from cems_workbench.pipeline.table import (
    NO_RANK,
    Bools,
    CandidateTable,
    Floats,
    Ints,
    ListTable,
    ModelTable,
    Places,
    RecordedList,
    RecordedTable,
    RecordedWay,
    SuccessionTable,
    chars4,
    gathered_lists,
    memoized,
    word_overlaps,
)
from cems_workbench.records import Memory, RecordedStages

Clock = Callable[[], float]
"""Seconds from any origin; passed by callers that time the stages."""


def replay(
    evidence: Evidence,
    config: PipelineConfig,
    *,
    switched_off: Collection[int] = (),
    lists_off: Collection[str] = (),
    clock: Clock | None = None,
) -> Trace:
    """Run the pipeline over gathered evidence; of an external trace, return its recorded stages.

    Args:
        evidence: the result of gather, or a bundle; it is not changed.
        config: every parameter. Gather parameters that differ from what was gathered are listed in `trace.needs`.
        switched_off: indices of query variants whose lists are left out.
        lists_off: names of lists that are left out; lists made from one of them are unchanged.
        clock: when given, each stage's `elapsed_ms` is measured with it; otherwise it is None.
    """
    table = single_table(evidence)
    marks: list[float] = []
    done = run(table, config, switched_off, clock, marks, lists_off)
    # Without a clock replay stays a pure function: None, not 0.
    elapsed: Sequence[float | None] = (np.diff(marks) * 1000).tolist() if marks else [None] * len(done.stages)
    if table.recorded is not None:
        elapsed = [None, *[way.ms[0] for way in table.recorded.ways]]
    stages = (StageTrace(name, arrays, table, 0, ms) for (name, arrays), ms in zip(done.items(), elapsed, strict=True))
    needs = (need for _, arrays in done.items() for need in arrays.needs(0))
    return Trace(evidence, config, tuple(stages), tuple(needs), done, table)


def run(
    table: CandidateTable,
    config: PipelineConfig,
    switched_off: Collection[int] = (),
    clock: Clock | None = None,
    marks: list[float] | None = None,
    lists_off: Collection[str] = (),
) -> PipelineRun:
    """Every stage over a batch of Q queries, in order; `marks` receives the clock before and after each stage. Of
    external traces the recorded stages, under any config."""

    def tick() -> None:
        if clock is not None and marks is not None:
            marks.append(clock())

    given = StageInput(
        table, config, frozenset(switched_off), no_candidates(table), gathered_lists(table), frozenset(lists_off)
    )
    done: dict[str, StageArrays[StageRow, StageFields]] = {}
    tick()
    stages = stages_of(table, config)
    kept = _kept(table, given) if clock is None else None
    for stage in stages:
        if kept is None:
            arrays = stage(given)
        else:
            _, arrays, kept = kept.of(stage, given)
        done[stage.name] = arrays
        if not arrays.passed:
            given = given._replace(ranking=arrays.after, lists=arrays.lists or given.lists)
        tick()
    return PipelineRun(stages, done)


KEPT_CELLS, KEPT_STAGES, KEPT_RUNS = 65_536, 400, 5
"""Up to so many candidates of all queries a table keeps runs: of one query so many stages, `KEPT_RUNS` of each on one input; else one."""


class _Kept:
    """Runs of stages on one input, the first and the last ones, so that a config runs from the first stage that reads a
    change on. A run is what the stage read of the config, what it did, and the kept runs of the next stage on that."""

    def __init__(self, most: int, count: list[int]) -> None:
        self.most, self.count = most, count
        self.runs: tuple[_Run, ...] = ()  # read and replaced as a whole, so that threads need no lock

    def of(self, stage: AnyStage, given: StageInput) -> _Run:
        """The kept run of a stage under the config of its input, or a new one."""
        read = stage.read(given.config)
        for one in self.runs:
            if one[0] == read:
                return one
        arrays = stage(given)
        # Most changes of a parameter change nothing that the next stages see.
        alike = (further for (known, *_), other, further in self.runs if known is stage and _alike(other, arrays))
        found = read, arrays, next(alike, None) or _Kept(self.most, self.count)
        self.count[0] += 1
        self.runs = (*self.runs[:1], found, *self.runs[1:])[: self.most]
        return found


_Run = tuple[tuple[Any, ...], StageArrays[StageRow, StageFields], _Kept]


def _kept(table: CandidateTable, given: StageInput) -> _Kept | None:
    """The runs that a table keeps; None where it is too large, or its stages were recorded."""
    if table.recorded is not None or table.valid.size > KEPT_CELLS:
        return None
    key, most = (given.variants_off, given.lists_off), KEPT_RUNS if len(table.valid) == 1 else 1
    found = memoized(table.memo, "runs", key, lambda: _Kept(most, [0]))
    if found.count[0] > KEPT_STAGES and most > 1:
        found.count, found.runs = [0], ()
    return found


def _alike(one: StageArrays[StageRow, StageFields], other: StageArrays[StageRow, StageFields]) -> bool:
    """Whether the next stages get the same from both."""
    if one is other:
        return True
    (what, arrays), (also, others) = _left(one), _left(other)
    return what == also and all(np.array_equal(a, b, equal_nan=True) for a, b in zip(arrays, others, strict=True))


def _left(arrays: StageArrays[StageRow, StageFields]) -> tuple[tuple[Any, ...], list[NDArray[Any]]]:
    """What a stage leaves to the next ones: values, and as many arrays for equal values."""
    ranking, lists = arrays.after, arrays.lists
    what = type(ranking), ranking.stable, ranking.placed, ranking.lead is None
    left = [ranking.alive, ranking.score, ranking.key if ranking.lead is None else ranking.lead]
    if lists is None:
        return what, left
    own = lists.own_scale
    return (*what, id(lists.places), own is None), [
        *(*left, lists.present, lists.score, lists.active),
        *(() if own is None else (own,)),
    ]


@dataclass(frozen=True, slots=True)
class Result:
    """One result: its rank and score, the tokens of its content, and metadata for display."""

    memory_id: str
    score: float | None
    """None only where an external trace has none."""
    rank: int
    tokens: int
    title: str | None
    category: str | None
    project: str | None
    session: str | None
    content: str

    def to_json(self) -> dict[str, Any]:
        """The result as plain values."""
        return plain_fields(self, field_names(Result))


def _result(row: StageRow, rank: int, tokens: int, memories: Mapping[str, Memory]) -> Result:
    memory = memories[row.memory_id]
    about = (memory.title, memory.category, memory.project, memory.session, memory.content)
    return Result(row.memory_id, row.score, rank, tokens, *about)


@dataclass(frozen=True, eq=False)
class Trace:
    """One query's way through the pipeline under one config; the stages are a view of `run` and `table`: a batch of one query."""

    evidence: Evidence
    config: PipelineConfig
    stages: tuple[StageTrace[StageRow, StageFields], ...]
    stage_needs: tuple[ScoreNeed, ...]
    run: PipelineRun
    table: CandidateTable

    @overload
    def stage(self, stage: Stage[RowT, FieldsT, Any]) -> StageTrace[RowT, FieldsT]: ...

    @overload
    def stage(self, stage: str) -> StageTrace[StageRow, StageFields]: ...

    def stage(self, stage: Stage[Any, Any, Any] | str) -> StageTrace[Any, Any]:
        """The trace of one stage: for a record typed with the stage's rows, for a name with the row contract. KeyError
        when there is no stage of that name. An external trace has no stage of ours but for the lists, whatever its
        stages are called."""
        if self.external and not isinstance(stage, str) and stage not in self.run.stages and stage.name != LISTS.name:
            raise KeyError(f"{stage.name} is no stage of an external trace")
        return self._by_name[stage if isinstance(stage, str) else stage.name]

    @property
    def external(self) -> bool:
        """Whether the stages were recorded by another pipeline, so that the config has no effect."""
        return self.table.recorded is not None

    @property
    def candidate_stages(self) -> tuple[AnyStage, ...]:
        """The stages that can drop a memory, in order."""
        return self.run.candidate_stages

    @property
    def ranking_stages(self) -> tuple[AnyStage, ...]:
        """The stages after which candidates have a rank, in order; the ranks after the last are those of the results."""
        return self.run.ranking_stages

    @cached_property
    def _by_name(self) -> Mapping[str, StageTrace[StageRow, StageFields]]:
        return {stage.name: stage for stage in self.stages}

    def record(self, name: str) -> AnyStage:
        """The record of the stage of a name. KeyError when there is none."""
        return self._records[name]

    @cached_property
    def _records(self) -> Mapping[str, AnyStage]:
        return {stage.name: stage for stage in self.run.stages}

    @cached_property
    def columns(self) -> Mapping[str, int]:
        """The candidates' columns in the table, by memory id."""
        return {memory_id: c for c, memory_id in enumerate(self.table.ids[0])}

    @cached_property
    def results(self) -> list[Result]:
        """The results in order."""
        memories = self.evidence.memories
        if self.external:
            kept = self.stage(self.run.last.name).kept
            return [
                _result(row, rank, chars4(memories[row.memory_id].content), memories)
                for rank, row in enumerate(kept, 1)
            ]
        return [
            _result(row, row.rank_out, row.tokens, memories)
            for row in self.stage(ASSEMBLY).rows
            if row.rank_out is not None and row.score is not None
        ]

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """The ranks of the results, by memory id."""
        return {result.memory_id: result.rank for result in self.results}

    @property
    def tokens_used(self) -> int:
        """Tokens of the assembled context; of an external trace those of its results."""
        if self.external:
            return sum(result.tokens for result in self.results)
        return self.stage(ASSEMBLY).fields.tokens_used

    @property
    def skipped_for_budget(self) -> list[str]:
        """Ids of memories that did not fit the token budget, sorted."""
        return [] if self.external else list(self.stage(ASSEMBLY).fields.skipped_for_budget)

    @cached_property
    def needs(self) -> list[Need]:
        """What this config needs and the evidence lacks; empty if the trace is complete."""
        if self.external:
            return []
        return [*unmet(self.config, self.evidence.notes, self.evidence.in_brief), *self.stage_needs]

    @cached_property
    def warnings(self) -> list[tuple[str, str]]:
        """Every warning as (stage, text)."""
        return [(stage.name, text) for stage in self.stages for text in stage.warnings]

    def path(self, memory_id: str) -> list[tuple[str, StageRow]]:
        """A memory's rows through the stages it entered, as (stage name, row)."""
        return [(stage.name, stage.by_id[memory_id]) for stage in self.stages if memory_id in stage.by_id]

    def to_json(self) -> dict[str, Any]:
        """The trace as plain values, as `replay --json` prints it."""
        evidence = self.evidence
        return (
            {
                "query": evidence.query,
                "as_of": evidence.as_of.isoformat() if evidence.as_of else None,
                "project": evidence.project,
                "config": self.config.name,
                "stages": [stage.to_json() for stage in self.stages],
                "results": [result.to_json() for result in self.results],
                "tokens_used": self.tokens_used,
                "skipped_for_budget": self.skipped_for_budget,
                "needs": [need.to_json() for need in self.needs],
            }
            | ({"external": True} if self.external else {})
            | ({"engine": evidence.notes["engine"]} if evidence.notes.get("engine") else {})
        )


ORDERED = frozenset(source.name for source in LIST_SOURCES if source.ordered)
_WORD = re.compile(r"[a-z0-9]+")
_encoded: weakref.WeakKeyDictionary[Evidence, CandidateTable] = weakref.WeakKeyDictionary()


def single_table(evidence: Evidence) -> CandidateTable:
    """The table of a single evidence, encoded at most once."""
    table = _encoded.get(evidence)
    if table is None:
        table = _encoded[evidence] = to_table([evidence])
    return table


def table_against(evidence: Evidence, memory_id: str) -> CandidateTable:
    """The table of a single evidence in which no tie falls by an id: the order is that of the lists, and `memory_id` is last."""
    listed = dict.fromkeys(hit.memory_id for ranked in evidence.lists for hit in ranked.hits)
    place = {key: i for i, key in enumerate(listed)}
    return to_table(
        [evidence], [sorted(evidence.candidate_ids, key=lambda key: (key == memory_id, place.get(key, len(place))))]
    )


def to_table(evidences: Sequence[Evidence], order: Sequence[Sequence[str]] | None = None) -> CandidateTable:
    """Encode Q evidences into one table, padded to the longest lists and candidate sets. `order` is that of the
    candidates, by which every tie falls; None: by their ids. External traces share a table if they have the same stages
    (`alike`); raises ValueError for others."""
    if len(alike(evidences)) > 1:
        raise ValueError("queries with different recorded stages do not fit into one table")
    ids = order or [evidence.candidate_ids for evidence in evidences]
    index = [{memory_id: c for c, memory_id in enumerate(row)} for row in ids]
    memories = [[evidence.memories[key] for key in row] for evidence, row in zip(evidences, ids, strict=True)]
    width = max((len(row) for row in ids), default=0)

    valid = np.zeros((len(ids), width), dtype=bool)
    for q, row in enumerate(ids):
        valid[q, : len(row)] = True
    distinct = {id(memory): memory for row in memories for memory in row}  # read once, whichever queries found them
    number = {key: i for i, key in enumerate(distinct)}
    place = np.full((len(ids), width), len(distinct))
    place[valid] = [number[id(memory)] for row in memories for memory in row]

    def numbers(read: Callable[[Memory], float]) -> Floats:
        found: Floats = np.array([*map(read, distinct.values()), 0.0], dtype=np.float64)[place]
        return found

    categories = sorted({memory.category for memory in distinct.values()}, key=lambda name: (name is not None, name))
    code = {name: i for i, name in enumerate(categories)}
    return CandidateTable(
        queries=[evidence.query for evidence in evidences],
        ids=ids,
        valid=valid,
        lists=_tabulate_lists(evidences, index, width),
        as_of=np.array([_seconds(evidence.as_of) for evidence in evidences]),
        projects=[evidence.project for evidence in evidences],
        kinship=_kinship([evidence.project for evidence in evidences], memories, width),
        created=numbers(lambda memory: _seconds(memory.created_at)),
        accessed=numbers(lambda memory: _seconds(memory.last_accessed)),
        priority=numbers(lambda memory: memory.priority),
        pinned=numbers(lambda memory: memory.pinned) > 0,
        important=numbers(lambda memory: memory.importance == "high") > 0,
        relevant=numbers(lambda memory: memory.relevant_count),
        noise=numbers(lambda memory: memory.noise_count),
        tokens=numbers(lambda memory: chars4(memory.content)).astype(np.int64),
        memories=memories,
        chunks=[evidence.chunks for evidence in evidences],
        cl100k=[evidence.tokens for evidence in evidences],
        category=numbers(lambda memory: code[memory.category]).astype(np.int64),
        categories=categories,
        session=_sessions(memories, width),
        models=_tabulate_scores([evidence.model_scores for evidence in evidences], index, width),
        judges=_tabulate_scores([evidence.judge_scores for evidence in evidences], index, width),
        cosines=_cosines([evidence.embeddings for evidence in evidences], ids, width),
        vectors=_vectors([evidence.embeddings for evidence in evidences], ids, width),
        overlaps=word_overlaps(lambda q, c: memories[q][c].content, [*map(len, memories)], width, _WORD),
        notes=[evidence.notes for evidence in evidences],
        succession=_succession(evidences, index),
        recorded=_recorded(evidences, index, width),
    )


def _succession(evidences: Sequence[Evidence], index: Sequence[Mapping[str, int]]) -> SuccessionTable | None:
    pairs = [
        (q, index[q][older], index[q][one.memory_id], len(own))
        for q, evidence in enumerate(evidences)
        for older, own in evidence.superseded.items()
        if older in index[q]
        for one in own
    ]
    if not pairs:
        return None
    return SuccessionTable(*np.array(pairs, dtype=np.int64).T)


def alike(evidences: Sequence[Evidence]) -> list[list[int]]:
    """The places of evidences that fit into one table: those that replay runs the stages on, and traces with the same stages."""
    if not any(evidence.external for evidence in evidences):
        return [list(range(len(evidences)))] if evidences else []
    groups: dict[object, list[int]] = {}
    for i, evidence in enumerate(evidences):
        groups.setdefault(None if evidence.recorded is None else heads(evidence.recorded), []).append(i)
    return list(groups.values())


def blocks_of(evidences: Sequence[Evidence], most: int) -> list[Ints]:
    """The places of evidences in blocks of at most `most` that fit into one table, each of like size, so that little is padded."""
    blocks = []
    for places in alike(evidences):
        sizes = np.array([len(evidences[i].memories) for i in places])
        ordered = np.array(places, dtype=np.int64)[np.argsort(sizes, kind="stable")]
        blocks += [ordered[start : start + most] for start in range(0, len(ordered), most)]
    return blocks


def _recorded(evidences: Sequence[Evidence], index: Sequence[Mapping[str, int]], width: int) -> RecordedTable | None:
    recorded = [evidence.recorded for evidence in evidences]
    traces = [one for one in recorded if one is not None]
    if not traces:
        return None
    size = (len(traces), width)
    found, kept = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
    best = np.full(size, NO_RANK)
    lists: list[list[RecordedList]] = []
    for q, one in enumerate(traces):
        own = index[q]
        lists.append([])
        for ranked in one.lists:
            out = frozenset(own[key] for key in ranked.left_out)
            lists[q].append(RecordedList(ranked.name, _by_column(ranked.hits, own), out))
            for c, (rank, _) in lists[q][-1].rank.items():
                best[q, c] = best[q, c] if c in out else min(best[q, c], rank)
        found[q, [own[key] for ranked in one.lists for key, _ in ranked.hits]] = True
        kept[q, [own[key] for key in passed_on(one)]] = True
    return RecordedTable(lists, found, kept, best, _ways(traces, index, size))


def _by_column(
    hits: Sequence[tuple[str, float | None]], index: Mapping[str, int]
) -> dict[int, tuple[int, float | None]]:
    return {index[key]: (rank, score) for rank, (key, score) in enumerate(hits, 1)}


def _ways(
    traces: Sequence[RecordedStages], index: Sequence[Mapping[str, int]], size: tuple[int, int]
) -> list[RecordedWay]:
    out = []
    for steps in zip(*map(ways, traces), strict=True):
        entered, alive, waiting = (np.zeros(size, dtype=bool) for _ in range(3))
        ranks: tuple[Ints, Ints] = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        scores: tuple[Floats, Floats] = np.full(size, np.nan), np.full(size, np.nan)
        for q, step in enumerate(steps):
            own = index[q]
            for place, rows in enumerate((step.before, step.after)):
                columns = [own[key] for key in rows]
                entered[q, columns] = True
                ranks[place][q, columns] = [rank for rank, _ in rows.values()]
                scores[place][q, columns] = [np.nan if score is None else score for _, score in rows.values()]
            alive[q, [own[key] for key in step.after]] = True
            waiting[q, [own[key] for key in step.waiting]] = True
        out.append(
            RecordedWay(
                steps[0].head,
                entered,
                alive,
                waiting,
                *ranks,
                *scores,
                [{index[q][key]: why for key, why in step.lost.items()} for q, step in enumerate(steps)],
                [step.ms for step in steps],
            )
        )
    return out


def _kinship(projects: Sequence[str | None], memories: Sequence[Sequence[Memory]], width: int) -> np.ndarray:
    out = np.zeros((len(memories), width), dtype=np.int8)
    for q, (project, row) in enumerate(zip(projects, memories, strict=True)):
        for c, memory in enumerate(row):
            if memory.project:
                begins = bool(project) and memory.project.startswith(project or "")
                out[q, c] = 3 if memory.project == project else 2 if begins else 1
    return out


def _seconds(moment: datetime | None) -> float:
    return float("nan") if moment is None else moment.timestamp()


def _tabulate_lists(evidences: Sequence[Evidence], index: Sequence[dict[str, int]], width: int) -> ListTable:
    rows = [with_nested(evidence.lists, evidence.relations) for evidence in evidences]
    count = max((len(listed) for listed in rows), default=0)
    source, kind = (np.full((len(evidences), count), -1, dtype=np.int8) for _ in range(2))
    variant = np.full((len(evidences), count), -1, dtype=np.int64)
    words = np.zeros((len(evidences), count), dtype=np.int64)
    shape = (len(evidences), count, width)
    position, dense = (np.zeros(shape, dtype=np.int64) for _ in range(2))
    in_chunks = any(hit.chunk is not None for evidence in evidences for ranked in evidence.lists for hit in ranked.hits)
    chunk, chunk_rank = (np.full(shape, -1), np.zeros(shape, dtype=np.int64)) if in_chunks else (None, None)
    places = Places(position, dense, np.zeros(shape), chunk, chunk_rank)
    for q, (evidence, listed) in enumerate(zip(evidences, rows, strict=True)):
        for i, ranked in enumerate(listed):
            words[q, i] = evidence.query_words(ranked.name, ranked.variant)
            source[q, i] = SOURCES.index(ranked.source)
            if ranked.variant is not None:
                variant[q, i] = ranked.variant
                kind[q, i] = VARIANT_KINDS.index(evidence.variants[ranked.variant].kind)
            if isinstance(ranked, RankedList):
                _tabulate_hits(ranked, index[q], places, (q, i))
    names = [[ranked.name for ranked in listed] for listed in rows]
    return ListTable(names, source, variant, kind, words, places, nested_table(evidences, rows, index))


def _tabulate_hits(ranked: RankedList, index: Mapping[str, int], places: Places, at: tuple[int, int]) -> None:
    hits: Sequence[Hit] = ranked.hits
    if not hits:
        return
    scores = np.array([hit.score for hit in hits])
    # Strictly falling scores have no ties to settle, so most lists need no sort.
    if not ranked.as_given and ranked.source not in ORDERED and not (scores[1:] < scores[:-1]).all():
        hits = sorted(hits, key=lambda hit: (-hit.score, index[hit.memory_id], hit.chunk or 0))
        scores = np.array([hit.score for hit in hits])
    columns = np.array([index[hit.memory_id] for hit in hits])
    best = np.arange(len(hits))
    if len(set(columns.tolist())) < len(hits):
        best = np.sort(np.unique(columns, return_index=True)[1])  # a memory's best chunk is the first of it
    if places.chunk is not None and places.chunk_rank is not None:
        places.chunk[at][columns[best]] = [-1 if hits[i].chunk is None else hits[i].chunk for i in best.tolist()]
        places.chunk_rank[at][columns[best]] = best + 1
    columns, scores = columns[best], scores[best]
    places.position[at][columns] = np.arange(1, len(best) + 1)
    # The first entry starts rank 1; after it only a changed score starts a new one.
    places.dense[at][columns] = np.cumsum(np.concatenate(([True], scores[1:] != scores[:-1])))
    places.raw[at][columns] = scores


def _sessions(memories: Sequence[Sequence[Memory]], width: int) -> np.ndarray:
    out = np.zeros((len(memories), width), dtype=np.int64)
    for q, row in enumerate(memories):
        codes: dict[str, int] = {}
        for c, memory in enumerate(row):
            # Memories without a session get a code each, so that no two count as one session.
            out[q, c] = -1 - c if memory.session is None else codes.setdefault(memory.session, len(codes))
    return out


def _tabulate_scores(
    scored: Sequence[Mapping[str, Mapping[str, ModelScore]]], index: Sequence[Mapping[str, int]], width: int
) -> dict[str, ModelTable]:
    tables = {}
    # A set has no fixed order, and replay must give the same trace on any machine.
    for model in sorted({name for row in scored for name in row}):
        raw = np.full((len(scored), width), np.nan)
        state = np.zeros((len(scored), width), dtype=np.int8)
        errors: list[dict[int, str]] = [{} for _ in scored]
        for q, row in enumerate(scored):
            for memory_id, score in row.get(model, {}).items():
                c = index[q].get(memory_id)
                if c is None:
                    continue
                if score.good:
                    raw[q, c], state[q, c] = score.raw, 1
                else:
                    state[q, c] = 2
                    errors[q][c] = score.error or ("no score" if score.raw is None else f"not finite: {score.raw}")
        tables[model] = ModelTable(raw, state, errors)
    return tables


def _cosines(
    embeddings: Sequence[Mapping[str, Sequence[float]]], ids: Sequence[Sequence[str]], width: int
) -> Callable[[int], tuple[Floats, Bools]]:
    @lru_cache(maxsize=64)
    def of(q: int) -> tuple[Floats, Bools]:
        rows = embeddings[q]
        has = np.zeros(width, dtype=bool)
        has[: len(ids[q])] = [memory_id in rows for memory_id in ids[q]]
        if not has.any():
            return np.zeros((width, width)), has
        matrix = np.zeros((width, len(next(iter(rows.values())))))
        for c in np.flatnonzero(has):
            matrix[c] = rows[ids[q][int(c)]]
        norms = np.linalg.norm(matrix, axis=1, keepdims=True)
        matrix = np.divide(matrix, norms, out=np.zeros_like(matrix), where=norms > 0)
        # Rounded, so that equal vectors have exactly 1 and the width of a batch changes no last digit.
        return np.round(matrix @ matrix.T, 12), has

    return of


def _vectors(
    embeddings: Sequence[Mapping[str, Sequence[float]]], ids: Sequence[Sequence[str]], width: int
) -> Callable[[], tuple[NDArray[np.float32], Ints]]:
    @cache
    def made() -> tuple[NDArray[np.float32], Ints]:
        # Evidence of one file has one object for a memory, whichever queries found it.
        distinct = {id(row): row for rows in embeddings for row in rows.values()}
        number = {key: i for i, key in enumerate(distinct)}
        matrix = np.zeros((len(distinct) + 1, max(map(len, distinct.values()), default=0)), dtype=np.float32)
        for i, row in enumerate(distinct.values()):
            matrix[i, : len(row)] = row
        norms = np.linalg.norm(matrix, axis=1, keepdims=True)
        place = np.full((len(ids), width), len(distinct), dtype=np.int64)
        for q, rows in enumerate(embeddings):
            place[q, : len(ids[q])] = [number[id(rows[key])] if key in rows else len(distinct) for key in ids[q]]
        return np.divide(matrix, norms, out=np.zeros_like(matrix), where=norms > 0), place

    return made
