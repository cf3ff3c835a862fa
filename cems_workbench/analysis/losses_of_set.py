"""Where the relevant memories of a query set are lost: how many at each stage, and what happened to each.

Every relevant memory (judged with at least the set's lowest relevant grade) is in exactly one place: within the first k results, or in the
branch where it leaves the pipeline (`analysis/ranks.py:Branch`). Counts are read from the arrays of a replay; sentences are made from
traces, as `why` makes them, and only for the rows that are shown.

A `LossCollector` counts one portion after the other: the batch of a query set, or the portions of `evaluate_stream`, as whose `each`
it can be used. Counts are exact; of each branch it keeps the first rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import numpy as np

from cems_workbench.analysis.ranks import NEVER_FOUND, Branch, at_graph, in_pipeline_order, lost, target_rank
from cems_workbench.analysis.stage_mistakes import KnownMistake, StageMistakes
from cems_workbench.analysis.why.path import cause, memory_path
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import LabelledBatch, Rankings, missing_score_lines
from cems_workbench.evaluation.evaluate import NO_TYPE
from cems_workbench.evaluation.evidence_stream import EvidenceStream
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.recorded import merged_names
from cems_workbench.pipeline.stages.result import plain_fields
from cems_workbench.records import Query
from cems_workbench.results import Result, Table

DEFAULT_K = 10
MAX_ROWS = 100
"""Rows kept of each branch."""
SHOWN = 10
"""Rows of each branch that are put in words where nobody asks for another number."""
NO_PROJECT = "(no project)"
Found = Callable[[Collection[str]], Mapping[str, Evidence]]
"""The evidence of some queries, by qid."""


@dataclass(frozen=True)
class LossCounts:
    """Of some queries: their relevant memories, those within the first k, and how many leave by each branch, in pipeline order."""

    relevant: int
    returned: int
    branches: Mapping[Branch, int]

    @property
    def lost(self) -> int:
        """The relevant memories that are not within the first k."""
        return self.relevant - self.returned

    def at(self, stage: str) -> int:
        """How many a stage loses, in any manner; of the empty stage those that were never a candidate."""
        return sum(count for branch, count in self.branches.items() if branch.stage == stage)

    def to_json(self) -> dict[str, Any]:
        return plain_fields(self, "relevant returned") | {"branches": _counted(self.branches)}


@dataclass(frozen=True, slots=True)
class LostMemory:
    """A relevant memory that is not within the first k of its query, and where it leaves. `rank` is the one that the
    stage gave it, or with which it was dropped; None before fusion. `words` say what happened, as `why` does; they are
    empty until `with_words` makes them."""

    qid: str
    query: str
    memory_id: str
    grade: int
    branch: Branch
    rank: int | None
    words: str = ""

    def to_json(self) -> dict[str, Any]:
        return (
            plain_fields(self, "qid query memory_id grade") | self.branch.to_json() | plain_fields(self, "rank words")
        )


@dataclass(frozen=True)
class LossMap(LossCounts):
    """The losses of one config over a query set."""

    config_name: str
    k: int
    relevant_from: int
    """The lowest grade that counts as relevant."""
    queries: int
    """Queries with a relevant memory."""
    after: Mapping[str, int]
    """By stage, in order, how many are not yet lost after it: the width of a drawing."""
    by_type: Mapping[str, LossCounts]
    by_project: Mapping[str, LossCounts]
    rows: tuple[LostMemory, ...]
    """By branch in pipeline order, then in the order of the queries; of each branch the first."""
    remarks: tuple[str, ...] = ()
    """What the config asks for that the evidence does not hold."""
    mistakes: tuple[KnownMistake, ...] = ()
    """What its stages and lists show of themselves over these queries."""

    def rows_of(self, branch: Branch) -> list[LostMemory]:
        return [row for row in self.rows if row.branch == branch]

    def groups(self, by: Literal["type", "project"], title: str = "") -> Table:
        """A row for each query type or project: its relevant memories, those returned, and those lost by each branch."""
        found = (self.by_type if by == "type" else self.by_project).items()
        rows = (
            (name, of.relevant, of.returned, *(of.branches.get(one, 0) for one in self.branches)) for name, of in found
        )
        return Table((by, "relevant", "returned", *(one.words(self.k) for one in self.branches)), tuple(rows), title)

    def sentence(self) -> str:
        """ "lost 18 of 121 relevant memories from the first 10: adjust 12, list depth 4, never a candidate 2", most first."""
        where = _by_place(self.branches)
        said = f"lost {self.lost:,} of {self.relevant:,} relevant memories from the first {self.k}"
        return f"{said}: {where}" if where else said

    def to_json(self) -> dict[str, Any]:
        return {
            "config": self.config_name,
            "sentence": self.sentence(),
            **plain_fields(self, "k relevant_from queries"),
            **super().to_json(),
            **plain_fields(self, "after by_type by_project rows remarks"),
            "known_mistakes": [one.to_json() for one in self.mistakes],
        }


@dataclass(frozen=True)
class LossDifference:
    """What config B saves of that which A loses, and what it breaks, of the relevant memories of the same queries."""

    before: str
    after: str
    """The names of A and of B."""
    k: int
    relevant: int
    saved: Mapping[Branch, int]
    """By the branch where A loses them: B returns them."""
    broken: Mapping[Branch, int]
    """By the branch where B loses them: A returns them."""
    moved: Mapping[tuple[Branch, Branch], int]
    """Lost by both, in another branch."""
    saved_rows: tuple[LostMemory, ...]
    """As A loses them."""
    broken_rows: tuple[LostMemory, ...]
    """As B loses them."""

    def sentence(self) -> str:
        """ "B against A: saves 7 (adjust 5, never a candidate 2), breaks 1 (rerank 1)"."""
        saved, broken = (
            f"{sum(of.values()):,}" + (f" ({where})" if (where := _by_place(of)) else "")
            for of in (self.saved, self.broken)
        )
        return f"{self.after} against {self.before}: saves {saved}, breaks {broken}"

    def to_json(self) -> dict[str, Any]:
        return {
            **plain_fields(self, "before after"),
            "sentence": self.sentence(),
            **plain_fields(self, "k relevant"),
            "saved": _counted(self.saved),
            "broken": _counted(self.broken),
            "moved": [
                {"from": one.to_json(), "to": other.to_json(), "count": count}
                for (one, other), count in self.moved.items()
            ],
            **plain_fields(self, "saved_rows broken_rows"),
        }


def _counted(branches: Mapping[Branch, int]) -> list[dict[str, Any]]:
    return [branch.to_json() | {"count": count} for branch, count in branches.items()]


def _lost(rows: Iterable[LostMemory], title: str, count: int) -> Table:
    listed = tuple((row.qid, row.memory_id, row.words) for row in rows)
    return Table(("query", "memory", "what happened"), listed, f"{title}: {count}", left_out=count - len(listed))


@dataclass(frozen=True, repr=False)
class Losses(Result):
    """The losses of configs on the same judged queries, and those of each but the first compared with the first."""

    maps: tuple[LossMap, ...]
    differences: tuple[LossDifference, ...]

    @property
    def title(self) -> str:
        """Of which configs, on how many queries."""
        first, names = self.maps[0], ", ".join(one.config_name for one in self.maps)
        lose = "lose" if len(self.maps) > 1 else "loses"
        return f"where {names} {lose} relevant memories of {first.queries} queries, within the first {first.k}"

    @property
    def lines(self) -> list[str]:
        """Which stage loses most, and what the other configs save and break."""
        return self.sentences

    @property
    def notes(self) -> list[str]:
        """Known mistakes, and what the evidence lacks."""
        return [*self.mistakes, *self.remarks]

    @property
    def memories(self) -> Table:
        """The lost memories, the first of each branch, with what happened to each in the words of `why`."""
        columns = ("config", "where", "qid", "query", "memory", "grade", "rank", "what happened")
        fields = attrgetter("qid", "query", "memory_id", "grade", "rank", "words")
        rows = ((one.config_name, row.branch.words(one.k), *fields(row)) for one in self.maps for row in one.rows)
        return Table(columns, tuple(rows), "lost memories")

    @property
    def sentences(self) -> list[str]:
        """What is to be read first: of each config where it loses most, then what the others save and break."""
        first = self.maps[0]
        if len(self.maps) == 1:
            return [first.sentence()]
        return [f"{one.config_name}: {one.sentence()}" for one in self.maps] + [
            one.sentence() for one in self.differences
        ]

    @property
    def remarks(self) -> list[str]:
        """Those of every map, each once."""
        return list(dict.fromkeys(line for one in self.maps for line in one.remarks))

    @property
    def mistakes(self) -> list[str]:
        """ "known mistake: …": what stages and lists show of themselves, each once, with the configs if there are several."""
        mistakes = dict[str, list[str]]()
        for one in self.maps:
            for mistake in one.mistakes:
                mistakes.setdefault(mistake.line, []).append(one.config_name)
        of = "{}: " if len(self.maps) > 1 else ""
        return [f"known mistake: {of.format(', '.join(names))}{line}" for line, names in mistakes.items()]

    @property
    def branches(self) -> list[Branch]:
        """Every branch by which some config loses a memory, in pipeline order."""
        stages = merged_names([list(one.after) for one in self.maps])
        return in_pipeline_order({branch for one in self.maps for branch in one.branches}, stages)

    def table(self) -> Table:
        """Where the relevant memories end: a row for each branch, a column for each config, and what the others save and break."""
        k, changes = self.maps[0].k, [counts for one in self.differences for counts in (one.saved, one.broken)]
        changed = [name for one in self.differences for name in (f"saved by {one.after}", f"broken by {one.after}")]
        rows: list[tuple[object, ...]] = [
            (f"returned in the first {k}", *(one.returned for one in self.maps), *(None for _ in changed))
        ]
        for branch in self.branches:
            counts = [*(one.branches for one in self.maps), *changes]
            rows.append((branch.words(k), *(one.get(branch, 0) for one in counts)))
        totals = [sum(one.values()) for one in changes]
        rows.append(("all relevant memories", *(one.relevant for one in self.maps), *totals))
        return Table(("where they end", *(one.config_name for one in self.maps), *changed), tuple(rows))

    @property
    def tables(self) -> tuple[Table, ...]:
        """Where relevant memories end; of each config by query type and project; then the memories behind each branch."""
        tables = [self.table()]
        for one in self.maps:
            several = f"{one.config_name}, " if len(self.maps) > 1 else ""
            groups = (one.groups("type", f"{several}by type of query"), one.groups("project", f"{several}by project"))
            tables += [table for table in groups if len(table) > 1]
            tables += [
                _lost(one.rows_of(branch), f"{several}{branch.words(one.k)}", count)
                for branch, count in one.branches.items()
            ]
        for change in self.differences:
            tables.append(_lost(change.saved_rows, f"saved by {change.after}", sum(change.saved.values())))
            tables.append(_lost(change.broken_rows, f"broken by {change.after}", sum(change.broken.values())))
        return tuple(filter(len, tables))

    def to_json(self) -> dict[str, Any]:
        return plain_fields(self, "maps differences")


class End(NamedTuple):
    """Where a relevant memory of a query ends: the branch (None: within the first k), and its rank there, 0 without one."""

    query: Query
    memory_id: str
    grade: int
    branch: Branch | None = NEVER_FOUND
    rank: int = 0


Ends = Mapping[tuple[str, str], End]
"""By qid and memory id; of each query by id."""


def ends_of(batch: LabelledBatch, config: PipelineConfig, relevant_from: int, k: int, mistakes: StageMistakes) -> Ends:
    """Where each relevant memory of a batch ends under a config; the runs are added to `mistakes`."""
    ends = {
        (query.qid, key): End(query, key, grade)
        for query, grades in zip(batch.queries, batch.grades, strict=True)
        for key, grade in sorted(grades.items())
        if grade >= relevant_from
    }
    for block, done in batch.runs(config):
        rows, columns = np.nonzero(block.judged & (block.grade >= relevant_from))
        found = lost(done, block.table, config, k, (rows, columns))
        places = zip(rows.tolist(), columns.tolist(), found.branches, found.rank.tolist(), strict=True)
        for row, column, branch, rank in places:
            name = batch.queries[block.places[row]].qid, block.table.ids[row][column]
            ends[name] = ends[name]._replace(branch=branch, rank=rank)
        mistakes.add(done, block.table, config, (block.grade, batch.ideal[block.places]))
    for query, evidence in zip(batch.queries, batch.evidences, strict=True):
        for key in evidence.missed_by_graph:
            if end := ends.get((query.qid, key)):
                ends[query.qid, key] = end._replace(branch=at_graph(end.branch, key, evidence, config, k))
    return ends


class LossCollector:
    """Counts the losses of configs, one portion of the queries after the other, in bounded memory."""

    def __init__(
        self, configs: Sequence[PipelineConfig], relevant_from: int, k: int = DEFAULT_K, *, rows: int = MAX_ROWS
    ) -> None:
        """`rows` are kept of each branch."""
        self.configs = tuple(configs)
        self.relevant_from = relevant_from
        self.k = k
        self._tallies = [_Tally(config, rows) for config in configs]
        self._changes = [_Changes(rows) for _ in configs[1:]]

    def __call__(self, batch: LabelledBatch, found: Sequence[Rankings]) -> None:
        """Add a portion, as `each` of `evaluate_stream`; `found` are its rankings under each config."""
        self.add([batch], [rankings.needs for rankings in found])

    def add(self, batches: Sequence[LabelledBatch], needs: Sequence[Mapping[str, int]] | None = None) -> None:
        """Add queries with their evidence, on which every config is replayed: one batch for all, or each config's own.
        `needs` are those of their rankings, where known. Compared are the memories that are relevant in both
        batches."""
        own = list(batches) * len(self.configs) if len(batches) == 1 else batches
        ends = [
            tally.add(batch, self.relevant_from, self.k, None if needs is None else needs[i])
            for i, (batch, tally) in enumerate(zip(own, self._tallies, strict=True))
        ]
        for changes, other in zip(self._changes, ends[1:], strict=True):
            changes.add(ends[0], other)

    @property
    def relevant(self) -> int:
        """The relevant memories so far, of the config with most."""
        return max((tally.returned + tally.lost.counts.total() for tally in self._tallies), default=0)

    def finished(self) -> Losses:
        """The maps, and the differences from the first config. Raises InputError if no query has a relevant memory."""
        if not self.relevant:
            raise InputError(
                f"no query has a relevant memory (grade {self.relevant_from} or higher), so nothing can be lost: judge some on Label, "
                "or import judgments"
            )
        maps = tuple(tally.map(self.relevant_from, self.k) for tally in self._tallies)
        differences = tuple(
            changes.difference(maps[0], other, self.k) for changes, other in zip(self._changes, maps[1:], strict=True)
        )
        return Losses(maps, differences)


def losses_of(
    batches: Sequence[LabelledBatch],
    configs: Sequence[PipelineConfig],
    relevant_from: int,
    k: int = DEFAULT_K,
    *,
    rows: int = MAX_ROWS,
    needs: Sequence[Mapping[str, int]] | None = None,
) -> Losses:
    """The losses of configs on evidence in memory: one batch for all of them, or each config's own. `needs` are those
    of the rankings (`Rankings.needs`), for the remarks. Raises InputError if no query has a relevant memory."""
    collector = LossCollector(configs, relevant_from, k, rows=rows)
    collector.add(batches[:1] if len({id(batch) for batch in batches}) == 1 else batches, needs)
    return collector.finished()


def with_words(
    losses: Losses, configs: Sequence[PipelineConfig], evidences: Sequence[Found], shown: int = SHOWN
) -> Losses:
    """The losses with `shown` rows of each branch, and what happened to each of these memories in the words of `why`.
    `evidences` has for each config the evidence of queries; each query that is shown is replayed once."""
    pairs = list(zip(configs, evidences, strict=True))
    maps = tuple(
        replace(one, rows=in_words(_first(one.rows, shown), config, one.k, found))
        for one, (config, found) in zip(losses.maps, pairs, strict=True)
    )
    differences = tuple(
        replace(
            one,
            saved_rows=in_words(_first(one.saved_rows, shown), pairs[0][0], one.k, pairs[0][1]),
            broken_rows=in_words(_first(one.broken_rows, shown), config, one.k, found),
        )
        for one, (config, found) in zip(losses.differences, pairs[1:], strict=True)
    )
    return Losses(maps, differences)


def stream_words(collector: LossCollector, stream: EvidenceStream, shown: int = SHOWN) -> Losses:
    """What a collector counted on a stream, `with_words`; only the queries that are shown are read a second time."""
    found = collector.finished()
    return with_words(
        found, collector.configs, [lambda qids: stream.of_queries(qids).evidences] * len(found.maps), shown
    )


def _first(rows: Iterable[LostMemory], shown: int) -> list[LostMemory]:
    seen: Counter[Branch] = Counter()
    kept = []
    for row in rows:
        seen[row.branch] += 1
        if seen[row.branch] <= shown:
            kept.append(row)
    return kept


def in_words(rows: Sequence[LostMemory], config: PipelineConfig, k: int, found: Found) -> tuple[LostMemory, ...]:
    """The rows of a config with what happened to each memory, as `why` says it; `found` gives the evidence of their queries."""
    evidences = found({row.qid for row in rows}) if rows else {}
    traces = {qid: replay(evidence, config) for qid, evidence in evidences.items()}
    return tuple(
        replace(row, words=cause(memory_path(traces[row.qid], row.memory_id, k), traces[row.qid])) for row in rows
    )


@dataclass
class _Lost:
    """Lost memories counted by branch, and of each branch the first `most`."""

    most: int
    counts: Counter[Branch] = field(default_factory=Counter)
    rows: dict[Branch, list[LostMemory]] = field(default_factory=dict)

    def add(self, end: End, branch: Branch, rank: int) -> None:
        self.counts[branch] += 1
        kept = self.rows.setdefault(branch, [])
        if len(kept) < self.most:
            kept.append(LostMemory(end.query.qid, end.query.query, end.memory_id, end.grade, branch, rank or None))

    def ordered(self, stages: Sequence[str]) -> tuple[dict[Branch, int], tuple[LostMemory, ...]]:
        branches = in_pipeline_order(self.counts, stages)
        rows = (row for branch in branches for row in self.rows[branch])
        return {branch: self.counts[branch] for branch in branches}, tuple(rows)


class _Tally:
    def __init__(self, config: PipelineConfig, most: int) -> None:
        self.config = config
        self.stages: tuple[str, ...] = ()  # those of external traces become known with their queries
        self.queries = self.returned = 0
        self.lost = _Lost(most)
        self.by_type: dict[str, Counter[Branch | None]] = {}
        self.by_project: dict[str, Counter[Branch | None]] = {}
        self.needs: Counter[str] = Counter()
        self.mistakes = StageMistakes()

    def add(self, batch: LabelledBatch, relevant_from: int, k: int, needs: Mapping[str, int] | None) -> Ends:
        ends = ends_of(batch, self.config, relevant_from, k, self.mistakes)
        self.stages = merged_names([self.stages, batch.candidate_stages(self.config)])
        self.queries += len({qid for qid, _ in ends})
        self.needs.update(batch.unmet(self.config) if needs is None else needs)
        for end in ends.values():
            self.by_type.setdefault(end.query.type or NO_TYPE, Counter())[end.branch] += 1
            self.by_project.setdefault(end.query.project or NO_PROJECT, Counter())[end.branch] += 1
            if end.branch is None:
                self.returned += 1
            else:
                self.lost.add(end, end.branch, end.rank)
        return ends

    def map(self, relevant_from: int, k: int) -> LossMap:
        branches, rows = self.lost.ordered(self.stages)
        relevant = self.returned + sum(branches.values())
        left, after = relevant - branches.get(NEVER_FOUND, 0), {}
        for stage in self.stages:
            left -= sum(n for branch, n in branches.items() if branch.stage == stage)
            after[stage] = left
        return LossMap(
            relevant,
            self.returned,
            branches,
            self.config.name,
            k,
            relevant_from,
            self.queries,
            after,
            self._groups(self.by_type),
            self._groups(self.by_project),
            rows,
            _remarks(self.config, self.needs, k),
            tuple(self.mistakes.found()),
        )

    def _groups(self, tallies: Mapping[str, Counter[Branch | None]]) -> dict[str, LossCounts]:
        groups = {}
        for name, counts in sorted(tallies.items()):
            branches = in_pipeline_order((branch for branch in counts if branch), self.stages)
            own = {branch: counts[branch] for branch in branches}
            groups[name] = LossCounts(counts.total(), counts[None], own)
        return groups


class _Changes:
    def __init__(self, most: int) -> None:
        self.relevant = 0
        self.saved, self.broken = _Lost(most), _Lost(most)
        self.moved: Counter[tuple[Branch, Branch]] = Counter()

    def add(self, one: Ends, other: Ends) -> None:
        """The memories that are relevant in both."""
        for name, was in one.items():
            if (now := other.get(name)) is None:
                continue
            self.relevant += 1
            if was.branch and now.branch is None:
                self.saved.add(was, was.branch, was.rank)
            elif was.branch is None and now.branch:
                self.broken.add(was, now.branch, now.rank)
            elif was.branch and now.branch and was.branch != now.branch:
                self.moved[was.branch, now.branch] += 1

    def difference(self, one: LossMap, other: LossMap, k: int) -> LossDifference:
        stages = merged_names([list(one.after), list(other.after)])
        saved, saved_rows = self.saved.ordered(stages)
        broken, broken_rows = self.broken.ordered(stages)
        place = {branch: i for i, branch in enumerate(in_pipeline_order({*one.branches, *other.branches}, stages))}
        moved = dict(sorted(self.moved.items(), key=lambda row: (place[row[0][0]], place[row[0][1]])))
        return LossDifference(
            one.config_name, other.config_name, k, self.relevant, saved, broken, moved, saved_rows, broken_rows
        )


_FINDING = ("query.", "expansion.", "lists.")
"""Parameters of what is searched."""


def _remarks(config: PipelineConfig, needs: Mapping[str, int], k: int) -> tuple[str, ...]:
    """What the evidence lacks, and how that is counted."""
    lines = [f"warning: {line}" for line in missing_score_lines([(config.name, needs)])]
    if any(need.startswith(_FINDING) for need in needs):
        lines.append(
            "what only a search would find that was not made counts as never a candidate: gather with the config to know better"
        )
    if k == DEFAULT_K != target_rank(config):
        lines.append(
            f"losses count in the first {k}; the result limit of {config.name} is {target_rank(config)}, in which `why` counts "
            "unless told otherwise"
        )
    return tuple(lines)


def _by_place(counts: Mapping[Branch, int]) -> str:
    """ "adjust 5, list depth 3, never a candidate 2": how many are lost at each stage, most first."""
    places: Counter[str] = Counter()
    for branch, count in counts.items():
        of_lists = {"depth": "list depth", "graph": "Chroma's graph"}.get(branch.manner, branch.stage)
        places[of_lists or NEVER_FOUND.words(0)] += count
    return ", ".join(f"{place} {count:,}" for place, count in places.most_common())
