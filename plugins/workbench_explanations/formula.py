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

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares, linprog
from scipy.stats import spearmanr

from cems_workbench.config import PipelineConfig, field_spec, with_values
from cems_workbench.config.model import changed
from cems_workbench.config.sections import Band
from cems_workbench.errors import counted
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
METHODS = (*RANKED, "combsum", "combmax", "dbsf")
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
MOST_FILLED, MOST_ROWS, ROWS_OF_PROGRAM, MOST_CHOICES = 2000, 160, 80, 60
"""Places of a list whose hits are not shown; rows of the first fit; rows of a linear program at first; peels that are tried."""
MOST_REFINED, MOST_FORMS, MOST_NORMS, MOST_STEPS = 16, 20, 700, 25
"""Points that are refined, and forms that are tried, of a number of constants; normalisations that are all tried; steps of a search."""
KS = (0.0, 1.0, 4.0, 12.0, 30.0, 70.0, 200.0)
WEIGHTS = re.compile(r"^lists\.\w+\.weight$")
DECAY = "adjust.time_decay"
FAR, NEAR, ROUGH, LEAST_ROWS, FURTHER = 0.8, 0.15, 4.0, 8, 2
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
                top = hits[-1].score if hits else score + 1e-9 * missing * max(1.0, abs(score))
                for filled in np.linspace(top, score, missing + 2)[1:-1].tolist():
                    memories[f"~{name}:{len(hits)}"] = Memory(f"~{name}:{len(hits)}", "")
                    hits.append(Hit(f"~{name}:{len(hits)}", _below(hits, filled, source in reading.ties)))
                place += missing
            place += rank != before or reading.ties.get(source) != "dense"
            hits.append(Hit(key, _below(hits, score, source in reading.ties and rank != before)))
            before = rank
        lists.append(RankedList(f"{source}:0", source, 0, tuple(hits), True))
    scores = {row.id: ModelScore(row.parts[name]) for name in models[:1] for row in one.rows if name in row.parts}
    return Evidence(one.query, memories, (Variant(one.query),), tuple(lists), MOMENT, model_scores={MODEL: scores})


def _below(hits: Sequence[Hit], score: float, apart: bool) -> float:
    """A score, or the next smaller one than that before where both are equal as printed, but apart in rank."""
    if apart and hits and (score >= hits[-1].score or math.isclose(score, hits[-1].score, rel_tol=1e-12)):
        return math.nextafter(hits[-1].score, -math.inf)
    return score


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
            votes += [after - rank < size for (rank, size), (after, _) in itertools.pairwise(sizes) if size > 1]
            votes += [False] * any(size > 1 for _, size in sizes[-1:])
        if votes:
            found[source] = "dense" if any(votes) else "competition"
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
        known = [
            (q, row, score)
            for q, one in enumerate(explained)
            for row in one.rows
            for score in [row.final if target is None else row.parts.get(target)]
            if score is not None and math.isfinite(score) and row.id in index[q]
        ]
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
        half = max((1 + 1e-6) * _half(self.y.tolist()), (3e-7 if single else 1e-9) * size)  # 0.03125 may be 0.0312
        self.half: Floats = np.full(len(self.y), half)
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
        least = [1e-3 if path.endswith("half_life_days") else 0.0 for path in self.start]
        return [low or some for (low, _), some in zip(specs, least, strict=True)], [high or 1e4 for _, high in specs]


class _Point(NamedTuple):
    """Where a search stands: the constants of the factors, (L) what is added to the ranks of each list, (L) places in NORMS."""

    theta: tuple[float, ...]
    added: tuple[float, ...]
    norms: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Near:
    """How near a method comes at a point: the share of the scores that it leaves, and what is linear in it: the (L) weights, these times
    a boost, the bonuses, and the shares of the best score and of the reranker where they are known."""

    left: float
    method: str
    inside: bool
    blended: bool
    point: _Point
    linear: Floats
    search: _Search


class _Search:
    """What the methods leave of the scores under a peel. All that is linear is solved by least squares, for many points at once: the scores
    are factor · (columns · weights), up to a scale and an offset of each query where the sum is normalised (`inside`)."""

    def __init__(self, program: _Program, peel: _Form) -> None:
        self.program, self.peel = program, peel
        self.paths = [path for path in peel.start if path in GRIDS]
        # A cap would hold the first ones down, and a factor of 0 hides the rest.
        kept = (program.y < program.y.max(initial=-np.inf)) & (program.y != 0)
        full = np.array([program.has[program.query == q].any(axis=0).all() for q in range(len(program.explained))])
        if (kept & full[program.query]).sum() > 100:  # a divisor is the same for queries whose lists all have hits
            kept &= full[program.query]
        self.kept, self.y = kept, program.y[kept]
        self.rank, self.has = program.rank[kept].T, program.has[kept].T
        self.more = np.maximum(self.has.sum(axis=0) - 1, 0)
        self.queries: Floats = (program.query[kept][:, None] == np.unique(program.query[kept])).astype(float)
        best = self.rank.min(axis=0, keepdims=True, initial=np.inf)
        tops = [(rank >= low) & (rank <= high) for rank in (self.rank, best) for low, high in ((1, 1), (2, 3))]
        self.bonus: Floats = np.stack([some.sum(axis=0) for some in tops]).astype(float)
        self.unit = np.zeros((0, len(self.y)))
        if BANDS in peel.start:
            bare = with_values(peel.config, {"adjust": NEUTRAL.adjust.model_dump(), "rerank.combine": "replace"})
            self.unit = program.scores(bare)[kept][None]
        self.given = _after(program.table, peel.config, (LISTS, FUSION))
        self.factors: dict[tuple[float, ...], Floats] = {}

    @cached_property
    def scores(self) -> Floats:
        """(S, L, N) the scores of the lists by normalisation."""
        return np.stack([self.program.columns[norm][self.kept].T for norm in NORMS])

    def factor(self, theta: tuple[float, ...]) -> Floats:
        """(N) the product of the factors."""
        if theta not in self.factors:
            config = self.peel.config
            for path, value in zip(self.paths, theta, strict=True):
                config = changed(config, path, value)
            self.factors[theta] = ADJUST(self.given._replace(config=config)).product()[self.program.cells][self.kept]
        return self.factors[theta]

    def left(self, method: str, inside: bool, blended: bool, points: Sequence[_Point]) -> list[_Near]:
        """What is left at each point."""
        found = []
        for some in (points[i : i + 400] for i in range(0, len(points), 400)):
            factor = np.stack([self.factor(point.theta) for point in some])[:, None]
            norms = np.array([point.norms for point in some])
            normed = self.scores[norms, np.arange(norms.shape[1])] if all(self.program.scored) else None
            if method in RANKED:
                base = 1 / np.maximum(self.rank + np.array([point.added for point in some])[:, :, None], 1e-3)
            elif method == "dbsf":
                base = np.broadcast_to(self.program.columns["dbsf"][self.kept].T, (len(some), *self.rank.shape))
            else:
                assert normed is not None
                base = normed
            alone = np.broadcast_to(self.unit, (len(some), *self.unit.shape))
            if blended:
                assert normed is not None
                best = np.where(self.has, normed, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
                alone = np.concatenate([np.where(np.isfinite(best), best, 0.0), alone], axis=1)
            shares = base
            if method == "combmax":  # the weights say which list counts, and that the weights: rows of one list begin
                shares = base * (self.more == 0)
                linear = self.solved(shares, alone * (self.more == 0), factor * (self.more == 0), inside)[1]
            for last in (False, False, True) if method == "combmax" else (True,):
                if method == "combmax":
                    weighed = np.maximum(linear[:, : len(self.rank), None], 1e-9) * np.where(self.has, base, -np.inf)
                    shares = base * (weighed == weighed.max(axis=1, keepdims=True)) * self.has
                columns = [shares, shares * self.more if self.more.any() else shares[:, :0]]
                if method == "rrf":
                    columns.append(np.broadcast_to(self.bonus, (len(some), *self.bonus.shape)))
                left, linear = self.solved(np.concatenate(columns, axis=1), alone, factor, inside)
                if last:
                    rows = zip(left.tolist(), some, linear, strict=True)
                    found += [_Near(one, method, inside, blended, point, weights, self) for one, point, weights in rows]
        return found

    def solved(self, columns: Floats, alone: Floats, factor: Floats, inside: bool) -> tuple[Floats, Floats]:
        """(B) the share of the scores that (B, M, N) columns, (B, A, N) those alone and a (B, 1, N) factor leave, and (B, M or M + A) the
        weights: of `alone` as well where the sum is not normalised."""
        columns, alone = columns * factor, alone * factor
        y = np.where(factor == 0, 0.0, self.y) if not factor.all() else np.broadcast_to(self.y, factor.shape)
        count = columns.shape[1] + alone.shape[1] + (self.queries.shape[1] * (2 + alone.shape[1]) if inside else 0)
        rows = (factor[:, 0] != 0).sum(axis=1)
        free = np.sqrt(rows / np.maximum(rows - count, 1e-9))
        if inside:
            every, spans = np.concatenate([columns, y], axis=1), np.concatenate([factor, alone], axis=1)
            for i in range(spans.shape[1]):  # the offset and the parts alone are of each query by itself
                every, spans = self.without(every, spans[:, i]), self.without(spans, spans[:, i])
            columns, y = every[:, :-1], every[:, -1:]
        else:
            columns = np.concatenate([columns, alone], axis=1)
        size = np.linalg.norm(columns, axis=2, keepdims=True)
        size = np.where(size > 0, size, 1.0)
        columns = columns / size
        gram = columns @ columns.transpose(0, 2, 1) + 1e-11 * np.eye(columns.shape[1])
        if inside:
            own = np.sqrt((y[:, 0] ** 2) @ self.queries)
            own = np.where(own > 1e-4 * np.linalg.norm(own, axis=1, keepdims=True), own, np.inf)
            turn = np.linalg.cholesky(gram)
            alike = np.linalg.solve(turn, (columns * y) @ self.queries / own[:, None])
            values, vectors = np.linalg.eigh(alike @ alike.transpose(0, 2, 1))
            weights = np.linalg.solve(turn.transpose(0, 2, 1), vectors[:, :, -1:])
            left = np.sqrt(np.maximum(0.0, 1 - values[:, -1]))
            weights = weights * np.where(weights.sum(axis=1, keepdims=True) < 0, -1.0, 1.0)
        else:
            target = y.transpose(0, 2, 1)
            weights = np.zeros((len(columns), columns.shape[1], 1))
            for _ in range(2):  # once more for what rounding left
                rest = target - columns.transpose(0, 2, 1) @ weights
                weights = weights + np.linalg.solve(gram, columns @ rest)
            rest = target - columns.transpose(0, 2, 1) @ weights
            left = np.linalg.norm(rest, axis=(1, 2)) / max(float(np.linalg.norm(self.y - self.y.mean())), 1e-300)
        return np.where(rows > count + 5, left * free, 1.0), (weights / size)[:, :, 0]

    def without(self, values: Floats, span: Floats) -> Floats:
        """(B, M, N) values without what is a multiple of (B, N) a span, in each query by itself."""
        size = (span**2) @ self.queries
        size = np.where(size > 1e-12 * size.max(initial=0.0), size, np.inf)
        share = (values * span[:, None]) @ self.queries / size[:, None]
        rest: Floats = values - (share @ self.queries.T) * span[:, None]
        return rest

    def coarse(self) -> Iterator[_Near]:
        """The best points of each method on grids."""
        count = len(self.rank)
        thetas = list(itertools.product(*(GRIDS[path] for path in self.paths)))
        plain, common = [(0,) * count], [(i,) * count for i in range(len(NORMS))]
        for method, inside, blended in itertools.product(METHODS, (False, True), (False, True)):
            if all(self.program.scored) or (method in RANKED and not blended):
                added = [(k,) * count for k in KS] if method in RANKED else [(0.0,) * count]
                norms = common if blended or method.startswith("comb") else plain
                points = [_Point(*some) for some in itertools.product(thetas, added, norms)]
                yield min(self.left(method, inside, blended, points), key=lambda one: one.left)

    def refined(self, near: _Near, most: float) -> _Near:
        """The best point that is found from a coarse one: all normalisations, then steps of the other constants, which become smaller.
        One that stays far above what another leaves is given up."""
        for _ in range(3):
            before = near
            if near.blended or near.method.startswith("comb"):
                near = self.normed(near)
            for i, path in enumerate(self.paths):  # a floor that holds no row has no slope
                theta = near.point.theta
                others = [(*theta[:i], value, *theta[i + 1 :]) for value in GRIDS[path]]
                near = self.nearest(near, [near.point._replace(theta=other) for other in others])
            near = self.stepped(near)
            if near.left > 10 * most or near.left > 0.9 * before.left or near.left < 1e-6:
                break
        return near

    def nearest(self, near: _Near, points: Sequence[_Point]) -> _Near:
        """The best of some points, or the one before."""
        tried = self.left(near.method, near.inside, near.blended, points)
        return min([near, *tried], key=lambda one: one.left)

    def normed(self, near: _Near) -> _Near:
        """The best normalisations: of all, or of many lists one after the other."""
        count = len(self.rank)
        if len(NORMS) ** count <= MOST_NORMS:
            every = itertools.product(range(len(NORMS)), repeat=count)
            return self.nearest(near, [near.point._replace(norms=norms) for norms in every])
        for i, j in itertools.combinations(range(count), 2):
            pairs = itertools.product(range(len(NORMS)), repeat=2)
            norms = [{i: one, j: other} for one, other in pairs]
            near = self.nearest(
                near,
                [
                    near.point._replace(norms=tuple(some.get(n, own) for n, own in enumerate(near.point.norms)))
                    for some in norms
                ],
            )
        return near

    def stepped(self, near: _Near) -> _Near:
        """The best factors and k: of `rank_divided_rrf` what is added differs by list, of `rrf` it does not."""
        thetas, count = len(self.paths), len(self.rank)
        own = {"rrf": 1, "rank_divided_rrf": count}.get(near.method, 0)

        def point(at: Floats) -> _Point:
            values = np.exp(at)
            added = tuple(np.maximum(values[thetas:] - 0.2, 0.0).tolist()) * (count if own == 1 else 1)
            return _Point(tuple(values[:thetas].tolist()), added if own else near.point.added, near.point.norms)

        step = 0.4
        for _ in range(MOST_STEPS if thetas + own else 0):
            at = np.log([*near.point.theta, *(value + 0.2 for value in near.point.added[:own])])
            moves = [sign * step * unit for sign in (1, -1) for unit in np.eye(len(at))]
            tried = self.left(near.method, near.inside, near.blended, [point(at + move) for move in moves])
            up, down = np.array([one.left**2 for one in tried]).reshape(2, -1)
            bend = up + down - 2 * near.left**2
            aim = np.where(bend > 0, (down - up) / (2 * np.maximum(bend, 1e-300)), np.sign(down - up))
            joint = step * np.clip(aim, -2, 2)  # the least of a parabola along each
            best = self.nearest(
                min([near, *tried], key=lambda one: one.left), [point(at + joint * some) for some in (1, 0.5)]
            )
            step = step / 3 if best.left > 0.98 * near.left else step
            near = best
            if step < 1e-3 or near.left < 1e-5:
                break
        return near

    def forms(self, near: _Near) -> Iterator[tuple[int, _Form]]:
        """The forms at a point, each with its number of additions: plain, with boost and bonus, and divided by the weights."""
        program, count, linear = self.program, len(self.rank), near.linear
        paths = [f"lists.{source}.weight" for source in program.sources]
        rest, boost = linear[count:], 0.0
        if self.more.any():
            rest, boost = rest[count:], float(np.median(rest[:count] / np.maximum(linear[:count], 1e-9)))
        config = changed(self.peel.config, "fusion.method", near.method)
        config = changed(config, "fusion.normalize", "minmax" if near.inside else "none")
        for i, source in enumerate(program.sources):
            config = _normalised(config, source, NORMS[near.point.norms[i]])
        weights = np.maximum(linear[:count], 1e-3 * linear[:count].max(initial=1e-3))
        alone = rest[4 if near.method == "rrf" else 0 :]
        if near.inside and (near.blended or len(self.unit)):  # the same for all queries, now that the weights are known
            bare = with_values(config, {"adjust": NEUTRAL.adjust.model_dump(), "rerank.backend": "none"})
            bare = changed(bare, "fusion.k", near.point.added[0] + 1 - config.fusion.rank_base)
            for path, weight in zip(paths, np.clip(weights, 0, 100).tolist(), strict=True):
                bare = changed(bare, path, weight)
            best = np.where(self.has, self.scores[near.point.norms, np.arange(count)], -np.inf).max(axis=0)
            parts = [program.scores(bare)[self.kept], *([best] if near.blended else []), *self.unit]
            design = np.stack(parts, axis=1) * self.factor(near.point.theta)[:, None]
            alone = np.linalg.lstsq(design, self.y, rcond=None)[0][1:]
        extra = dict(self.peel.start) | dict(zip(self.paths, near.point.theta, strict=True))
        if len(self.unit):
            extra[BANDS] = float(np.clip(1 - alone[-1], 0.05, 0.95))
        share = extra.get(BANDS, 1.0)
        if near.blended:
            extra["fusion.score_blend"] = float(np.clip(alone[0] / share, 0.02, 0.98))
        if not near.inside:
            weights = weights / (share * (1 - extra.get("fusion.score_blend", 0.0)))
        added = np.array(near.point.added)
        weights = np.clip(weights, 1e-6, 100.0)
        begin = dict(zip(paths, weights.tolist(), strict=True))
        more = {"fusion.multi_list_boost": float(np.clip(boost, 0.01, 1.0))} if self.more.any() else {}
        bonuses: list[tuple[str, Mapping[str, float]]] = [("per_list", {})]
        if near.method == "rrf":
            extra["fusion.k"] = float(added[0]) + 1 - config.fusion.rank_base
            bonus = np.maximum(rest[:4], 0.0) * float(weights[0] / linear[0] if linear[0] > 0 else 0.0)
            names = ("fusion.top_rank_bonus.rank1", "fusion.top_rank_bonus.rank2_3")
            bonuses = [
                (mode, dict(zip(names, some.tolist(), strict=True)))
                for mode, some in (("best_rank", bonus[2:]), ("per_list", bonus[:2]))
            ]
        for divided in (False, True) if len(paths) > 1 else (False,):
            only = near.inside or divided
            own = changed(config, "fusion.divisor", "active_lists" if divided else "none")
            own = changed(own, "fusion.normalize", "none") if divided else own
            largest = max(begin, key=lambda path: begin[path])
            scale = begin[largest] if only else 1.0  # only proportions count: the largest one stays 1
            start = {path: value / scale for path, value in begin.items() if not only or path != largest}
            own = changed(own, largest, 1.0) if only else own
            if near.method == "rank_divided_rrf":
                extra["fusion.k"] = 1 + float(np.median(added * scale / weights))
            if not divided:
                yield 0, _Form(own, {**start, **extra}, self.peel.roles, near.left)
            for mode, some in bonuses:
                form = changed(own, "fusion.top_rank_bonus.mode", mode)
                further = {**more, **{path: value / scale for path, value in some.items()}}
                if further or divided:
                    yield 1 + divided, _Form(form, {**start, **extra, **further}, self.peel.roles, near.left)


def _nearest(coarse: Sequence[_Near]) -> Iterator[_Form]:
    """The forms of the points that leave least, those with the fewest additions first."""
    some = sorted(
        (one for one in coarse if one.left < FAR), key=lambda one: one.left * (1 + (one.inside + one.blended) / 2)
    )
    near: list[_Near] = []
    met: set[Any] = set()
    further = MOST_REFINED
    for one in some:  # of each method the best, and some more of the best
        own = one.method, one.inside, one.blended
        if further > 0 and (own not in met or len(near) < MOST_REFINED // 2):
            met.add(own)
            near.append(one.search.refined(one, min((other.left for other in near), default=1.0)))
            further = min(further - 1, 2) if near[-1].left < 2e-4 and True not in own else further - 1
    near.sort(key=lambda one: (round(one.left, 4), one.blended))
    near = [one for one in near if one.left <= min(NEAR / (1 + len(one.point.theta)), max(10 * near[0].left, 3e-3))]
    every = [some for one in near for some in one.search.forms(one) if some[0] < 2 or one.left < NEAR / 5]
    yield from (form for _, form in sorted(every, key=lambda one: one[0]))


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
    tied = [j for j, path in enumerate(paths) if _proportional(form.config, path)] if _scaled(form.config) else []
    used = fit_rows[:: max(1, len(fit_rows) // ROWS_OF_PROGRAM)]
    for _ in range(5):
        chosen, free = values.copy(), list(range(len(paths)))
        tolerance = program.tolerance(form.at(values))
        slopes = _slopes(program, form, values)
        waiting, later, together = [j for j in order if j not in tied], 0, bool(tied)
        while waiting or together:
            if not waiting:
                together, waiting, later = False, [j for j in order if j in tied], 0
                off = (program.y - program.scores(form.at(chosen)))[used]
                held = {}
                for j in waiting:
                    moves = _range(slopes[np.ix_(used, np.array(free))], off, tolerance[used], free.index(j))
                    held[paths[j]] = (np.nan, np.nan) if moves is None else (chosen[j] + moves[0], chosen[j] + moves[1])
                short = _in_proportion(program, form.at(chosen), held)
                if short is not None:
                    chosen[waiting] = [short.get(paths[j]) for j in waiting]
                    return _Fit(replace(form, config=short), chosen, used)
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


def _proportional(config: PipelineConfig, path: str) -> bool:
    """Whether a constant is larger with the weights, where only their proportions count: for k of shares of weight, k - 1 smaller."""
    divided = config.fusion.method == "rank_divided_rrf" and path == "fusion.k"
    return divided or "bonus" in path or bool(WEIGHTS.match(path))


def _in_proportion(
    program: _Program, config: PipelineConfig, held: Mapping[str, tuple[float, float]]
) -> PipelineConfig | None:
    """The config with its weights, and what is in proportion to them, times the number that makes all short; None where none does."""
    paths = [f"lists.{source}.weight" for source in program.sources]
    held = {path: (config.get(path), config.get(path)) for path in paths} | dict(held)
    if not np.isfinite(list(held.values())).all():
        return None
    tried: dict[float, tuple[float, float, dict[str, float]]] = {}
    for path, n in itertools.product(paths, range(5, 301)):
        low, high = held[path]
        scale = n / 50 / (low + high) if low > 0 else 1.0
        values = {}
        for other, (least, most) in held.items():
            if other == "fusion.k":
                least, most = 1 + (least - 1) / scale, 1 + (most - 1) / scale
            elif least == most and low > 0:  # the one that was kept at 1
                least, most = least * n / 100 / high, most * n / 100 / low
            else:
                least, most = least * scale, most * scale
            values[other] = simplest(least, most, np.inf)
        values[path] = n / 100
        cost = sum(_length(value) for value in values.values())
        tried.setdefault(round(scale, 9), (cost, abs(math.log(scale)), values))
    for cost, _, values in sorted(tried.values(), key=lambda one: one[:2])[:40]:
        short = config
        for path, value in values.items():
            short = changed(short, path, value)
        if cost < 99 and _same(program, short):
            return short
    return None


def _length(value: float) -> float:
    """How unlikely a constant is: its decimals, of which people mostly write one or two."""
    decimals = _decimals(value) if np.isfinite(value) else 99
    return decimals + (decimals > 2)


def _decimals(value: float) -> int:
    return max(0, -int(Decimal(repr(float(value))).normalize().as_tuple().exponent))


def _open(ranges: Mapping[str, tuple[float, float]], fit: _Fit) -> list[str]:
    """The constants that the rows leave open."""
    found = []
    for path, value in zip(fit.form.start, fit.values.tolist(), strict=True):
        low, high = ranges[path]
        if np.isinf(low):
            found.append(f"{path}: no row shows it")
        elif not _alone(value, low, high) or (_scaled(fit.config) and WEIGHTS.match(path) and high - low > 1e-6 * high):
            found.append(f"{path}: {low:.6g} to {high:.6g} fit, {value:.6g} is the simplest")
    return found


def _unseen(program: _Program, reading: _Reading, config: PipelineConfig) -> Iterator[str]:
    """The ties of lists whose scores are short enough to be equal, but never are, and a mode of the bonus that makes no difference."""
    for name, source in reading.sources.items() if config.fusion.method in RANKED else ():
        scores = [[row.lists[name][1] for row in one.rows if name in row.lists] for one in program.explained]
        short = any(score is not None and round(score, 2) == score for some in scores for score in some)
        if short and all(len({*some}) == len(some) for some in scores):
            yield f"lists.{source}.ties"
    fusion, by_score = config.fusion, config.fusion.method not in (*RANKED, "dbsf") or config.fusion.score_blend
    others: dict[str, tuple[Any, ...]] = {
        "fusion.normalize": ("none", "minmax"),
        "fusion.divisor": ("none", "active_lists"),
    }
    others |= {
        f"lists.{source}.normalization": NORMS for source in program.sources if by_score and source != "entities"
    }
    if fusion.top_rank_bonus.rank1 or fusion.top_rank_bonus.rank2_3:
        others["fusion.top_rank_bonus.mode"] = ("per_list", "best_rank")
    for path, values in others.items():
        if any(_same(program, changed(config, path, value)) for value in values if value != config.get(path)):
            yield path


def _same(program: _Program, config: PipelineConfig) -> bool:
    """Whether a config gives every row its score."""
    return bool((np.abs(program.scores(config) - program.y) <= program.tolerance(config)).all())


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
    f"{DECAY}.half_life_days": (3.0, 7.0, 14.0, 28.0, 55.0, 110.0, 250.0),
    f"{DECAY}.alpha": (0.2, 0.7),
    f"{DECAY}.floor": (0.1, 0.35),
    "adjust.pinned_factor": (0.5, 0.8, 1.1, 1.3, 1.6, 2.0),
    "adjust.count.alpha": (0.05, 0.2, 0.5, 1.0),
}
"""Where the constants of factors start, as far as they are looked for before all others."""


def _placed(program: _Program, form: _Form) -> _Form:
    """The form of a known fusion, its factors with the constants of the grids that leave least of the scores."""
    paths = [path for path in form.start if path in GRIDS]

    def at(values: Sequence[float]) -> _Form:
        return replace(form, start={**form.start, **dict(zip(paths, values, strict=True))})

    def left(one: _Form) -> float:
        return float(np.linalg.norm(program.scores(one.at(one.start.values())) - program.y))

    return min((at(values) for values in itertools.product(*(GRIDS[path] for path in paths))), key=left)


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
            held = {id(one): {name for row in one.rows for name in row.lists} for one in self.explained}
            for name in roles:  # a floor or a cap shows at the ends of a part
                ends = [(row.parts[name], id(one)) for one in self.explained for row in one.rows if name in row.parts]
                held[max(ends)[1]].add(f"most {name}")
            unseen = set().union(*held.values())
            rest = list(self.explained)
            while rest and (
                len(some) < 2 or unseen or sum(row.final is not None for one in some for row in one.rows) < MOST_ROWS
            ):
                rest.sort(key=lambda one: (-len(unseen & held[id(one)]), -len(one.rows)))
                some.append(rest.pop(0))
                unseen -= held[id(some[-1])]
            whole = _Program(self.explained, roles, self.target, self.reading)
            self.programs[key] = whole, whole if not rest else _Program(some, roles, self.target, self.reading)
        return self.programs[key]

    def forms(self) -> Iterator[Iterator[_Form]]:
        """The forms of all peels of a number of constants, fewest first."""
        for _, peels in itertools.groupby(_peels(self.roles), lambda peel: len(peel[2]) + len(peel[1])):
            coarse: list[_Near] = []
            known: list[_Form] = []
            for values, start, roles in peels:
                whole, program = self.program(roles)
                form = _Form(with_values(self.fused or program.base, values), start, roles)
                if self.fused is None and not _replaces(form.config):
                    coarse += _Search(program, form).coarse()
                    continue
                known.append(_placed(program, form))
                known += _bands(whole, form, _fitted(whole)) if BANDS in start else []
            yield itertools.chain(known, _nearest(coarse))

    def solve(self) -> Solved:
        """The first form whose constants give every score and the order."""
        lists, of = len(self.reading.sources), sum(row.final is not None for one in self.explained for row in one.rows)
        if of < LEAST_ROWS or not lists:
            few = f"too few to fit a formula: {counted(of, 'rows')} with a score and {counted(lists, 'lists')}"
            return Solved(None, "", 0, of, few)
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
        found.sort(
            key=lambda one: (
                sum(_length(value) + 1 for value in one[0].values.tolist() if value),
                METHODS.index(one[0].config.fusion.method),
            )
        )
        fit, text = found[0]
        program, _ = self.program(fit.form.roles)
        ranges = _ranges(program, fit)
        config = fit.config
        for path in ("fusion.normalize", "fusion.divisor"):
            plain = changed(config, path, "none")
            config = plain if _same(program, plain) else config
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
