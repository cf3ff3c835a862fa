"""What the judged queries of a set return, and what they would return without some memories of the store. Nothing is written.

The queries whose evidence holds one of the memories are searched again in a store without them: with their texts taken out of all indexes,
word frequencies included, and under the same config. Of other queries only BM25 could move, by the word frequencies of those memories.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from cems_workbench.analysis.ranks import target_rank
from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.comparison import interval_words
from cems_workbench.evaluation.grades import agreed_answerable, agreed_grades, as_judged
from cems_workbench.evaluation.metrics import Measure, parse_measures
from cems_workbench.evaluation.statistics import means, paired_interval
from cems_workbench.jobs.memory_use import FEW_MEASURES
from cems_workbench.jobs.query_set_evidence import ensure_evidence, selected
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.gather import Request, gather_lists, gather_scores
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.table import Floats
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Memory, Query
from cems_workbench.store import Filter, Indexes
from cems_workbench.store.memories import Memories
from cems_workbench.store.search.lexical_index import LexicalIndex

if TYPE_CHECKING:
    from cems_workbench.config.sections import LexicalList
    from cems_workbench.store.search.postgres import TsRankIndex

APPROXIMATED = "Queries without any of them among their candidates are not searched again: BM25's word frequencies could move them."
RELATED = "Neighbours by a relation are not moved up in the place of those that would be gone."


class _Remaining(Memories):
    """The memories of a store but for some."""

    def __init__(self, whole: Memories, gone: frozenset[str]) -> None:
        self.__dict__ |= vars(whole)
        self._gone = gone

    def read(self, ids: Iterable[str] | None = None) -> dict[str, Memory]:
        """As of `Memories`, without those that are gone."""
        return {key: memory for key, memory in super().read(ids).items() if key not in self._gone}

    def _newest(self, moment: str, size: int, where: Filter) -> list[str]:
        found = super()._newest(moment, size + len(self._gone), where)
        return [key for key in found if key not in self._gone][:size]


class Without(Resources):
    """The resources of a store as they would be without some memories; for reading alone."""

    def __init__(self, whole: Resources, gone: Collection[str]) -> None:
        self.__dict__ |= vars(whole)
        self._derived, self._gone = {}, frozenset(gone)
        self.store = copy(whole.store)
        self.store.memories = _Remaining(whole.store.memories, self._gone)
        self._kept = whole.indexes

    @cached_property
    def _left(self) -> Indexes:
        of = self._kept
        return replace(of, vectors=of.vectors.without(self._gone), lexical=of.lexical.without(self._gone))

    @property
    def indexes(self) -> Indexes:
        """Both indexes without the memories."""
        return self._left

    def lexical(self, section: LexicalList) -> LexicalIndex:
        """As of `Resources`, without the memories."""
        return super().lexical(section).without(self._gone)

    def full_text(self, progress: Progress = silent) -> TsRankIndex:
        """As of `Resources`, without the memories."""
        return super().full_text(progress).without(self._gone)


@dataclass(frozen=True)
class Effect:
    """What removing memories does to a judged set: a row a measure (name, before, after, difference, 95 % interval), and the queries whose
    first k results change, are better and are worse by the first measure."""

    rows: tuple[tuple[str, float, float, float, str], ...]
    changed: tuple[str, ...]
    better: int
    worse: int
    notes: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The difference of the first measure with its interval."""
        return f"{self.rows[0][3]:+.3f} ({self.rows[0][4]})"

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        measures = [
            dict(zip(("measure", "before", "after", "difference", "interval"), row, strict=True)) for row in self.rows
        ]
        of = {name: getattr(self, name) for name in ("changed", "better", "worse")}
        return of | {"measures": measures}


def rows_of(
    measures: Sequence[Measure], before: Floats, after: Floats
) -> tuple[tuple[str, float, float, float, str], ...]:
    """A row a measure of (queries, measures) values before and after: both means, their paired difference and its interval."""
    ends, both = paired_interval(after - before), [means(one) for one in (before, after)]
    found = []
    for m, measure in enumerate(measures):
        old, new = (float(one[m]) for one in both)
        found.append((str(measure), old, new, new - old, interval_words(float(ends[0, m]), float(ends[1, m]))))
    return tuple(found)


@dataclass(frozen=True)
class JudgedSet:
    """The judged queries of a set under a config: their evidence, grades by qid and memory, what each returns and its measures."""

    name: str
    config: PipelineConfig
    resources: Resources
    queries: Sequence[Query]
    evidences: Mapping[str, Evidence]
    grades: Mapping[str, Mapping[str, int]]
    measures: tuple[Measure, ...]
    least: int
    """The lowest grade that counts as relevant."""
    k: int
    returned: Mapping[str, tuple[str, ...]]
    """By qid the first k results, best first."""
    values: Floats
    """(queries of `returned`, measures)"""

    @classmethod
    def read(cls, name: str, config: PipelineConfig, resources: Resources, progress: Progress = silent) -> JudgedSet:
        """The set, with its evidence gathered where it is missing. Raises InputError for a set without a judged query, and as
        `ensure_evidence` does."""
        selection, judgments = selected(name, resources, True)
        evidences = ensure_evidence(config, selection, judgments, resources, progress).evidences
        queries = [one for one in as_judged(selection.queries, agreed_answerable(judgments)) if one.qid in evidences]
        grades, least, k = agreed_grades(judgments), resources.store.query_sets.relevant_from(name), target_rank(config)
        measures = tuple(parse_measures(FEW_MEASURES, least))
        returned, values = _measured(queries, evidences, grades, config, measures, k)
        return cls(name, config, resources, queries, evidences, grades, measures, least, k, returned, values)

    def relevant(self, qid: str, memory_id: str) -> bool:
        """Whether a memory is judged relevant to a query."""
        return self.grades.get(qid, {}).get(memory_id, self.least - 1) >= self.least

    @cached_property
    def _costs(self) -> Mapping[str, list[str]]:
        """By memory the queries that return it within their first k and do not judge it relevant."""
        found: dict[str, list[str]] = {}
        for qid, first in self.returned.items():
            for key in first:
                if not self.relevant(qid, key):
                    found.setdefault(key, []).append(qid)
        return found

    def costs(self, ids: Collection[str]) -> list[str]:
        """The queries in whose first k results one of these memories stands that is not judged relevant to it."""
        return sorted({qid for key in ids for qid in self._costs.get(key, ())})

    def without(self, ids: Collection[str], progress: Progress = silent) -> Effect:
        """What removing these memories would do to the set, replayed. Raises as `gather` does."""
        gone, after = frozenset(ids), dict[str, Evidence]()
        touched = [one for one in self.queries if not gone.isdisjoint(self.evidences[one.qid].memories)]
        rest = Without(self.resources, gone)
        for done, query in enumerate(touched):
            progress("searching without them", done, len(touched))
            request = Request(query.query, query.project, self.evidences[query.qid].as_of)
            lists = gather_lists(request, self.config, rest)
            after[query.qid] = gather_scores(lists, self.config, rest, judge="decisive")
        returned, values = _measured(touched, after, self.grades, self.config, self.measures, self.k)
        whole, place = self.values.copy(), {qid: q for q, qid in enumerate(self.returned)}
        for qid, row in zip(returned, values, strict=True):
            whole[place[qid]] = row
        gain = self.measures[0].direction * (whole - self.values)[:, 0]
        changed = tuple(qid for qid, first in returned.items() if first != self.returned[qid])
        said = [APPROXIMATED] if len(touched) < len(self.queries) else []
        if any(one.source == "relations" and one.hits for of in after.values() for one in of.lists):
            said.append(RELATED)
        rows = rows_of(self.measures, self.values, whole)
        return Effect(rows, changed, int((gain > 1e-9).sum()), int((gain < -1e-9).sum()), tuple(said))


def _measured(
    queries: Sequence[Query],
    evidences: Mapping[str, Evidence],
    grades: Mapping[str, Mapping[str, int]],
    config: PipelineConfig,
    measures: Sequence[Measure],
    k: int,
) -> tuple[dict[str, tuple[str, ...]], Floats]:
    """By qid the first k results, and (queries, measures) their values."""
    batch = LabelledBatch(queries, evidences, grades)
    if not batch.qids:
        return {}, np.empty((0, len(measures)))
    rankings = batch.rankings(config)
    values = np.stack([measure.values(rankings.graded) for measure in measures], axis=1)
    results = zip(batch.qids, batch.result_ids(rankings), strict=True)
    return {qid: tuple(ids[:k]) for qid, ids in results}, values
