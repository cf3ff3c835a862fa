"""What if, over all judged queries: what an edit, an absent or a new memory does to a query set.

Each query's kept evidence is edited as one query's is (`what_if.py`), with the model scores that the change needs, and both sets are
replayed and measured under the same config:

    difference   of a measure, per query after less before: mean, 95 % interval and p of a paired test (`evaluation/comparison.py`)

A query whose evidence does not hold an absent memory keeps its evidence: of its lists only BM25 could move, by the word frequencies of
one memory in the store. A new memory has no judgment, so that it counts as not relevant: measures show what it displaces and reorders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cems_workbench.analysis.edited_evidence import Edit
from cems_workbench.analysis.ranks import target_rank
from cems_workbench.analysis.what_if import approximated, certainty, scored_evidence, within
from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import LabelledBatch, missing_score_lines
from cems_workbench.evaluation.comparison import Comparison, MeasureDifference, compare, interval_words
from cems_workbench.evaluation.evaluate import evaluate, number
from cems_workbench.evaluation.metrics import Measure
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.stages.result import plain_fields
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Query
from cems_workbench.results import MAX_ROWS, Table

LABEL = "trying it on the judged queries"


@dataclass(frozen=True, slots=True)
class QueryEffect:
    """What the change does to one query: the memory's rank before and after, and who enters and leaves the first k."""

    query: Query
    before: int | None
    after: int | None
    came: tuple[str, ...]
    left: tuple[str, ...]
    value_before: float
    value_after: float
    """Of the first measure; NaN where it is not defined."""

    @property
    def difference(self) -> float:
        """The paired difference of the first measure."""
        return self.value_after - self.value_before

    def to_json(self) -> dict[str, Any]:
        """The effect as plain values."""
        return plain_fields(self.query, "qid query") | {
            "rank": self.after,
            **plain_fields(self, "before came left"),
            "value": number(self.value_after),
            "value_before": number(self.value_before),
        }


@dataclass(frozen=True)
class SetEffect:
    """What a change does to all judged queries under one config."""

    memory_id: str
    what: str
    """ "without m312", "with the new memory", "with m312 as edited"."""
    k: int
    comparison: Comparison
    changed: tuple[QueryEffect, ...]
    """The queries whose first k results change: the worst for the first measure first."""
    returned: tuple[str, ...]
    """Ids of the queries that return the memory within the first k afterwards."""
    approximated: tuple[str, ...]
    needs: tuple[str, ...]
    """What the evidence lacks, in lines."""

    @property
    def queries(self) -> int:
        """The judged queries."""
        return len(self.comparison.evaluations[0].qids)

    @property
    def first(self) -> MeasureDifference:
        """The first measure before and after."""
        return self.comparison.compared[0].differences[0]

    @property
    def sentence(self) -> str:
        """How many queries change and what that does to the first measure."""
        found = self.first
        said = f"{self.what[0].upper()}{self.what[1:]}, {len(self.changed)} of {self.queries} judged queries"
        said += f" change their first {self.k} results"
        said += f"; {len(self.returned)} return it" if self.returned else ""
        return (
            f"{said}. {found.measure} {found.baseline:.3f} → {found.value:.3f} "
            f"({found.difference:+.3f}, 95 % interval {interval_words(found.low, found.high)}): "
            f"better for {len(found.wins)}, worse for {len(found.losses)}."
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Which ranks are estimated, how a new memory counts, and what the evidence lacks."""
        new = ("The new memory has no judgment and counts as not relevant.",) if self.what == NEW else ()
        return (*new, certainty(self.approximated), *self.needs)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The measures before and after, and the queries whose first results change."""
        measures = tuple(
            (
                str(one.measure),
                *map(number, (one.baseline, one.value, one.difference)),
                interval_words(one.low, one.high),
            )
            for one in self.comparison.compared[0].differences
        )
        changed = tuple(
            (
                row.query.qid,
                row.query.query,
                row.before,
                row.after,
                ", ".join(row.came) or None,
                ", ".join(row.left) or None,
                row.difference,
            )
            for row in self.changed
        )
        columns = ("qid", "query", "rank before", "rank", "came", "left", str(self.first.measure))
        return (
            Table(("measure", "before", "after", "difference", "95 % interval"), measures, "all judged queries"),
            Table(columns, changed, "judged queries that change", shown=MAX_ROWS),
        )

    def to_json(self) -> dict[str, Any]:
        """The effect as plain values."""
        return plain_fields(self, "memory_id what k queries sentence notes returned") | {
            "measures": self.comparison.to_json(False)["compared"][0]["measures"],
            "changed": [effect.to_json() for effect in self.changed],
        }


NEW = "with the new memory"


def set_effect(
    edit: Edit,
    queries: Sequence[Query],
    evidences: Mapping[str, Evidence],
    grades: Mapping[str, Mapping[str, int]],
    config: PipelineConfig,
    measures: Sequence[Measure],
    *,
    only_project: bool = False,
    k: int | None = None,
    progress: Progress = silent,
) -> SetEffect:
    """What the edit does to the judged queries with evidence; `grades` are by qid and memory id, `k` is the result limit by default.

    Raises InputError without a judged query, and for evidence without lists; ModelError if a text cannot be embedded. `progress` may
    raise `Cancelled`; model scores so far stay in the store's cache.
    """
    k = target_rank(config) if k is None else k
    edited = dict(evidences)
    kept = [query for query in queries if query.qid in evidences and grades.get(query.qid)]
    touched: set[str] = set()
    for done, query in enumerate(kept):
        progress(LABEL, done, len(kept))
        evidence = evidences[query.qid]
        if edit.edited is None and edit.memory_id not in evidence.memories and not config.rerank.prepend_question:
            continue
        request = Request(query.query, query.project, evidence.as_of, only_project and query.project is not None)
        edited[query.qid] = scored_evidence(edit, evidence, config, request)
        touched.add(query.qid)
    progress(LABEL, len(kept), len(kept))
    what = (
        NEW
        if edit.stored is None
        else f"without {edit.memory_id}"
        if edit.edited is None
        else f"with {edit.memory_id} as edited"
    )
    configs = [with_values(config, {"name": name}) for name in ("as stored", what)]
    batches = [LabelledBatch(queries, one, grades) for one in (evidences, edited)]
    if not batches[0].qids:
        raise InputError("no query has both evidence and a judgment; label some, or name another query set")
    before, after = (
        evaluate(batch, named, measures, with_bounds=False) for batch, named in zip(batches, configs, strict=True)
    )
    changed, returned = [], []
    for q, query in enumerate(batches[0].queries):
        old, new = before.results[q], after.results[q]
        rank_before, rank = (_rank(edit.memory_id, results) for results in (old, new))
        if within(rank, k):
            returned.append(query.qid)
        if old[:k] == new[:k]:
            continue
        others = [[key for key in results[:k] if key != edit.memory_id] for results in (old, new)]
        changed.append(
            QueryEffect(
                query,
                rank_before,
                rank,
                tuple(key for key in others[1] if key not in old[:k]),
                tuple(key for key in others[0] if key not in new[:k]),
                float(before.values[q, 0]),
                float(after.values[q, 0]),
            )
        )
    direction = measures[0].direction
    changed.sort(
        key=lambda row: (direction * row.difference if row.difference == row.difference else 0.0, row.query.qid)
    )
    said = dict.fromkeys(
        line
        for query in batches[0].queries
        if query.qid in touched
        for line in approximated(edit, evidences[query.qid])
    )
    return SetEffect(
        edit.memory_id,
        what,
        k,
        compare([before, after]),
        tuple(changed),
        tuple(returned),
        tuple(said),
        tuple(missing_score_lines([(what, after.rankings.needs)])),
    )


def _rank(memory_id: str, results: Sequence[str]) -> int | None:
    return results.index(memory_id) + 1 if memory_id in results else None
