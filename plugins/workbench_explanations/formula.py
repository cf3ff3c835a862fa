"""The formula behind printed scores: which fusion method, weights and constants of ours give them exactly.

    explanations -> evidence -> forms, simplest first -> least squares -> simplest constants -> all rows replayed

The pipeline itself is the model: a form is a config with free parameters, and its scores are those of the stages. Rows of one list and
closed forms give the start (1/(k + rank) and normalised scores are linear in the weights, once k is chosen from a grid); least squares
moves all free parameters together. Each constant is then the shortest number that the rows allow: linear programs give the range in which
every row still comes out as printed. A third of the rows is held out; a row that contradicts is moved to the others, and a formula is only
stated while enough rows that it was not fitted to confirm it, and the whole replay gives the scores and the order.

What the rows do not determine is said: ranges of constants, formulas that fit as well, parts that a reranker hides.

Source: docs/internals/specification.md, "fusion", "rerank" and "adjust".
"""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares, linprog, minimize, minimize_scalar
from scipy.stats import spearmanr

from cems_workbench.config import PipelineConfig, field_spec, with_values
from cems_workbench.config.model import changed
from cems_workbench.config.sections import Band
from cems_workbench.pipeline.evidence import Evidence, Hit, ModelScore, RankedList, Variant
from cems_workbench.pipeline.list_sources import DAY
from cems_workbench.pipeline.replay import run, to_table
from cems_workbench.pipeline.stages import ADJUST, ASSEMBLY, FUSION, LISTS, RERANK
from cems_workbench.pipeline.stages.query import no_candidates
from cems_workbench.pipeline.stages.stage import AnyStage, StageInput
from cems_workbench.pipeline.table import CandidateTable, Floats, Ints, gathered_lists
from cems_workbench.records import Memory
from workbench_explanations.explained import Explained as Explained
from workbench_explanations.explained import Row as Row


@dataclass(frozen=True, slots=True)
class Solved:
    """What was found. `config` gives every score and the order on `evidence_of`; None where no config of ours does.
    `verified` of `of` rows have the score of `formula`, which is empty where none was found; `unexplained` is one line.
    `undetermined` is what the rows leave open."""

    config: PipelineConfig | None
    formula: str
    verified: int
    of: int
    unexplained: str
    undetermined: tuple[str, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    """What the parts are taken for, as `evidence_of` reads them."""


NEUTRAL = with_values(
    PipelineConfig(),
    {
        "name": "solved",
        "query.mode": "hybrid",
        "variants.original_weight": 1.0,
        "lists.vector.enabled": False,
        "lists.lexical.enabled": False,
        "fusion.top_rank_bonus.rank1": 0.0,
        "fusion.top_rank_bonus.rank2_3": 0.0,
        "fusion.normalize": "none",
        "fusion.score_blend": 0.0,
        "filter.min_score": None,
        "rerank.depth": None,
        "adjust.priority": False,
        "adjust.time_decay.mode": "none",
        "adjust.time_decay.clock": "created_at",
        "adjust.time_decay.whole_days": False,
        "adjust.pinned_factor": 1.0,
        "adjust.project.enabled": False,
        "adjust.clamp": False,
        "assembly.limit": None,
        "assembly.max_tokens": None,
        "assembly.strategy": "greedy",
        "judge.backend": "none",
    },
)
"""A config in which no stage changes a score: what the solver sets is all that acts."""
SOURCES_TAKEN = ("lexical", "fts5", "sparse", "lucene", "ts_rank_cd", "vector")
"""The lists of ours that recorded lists stand for, in order, where their name says nothing: all have weight, ties and normalisation."""
RANKED = ("rrf", "rank_divided_rrf")
NORMS = ("none", "max", "minmax", "saturating", "logistic")
SCALES = ("sigmoid", "raw", "minmax", "divide_by_10")
"""Of a reranker's scores; identity and sigmoid_outside_unit are raw or sigmoid wherever these are verified."""
MEANING = re.compile(r"vector|semantic|dense|embed|cosine|knn", re.I)
ENTITY = re.compile(r"entit", re.I)
MODEL_PART = re.compile(r"cross|rerank|^ce$|^ce_|logit", re.I)
AGE_PART = re.compile(r"(^|_)age|days", re.I)
FUSED_PART = re.compile(r"fus|^rrf|retriev|combined", re.I)
COUNT_PART = re.compile(r"count|access|uses|proof", re.I)
ADDED = "part "
"""How the name of a list begins that holds the values of a part."""
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
"""The moment of every query, from which ages are counted back."""
MODEL, BANDS = "cross_encoder", "rerank.bands"
MOST_FILLED, MOST_ROWS, ROWS_OF_PROGRAM, MOST_CHOICES, MOST_PEELS, MOST_FORMS = 2000, 160, 80, 60, 3, 24
"""Places of a list whose hits are not shown; rows of the first fit; rows of a linear program at first; peels that are tried."""
KS = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 100.0, 250.0, 1000.0)
WEIGHTS = re.compile(r"^lists\.\w+\.weight$")
DECAY = "adjust.time_decay"
FAR, NEAR, ROUGH, LEAST_ROWS, FURTHER = 0.5, 0.05, 4.0, 8, 2
"""The share of the scores that a peel, and a method, may leave at its start; times the tolerance that a fit may be off before constants are
chosen; rows that a formula needs; forms that are tried after the first that fits."""


def sources_of(explained: Sequence[Explained]) -> dict[str, str]:
    """By the name of a list in the explanations the source of ours that it stands for; lists past the last source are left out."""
    names = sorted(
        {name for one in explained for row in one.rows for name in row.lists},
        key=lambda name: (name.startswith(ADDED), name),
    )
    own = [name for name in names if name.partition(":")[0] in SOURCES_TAKEN and name.partition(":")[2] in ("", "0")]
    found = {name: name.partition(":")[0] for name in own}
    found |= {
        name: "entities"
        for name in names
        if name not in found and ENTITY.search(name) and "entities" not in found.values()
    }
    meaning = next((name for name in names if name not in found and MEANING.search(name)), None)
    if meaning is not None and "vector" not in found.values():
        found[meaning] = "vector"
    free = iter([source for source in SOURCES_TAKEN if source not in found.values()])
    for name in names:
        source = found.get(name) or next(free, None)
        if source is not None:
            found[name] = source
    return {name: found[name] for name in names if name in found}


def roles_of(explained: Sequence[Explained]) -> dict[str, str]:
    """By the name of a part what it is taken for: model | fused | age | count | flag | around (0 to 1) | times."""
    values: dict[str, set[float]] = {}
    for one in explained:
        for row in one.rows:
            for name, value in row.parts.items():
                values.setdefault(name, set()).add(value)
    named = {"model": MODEL_PART, "fused": FUSED_PART, "age": AGE_PART, "count": COUNT_PART}
    roles = {}
    for name in sorted(values):
        given = next((role for role, pattern in named.items() if pattern.search(name)), None)
        numbers = values[name]
        inside = min(numbers) >= 0 and max(numbers) <= 1
        roles[name] = given or ("flag" if numbers <= {0.0, 1.0} else "around" if inside else "times")
    return roles


def evidence_of(explained: Sequence[Explained], roles: Mapping[str, str] | None = None) -> list[Evidence]:
    """Evidence in which the lists are those of the explanations, on which the solved config gives their scores. Places of a list
    that no row shows are filled by memories of their own; ages, counts and factors are those of the memories."""
    return _Reading.of(explained).evidence(explained, roles_of(explained) if roles is None else roles)


@dataclass(frozen=True)
class _Reading:
    """How the explanations of a program are read: the source of each list, how equal scores share a rank there, and the first rank."""

    sources: Mapping[str, str]
    ties: Mapping[str, str]
    base: int

    @classmethod
    def of(cls, explained: Sequence[Explained]) -> _Reading:
        """By all explanations of the program."""
        ranks = (rank for one in explained for row in one.rows for rank, _ in row.lists.values())
        return cls(sources_of(explained), _ties(explained), 0 if min(ranks, default=1) == 0 else 1)

    def evidence(self, explained: Sequence[Explained], roles: Mapping[str, str]) -> list[Evidence]:
        """The evidence of each query."""
        return [_evidence(one, self, roles) for one in explained]


def _evidence(one: Explained, reading: _Reading, roles: Mapping[str, str]) -> Evidence:
    memories = {row.id: _memory(row, roles) for row in one.rows}
    models = [name for name, role in roles.items() if role == "model"]
    first = 1 - reading.base
    lists = []
    for name, source in reading.sources.items():
        hits: list[Hit] = []
        place, before = 0, None
        found = sorted(
            (row.lists[name][0], row.rank, row.id, row.lists[name][1]) for row in one.rows if name in row.lists
        )
        for rank, _, key, given in found:
            score = -float(rank) if given is None else given
            missing = min(rank + first - 1 - place, MOST_FILLED)
            if missing > 0:
                for filled in np.linspace(hits[-1].score if hits else score, score, missing + 2)[1:-1].tolist():
                    memories[f"~{name}:{len(hits)}"] = Memory(f"~{name}:{len(hits)}", "")
                    hits.append(Hit(f"~{name}:{len(hits)}", filled))
                place += missing
            place += rank != before or reading.ties.get(source) != "dense"
            apart = source in reading.ties and bool(hits) and rank != before
            if apart and math.isclose(score, hits[-1].score, rel_tol=1e-12):
                score = math.nextafter(hits[-1].score, -math.inf)  # equal as printed, but apart in rank
            before = rank
            hits.append(Hit(key, score))
        lists.append(RankedList(f"{source}:0", source, 0, tuple(hits), True))
    scores = {row.id: ModelScore(row.parts[name]) for name in models[:1] for row in one.rows if name in row.parts}
    return Evidence(one.query, memories, (Variant(one.query),), tuple(lists), MOMENT, model_scores={MODEL: scores})


def _memory(row: Row, roles: Mapping[str, str]) -> Memory:
    memory = Memory(row.id, "")
    for name, value in row.parts.items():
        role = roles.get(name)
        if role == "age" or role == "around":
            days = value if role == "age" else 1 - value  # linear decay over one day is the value itself
            memory = replace(memory, created_at=MOMENT - timedelta(days=max(-36500.0, min(days, 365_000.0))))
        elif role == "count":
            memory = replace(memory, access_count=max(0, round(value)))
        elif role == "flag":
            memory = replace(memory, pinned=value == 1)
        elif role == "times":
            memory = replace(memory, priority=memory.priority * value)
    return memory


def _ties(explained: Sequence[Explained]) -> dict[str, str]:
    """By source how equal scores share a rank, where any does."""
    found = {}
    for name, source in sources_of(explained).items():
        votes = []
        for one in explained:
            ranks = sorted(row.lists[name][0] for row in one.rows if name in row.lists)
            sizes = [(rank, len(list(same))) for rank, same in itertools.groupby(ranks)]
            votes += [after - rank == 1 for (rank, size), (after, _) in itertools.pairwise(sizes) if size > 1]
            votes += [False] * (not votes and any(size > 1 for _, size in sizes))
        if votes:
            found[source] = "dense" if sum(votes) * 2 > len(votes) else "competition"
    return found


def _half(values: Iterable[float]) -> float:
    """Half a unit of the last decimal that any of the values has; 0 for whole numbers and for numbers that were not rounded."""
    digits = max((max(0, len(f"{value:.12f}".rstrip("0").partition(".")[2])) for value in values), default=12)
    return 0.5 * 10.0**-digits if 0 < digits < 10 else 0.0


class _Program:
    """The explanations of one program as a table that replays, and the final scores (N) of its rows with what they may be off."""

    def __init__(
        self,
        explained: Sequence[Explained],
        roles: Mapping[str, str],
        target: str | None = None,
        reading: _Reading | None = None,
    ) -> None:
        reading = reading or _Reading.of(explained)
        self.explained, self.roles = explained, roles
        self.names, self.sources = tuple(reading.sources), tuple(reading.sources.values())
        self.table = to_table(reading.evidence(explained, roles))
        index = [{key: c for c, key in enumerate(ids)} for ids in self.table.ids]
        given = [
            (q, row, row.final if target is None else row.parts.get(target))
            for q, one in enumerate(explained)
            for row in one.rows
        ]
        known = [
            (q, row, score)
            for q, row, score in given
            if score is not None and math.isfinite(score) and row.id in index[q]
        ]
        self.outside = sum(row.final is not None and row.id not in index[q] for q, row, _ in given)
        self.rows = [row for _, row, _ in known]
        self.query: Ints = np.array([q for q, *_ in known], dtype=np.int64)
        self.cells = self.query, np.array([index[q][row.id] for q, row, _ in known], dtype=np.int64)
        self.y: Floats = np.array([score for *_, score in known], dtype=np.float64)
        first = 1 - reading.base
        ranks = [
            [row.lists[name][0] + first if name in row.lists else np.inf for name in self.names] for row in self.rows
        ]
        self.rank: Floats = np.array(ranks, dtype=np.float64).reshape(len(self.rows), -1)
        self.has = np.isfinite(self.rank)
        self.scored = [
            all(row.lists[name][1] is not None for row in self.rows if name in row.lists) for name in self.names
        ]
        single = bool(len(self.y)) and bool((self.y == self.y.astype(np.float32)).all())
        size = np.abs(self.y).max(initial=0.0)
        self.half: Floats = np.full(len(self.y), max(_half(self.y.tolist()), (3e-7 if single else 1e-9) * size))
        self.base = with_values(
            NEUTRAL, {f"lists.{name}.{key}": value for name in self.sources for key, value in _ON.items()}
        )
        for source in self.sources:
            self.base = _normalised(self.base, source, "none")
        for source, mode in reading.ties.items():
            self.base = changed(self.base, f"lists.{source}.ties", mode)
        self.base = changed(self.base, "fusion.rank_base", reading.base)
        self.moved: dict[bytes, list[CandidateTable]] = {}

    def part(self, name: str) -> Floats:
        """(N) a part of each row, NaN where it has none."""
        return np.array([row.parts.get(name, np.nan) for row in self.rows])

    def scores(self, config: PipelineConfig, table: CandidateTable | None = None) -> Floats:
        """(N) the scores of the rows under a config."""
        return _replayed(table or self.table, config)[self.cells]

    @cached_property
    def columns(self) -> Mapping[str, Floats]:
        """By normalisation (N, L) the scores of the lists, 0 where a row is in none."""
        found = {}
        for norm in NORMS:
            config = self.base
            for source in self.sources:
                config = _normalised(config, source, norm)
            found[norm] = _after(self.table, config, (LISTS,)).lists.score[self.cells[0], :, self.cells[1]]
        found["dbsf"] = self.each(changed(self.base, "fusion.method", "dbsf"))
        return found

    def each(self, config: PipelineConfig) -> Floats:
        """(N, L) the scores with weight 1 for one list and 0 for the others."""
        for source in self.sources:
            config = changed(config, f"lists.{source}.weight", 0.0)
        alone = [self.scores(changed(config, f"lists.{source}.weight", 1.0)) for source in self.sources]
        return np.array(alone).reshape(len(self.sources), len(self.y)).T

    def shaken(self, config: PipelineConfig) -> list[CandidateTable]:
        """The table with each input moved by its rounding, where it was rounded: of a list or model by `_groups`."""
        ends: tuple[NDArray[np.bool_], ...] = ()
        if config.fusion.normalize == "minmax":
            summed = changed(changed(config, "fusion.normalize", "none"), "fusion.score_blend", 0.0)
            ranking = _after(self.table, summed, (LISTS, FUSION)).ranking
            ends = _ends(ranking.score, ranking.alive)
        key = b"".join(some.tobytes() for some in ends)
        if key not in self.moved:
            self.moved = {key: self._moved(ends)}
        return self.moved[key]

    def _moved(self, ends: Sequence[NDArray[np.bool_]]) -> list[CandidateTable]:
        rows = [row for one in self.explained for row in one.rows]
        listed = _half(score for row in rows for _, score in row.lists.values() if score is not None)
        half = {role: _half(row.parts[name] for row in rows if name in row.parts) for name, role in self.roles.items()}
        table, places = self.table, self.table.lists.gathered
        changes: list[dict[str, Any]] = []
        for i in range(len(self.names)) if listed else ():
            for some in _groups(places.raw[:, i], places.position[:, i] > 0, ends):
                raw = places.raw.copy()
                raw[:, i] += listed * some
                changes.append({"lists": replace(table.lists, gathered=replace(places, raw=raw))})
        for key, one in table.models.items() if half.get("model") else ():
            for some in _groups(one.raw, np.isfinite(one.raw)):
                changes.append({"models": {**table.models, key: replace(one, raw=one.raw + half["model"] * some)}})
        if half.get("age") or half.get("around"):
            changes.append({"created": table.created + DAY * max(half.get("age", 0.0), half.get("around", 0.0))})
        if 0 < half.get("times", 0.0) < 0.004:  # factors of one or two decimals were set, not rounded
            changes.append({"priority": table.priority + half["times"]})
        return [replace(table, memo={}, **change) for change in changes]

    def tolerance(self, config: PipelineConfig) -> Floats:
        """(N) what a right formula may be off a printed score: its rounding, and what that of the inputs makes of it."""
        tables = self.shaken(config)
        now = self.scores(config) if tables else self.y
        return self.half + 1.2 * sum((np.abs(self.scores(config, table) - now) for table in tables), np.zeros(len(now)))


def _ends(values: Floats, held: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The largest and the least of (Q, C) values of each query."""
    top = np.where(held, values, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
    low = np.where(held, values, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    return held & (values == top), held & (values == low)


def _groups(
    values: Floats, held: NDArray[np.bool_], ends: Sequence[NDArray[np.bool_]] = ()
) -> Iterator[NDArray[np.bool_]]:
    """By query the largest and the least of (Q, C) values, those at the ends of the fused scores, and every second of the others:
    a mean, or the scale of a normalisation, would move with all of them."""
    for some in (*_ends(values, held), *ends):
        yield held & some
        held = held & ~some
    even = np.arange(held.shape[1]) % 2 == 0
    yield from (held & even, held & ~even)


_ON = {"enabled": True, "depth": None, "weight": 1.0}


def _normalised(config: PipelineConfig, source: str, norm: str) -> PipelineConfig:
    """The config with a list's normalisation; unchanged for a list that has none."""
    return config if source == "entities" else changed(config, f"lists.{source}.normalization", norm)


def _norm(config: PipelineConfig, source: str) -> str:
    return "none" if source == "entities" else str(config.get(f"lists.{source}.normalization"))


def _after(table: CandidateTable, config: PipelineConfig, stages: Sequence[AnyStage]) -> StageInput:
    """What some stages leave."""
    given = StageInput(table, config, frozenset(), no_candidates(table), gathered_lists(table), frozenset())
    for stage in stages:
        arrays = stage(given)
        given = given._replace(ranking=arrays.after, lists=arrays.lists or given.lists)
    return given


def _replayed(table: CandidateTable, config: PipelineConfig) -> Floats:
    """(Q, C) the scores by the stages that make them."""
    reranks = config.rerank.backend != "none"
    return _after(table, config, (LISTS, FUSION, *([RERANK] if reranks else []), ADJUST)).ranking.score


@dataclass(frozen=True)
class _Form:
    """A config with free parameters, their start, and what the explanations' parts are taken for."""

    config: PipelineConfig
    start: Mapping[str, float]
    roles: Mapping[str, str] = field(default_factory=dict)
    left: float = 0.0
    """The share of the scores that it leaves at its start."""

    def at(self, values: Iterable[float]) -> PipelineConfig:
        """The config with the free parameters set."""
        config = self.config
        for path, value in zip(self.start, values, strict=True):
            config = changed(config, path, (Band(retrieval=value),) if path == BANDS else float(value))
        return config

    def bounds(self) -> tuple[list[float], list[float]]:
        """The allowed range of each free parameter."""
        specs = [(0.0, 1.0) if path == BANDS else (field_spec(path).low, field_spec(path).high) for path in self.start]
        return [low or 0.0 for low, _ in specs], [1e4 if high is None else high for _, high in specs]


def _orthogonal(design: Floats) -> tuple[Floats, Floats]:
    """(N, M') an orthonormal basis of the columns, and (M, M') what makes coefficients of the columns of those of the basis."""
    size = np.linalg.norm(design, axis=0)
    size = np.where(size > 0, size, 1.0)
    basis, values, turn = np.linalg.svd(design / size, full_matrices=False)
    held = values > 1e-10 * values.max(initial=1e-300)
    return basis[:, held], (turn[held].T / values[held]) / size[:, None]


def _descended(left: Callable[[Floats], float], start: Floats, step: float, most: int) -> Any:
    """The result of a search by a simplex, of that many calls at most, for where least is left."""
    simplex = start + step * np.eye(len(start) + 1, len(start), -1)
    return minimize(left, start, method="Nelder-Mead", options={"maxfev": most, "initial_simplex": simplex})


class _Start:
    """Where the forms under a peel start: the scores without its factors, and what of them is linear in the weights."""

    def __init__(self, program: _Program, peel: _Form) -> None:
        self.program, self.peel = program, peel
        config = peel.at(peel.start.values())
        self.factor = ADJUST(_after(program.table, config, (LISTS, FUSION))).product()[program.cells]
        self.y = program.y / np.where(np.abs(self.factor) > 1e-9, self.factor, 1.0)
        # Rows that a factor makes small say little, and rows that it leaves are few.
        self.weight = np.where(np.abs(self.factor) > 1e-9, np.sqrt(np.abs(self.factor)), 0.3)
        # A cap would hold the first ones down, and a factor of 0 hides the rest.
        self.kept = (program.y < program.y.max(initial=-np.inf)) & (program.y != 0)
        full = np.array([program.has[program.query == q].any(axis=0).all() for q in range(len(program.explained))])[
            program.query
        ]
        if (self.kept & full).sum() > 30:  # a divisor is the same for queries whose lists all have hits
            self.kept &= full
        best = program.rank.min(axis=1, keepdims=True, initial=np.inf)
        tops = [(rank >= low) & (rank <= high) for rank in (program.rank, best) for low, high in ((1, 1), (2, 3))]
        self.bonus = np.stack([some.sum(axis=1) for some in tops], axis=1).astype(float)
        self.more = np.maximum(program.has.sum(axis=1) - 1, 0)[:, None]
        self.unit = np.zeros((len(self.y), 0))
        if BANDS in peel.start:
            self.unit = program.scores(
                changed(with_values(config, {"adjust": NEUTRAL.adjust.model_dump()}), "rerank.combine", "replace")
            )[:, None]

    @cached_property
    def inside(self) -> Floats:
        """(N, Q) 1 for the query of each row that counts."""
        queries = self.program.query[self.kept]
        inside: Floats = (queries[:, None] == np.unique(queries)).astype(float)
        return inside

    def of_one_list(self) -> _Start:
        """The same with the rows of a single list alone, where every method gives its share."""
        other = copy.copy(self)
        other.__dict__.pop("inside", None)
        other.kept = self.kept & (self.more[:, 0] == 0)
        return other

    def left(self, columns: Floats, alone: Sequence[Floats] = (), inside: bool = False) -> tuple[float, Floats]:
        """The share of the scores that (N, M) columns leave, of those of each query about their mean, and the weight of each column.
        The columns count for all queries, those `alone` for each query by itself where the scores are normalised."""
        rows, y = self.kept, self.y[self.kept] * self.weight[self.kept]
        alone = [(values * self.weight)[rows] for values in (*alone, *self.unit.T)]
        shared = (columns * self.weight[:, None])[rows]
        if not inside:
            design = np.concatenate([shared, np.array(alone).reshape(len(alone), len(y)).T], axis=1)
            basis, back = _orthogonal(design)
            found = basis.T @ y
            left = float(np.linalg.norm(y - basis @ found)) / max(float(np.linalg.norm(y - y.mean())), 1e-300)
            return self.free(left, basis.shape[1]), (back @ found)[: columns.shape[1]]
        by_query = [values[:, None] * self.inside for values in alone]
        design, given = (
            self.about_mean(np.concatenate([shared, *by_query], axis=1)),
            self.about_mean(y[:, None] * self.inside),
        )
        size = np.linalg.norm(given, axis=0)
        given = (given / np.maximum(size, 1e-300))[:, size > 1e-4 * np.linalg.norm(y)]
        basis, back = _orthogonal(design)
        turned, alike, _ = np.linalg.svd(basis.T @ given, full_matrices=False)
        if not len(alike):
            return 1.0, np.ones(columns.shape[1])
        weights = (back @ turned[:, 0])[: columns.shape[1]]
        left = self.free(math.sqrt(max(0.0, 1 - float(alike[0]) ** 2)), basis.shape[1] + 2 * given.shape[1])
        return left, weights * (np.sign(weights.sum()) or 1.0)

    def free(self, left: float, used: int) -> float:
        """What is left for each row that is free to differ; all where the constants use nearly every row up."""
        rows = int(self.kept.sum())
        return left * math.sqrt(rows / (rows - used)) if rows > used + 5 else 1.0

    def about_mean(self, values: Floats) -> Floats:
        """(N, M) without the mean of each query, to which the factors apply too."""
        mean = self.inside * self.weight[self.kept][:, None]
        about: Floats = values - mean @ ((mean.T @ values) / np.maximum((mean**2).sum(axis=0), 1e-300)[:, None])
        return about

    def shares(self, k: float, weights: Floats) -> Floats:
        """(N, 2 L) what is linear in the weights of the shares weight / (rank + weight · (k - 1)), and these times the further lists."""
        share = 1 / np.maximum(self.program.rank + weights * (k - 1), 1e-3)
        return np.concatenate([share, share * self.more], axis=1)

    def divided(self, alone: Sequence[Floats], inside: bool, start: Floats) -> tuple[float, float, Floats, Floats]:
        """What the best sum of shares weight / (rank + weight · (k - 1)) leaves, k, the weights, and this sum, also times the further
        lists; from the logarithms of k - 1 and of the weights, of which only proportions count."""

        def shares(at: Floats) -> Floats:
            weights = np.exp(np.clip(at[1:], -7, 7))
            share = (weights / (self.program.rank + weights * math.exp(min(at[0], 7)))).sum(axis=1, keepdims=True)
            return np.concatenate([share, share * self.more], axis=1)

        done = _descended(lambda at: self.left(shares(at), alone, inside)[0], start, 0.7, 60 * len(start))
        found = shares(done.x)
        size = 1.0 if inside else float(np.clip(self.left(found, alone, inside)[1][0], 1e-3, 100.0))
        return done.fun, 1 + math.exp(min(done.x[0], 7)) / size, np.exp(np.clip(done.x[1:], -7, 7)) * size, found

    def left_by_any(self) -> float:
        """The least share of the scores that any method leaves, roughly."""
        program = self.program
        if _replaces(self.peel.config):
            off = program.scores(self.peel.at(self.peel.start.values())) - program.y
            return float(np.linalg.norm(off) / np.linalg.norm(program.y - program.y.mean()))
        shares = np.concatenate([1 / (k + program.rank) for k in (1.0, 15.0, 60.0)], axis=1)
        columns = [shares, shares[:, : len(program.names)] * self.more, self.bonus]
        if all(program.scored):
            columns += [program.columns[norm] for norm in ("none", "max", "minmax", "saturating", "dbsf")]
        every = np.concatenate(columns, axis=1)
        if every.shape[1] > self.kept.sum() / 3:
            every = every[:, : shares.shape[1]]
        return min(self.left(every, (), inside)[0] for inside in (False, True))

    def best(self, norms: Sequence[str]) -> Floats:
        """(N) the best score of a list, as `fusion.score_blend` takes it."""
        scores = np.where(self.program.has, self.normed(norms), -np.inf).max(axis=1, initial=-np.inf)
        return np.where(np.isfinite(scores), scores, 0.0)

    def normed(self, norms: Sequence[str]) -> Floats:
        """(N, L) the scores of the lists, each by its normalisation."""
        return np.stack([self.program.columns[norm][:, i] for i, norm in enumerate(norms)], axis=1)

    def norms(self, left: Callable[[tuple[str, ...]], float]) -> tuple[str, ...]:
        """The normalisations that leave least: all choices of two lists; of more, list by list from the best common one."""
        count = len(self.program.names)
        if count <= 2:
            return min(
                itertools.product(NORMS, repeat=count),
                key=lambda some: (round(left(some), 7), sum(map(NORMS.index, some))),
            )
        now = min(((norm,) * count for norm in NORMS), key=left)
        for _ in range(2):
            for i in range(count):
                now = min(
                    ((*now[:i], norm, *now[i + 1 :]) for norm in NORMS),
                    key=lambda some: (round(left(some), 7), some != now),
                )
        return now

    def k(self, left: Callable[[float], float]) -> float:
        """The k that leaves least: of a grid, then between its neighbours."""
        tried = sorted(KS, key=left)
        at = KS.index(tried[0])
        low, high = KS[max(at - 1, 0)], KS[min(at + 1, len(KS) - 1)]
        return float(
            minimize_scalar(
                left, bounds=(low, high), method="bounded", options={"xatol": 1e-4 * max(high, 1), "maxiter": 25}
            ).x
        )

    def found(self) -> list[_Near]:
        """For each method the constants that leave least, without and with a normalisation of the sum, least first."""
        near = [*self.within(False), *self.within(True)]
        return sorted(near, key=lambda one: (round(one.left, 4), one.blended))

    def within(self, inside: bool) -> Iterator[_Near]:
        """As `found`, without a normalisation of the sum, or with one."""
        program, count = self.program, len(self.program.names)
        every = ("none",) * count

        def rank(k: float) -> Floats:
            share = 1 / (k + program.rank)
            return np.concatenate([share, share * self.more, self.bonus], axis=1)

        def off(best: Sequence[Floats], k: float) -> float:
            return self.left(rank(k), best, inside)[0]

        def score(norms: Sequence[str]) -> Floats:
            columns = self.normed(norms)
            return np.concatenate([columns, columns * self.more], axis=1)

        k = self.k(partial(off, ()))
        left, weights = self.left(rank(k), (), inside)
        yield _Near(left, "rrf", every, inside, k, weights[:count], False)
        begin = np.append(3.4, np.zeros(count))
        left, k_divided, weights, share = self.divided((), inside, begin)
        yield _Near(left, "rank_divided_rrf", every, inside, k_divided, weights, False)
        if not all(program.scored):
            return
        norms = self.norms(lambda norms: self.left(share, [self.best(norms)], inside)[0])
        left, k_divided, weights, _ = self.divided([self.best(norms)], inside, begin)
        yield _Near(left, "rank_divided_rrf", norms, inside, k_divided, weights, True)
        common = [[self.best((norm,) * count)] for norm in NORMS]
        k = min((off(best, k), k) for best in common for k in [self.k(partial(off, best))])[1]
        norms = self.norms(lambda norms: self.left(rank(k), [self.best(norms)], inside)[0])
        left, weights = self.left(rank(k), [self.best(norms)], inside)
        yield _Near(left, "rrf", norms, inside, k, weights[:count], True)
        norms = self.norms(lambda norms: self.left(score(norms), (), inside)[0])
        left, weights = self.left(score(norms), (), inside)
        yield _Near(left, "combsum", norms, inside, 0.0, weights[:count], False)
        norms = self.norms(lambda norms: self.left(score(norms), [self.best(norms)], inside)[0])
        left, weights = self.left(score(norms), [self.best(norms)], inside)
        yield _Near(left, "combsum", norms, inside, 0.0, weights[:count], True)
        places = np.concatenate([program.columns["dbsf"], program.columns["dbsf"] * self.more], axis=1)
        for alone in ([], [self.best(every)]):
            left, weights = self.left(places, alone, inside)
            yield _Near(left, "dbsf", every, inside, 0.0, weights[:count], bool(alone))
        single = self.of_one_list()
        if single.kept.sum() > 4 * count:
            norms = self.norms(lambda norms: single.left(self.normed(norms), (), inside)[0])
            left, weights = single.left(self.normed(norms), (), inside)
            if not inside and not self.unit.size:
                apart = np.abs((self.normed(norms) * weights).max(axis=1) - self.y)[self.kept]
                left = max(left, float(np.median(apart)) / max(float(self.y.std()), 1e-300))
            yield _Near(left, "combmax", norms, inside, 0.0, weights, True)


@dataclass(frozen=True, eq=False)
class _Near:
    """How near a method comes: the share of the scores that it leaves, its constants, and whether the sum is normalised or blended."""

    left: float
    method: str
    norms: tuple[str, ...]
    inside: bool
    k: float
    weights: Floats
    blended: bool


def _forms(start: _Start) -> Iterator[_Form]:
    """Every form under a peel that may give the scores, nearest first, each without and with bonus, boost and blend."""
    program, peel = start.program, start.peel
    paths = [f"lists.{source}.weight" for source in program.sources]
    boost, blend, divisor = (
        {"fusion.multi_list_boost": 0.05},
        {"fusion.score_blend": 0.2},
        {"fusion.divisor": "active_lists", "fusion.normalize": "none"},
    )
    bonus = {"fusion.top_rank_bonus.rank1": 0.0, "fusion.top_rank_bonus.rank2_3": 0.0}

    def form(one: _Near, extra: Mapping[str, float], fixed: Mapping[str, Any] | None = None) -> _Form:
        config = changed(peel.config, "fusion.method", one.method)
        fixed = {"fusion.normalize": "minmax" if one.inside else "none", **(fixed or {})}
        for path, value in fixed.items():
            config = changed(config, path, value)
        for source, norm in zip(program.sources, one.norms, strict=True):
            config = _normalised(config, source, norm)
        weights = np.clip(
            one.weights / (1.0 if one.method == "rank_divided_rrf" else peel.start.get(BANDS, 1.0)), 1e-6, 100.0
        )
        only = one.inside or "fusion.divisor" in fixed
        begin = dict(zip(paths, weights.tolist(), strict=True))
        if only:  # only proportions count: the largest one stays 1
            largest = max(begin, key=lambda path: begin[path])
            if one.method == "rank_divided_rrf":
                extra = {**extra, "fusion.k": 1 + (extra["fusion.k"] - 1) * begin[largest]}
            begin = {
                path: float(np.clip(value / begin[largest], 1e-3, 100.0))
                for path, value in begin.items()
                if path != largest
            }
            config = changed(config, largest, 1.0)
        start_at = {**begin, **{path: value for path, value in extra.items() if path not in idle}, **peel.start}
        return _Form(config, start_at, peel.roles, one.left)

    idle = {path for path in boost if not start.more.any()}
    found = start.found()
    near = [one for one in found if one.left <= min(NEAR, max(30 * found[0].left, 3e-3))]

    def k(one: _Near) -> dict[str, float]:
        if one.method == "rrf":
            return {"fusion.k": one.k + 1 - peel.config.fusion.rank_base}
        return {"fusion.k": one.k} if one.method == "rank_divided_rrf" else {}

    for one in near:
        if not one.blended or one.method not in RANKED:
            yield form(one, k(one))
    for fixed in ({}, divisor) if len(paths) > 1 else ({},):
        for one in near:
            if not fixed or one.method != "combmax":  # a divisor is, as minmax is, a factor of each query
                if fixed:
                    yield form(one, k(one), fixed)
                extra = {**k(one), **boost, **(blend if one.blended else {})}
                if one.method == "rrf":
                    yield form(one, {**extra, **bonus}, {**fixed, "fusion.top_rank_bonus.mode": "best_rank"})
                yield form(one, {**extra, **(bonus if one.method == "rrf" else {})}, fixed)


@dataclass(frozen=True)
class _Fit:
    """A form with the values of its free parameters, and the rows that they were fitted to."""

    form: _Form
    values: Floats
    used: Ints

    @property
    def config(self) -> PipelineConfig:
        """The config with these values."""
        return self.form.at(self.values)


def _least_squares(program: _Program, form: _Form, rows: Ints, start: Floats | None = None) -> tuple[Floats, Floats]:
    """The free parameters by least squares over some rows, and how many tolerances each row is off."""
    low, high = form.bounds()
    tolerance = program.half[rows]
    scale = max(float(np.abs(program.y).max()), 1e-300)

    def off(values: Floats) -> Floats:
        return (program.scores(form.at(values))[rows] - program.y[rows]) / scale

    values = np.clip(np.array(list(form.start.values())) if start is None else start, low, high)
    if not len(values):
        return values, np.abs(off(values)) * scale / tolerance
    for most in (12, 60):
        done = least_squares(
            off, values, bounds=(low, high), x_scale="jac", xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=most
        )
        values = done.x
        if np.sqrt(2 * done.cost / len(rows)) > 0.02 * program.y.std() / scale + 2 * float(tolerance.max()) / scale:
            break
    return values, np.abs(done.fun) * scale / program.tolerance(form.at(values))[rows]


def _renormed(program: _Program, form: _Form, values: Floats, rows: Ints) -> _Form | None:
    """The form with the normalisation of one list changed, where that brings its scores much nearer; None where none does."""
    if form.config.fusion.method in (*RANKED, "dbsf") and "fusion.score_blend" not in form.start:
        return None

    def off(config: PipelineConfig) -> float:
        return float(np.linalg.norm((program.scores(_Form(config, form.start).at(values)) - program.y)[rows]))

    others = [_normalised(form.config, source, norm) for source in program.sources for norm in NORMS]
    best = min(others, key=off)
    return replace(form, config=best) if off(best) < 0.95 * off(form.config) else None


def _slopes(program: _Program, form: _Form, values: Floats) -> Floats:
    """(N, P) by how much a score moves with each free parameter."""
    _, high = form.bounds()
    now, slopes = program.scores(form.at(values)), np.zeros((len(program.y), len(values)))
    for j, value in enumerate(values):
        step = 1e-6 * max(abs(value), 1e-2)
        moved = values.copy()
        moved[j] = value + step if value + step <= high[j] else value - step
        slopes[:, j] = (program.scores(form.at(moved)) - now) / (moved[j] - value)
    return slopes


def _range(slopes: Floats, off: Floats, tolerance: Floats, j: int) -> tuple[float, float] | None:
    """By how much parameter j may move at least and at most, the others with it, so that every row stays within its tolerance."""
    unit = np.abs(np.linalg.pinv(slopes / tolerance[:, None])).sum(axis=1)
    unit = np.where(unit > 0, unit, 1.0)
    rows = slopes / tolerance[:, None] * unit
    found = []
    for sign in (1.0, -1.0):
        cost = np.zeros(len(unit))
        cost[j] = sign
        done = linprog(
            cost,
            np.concatenate([rows, -rows]),
            np.concatenate([1 + off / tolerance, 1 - off / tolerance]),
            bounds=(-1e5, 1e5),
            method="highs",
        )
        if not done.success:
            return None
        found.append(float(done.x[j] * unit[j]))
    return found[0], found[1]


def simplest(low: float, high: float, value: float) -> float:
    """The shortest decimal number in a range; the value itself where none of nine digits is in it."""
    if low <= 0 <= high:
        return 0.0
    middle = (low + high) / 2
    first = math.ceil(math.log10(max(abs(low), abs(high))))
    shorter = (round(middle, digits) for digits in range(-first, 10 - first))
    return next((float(short) for short in shorter if low <= short <= high), value)


def _constants(program: _Program, form: _Form, values: Floats, fit_rows: Ints) -> _Fit | None:
    """The simplest constants with which every row has its score; None where there are none."""
    paths = list(form.start)
    order = sorted(
        range(len(paths)), key=lambda j: (bool(WEIGHTS.match(paths[j])), "bonus" in paths[j], paths[j] != "fusion.k")
    )
    low, high = form.bounds()
    used = fit_rows[:: max(1, len(fit_rows) // ROWS_OF_PROGRAM)]
    for _ in range(5):
        chosen, free = values.copy(), list(range(len(paths)))
        tolerance = program.tolerance(form.at(values))
        slopes = _slopes(program, form, values)
        waiting, later = list(order), 0
        while waiting:
            j = waiting.pop(0)
            off = (program.y - program.scores(form.at(chosen)))[used]
            if not np.abs(slopes[used, j]).max(initial=0.0):
                chosen[j] = np.clip(NEUTRAL.get(paths[j]), low[j], high[j]) if paths[j] != BANDS else chosen[j]
                free.remove(j)
                continue
            moves = _range(slopes[np.ix_(used, np.array(free))], off, tolerance[used], free.index(j))
            if moves is None:
                return None
            at = max(chosen[j] + moves[0], low[j]), min(chosen[j] + moves[1], high[j])
            value = simplest(*at, chosen[j]) if at[0] <= at[1] else chosen[j]
            if value and later <= len(waiting) and not _alone(value, *at):  # others may leave less of its range
                waiting.append(j)
                later += 1
                continue
            later = 0
            moved = np.abs(slopes[used, j] * (value - chosen[j]) / tolerance[used]).max()
            chosen[j] = value
            free.remove(j)
            if moved > 1 and free:
                rest = _Form(form.at(chosen), {paths[i]: float(chosen[i]) for i in free})
                chosen[free] = _least_squares(program, rest, used)[0]
                slopes = _slopes(program, form, chosen)
        off = np.abs(program.y - program.scores(form.at(chosen))) / program.tolerance(form.at(chosen))
        wrong = np.flatnonzero(off > 1)
        if not len(wrong):
            return _Fit(form, chosen, used)
        if off.max() > 1e6:
            return None
        used = np.union1d(used, wrong[np.argsort(-off[wrong])][:20])
    return None


def _alone(value: float, low: float, high: float) -> bool:
    """Whether no other number of as many decimals is in the range of a constant."""
    decimals = _decimals(value)
    if not value or decimals > 9:
        return high - low < 1e-6 * (abs(value) or 1.0)
    return value - 10.0**-decimals < low and value + 10.0**-decimals > high


def _ranges(program: _Program, fit: _Fit) -> dict[str, tuple[float, float]]:
    """By free parameter the range in which every row keeps its score, the others moving with it; infinite where no row shows it."""
    form, values = fit.form, fit.values
    rows = np.union1d(fit.used, np.arange(0, len(program.y), max(1, len(program.y) // ROWS_OF_PROGRAM)))
    slopes, tolerance = _slopes(program, form, values)[rows], program.tolerance(fit.config)[rows]
    off = (program.y - program.scores(fit.config))[rows]
    found = {}
    for j, (path, value, low, high) in enumerate(zip(form.start, values.tolist(), *form.bounds(), strict=True)):
        moves = _range(slopes, off, tolerance, j) if np.abs(slopes[:, j]).max(initial=0.0) else None
        found[path] = (-np.inf, np.inf) if moves is None else (max(value + moves[0], low), min(value + moves[1], high))
        if not value and moves and (moves[1] - moves[0]) * np.abs(slopes[:, j]).max() < 20 * tolerance.min():
            found[path] = 0.0, 0.0
    return found


def _shorter(program: _Program, fit: _Fit, ranges: Mapping[str, tuple[float, float]]) -> PipelineConfig:
    """The config with its weights times a number that makes all of them short, where only their proportions count."""
    paths = [f"lists.{source}.weight" for source in program.sources]
    bonus = [path for path in ("fusion.top_rank_bonus.rank1", "fusion.top_rank_bonus.rank2_3") if fit.config.get(path)]
    if all(path in ranges for path in paths) or fit.config.fusion.method == "rank_divided_rrf":
        return fit.config
    held = {path: ranges.get(path, (1.0, 1.0)) for path in (*paths, *bonus)}
    tried = []
    for n in range(5, 301):
        values = {
            path: simplest(low * n / 100, high * n / 100, np.inf)
            for path, (low, high) in held.items()
            if np.isfinite(low)
        }
        tried.append(
            (sum(_decimals(value) if np.isfinite(value) else 99 for value in values.values()), abs(n - 100), values)
        )
    for _, _, values in sorted(tried, key=lambda one: one[:2])[:12]:
        config = fit.config
        for path, value in values.items():
            config = changed(config, path, value)
        if (
            all(np.isfinite(list(values.values())))
            and (np.abs(program.scores(config) - program.y) <= program.tolerance(config)).all()
        ):
            return config
    return fit.config


def _decimals(value: float) -> int:
    return max(0, -int(Decimal(repr(float(value))).normalize().as_tuple().exponent))


def _open(ranges: Mapping[str, tuple[float, float]], fit: _Fit) -> list[str]:
    """The constants that the rows leave open."""
    found = []
    for path, value in zip(fit.form.start, fit.values.tolist(), strict=True):
        low, high = ranges[path]
        if np.isinf(low):
            found.append(f"{path}: no row shows it")
        elif not _alone(value, low, high):
            found.append(f"{path}: {low:.6g} to {high:.6g} fit, {value:.6g} is the simplest")
    return found


def _unseen(program: _Program, reading: _Reading, config: PipelineConfig) -> Iterator[str]:
    """The ties of lists whose scores are short enough to be equal, but never are, and a mode of the bonus that makes no difference."""
    for name, source in reading.sources.items() if config.fusion.method in RANKED else ():
        scores = [[row.lists[name][1] for row in one.rows if name in row.lists] for one in program.explained]
        short = any(score is not None and round(score, 2) == score for some in scores for score in some)
        if short and all(len({*some}) == len(some) for some in scores):
            yield f"lists.{source}.ties"
    bonus = config.fusion.top_rank_bonus
    mode = "per_list" if bonus.mode == "best_rank" else "best_rank"
    other = changed(config, "fusion.top_rank_bonus.mode", mode)
    if (bonus.rank1 or bonus.rank2_3) and (np.abs(program.scores(other) - program.y) <= program.tolerance(other)).all():
        yield "fusion.top_rank_bonus.mode"


def _formula(program: _Program, config: PipelineConfig, roles: Mapping[str, str]) -> str:
    """The score of a config in words and numbers."""
    fusion, names = config.fusion, dict(zip(program.sources, program.names, strict=True))
    weights = {source: config.get(f"lists.{source}.weight") for source in names}
    terms = []
    for source, name in names.items():
        norm, weight = _norm(config, source), weights[source]
        score = {"none": name, "dbsf": name}.get(norm, f"{norm}({name})")
        before = f"{fusion.k:.10g} + " if fusion.method == "rrf" else ""
        if fusion.method == "rrf":
            terms.append(f"{weight:.10g}/({before}rank in {name}{' from 0' * (fusion.rank_base == 0)})")
        elif fusion.method == "rank_divided_rrf":
            terms.append(f"1/(rank in {name}/{weight:.10g} + {fusion.k:.10g} − 1)")
        else:
            terms.append(f"{weight:.10g}·{'dbsf(' + name + ')' if fusion.method == 'dbsf' else score}")
    text = f"max({', '.join(terms)})" if fusion.method == "combmax" else " + ".join(terms)
    bonus = fusion.top_rank_bonus
    if bonus.rank1 or bonus.rank2_3:
        text += f" + {bonus.rank1:.10g} for rank 1, {bonus.rank2_3:.10g} for 2 and 3 ({bonus.mode.replace('_', ' ')})"
    if fusion.multi_list_boost:
        text = f"({text}) × (1 + {fusion.multi_list_boost:.10g} × further lists)"
    if fusion.divisor != "none":
        text = f"({text}) / weights of the lists with a hit"
    if fusion.cap is not None:
        text = f"min({fusion.cap:.10g}, {text})"
    if fusion.normalize == "minmax":
        text = f"minmax({text})"
    if fusion.score_blend:
        best = ", ".join(f"{_norm(config, source)} {name}" for source, name in names.items())
        text = f"{1 - fusion.score_blend:.10g}·({text}) + {fusion.score_blend:.10g}·best score ({best})"
    rerank, adjust, decay = config.rerank, config.adjust, config.adjust.time_decay
    part = {role: name for name, role in roles.items()}
    if rerank.backend != "none":
        unit = part["model"] if rerank.raw_scale == "raw" else f"{rerank.raw_scale}({part['model']})"
        if rerank.combine == "replace":
            text = unit
        else:
            shares = ", ".join(
                f"{band.retrieval:.10g}" + (f" to rank {band.max_rank}" if band.max_rank else "")
                for band in rerank.bands
            )
            first = "" if rerank.retrieval_score == "fused" else f" as {rerank.retrieval_score} of its rank"
            text = f"w·({text}){first} + (1 − w)·{unit}, w = {shares}"
    if decay.mode != "none":
        name = part.get("age") or part.get("around", "age")
        signal = f"{decay.mode} decay of {name} (half-life {decay.half_life_days:.10g} days)" if "age" in part else name
        signal = f"max({decay.floor:.10g}, {signal})" if decay.floor else signal
        text = f"({text}) × " + (signal if decay.alpha is None else f"(1 + {decay.alpha:.10g}·({signal} − 0.5))")
    if adjust.priority:
        text = f"({text}) × {' × '.join(name for name, role in roles.items() if role == 'times')}"
    if adjust.pinned_factor != 1:
        text = f"({text}) × {adjust.pinned_factor:.10g} where {part['flag']} is 1"
    if adjust.count.of != "none" and adjust.count.alpha:
        text = f"({text}) × (1 + {adjust.count.alpha:.10g}·ln({part['count']})/10)"
    return text


_Peel = tuple[Mapping[str, Any], Mapping[str, float], Mapping[str, str]]
"""Values that are set, free parameters with their start, and what the parts are taken for."""


def _peels(roles: Mapping[str, str]) -> list[_Peel]:
    """What may act after the fusion, by the parts that the explanations have, fewest first: a reranker, and factors."""
    nothing: _Peel = ({}, {}, {})
    life, alpha, floor = (f"{DECAY}.{name}" for name in ("half_life_days", "alpha", "floor"))
    options: list[list[_Peel]] = []
    for name, role in roles.items():
        own: list[_Peel] = []
        if role in ("age", "around"):
            fixed, half = ({life: 0.5}, {}) if role == "around" else ({}, {life: 30.0})
            shapes: list[dict[str, float]] = [{}, {alpha: 0.2}, {floor: 0.3}, {alpha: 0.2, floor: 0.1}]
            for more, mode in itertools.product(
                shapes, ("exponential", "hyperbolic", "linear") if half else ("linear",)
            ):
                own.append(({f"{DECAY}.mode": mode, **fixed, **more}, {**half, **more}, {name: role}))
        if role in ("times", "around"):
            own.insert(0, ({"adjust.priority": True}, {}, {name: "times"}))
        if role == "flag":
            own.append(({}, {"adjust.pinned_factor": 1.1}, {name: role}))
        if role == "count":
            own.append(({"adjust.count.of": "accesses"}, {"adjust.count.alpha": 0.1}, {name: role}))
        if role == "model":
            model = {"rerank.backend": MODEL, "rerank.retrieval_score": "fused"}
            own += [
                ({**model, "rerank.raw_scale": scale, "rerank.combine": "replace"}, {}, {name: role})
                for scale in SCALES
            ]
            own += [({**model, "rerank.raw_scale": scale}, {BANDS: 0.5}, {name: role}) for scale in SCALES]
        options.append([nothing, *own])
    chosen = sorted(itertools.product(*options), key=lambda some: sum(len(one[2]) + len(one[1]) for one in some))
    return [
        (_joined(one[0] for one in some), _joined(one[1] for one in some), _joined(one[2] for one in some))
        for some in chosen[:MOST_CHOICES]
    ]


def _lists_of(one: Explained) -> set[str]:
    return {name for row in one.rows for name in row.lists}


def _joined(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: value for part in parts for key, value in part.items()}


def _bands(program: _Program, form: _Form, rows: Ints) -> Iterator[_Form]:
    """The form with shares of the retrieval score by rank, read off the rows, for each retrieval score that has few bands. A k that
    only this score has is the whole number that alone gives the fewest; shares of ranks of equal weight are divided ones of k + 1."""
    before = _after(program.table, form.config, (LISTS, FUSION)).ranking
    rank, own = before.rank[program.cells], form.config.fusion.k
    unit = program.scores(changed(form.config, "rerank.combine", "replace"))
    retrieval: Mapping[str, Callable[[float], Any]] = {
        "fused": lambda k: before.score[program.cells],
        "rrf": lambda k: 1 / (k + rank),
        "inverse_rank": lambda k: 1 / rank,
        "normalized_rrf": lambda k: (k + 1) / (k + rank),
    }
    for kind, score in retrieval.items():
        config = changed(form.config, "rerank.retrieval_score", kind)
        tolerance = program.tolerance(config)
        by_rank = form.config.fusion.method in RANKED
        found: dict[float, list[tuple[int, float, float]]] = {}
        for k in (own,) if not kind.endswith("rrf") else (own, own + 1) if by_rank else range(301):
            span = score(k) - unit
            span = np.where(np.abs(span) > 1e-9, span, np.nan)
            share, slack = (program.y - unit) / span, tolerance / np.abs(span) * 1.5 + 1e-9
            bands: list[tuple[int, float, float]] = []
            known = sorted((int(i) for i in rows if np.isfinite(share[i])), key=lambda i: rank[i])
            for end, same in itertools.groupby(known, key=lambda i: int(rank[i])):
                at = list(same)
                low, high = float((share - slack)[at].max()), float((share + slack)[at].min())
                if bands and max(low, bands[-1][1]) <= min(high, bands[-1][2]):
                    bands[-1] = end, max(low, bands[-1][1]), min(high, bands[-1][2])
                elif len(bands) == 5 or low > high:
                    break
                else:
                    bands.append((end, low, high))
            else:
                found[k] = bands
        fewest = [k for k in found if len(found[k]) == min(map(len, found.values()))]
        if len(fewest) == 1:
            bands = found[fewest[0]]
            shares = [simplest(low, high, (low + high) / 2) for _, low, high in bands]
            if bands and all(0 <= one <= 1 for one in shares):
                ends = [*(end for end, *_ in bands[:-1]), None]
                cuts = tuple(Band(max_rank=end, retrieval=one) for end, one in zip(ends, shares, strict=True))
                if by_rank and fewest[0] != own:
                    config = changed(config, "fusion.method", "rank_divided_rrf")
                yield replace(form, config=changed(changed(config, "fusion.k", fewest[0]), BANDS, cuts), start={})


GRIDS: Mapping[str, tuple[float, ...]] = {
    f"{DECAY}.half_life_days": tuple(float(x) for x in np.geomspace(2, 1000, 10)),
    f"{DECAY}.alpha": (0.2, 0.7),
    f"{DECAY}.floor": (0.1, 0.3),
    "adjust.pinned_factor": tuple(float(x) for x in np.geomspace(0.3, 3, 12)),
    "adjust.count.alpha": (0.05, 0.2, 0.5, 1.0),
}
"""Where the constants of factors start, as far as they are looked for before all others."""


def _placed(program: _Program, base: PipelineConfig, peel: _Peel) -> tuple[float, _Form]:
    """What a peel leaves of the scores, and its form on a config, the constants of its factors those that leave least."""
    form = _Form(with_values(base, peel[0]), peel[1], peel[2])
    paths = [path for path in form.start if path in GRIDS]

    def left(values: Sequence[float]) -> float:
        return _Start(
            program, replace(form, start={**form.start, **dict(zip(paths, values, strict=True))})
        ).left_by_any()

    if not paths:
        return left(()), form
    tried = {values: left(values) for values in itertools.product(*(GRIDS[path] for path in paths))}
    best = min(tried, key=lambda values: tried[values])
    if tried[best] > 0.6:
        return tried[best], form
    done = _descended(lambda values: left(np.exp(values).tolist()), np.log(best), 0.2, 20 * len(best))
    best = tuple(np.exp(done.x).tolist())
    return float(done.fun), replace(form, start={**form.start, **dict(zip(paths, best, strict=True))})


def solve(explained: Sequence[Explained]) -> Solved:
    """The formula of one program, from its explanations of several queries."""
    roles = roles_of(explained)
    fused = next((name for name, role in roles.items() if role == "fused"), None)
    if fused is not None:
        first = _Solver(explained, {}, fused).solve()
        if first.config is not None:
            found = _Solver(
                explained, {name: role for name, role in roles.items() if name != fused}, None, first.config
            ).solve()
            if found.config is not None:
                return replace(found, undetermined=(*first.undetermined, *found.undetermined))
    return _Solver(explained, {name: role for name, role in roles.items() if role != "fused"}).solve()


class _Solver:
    """The search for the formula of one program: `fused` is the config of its fusion where that is known."""

    def __init__(
        self,
        explained: Sequence[Explained],
        roles: Mapping[str, str],
        target: str | None = None,
        fused: PipelineConfig | None = None,
    ) -> None:
        self.explained, self.roles, self.target, self.fused = explained, roles, target, fused
        self.programs: dict[tuple[tuple[str, str], ...], tuple[_Program, _Program]] = {}
        self.reading = _Reading.of(explained)
        self.nearest: list[_Form] = []

    def program(self, roles: Mapping[str, str]) -> tuple[_Program, _Program]:
        """All explanations, and those of the first fit, with the parts taken for these."""
        key = tuple(roles.items())
        if key not in self.programs:
            some: list[Explained] = []
            unseen = set(self.reading.sources)
            rest = list(self.explained)
            while rest and (
                len(some) < 2 or unseen or sum(row.final is not None for one in some for row in one.rows) < MOST_ROWS
            ):
                rest.sort(key=lambda one: (-len(unseen & _lists_of(one)), -len(one.rows)))
                some.append(rest.pop(0))
                unseen -= _lists_of(some[-1])
            whole = _Program(self.explained, roles, self.target, self.reading)
            self.programs[key] = whole, whole if not rest else _Program(some, roles, self.target, self.reading)
        return self.programs[key]

    def forms(self) -> Iterator[Iterator[_Form]]:
        """The forms of each peel, simplest first."""
        for _, peels in itertools.groupby(_peels(self.roles), lambda peel: len(peel[2]) + len(peel[1])):
            placed: list[Any] = []
            for peel in peels:
                program = self.program(peel[2])[1]
                left, form = _placed(program, self.fused or program.base, peel)
                placed.append((left, len(placed), program, form))
            most = MOST_PEELS if self.fused is None else len(placed)
            for left, _, program, form in sorted(placed, key=lambda one: one[:2])[:most]:
                if left > FAR and len(self.roles) > 0 and BANDS not in (form.start if self.fused else ()):
                    continue
                if self.fused is not None or _replaces(form.config):
                    whole = self.program(form.roles)[0]
                    yield itertools.chain([form], _bands(whole, form, _fitted(whole)) if BANDS in form.start else [])
                else:
                    yield _forms(_Start(program, form))

    def solve(self) -> Solved:
        """The first form whose constants give every score and the order."""
        lists, of = len(self.reading.sources), sum(row.final is not None for one in self.explained for row in one.rows)
        if of < LEAST_ROWS or not lists:
            return Solved(None, "", 0, of, f"{of} rows with a score and {lists} lists are too few to fit a formula")
        found: list[tuple[_Fit, str]] = []
        for forms in self.forms():
            tried = 0
            for form in itertools.islice(forms, MOST_FORMS):
                self.nearest = sorted(
                    [*self.nearest, form],
                    key=lambda one: (round(one.left, 1), _scaled(one.config), len(one.start)),
                )[:3]
                if found and (
                    tried >= FURTHER
                    or len(form.start) > np.count_nonzero(found[0][0].values)
                    or form.left > max(1e-6, 10 * found[0][0].form.left)
                    or form.config.fusion.divisor != found[0][0].config.fusion.divisor
                ):
                    continue
                tried += bool(found)
                fit = self.fitted(form)
                text = "" if fit is None else _formula(self.program(form.roles)[0], fit.config, form.roles)
                if fit is not None and text not in (known for _, known in found):
                    found.append((fit, text))
            if found:
                break
        if not found:
            return self.unsolved(of)
        fit, text = found[0]
        program, _ = self.program(fit.form.roles)
        ranges = _ranges(program, fit)
        config = fit.config if self.fused is not None or _replaces(fit.config) else _shorter(program, fit, ranges)
        text = _formula(program, config, fit.form.roles)
        ordered, problem, ties = _in_order(program, config) if self.target is None else (config, "", "")
        undetermined = [
            *_open(ranges, fit),
            *(f"{path}: no row shows it" for path in _unseen(program, self.reading, config)),
            *(f"as well: {other}" for _, other in found[1:]),
            *([ties] if ties else []),
        ]
        if ordered is not None and _replaces(ordered) and self.fused is None:
            undetermined.append("fusion: the reranker's score replaces the fused one")
        return Solved(ordered, text, of, of, problem, tuple(undetermined), fit.form.roles)

    def fitted(self, form: _Form) -> _Fit | None:
        """The form with constants that give every row its score, of which enough were not fitted; None if there are none."""
        whole, some = self.program(form.roles)
        rows = _fitted(some)
        if len(rows) < len(form.start) + 3:
            return None
        values, off = _least_squares(some, form, rows)
        for _ in range(3):
            other = _renormed(some, form, values, rows) if off.max() > ROUGH else None
            if other is None:
                break
            form = other
            values, off = _least_squares(some, form, rows, values)
        if whole is not some and off.max() <= ROUGH:
            rows = _fitted(whole)
            if len(form.start):
                values, off = _least_squares(whole, form, rows, values)
        for digits in (2, 3, 4) if whole.half.max() <= 1e-8 * np.abs(whole.y).max() else ():
            short = np.array([float(f"{value:.{digits}g}") if value > 1e-7 else 0.0 for value in values.tolist()])
            if (np.abs(whole.scores(form.at(short)) - whole.y) <= whole.half).all() and len(whole.y) - len(rows) >= 3:
                return _Fit(form, short, rows)
        if off.max() > ROUGH:
            return None
        fit = _constants(whole, form, values, rows)
        if fit is None or len(whole.y) - len(np.union1d(fit.used, rows)) < max(3, len(whole.y) // 10):
            return None
        return fit

    def unsolved(self, of: int) -> Solved:
        """What is said where no form gives every score: the most rows that one gives, and what is known of the rest."""
        best: tuple[int, str] = 0, ""
        for form in self.nearest:
            program, _ = self.program(form.roles)
            if not form.start:
                continue
            rows, values = np.arange(len(program.y)), _least_squares(program, form, np.arange(len(program.y)))[0]
            for _ in range(6):  # what is far off is left out, as far as half of the rows stay
                values = _least_squares(program, form, rows, values)[0]
                off = np.abs(program.scores(form.at(values)) - program.y)
                rows = np.flatnonzero(off <= max(2 * float(np.median(off)), float(program.half.max())))
            values = np.array([float(f"{value:.4g}") for value in values.tolist()])
            config = form.at(values)
            ours = program.scores(config)
            rest = np.abs(ours - program.y) > program.tolerance(config) + 1e-4 * np.abs(program.y)
            near = len(rest) - int(rest.sum())
            if near > best[0]:
                best = near, f"about {_formula(program, config, form.roles)}; {_rest(program, ours, rest)}"
        if best[0] < max(LEAST_ROWS, of // 2):
            return Solved(None, "", 0, of, f"no formula of the fusion methods here gives the scores of these {of} rows")
        return Solved(None, "", best[0], of, f"explained: {best[0]} of {of} rows, by {best[1]}")


def _rest(program: _Program, ours: Floats, rest: NDArray[np.bool_]) -> str:
    """What the rows have in common that a formula does not give."""
    queries, every = np.unique(program.query[rest]), np.unique(program.query)
    if not len(queries):
        return "no constants give all of them exactly"
    if len(queries) <= len(every) / 4:
        return f"the rest are of {len(queries)} of {len(every)} queries"
    factor = program.y[rest] / np.where(np.abs(ours[rest]) > 1e-12, ours[rest], np.nan)
    known = {f"rank in {name}": program.rank[rest, i] for i, name in enumerate(program.names)}
    known |= {f"score in {name}": program.columns["none"][rest, i] for i, name in enumerate(program.names)}
    known |= {name: program.part(name)[rest] for row in program.rows for name in row.parts}
    for name, values in known.items():
        held = np.isfinite(values) & np.isfinite(factor)
        if held.sum() >= LEAST_ROWS and np.ptp(values[held]) and np.ptp(factor[held]):
            alike = float(spearmanr(values[held], factor[held]).statistic)
            if abs(alike) > 0.9:
                return f"the rest differ by a factor that {'grows' if alike > 0 else 'falls'} with {name}"
    return f"the rest differ by {np.abs(program.y - ours)[rest].max():.2g} at most"


def _scaled(config: PipelineConfig) -> bool:
    """Whether the scores of a query are brought to a scale of its own."""
    return config.fusion.divisor != "none" or config.fusion.normalize != "none"


def _replaces(config: PipelineConfig) -> bool:
    """Whether nothing but the reranker's score counts."""
    return config.rerank.backend == MODEL and config.rerank.combine == "replace"


def _fitted(program: _Program) -> Ints:
    """The rows that a formula is fitted to: two of three."""
    return np.flatnonzero(np.arange(len(program.y)) % 3 != 2)


def _in_order(program: _Program, config: PipelineConfig) -> tuple[PipelineConfig | None, str, str]:
    """The config that also gives the order of equal scores; what keeps the order from being that of the scores; what of it is open."""
    tolerance = program.tolerance(config)
    worst, ours = 0, None
    for rule in ("id", "first_seen"):
        ours = changed(config, "fusion.tie_break", rule)
        after = run(program.table, ours).of(ASSEMBLY).after
        score, place = after.score[program.cells], after.rank[program.cells]
        if (np.abs(score - program.y) > tolerance).any() or not after.alive[program.cells].all():
            return None, "the replay of all stages gives other scores than the fusion", ""
        given = np.lexsort((np.array([row.rank for row in program.rows]), program.query))
        same = program.query[given][1:] == program.query[given][:-1]
        falls = np.diff(score[given]) <= (tolerance[given][1:] + tolerance[given][:-1])
        worst = len(set(program.query[given][1:][same & ~falls].tolist()))
        equal = np.abs(np.diff(score[given])) <= tolerance[given][1:] + tolerance[given][:-1]
        if (
            not worst
            and not (same & ~equal & (np.diff(place[given]) < 0)).any()
            and not (same & equal & (np.diff(place[given]) < 0)).any()
        ):
            return ours, "", ""
    if worst:
        return (
            None,
            f"the scores are explained; in {worst} of {len(program.explained)} queries the order is not theirs",
            "",
        )
    return config, "", "the order of equal scores"
