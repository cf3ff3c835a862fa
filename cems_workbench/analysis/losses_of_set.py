"""Where the relevant memories of a query set are lost: how many at each stage, and what happened to each.

Every relevant memory (judged with at least the set's lowest relevant grade) is in exactly one place: within the first k results, or in the
branch where it leaves the pipeline (`analysis/losses.py:Branch`). Counts are read from the arrays of a replay; sentences are made from
traces, as `why` makes them, and only for the rows that are shown.

A `LossCollector` counts one portion after the other: the batch of a query set, or the portions of `evaluate_stream`, as whose `each`
it can be used. Counts are exact; of each branch it keeps the first rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from cems_workbench.analysis.losses import NEVER, NEVER_FOUND, RETURNED, Branch, LossArrays, in_pipeline_order, lost
from cems_workbench.analysis.ranks import target_rank
from cems_workbench.analysis.stage_mistakes import KnownMistake, StageMistakes
from cems_workbench.analysis.why.path import cause, memory_path
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import Block, LabelledBatch, Rankings, missing_score_lines
from cems_workbench.evaluation.evaluate import NO_TYPE
from cems_workbench.evaluation.evidence_stream import EvidenceStream
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.recorded import merged_names
from cems_workbench.pipeline.stages.result import plain_fields
from cems_workbench.pipeline.table import Bools, Ints
from cems_workbench.results import Result, Table

DEFAULT_K = 10
MAX_ROWS = 100
"""Rows kept of each branch."""
SHOWN = 10
"""Rows of each branch that are put in words where nobody asks for another number."""
NO_PROJECT = "(no project)"
Tally = Counter[Branch | None]
"""Relevant memories by the branch where they leave; None for those that are returned."""
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
        """The counts as plain values."""
        return plain_fields(self, "relevant returned") | {"branches": _counted(self.branches)}


@dataclass(frozen=True, slots=True)
class LostMemory:
    """A relevant memory that is not within the first k of its query, and where it leaves.

    `rank` is the one that the stage gave it, or with which it was dropped; None before fusion. `words` say what happened, as `why`
    does; they are empty until `with_words` makes them.
    """

    qid: str
    query: str
    memory_id: str
    grade: int
    branch: Branch
    rank: int | None
    words: str = ""

    def to_json(self) -> dict[str, Any]:
        """The row as plain values."""
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
        """The rows of a branch."""
        return [row for row in self.rows if row.branch == branch]

    def groups(self, by: Literal["type", "project"], title: str = "") -> Table:
        """A row for each query type or project: its relevant memories, those returned, and those lost by each branch."""
        found = self.by_type if by == "type" else self.by_project
        rows = (
            (name, counts.relevant, counts.returned, *(counts.branches.get(branch, 0) for branch in self.branches))
            for name, counts in found.items()
        )
        return Table((by, "relevant", "returned", *(one.words(self.k) for one in self.branches)), tuple(rows), title)

    def sentence(self) -> str:
        """ "lost 18 of 121 relevant memories from the first 10: adjust 12, list depth 4, never a candidate 2", most first."""
        where = _by_place(self.branches)
        said = f"lost {self.lost:,} of {self.relevant:,} relevant memories from the first {self.k}"
        return f"{said}: {where}" if where else said

    def to_json(self) -> dict[str, Any]:
        """The map as plain values."""
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

    @property
    def branches(self) -> list[Branch]:
        """Every branch with a memory that is saved or broken, in pipeline order."""
        return sorted({*self.saved, *self.broken}, key=lambda branch: branch.order)

    def to_json(self) -> dict[str, Any]:
        """The difference as plain values."""
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
        rows = tuple(
            (
                one.config_name,
                row.branch.words(one.k),
                row.qid,
                row.query,
                row.memory_id,
                row.grade,
                row.rank,
                row.words,
            )
            for one in self.maps
            for row in one.rows
        )
        return Table(columns, rows, "lost memories")

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
        several = len(self.maps) > 1
        return [
            f"known mistake: {', '.join(names)}: {line}" if several else f"known mistake: {line}"
            for line, names in mistakes.items()
        ]

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
        """Maps and differences as plain values."""
        return plain_fields(self, "maps differences")


@dataclass(frozen=True, eq=False)
class RelevantPairs:
    """The relevant memories of a batch, by query in its order, then by id; P of them."""

    batch: LabelledBatch
    relevant_from: int
    query: Ints
    """(P) the query's place in the batch."""
    first: Ints
    """(Q) the first pair of each query."""
    places: Sequence[tuple[Ints, Ints, Ints]]
    """Of each block of the batch: which of the pairs are candidates there, and their rows and columns in its table."""

    def of_query(self, q: int) -> list[tuple[str, int]]:
        """The relevant memories of a query with their grades, in the order of its pairs."""
        return sorted((key, grade) for key, grade in self.batch.grades[q].items() if grade >= self.relevant_from)

    def names(self) -> list[tuple[str, str]]:
        """(P) query and memory of each pair."""
        return [(qid, key) for q, qid in enumerate(self.batch.qids) for key, _ in self.of_query(q)]


@dataclass(frozen=True, eq=False)
class PairLosses:
    """`LossArrays` of the relevant pairs of a batch, (P) each."""

    pairs: RelevantPairs
    found: LossArrays

    @property
    def code(self) -> Ints:
        """(P) a number for each branch: see `branch_of`."""
        return (2 * (self.found.at.astype(np.int64) + 2) + self.found.dropped).astype(np.int64)

    @property
    def codes(self) -> int:
        """How many numbers there are."""
        return 2 * (len(self.found.stages) + 2)

    def branch_of(self, code: int) -> Branch | None:
        """The branch of a number; None for what is returned."""
        return self.found.branch(code // 2 - 2, bool(code % 2))


def relevant_pairs(batch: LabelledBatch, relevant_from: int) -> RelevantPairs:
    """The relevant memories of every query, and where they are candidates."""
    counts = (batch.ideal >= relevant_from).sum(axis=1)
    first = np.cumsum(counts) - counts
    pairs = RelevantPairs(batch, relevant_from, np.repeat(np.arange(len(counts)), counts), first, [])
    return replace(pairs, places=[_places(pairs, counts, block) for block in batch.blocks])


def _places(pairs: RelevantPairs, counts: Ints, block: Block) -> tuple[Ints, Ints, Ints]:
    rows, columns = np.nonzero(block.judged & (block.grade >= pairs.relevant_from))
    there = np.bincount(rows, minlength=len(block.places))
    # Candidates are in the order of their ids, as the pairs are.
    number = np.arange(len(rows)) - np.repeat(np.cumsum(there) - there, there)
    for row in np.flatnonzero((there > 0) & (there < counts[block.places])).tolist():  # some are no candidates
        numbers = {key: i for i, (key, _) in enumerate(pairs.of_query(int(block.places[row])))}
        ids = block.table.ids[row]
        number[rows == row] = [numbers[ids[c]] for c in columns[rows == row].tolist()]
    return pairs.first[block.places][rows] + number, rows, columns


def pair_losses(pairs: RelevantPairs, config: PipelineConfig, k: int, mistakes: StageMistakes) -> PairLosses:
    """Where each relevant memory of a batch is lost under a config; what is no candidate of the evidence was never found.

    The runs are added to `mistakes`.
    """
    count, batch = len(pairs.query), pairs.batch
    at = np.full(count, NEVER, dtype=np.int8)
    dropped, rank = np.zeros(count, dtype=bool), np.zeros(count, dtype=np.int64)
    stages = batch.candidate_stages(config)
    for (block, done), (pair, row, column) in zip(batch.runs(config), pairs.places, strict=True):
        found = lost(done, block.table, config, k, (row, column))
        # The last two places are those of RETURNED and NEVER, which are -1 and -2.
        number = np.array([*(stages.index(name) for name in found.stages), NEVER, RETURNED], dtype=np.int8)
        at[pair], dropped[pair], rank[pair] = number[found.at], found.dropped, found.rank
        mistakes.add(done, block.table, config, (block.grade, batch.ideal[block.places]))
    return PairLosses(pairs, LossArrays(stages, at, dropped, rank))


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

        `needs` are those of their rankings, where known. Compared are the memories that are relevant in both batches.
        """
        pairs = [relevant_pairs(batch, self.relevant_from) for batch in batches]
        pairs = pairs * len(self.configs) if len(pairs) == 1 else pairs
        outcomes = [
            pair_losses(own, tally.config, self.k, tally.mistakes)
            for own, tally in zip(pairs, self._tallies, strict=True)
        ]
        for i, (tally, one) in enumerate(zip(self._tallies, outcomes, strict=True)):
            tally.add(one, None if needs is None else needs[i])
        for changes, one in zip(self._changes, outcomes[1:], strict=True):
            same = (slice(None), slice(None)) if one.pairs is pairs[0] else _in_both(pairs[0], one.pairs)
            changes.add(outcomes[0], one, *same)

    @property
    def relevant(self) -> int:
        """The relevant memories so far, of the config with most."""
        return max((tally.total.total() for tally in self._tallies), default=0)

    def finished(self) -> Losses:
        """The maps, and the differences from the first config. Raises InputError if no query has a relevant memory."""
        if not self.relevant:
            raise InputError(
                f"no query has a relevant memory (grade {self.relevant_from} or higher), so nothing can be lost: judge some on Label, "
                "or import judgments"
            )
        maps = tuple(tally.map(self.relevant_from, self.k) for tally in self._tallies)
        names = [config.name for config in self.configs]
        differences = tuple(
            changes.difference(names[0], name, self.k) for changes, name in zip(self._changes, names[1:], strict=True)
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
    """The losses of configs on evidence in memory: one batch for all of them, or each config's own.

    `needs` are those of the rankings (`Rankings.needs`), for the remarks. Raises InputError if no query has a relevant memory.
    """
    collector = LossCollector(configs, relevant_from, k, rows=rows)
    collector.add(batches[:1] if len({id(batch) for batch in batches}) == 1 else batches, needs)
    return collector.finished()


def with_words(
    losses: Losses, configs: Sequence[PipelineConfig], evidences: Sequence[Found], shown: int = SHOWN
) -> Losses:
    """The losses with `shown` rows of each branch, and what happened to each of these memories in the words of `why`.

    `evidences` has for each config the evidence of queries; each query that is shown is replayed once.
    """
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
    """The first rows of each branch."""
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
class _Tally:
    """What was counted of a config so far."""

    config: PipelineConfig
    most: int
    stages: tuple[str, ...] = ()
    """The stages that can lose a memory, in order; those of external traces become known with their queries."""
    total: Tally = field(default_factory=Counter)
    queries: int = 0
    by_type: dict[str, Tally] = field(default_factory=dict)
    by_project: dict[str, Tally] = field(default_factory=dict)
    rows: dict[Branch, list[LostMemory]] = field(default_factory=dict)
    needs: Counter[str] = field(default_factory=Counter)
    mistakes: StageMistakes = field(default_factory=StageMistakes)

    def add(self, losses: PairLosses, needs: Mapping[str, int] | None) -> None:
        batch, code, query = losses.pairs.batch, losses.code, losses.pairs.query
        self.stages = merged_names([self.stages, losses.found.stages])
        _add_counts(self.total, losses, np.bincount(code, minlength=losses.codes))
        self.queries += len(np.unique(query))
        self.needs.update(batch.unmet(self.config) if needs is None else needs)
        _count(self.by_type, [kind or NO_TYPE for kind in batch.types], losses)
        _count(self.by_project, [one.project or NO_PROJECT for one in batch.queries], losses)
        for number in np.unique(code).tolist():
            branch = losses.branch_of(number)
            if branch is not None:
                kept = self.rows.setdefault(branch, [])
                kept += _rows(losses, code == number, branch, self.most - len(kept))

    def map(self, relevant_from: int, k: int) -> LossMap:
        branches = self._branches(self.total)
        relevant, returned = self.total.total(), self.total[None]
        left, after = relevant - sum(n for branch, n in branches.items() if branch == NEVER_FOUND), {}
        for stage in self.stages:
            left -= sum(n for branch, n in branches.items() if branch.stage == stage)
            after[stage] = left
        rows = tuple(row for branch in branches for row in self.rows.get(branch, ()))
        return LossMap(
            relevant,
            returned,
            branches,
            self.config.name,
            k,
            relevant_from,
            self.queries,
            after,
            {name: self._counts(self.by_type[name]) for name in sorted(self.by_type)},
            {name: self._counts(self.by_project[name]) for name in sorted(self.by_project)},
            rows,
            _remarks(self.config, self.needs, k),
            tuple(self.mistakes.found()),
        )

    def _counts(self, counts: Tally) -> LossCounts:
        return LossCounts(counts.total(), counts[None], self._branches(counts))

    def _branches(self, counts: Tally) -> dict[Branch, int]:
        """By branch, in the order of the pipeline."""
        found = {branch: count for branch, count in counts.items() if branch is not None}
        return {branch: found[branch] for branch in in_pipeline_order(found, self.stages)}


@dataclass
class _Changes:
    """What was counted so far of two configs."""

    most: int
    relevant: int = 0
    counts: Counter[tuple[Branch | None, Branch | None]] = field(default_factory=Counter)
    rows: dict[tuple[bool, Branch], list[LostMemory]] = field(default_factory=dict)

    def add(self, one: PairLosses, other: PairLosses, left: Ints | slice, right: Ints | slice) -> None:
        """`left` and `right` say which pairs of the two are the same."""
        before, after = one.code[left], other.code[right]
        self.relevant += len(before)
        for number in np.unique(before * other.codes + after).tolist():
            was, now = number // other.codes, number % other.codes
            same = (before == was) & (after == now)
            branches = one.branch_of(was), other.branch_of(now)
            self.counts[branches] += int(same.sum())
            broken = branches[0] is None
            branch = branches[1] if broken else branches[0]
            if branch is None or (not broken and branches[1] is not None):
                continue
            kept = self.rows.setdefault((broken, branch), [])
            which = np.zeros(len(one.code), dtype=bool)
            which[left] = same
            losing = one
            if broken:  # ranks and order of the one that loses them, queries of the first
                losing = PairLosses(one.pairs, _taken(other.found, one, left, right))
            kept += _rows(losing, which, branch, self.most - len(kept))

    def difference(self, before: str, after: str, k: int) -> LossDifference:
        saved: Counter[Branch] = Counter()
        broken: Counter[Branch] = Counter()
        moved: Counter[tuple[Branch, Branch]] = Counter()
        for (was, now), count in self.counts.items():
            if was is not None and now is None:
                saved[was] += count
            elif was is None and now is not None:
                broken[now] += count
            elif was is not None and now is not None and was != now:
                moved[was, now] += count
        rows = [
            tuple(row for branch in _in_order(found) for row in self.rows.get((is_broken, branch), ()))
            for is_broken, found in ((False, saved), (True, broken))
        ]
        return LossDifference(
            before,
            after,
            k,
            self.relevant,
            _in_order(saved),
            _in_order(broken),
            dict(sorted(moved.items(), key=lambda row: (row[0][0].order, row[0][1].order))),
            rows[0],
            rows[1],
        )


def _taken(found: LossArrays, one: PairLosses, left: Ints | slice, right: Ints | slice) -> LossArrays:
    """The losses of the second config at the pairs of the first; what only the first has is not read."""
    at = np.full(len(one.code), NEVER, dtype=np.int8)
    dropped, rank = np.zeros(len(at), dtype=bool), np.zeros(len(at), dtype=np.int64)
    at[left], dropped[left], rank[left] = found.at[right], found.dropped[right], found.rank[right]
    return LossArrays(found.stages, at, dropped, rank)


def _in_order(counts: Mapping[Branch, int]) -> dict[Branch, int]:
    return dict(sorted(counts.items(), key=lambda row: row[0].order))


def _rows(losses: PairLosses, which: Bools, branch: Branch, most: int) -> list[LostMemory]:
    pairs, found = losses.pairs, []
    for p in np.flatnonzero(which)[: max(most, 0)].tolist():
        q = int(pairs.query[p])
        memory_id, grade = pairs.of_query(q)[p - int(pairs.first[q])]
        query, rank = pairs.batch.queries[q], int(losses.found.rank[p]) or None
        found.append(LostMemory(query.qid, query.query, memory_id, grade, branch, rank))
    return found


def _count(groups: dict[str, Tally], names: Sequence[str], losses: PairLosses) -> None:
    """Add the pairs to the group of their query."""
    query, codes = losses.pairs.query, losses.codes
    known = {name: i for i, name in enumerate(dict.fromkeys(names))}
    group = np.array([known[name] for name in names], dtype=np.int64)[query] if names else query
    counts = np.bincount(group * codes + losses.code, minlength=len(known) * codes).reshape(-1, codes)
    for name, i in known.items():
        if counts[i].any():
            _add_counts(groups.setdefault(name, Counter()), losses, counts[i])


def _add_counts(tally: Tally, losses: PairLosses, counts: Ints) -> None:
    """Add the numbers of pairs by code."""
    for code in np.flatnonzero(counts).tolist():
        tally[losses.branch_of(code)] += int(counts[code])


def _in_both(one: RelevantPairs, other: RelevantPairs) -> tuple[Ints, Ints]:
    """The pairs of query and memory that two batches have, as their places in each."""
    known = {name: p for p, name in enumerate(other.names())}
    both = [(p, known[name]) for p, name in enumerate(one.names()) if name in known]
    left, right = np.array(both, dtype=np.int64).reshape(-1, 2).T
    return left, right


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
        of_lists = "list depth" if branch.manner == "depth" else branch.stage
        places[of_lists or NEVER_FOUND.words(0)] += count
    return ", ".join(f"{place} {count:,}" for place, count in places.most_common())
