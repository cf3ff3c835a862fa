"""Who gets whose memories: each judged query asked as every other project or author, and what a filter after the cut loses.

Asked as x, a memory of the first k results crosses if it has another value of the field than x; one without a value is everybody's, and so
is one of scope "shared" where projects are compared. Under `only_project` a query is searched within the project it is asked as, and
nothing should cross; without it a project is only preferred, and an author is not known to the pipeline at all.

    before the cut    the search itself is restricted to the query's own project: k results of it, if it has as many
    after the cut     the k results of the unrestricted search, without those of other projects: fewer, as others took their places

A memory that a filter after the cut loses is one that the filter before returns. Both are replayed, and measured on the judged queries that
have a project.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from cems_workbench.analysis.memory_names import memory_name
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError, counted
from cems_workbench.evaluation.metrics import GradedRankings, ideal_grades
from cems_workbench.pipeline import Evidence, Trace, replay
from cems_workbench.pipeline.gather import Request, gather_lists, gather_scores
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Memory, Query
from cems_workbench.results import Result, Table
from workbench_audit.removal import JudgedSet, rows_of

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

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {name: getattr(self, name) for name in ("qid", "asker", "memory_id", "owner", "rank", "lists")}


@dataclass(frozen=True, eq=False, repr=False)
class Leaks(Result):
    """What crosses between projects or authors, and the loss of a filter after the cut.

    `asked` counts the queries that were asked as each, `total` all crossings, `crossed` the asked queries with one, by asker. `late` is the
    filter after the cut against the one before; None where no judged query has a project of the store.
    """

    name: str
    config: str
    k: int
    by: By
    only_project: bool
    asked: Counter[str]
    crossed: Counter[str]
    total: int
    crossings: tuple[Crossing, ...]
    texts: dict[str, Memory]
    late: Table | None = None
    lost: tuple[tuple[str, str], ...] = ()
    """(qid, memory) that are judged relevant, and that a filter after the cut loses."""
    remarks: tuple[str, ...] = ()
    ids: bool = False

    @property
    def leaks(self) -> bool:
        """Whether anything crosses."""
        return self.total > 0

    @property
    def title(self) -> str:
        """Of what."""
        how = ", within the project it is asked as" if self.only_project else ""
        each = counted(sum(self.asked.values()), "searches")
        return f"leaks between {self.by}s: {each} for {self.name} with {self.config}{how}, first {self.k} results"

    @property
    def lines(self) -> list[str]:
        """What crosses, and what a filter after the cut loses."""
        many, of = sum(self.crossed.values()), sum(self.asked.values())
        said = [f"{many:,} of {of:,} searches return a memory of another {self.by}: {counted(self.total, 'crossings')}"]
        if not self.leaks:
            said = [f"nothing crosses: no search returns a memory of another {self.by}"]
        if self.late is not None:
            measure, before, after, *_ = self.late.rows[0]
            said.append(
                f"a filter by project after the cut loses {counted(len(self.lost), 'relevant memories')} that one before the cut returns: "
                f"{measure} {before:.3f} before it, {after:.3f} after it"
            )
        return said

    @property
    def tables(self) -> tuple[Table, ...]:
        """By asker; each crossing, best ranks first; and the measures of both filters."""
        best, lists = dict[str, int](), dict[str, Counter[str]]()
        for one in self.crossings:
            best.setdefault(one.asker, one.rank)
            lists.setdefault(one.asker, Counter()).update(one.lists)
        rows = tuple(
            (
                asker,
                count,
                self.crossed[asker],
                best.get(asker),
                ", ".join(name for name, _ in lists.get(asker, Counter()).most_common(3)) or None,
            )
            for asker, count in sorted(self.asked.items(), key=lambda row: (-self.crossed[row[0]], row[0]))
        )
        each = tuple(
            (
                one.rank,
                one.memory_id if self.ids else memory_name(self.texts[one.memory_id], 60),
                one.owner,
                one.asker,
                one.qid,
                ", ".join(one.lists),
            )
            for one in self.crossings
            if one.memory_id in self.texts
        )
        by = Table(
            (f"asked as {self.by}", "searches", "with a crossing", "best rank", "by lists"), rows, "by asker", shown=20
        )
        crossing = Table(("rank", "memory", "of", "asked as", "qid", "lists"), each, "what crosses", shown=20)
        return (by, crossing) if self.late is None else (by, crossing, self.late)

    @property
    def notes(self) -> Sequence[str]:
        """How the config restricts a search, and what was left out."""
        if self.by == "author":
            said = ["the pipeline knows no authors: it can neither prefer nor filter by one"]
        elif self.only_project:
            said = []
        else:
            said = ["a project is only preferred; --only-project searches within it"]
        return [*said, *self.remarks]

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            **{name: getattr(self, name) for name in ("name", "config", "k", "by", "only_project", "total")},
            "asked": dict(self.asked),
            "crossed": dict(self.crossed),
            "crossings": [one.to_json() for one in self.crossings],
            "after_the_cut": self.late and {"measures": self.late.records, "lost": [list(pair) for pair in self.lost]},
            "notes": list(self.notes),
        }


def leaks_of(
    resources: Resources,
    config: PipelineConfig,
    query_set: str = "all",
    *,
    by: str = "project",
    only_project: bool = False,
    progress: Progress = silent,
) -> Leaks:
    """Ask the judged queries of a set as every project or author. Raises InputError for another field, a store with fewer than two values
    of it, and as `JudgedSet.read`; what `progress` raises."""
    field: By | None = next((known for known in BYS if known == by), None)
    if field is None:
        raise InputError(f"by {by[:40]}: expected {' or '.join(BYS)}")
    if only_project and field != "project":
        raise InputError("only-project: the pipeline can filter by project alone; leave it out, or compare projects")
    counts = resources.store.memories.projects() if field == "project" else resources.store.memories.facets().authors
    known = [name for name, _ in counts if name]
    if len(known) < 2:
        raise InputError(f"leaks need memories of two {field}s; the store has {', '.join(known) or 'none'}")
    judged = JudgedSet.read(query_set, config, resources, progress)
    k = judged.k
    remarks = []
    if len(known) > MAX_ASKERS:
        remarks.append(f"asked as the {MAX_ASKERS} of {len(known):,} {field}s that have most memories")
    askers = known[:MAX_ASKERS]
    asked, crossed, total = Counter[str](), Counter[str](), 0
    found: list[Crossing] = []
    for place, query in enumerate(judged.queries):
        progress("asking as others", place, len(judged.queries))
        evidence = judged.evidences[query.qid]
        trace = replay(evidence, config)
        for asker in askers:
            if asker == query.project:
                continue
            if only_project:
                trace = replay(_within(query, asker, evidence, judged), config)
            elif field == "project":
                asked_so = gather_scores(replace(evidence, project=asker), config, resources, judge="decisive")
                trace = replay(asked_so, config)
            own = _crossings(query.qid, asker, trace, k, field)
            asked[asker] += 1
            crossed[asker] += bool(own)
            total += len(own)
            found += own
        if len(found) > 2 * MAX_KEPT:
            found = sorted(found, key=_order)[:MAX_KEPT]
    kept = sorted(found, key=_order)[:MAX_KEPT]
    if total > len(kept):
        remarks.append(f"the best ranked {len(kept):,} of {total:,} crossings are listed")
    late, lost = _late(judged, {name for name in known if field == "project"}, progress)
    texts = resources.store.memories.read(list(dict.fromkeys(one.memory_id for one in kept[:200])))
    of = (query_set, config.name, k, field, only_project, asked, crossed, total, tuple(kept), texts, late, lost)
    return Leaks(*of, tuple(remarks))


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
        after.append([key for key in first if evidence.memories[key].project in (query.project, None)])
        lost += [(query.qid, key) for key in before[-1] if judged.relevant(query.qid, key) and key not in after[-1]]
    if not own:
        return None, ()
    grades = [judged.grades[query.qid] for query in own]
    of = [_graded(ids, grades) for ids in (before, after)]
    values = [np.stack([measure.values(one) for measure in judged.measures], axis=1) for one in of]
    rows = rows_of(judged.measures, *values)
    columns = ("measure", "before the cut", "after the cut", "difference", "95 % interval")
    return Table(
        columns, tuple(rows), f"a filter before and after the cut, {counted(len(own), 'judged queries')}"
    ), tuple(lost)


def _graded(ranked: Sequence[Sequence[str]], grades: Sequence[Mapping[str, int]]) -> GradedRankings:
    """Rankings of ids with their grades."""
    shape = len(ranked), max(map(len, ranked), default=0)
    grade, judged, filled = np.zeros(shape, np.int64), np.zeros(shape, bool), np.zeros(shape, bool)
    for q, (ids, known) in enumerate(zip(ranked, grades, strict=True)):
        for r, key in enumerate(ids):
            grade[q, r], judged[q, r], filled[q, r] = known.get(key, 0), key in known, True
    return GradedRankings(grade, judged, filled, ideal_grades([list(known.values()) for known in grades]))
