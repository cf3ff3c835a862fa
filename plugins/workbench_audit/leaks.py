"""Who gets whose memories: each judged query asked as every other project or author, and what a filter after the cut loses.

Asked as x, a memory of the first k results crosses if it has another value of the field than x; one without a value is everybody's, and so
is one of scope "shared" where projects are compared. Under `only_project` a query is searched within the project it is asked as, and
nothing should cross; without it a project is only preferred. Only a config with query.author filters by author.

    before the cut    the search itself is restricted to the query's own project: k results of it, if it has as many
    after the cut     the k results of the unrestricted search, without those of other projects: fewer, as others took their places

A memory that a filter after the cut loses is one that the filter before returns. Both are replayed, and measured on the judged queries that
have a project.

What the judged queries of a set return, and what they would return without some memories of the store. Nothing is written.

The queries whose evidence holds one of the memories are searched again in a store without them: with their texts taken out of all indexes,
word frequencies included, and under the same config. Of other queries only BM25 could move, by the word frequencies of those memories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from cems_workbench.analysis.memory_names import memory_name
from cems_workbench.analysis.ranks import target_rank
from cems_workbench.api.open_store import load_config
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError, counted
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.comparison import interval_words
from cems_workbench.evaluation.grades import agreed_answerable, agreed_grades, as_judged
from cems_workbench.evaluation.metrics import Measure, graded, parse_measures
from cems_workbench.evaluation.statistics import means, paired_interval
from cems_workbench.jobs.memory_use import FEW_MEASURES
from cems_workbench.jobs.query_set_evidence import ensure_evidence, selected
from cems_workbench.pipeline import Evidence, Trace, replay
from cems_workbench.pipeline.gather import Request, gather_lists, gather_scores
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.table import Floats
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Memory, Query
from cems_workbench.results import Report, Table
from cems_workbench.store import Filter, Indexes
from cems_workbench.store.memories import Memories
from cems_workbench.store.search.lexical_index import LexicalIndex
from workbench_audit.texts import masked

if TYPE_CHECKING:
    from cems_workbench.api.open_store import ConfigLike, OpenStore
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


By = Literal["project", "author"]
BYS: tuple[By, ...] = get_args(By)
MAX_ASKERS = 50
"""Projects or authors that a query is asked as: those of most memories."""
MAX_KEPT = 10_000
"""Crossings that are kept, the best ranks first."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """A memory of another that a query returns, asked as `asker`; `lists` are those that found it."""

    qid: str
    asker: str
    memory_id: str
    owner: str
    rank: int
    lists: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Leaks(Report):
    """What crosses between projects or authors, and the loss of a filter after the cut; `total` counts the crossings."""

    total: int = 0


def leak(
    store: OpenStore,
    query_set: str = "all",
    config: ConfigLike | None = None,
    *,
    by: str = "project",
    only_project: bool = False,
    ids: bool = False,
    progress: Progress = silent,
) -> Leaks:
    """Which memories cross when each judged query is asked as every other project or author, and what a filter after the cut loses.

    Args:
        store: an open store.
        query_set: a set of the store, or `all`.
        config: a config, the name of a preset, or the path of a config file.
        by: `project`, or `author`: a user or an agent.
        only_project: search within the project that a query is asked as.
        ids: name memories by their ids.
        progress: called with a label, a count and a total.

    Raises:
        InputError: no query is judged, or the store has memories of fewer than two projects or authors.
    """
    resources, chosen = store.resources, load_config(config)
    field: By | None = next((known for known in BYS if known == by), None)
    if field is None:
        raise InputError(f"by {by[:40]}: expected {' or '.join(BYS)}")
    if only_project and field != "project":
        raise InputError("only-project is for projects; query.author of a config filters by one author")
    counts = resources.store.memories.projects() if field == "project" else resources.store.memories.facets().authors
    known = [name for name, _ in counts if name]
    if len(known) < 2:
        raise InputError(f"leaks need memories of two {field}s; the store has {', '.join(known) or 'none'}")
    resources.refresh(progress)
    judged = JudgedSet.read(query_set, chosen, resources, progress)
    remarks = [] if only_project else ["a project is only preferred; --only-project searches within it"]
    if field == "author":
        remarks = ["no author is preferred or filtered by, unless the config has query.author"]
    if chosen.lists.answered_by == "source":
        remarks.append("the running system is asked for all of its memories, and what it answers is filtered here, after its cut")
    if len(known) > MAX_ASKERS:
        remarks.append(f"asked as the {MAX_ASKERS} of {len(known):,} {field}s that have most memories")
    asked, crossed, total = Counter[str](), Counter[str](), 0
    found: list[Crossing] = []
    for place, query in enumerate(judged.queries):
        progress("asking as others", place, len(judged.queries))
        evidence = judged.evidences[query.qid]
        trace = replay(evidence, chosen)
        for asker in known[:MAX_ASKERS]:
            if asker == query.project:
                continue
            if only_project:
                trace = replay(_within(query, asker, evidence, judged), chosen)
            elif field == "project":
                asked_so = gather_scores(replace(evidence, project=asker), chosen, resources, judge="decisive")
                trace = replay(asked_so, chosen)
            own = _crossings(query.qid, asker, trace, judged.k, field)
            asked[asker] += 1
            crossed[asker] += bool(own)
            total += len(own)
            found += own
        if len(found) > 2 * MAX_KEPT:
            found = sorted(found, key=_order)[:MAX_KEPT]
    kept = sorted(found, key=_order)[:MAX_KEPT]
    if total > len(kept):
        remarks.append(f"the best ranked {len(kept):,} of {total:,} crossings are listed")
    many, of = sum(crossed.values()), sum(asked.values())
    lines = [f"nothing crosses: no search returns a memory of another {field}"]
    if total:
        lines = [f"{many:,} of {of:,} searches return a memory of another {field}: {counted(total, 'crossings')}"]
    tables = [*_tables(kept, asked, crossed, field, None if ids else resources)]
    late, lost = _late(judged, {name for name in known if field == "project"}, progress)
    if late is not None:
        tables.append(late)
        measure, before, after, *_ = late.rows[0]
        lines.append(
            f"a filter by project after the cut loses {counted(len(lost), 'relevant memories')} that one before the cut returns: "
            f"{measure} {before:.3f} before it, {after:.3f} after it"
        )
    how = ", within the project it is asked as" if only_project else ""
    title = f"leaks between {field}s: {counted(of, 'replays')} for {query_set} with {chosen.name}{how}, first {judged.k} results"
    values = {"name": query_set, "config": chosen.name, "k": judged.k, "by": field, "only_project": only_project}
    values |= {
        "total": total,
        "asked": dict(asked),
        "crossed": dict(crossed),
        "crossings": [asdict(one) for one in kept],
    }
    values["after_the_cut"] = late and {"measures": late.records, "lost": [list(pair) for pair in lost]}
    return Leaks(title, lines, tables, remarks, values | {"notes": remarks}, total)


def _tables(
    kept: Sequence[Crossing], asked: Counter[str], crossed: Counter[str], by: By, named: Resources | None
) -> Iterator[Table]:
    """By asker, and the first crossings, best ranks first, with the first words of memories where they are `named`."""
    best, lists = dict[str, int](), dict[str, Counter[str]]()
    for one in kept:
        best.setdefault(one.asker, one.rank)
        lists.setdefault(one.asker, Counter()).update(one.lists)
    rows = []
    for asker in sorted(asked, key=lambda name: (-crossed[name], name)):
        most = ", ".join(name for name, _ in lists.get(asker, Counter[str]()).most_common(3))
        rows.append((asker, asked[asker], crossed[asker], best.get(asker), most or None))
    columns = (f"asked as {by}", "searches", "with a crossing", "best rank", "by lists")
    yield Table(columns, tuple(rows), "by asker", shown=20)
    first = kept[:200]
    texts = named.store.memories.read([one.memory_id for one in first]) if named else {}
    names = {key: masked(memory_name(memory, 60)) for key, memory in texts.items()}
    each = tuple(
        (one.rank, names.get(one.memory_id, one.memory_id), one.owner, one.asker, one.qid, ", ".join(one.lists))
        for one in first
    )
    yield Table(
        ("rank", "memory", "of", "asked as", "qid", "lists"),
        each,
        "what crosses",
        shown=20,
        left_out=len(kept) - len(each),
    )


def _order(one: Crossing) -> tuple[int, str, str, str]:
    return one.rank, one.qid, one.asker, one.memory_id


def _within(query: Query, project: str | None, evidence: Evidence, judged: JudgedSet) -> Evidence:
    """The evidence of a query asked within a project."""
    request = Request(query.query, project, evidence.as_of, True)
    lists = gather_lists(request, judged.config, judged.resources)
    return gather_scores(lists, judged.config, judged.resources, judge="decisive")


def _crossings(qid: str, asker: str, trace: Trace, k: int, by: By) -> list[Crossing]:
    """The results within the first k that are another's."""
    evidence, found = trace.evidence, []
    for result in trace.results[:k]:
        memory = evidence.memories[result.memory_id]
        owner = getattr(memory, by)
        if owner and owner != asker and not (by == "project" and memory.scope == "shared"):
            searched = (
                one for one in evidence.lists if one.source not in ("recency", "access")
            )  # those of all candidates
            lists = tuple(one.name for one in searched if any(hit.memory_id == memory.id for hit in one.hits))
            found.append(Crossing(qid, asker, memory.id, owner, result.rank, lists))
    return found


def _late(
    judged: JudgedSet, projects: set[str], progress: Progress
) -> tuple[Table | None, tuple[tuple[str, str], ...]]:
    """A filter by project after the cut against one before it, on the queries that have a project of the store."""
    own = [query for query in judged.queries if query.project in projects and judged.grades.get(query.qid)]
    before, after, lost = list[list[str]](), list[list[str]](), list[tuple[str, str]]()
    for place, query in enumerate(own):
        progress("filtering before and after the cut", place, len(own))
        evidence = judged.evidences[query.qid]
        within = replay(_within(query, query.project, evidence, judged), judged.config)
        before.append([row.memory_id for row in within.results[: judged.k]])
        first = [row.memory_id for row in replay(evidence, judged.config).results[: judged.k]]
        after.append([key for key in first if evidence.memories[key].project == query.project])
        lost += [(query.qid, key) for key in before[-1] if judged.relevant(query.qid, key) and key not in after[-1]]
    if not own:
        return None, ()
    grades = [judged.grades[query.qid] for query in own]
    of = [graded(ids, grades) for ids in (before, after)]
    values = [np.stack([measure.values(one) for measure in judged.measures], axis=1) for one in of]
    rows = rows_of(judged.measures, *values)
    columns = ("measure", "before the cut", "after the cut", "difference", "95 % interval")
    title = f"a filter before and after the cut, {counted(len(own), 'judged queries')}"
    return Table(columns, tuple(rows), title), tuple(lost)
