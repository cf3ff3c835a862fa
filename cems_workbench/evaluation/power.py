"""Labels needed: after how many queries a loss of some size can be told, and which queries to label first.

With s the standard deviation of the paired differences of a measure, the number of queries after which a loss of δ is excluded, if there is
none, is that of `verdict`: N = ((z(0.975) + z(0.8)) · s / δ)², and no fewer than after which rare losses have been seen.

What labels could move: each result of a query that nobody judged, within the measure's cut-off, is taken for as relevant as the set
allows. Where that alone raises the difference of the two configs it counts to the highest the query can reach, where it lowers it to the
lowest. Queries are listed by the sum of these changes, each times the chance of being relevant that `labelling.queue.by_rank` gives a
rank. Queries that people said nothing answers are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError, counted
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.comparison import VALUE_TOLERANCE
from cems_workbench.evaluation.labelling.pooling import PooledPair, pool
from cems_workbench.evaluation.labelling.queue import by_rank
from cems_workbench.evaluation.metrics import MEASURES, Measure, graded
from cems_workbench.evaluation.verdict import MIN_QUERIES, queries_to_exclude
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.table import Floats
from cems_workbench.records import Query
from cems_workbench.results import Result, Table

LOSSES = (0.005, 0.01, 0.02, 0.05)
"""Losses for which the number of queries is given, in units of the measure."""
DEPTH = 10
"""Results that are labelled where the measure has no cut-off."""
BLOCK_ROWS = 4096

Results = Sequence[Sequence[str]]
"""(Q) memory ids, best first."""
Grades = Sequence[Mapping[str, int]]
"""(Q) grade by memory id."""


@dataclass(frozen=True, slots=True)
class Movable:
    """A query with results that nobody judged: the difference of the configs now, and the lowest and highest that labels can make it."""

    qid: str
    query: str
    type: str | None
    unjudged: tuple[PooledPair, ...]
    """Its results without a grade, the best ranked first."""
    now: float
    """NaN while nothing relevant is known."""
    lowest: float
    highest: float
    expected: float
    """By how much labels change it, each change times the chance of its memory to be relevant."""


@dataclass(frozen=True, eq=False, repr=False)
class Power(Result):
    """What two configs' differences on a set can tell, and which labels would tell more."""

    names: tuple[str, str]
    """The config and the baseline."""
    measure: Measure
    differences: Floats
    """(Q) of the judged queries, value minus baseline, NaN where there is none."""
    movable: Sequence[Movable]
    """The queries whose labels can move the difference, the most first."""
    losses: Sequence[float] = LOSSES
    shown: int = 20

    @property
    def pairs(self) -> list[PooledPair]:
        """The unjudged results of the queries that are shown."""
        return [pair for one in self.movable[: self.shown] for pair in one.unjudged]

    @property
    def title(self) -> str:
        return f"Labels needed to compare {self.names[0]} with {self.names[1]} by {self.measure}"

    @property
    def lines(self) -> tuple[str, ...]:
        known = counted(int((~np.isnan(self.differences)).sum()), "queries")
        said = f"{self.names[0]} against {self.names[1]} by {self.measure}: {known} with a value under both"
        first = self.movable[: self.shown]
        if not first:
            return said, "no label can move the difference: every result that the two rank differently is judged"
        most = sum(one.highest - one.lowest for one in first) / len(self.differences)
        labels = f"labels of the first {counted(len(first), 'queries')} ({len(self.pairs):,} pairs)"
        return said, f"{labels} can move the mean difference by up to {most:.3f}"

    @property
    def tables(self) -> tuple[Table, ...]:
        rows = []
        known = self.differences[~np.isnan(self.differences)]
        for loss in dict.fromkeys(self.losses):
            needed = queries_to_exclude(known, loss)
            more = None if needed is None else max(0, needed - len(known))
            rows.append((loss, len(known), needed, more))
        first = [
            (
                one.qid,
                one.query,
                one.type,
                len(one.unjudged),
                None if math.isnan(one.now) else one.now,
                one.lowest,
                one.highest,
            )
            for one in self.movable
        ]
        columns = ("qid", "query", "type", "pairs", "difference", "lowest", "highest")
        return (
            Table(("loss", "queries", "needed", "more"), tuple(rows), "Queries until a loss of this size is excluded"),
            Table(columns, tuple(first), "Queries to label first", shown=self.shown, unshown=("qid",)),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        return (
            "needed: with 80 % probability, if nothing is lost and the differences spread as those measured",
            "lowest, highest: the difference that labels of the unjudged results can give this query",
            *([f"needed is given from {MIN_QUERIES} queries on"] if len(self.differences) < MIN_QUERIES else []),
        )


def power_of(
    queries: Sequence[Query],
    evidences: Sequence[Mapping[str, Evidence]],
    grades: Mapping[str, Mapping[str, int]],
    configs: Sequence[PipelineConfig],
    measure: Measure,
    losses: Sequence[float] = LOSSES,
    shown: int = 20,
) -> Power:
    """What the differences of two configs can tell.

    Args:
        queries: judged or not.
        evidences: of the baseline and of the config, by qid.
        grades: by qid and memory id.
        configs: the baseline and the config.
        measure: one whose values are of single queries and change with labels.
        losses: in units of the measure.
        shown: how many queries to label first.

    Raises:
        InputError: the measure is of all queries together, or no label changes it; a loss is not above 0.
    """
    family = MEASURES[measure.family]
    if family.resampled is not None or not family.reads_judgments:
        raise InputError(f"measure {measure}: power needs one that labels of single queries change, such as nDCG@10")
    for loss in losses:
        if not (math.isfinite(loss) and loss > 0):
            raise InputError(f"loss {loss:g}: expected a number above 0, in units of the measure, such as 0.01")
    # A query without a label counts as one of which nothing is known: a grade of no memory.
    known = {query.qid: grades.get(query.qid) or {"": 0} for query in queries}
    batches = [LabelledBatch(queries, of_config, known) for of_config in evidences]
    results = [batch.result_ids(batch.rankings(config)) for batch, config in zip(batches, configs, strict=True)]
    judged = batches[0].grades
    top = max(int(batches[0].ideal.max(initial=1)), measure.grade)
    differences = _differences(results, judged, measure)
    rankings = {
        config.name: dict(zip(batch.qids, map(tuple, of_config), strict=True))
        for config, batch, of_config in zip(configs, batches, results, strict=True)
    }
    place = {qid: q for q, qid in enumerate(batches[0].qids)}
    loose = [pair for pair in pool(rankings, measure.k or DEPTH) if pair.memory_id not in judged[place[pair.qid]]]
    single = [(place[pair.qid], (pair.memory_id,)) for pair in loose]
    now, expected = np.nan_to_num(differences), [0.0] * len(judged)
    unjudged: list[list[PooledPair]] = [[] for _ in judged]
    sides: tuple[list[list[str]], list[list[str]]] = ([[] for _ in judged], [[] for _ in judged])
    for pair, (q, (key,)), value in zip(
        loose, single, _differences_with(single, results, judged, measure, top).tolist(), strict=True
    ):
        unjudged[q].append(pair)
        if abs(value - now[q]) > VALUE_TOLERANCE:
            sides[int(value > now[q])][q].append(key)
            expected[q] += abs(value - now[q]) * by_rank(pair)
    ends = [(q, tuple(keys)) for side in sides for q, keys in enumerate(side)]
    low, high = _differences_with(ends, results, judged, measure, top).reshape(2, -1)
    movable = [
        Movable(
            query.qid,
            query.query,
            query.type,
            tuple(unjudged[q]),
            float(differences[q]),
            min(float(low[q]), now[q]),
            max(float(high[q]), now[q]),
            expected[q],
        )
        for q, query in enumerate(batches[0].queries)
        if expected[q] and query.answerable is not False
    ]
    movable.sort(key=lambda one: -one.expected)
    return Power((configs[1].name, configs[0].name), measure, differences, movable, losses, shown)


def _differences(results: Sequence[Results], grades: Grades, measure: Measure) -> Floats:
    """(Q) the measure of the second ranking minus that of the first; NaN where either has none."""
    base, new = (measure.values(graded(of_config, grades)) for of_config in results)
    return new - base


def _differences_with(
    labels: Sequence[tuple[int, tuple[str, ...]]],
    results: Sequence[Results],
    grades: Grades,
    measure: Measure,
    grade: int,
) -> Floats:
    """(len(labels)) the difference of a query, by its number, if these memories had that grade; 0 where it has none."""
    parts = [np.zeros(0)]
    for start in range(0, len(labels), BLOCK_ROWS):
        block = labels[start : start + BLOCK_ROWS]
        of_block = [[of_config[q] for q, _ in block] for of_config in results]
        given = [{**grades[q], **dict.fromkeys(keys, grade)} for q, keys in block]
        parts.append(np.nan_to_num(_differences(of_block, given, measure)))
    return np.concatenate(parts)
