"""What if: one memory edited, absent or new; nothing is written.

The evidence is recomputed for that memory (edited_evidence.py), the reranker's and judge's scores of it are computed again, and those of a
reranker for what follows another question by the edit; then both evidences are replayed under the same config. The way of the memory is
shown before and after for one query; all judged queries are measured, with a paired test of the differences (evaluation/comparison.py).

Of the judged queries one whose evidence does not hold an absent memory keeps its evidence: of its lists only BM25 could move, by the word
frequencies of one memory in the store. A new memory has no judgment, so that it counts as not relevant: measures show what it displaces.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, NamedTuple

from cems_workbench.analysis.edited_evidence import RANKED_AGAIN, Edit, answered_elsewhere, edited_evidence
from cems_workbench.analysis.ranks import loss, target_rank
from cems_workbench.analysis.why.path import Step, cause, memory_path, require_stored
from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.config.fields import short_value
from cems_workbench.config.sections import ADDED_LISTS
from cems_workbench.errors import InputError, short
from cems_workbench.evaluation.batch import LabelledBatch, missing_score_lines
from cems_workbench.evaluation.comparison import Comparison, MeasureDifference, compare, interval_words
from cems_workbench.evaluation.evaluate import evaluate, number
from cems_workbench.evaluation.metrics import Measure
from cems_workbench.pipeline import Trace, replay
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.gather import Request, gather_scores
from cems_workbench.pipeline.list_sources import list_label, ordinal
from cems_workbench.pipeline.missing_evidence import gathered_parameters
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import candidate_stages
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.pipeline.stages.result import plain_fields
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Memory, Query
from cems_workbench.results import MAX_ROWS, Table

NEW_ID = "new-memory"
"""The id of a memory that is not in the store."""
MAX_NEW_CHARS = 100_000
"""Longest text of one; it is cut into chunks as the store's rule says."""


class BeforeAfter(NamedTuple):
    """The same list or stage before and after the edit; None if the memory is not in it."""

    name: str
    before: Step | None
    after: Step | None


class MovedMemory(NamedTuple):
    """Another result with a changed rank; None: it is not among the results."""

    memory_id: str
    before: int | None
    after: int | None


@dataclass(frozen=True)
class WhatIf:
    """One edit and its effects; `approximated` lists, in sentences, the differences from a real edit."""

    stored: Memory | None
    """None: it is new."""
    edited: Memory | None
    """None: it is absent."""
    before: Trace
    after: Trace
    approximated: tuple[str, ...]

    @property
    def memory_id(self) -> str:
        memory = self.edited or self.stored
        assert memory is not None
        return memory.id

    @property
    def changes(self) -> list[tuple[str, Any, Any]]:
        """The fields that differ, as (name, stored, edited); none of a memory that is new or absent."""
        if self.stored is None or self.edited is None:
            return []
        pairs = ((one.name, getattr(self.stored, one.name), getattr(self.edited, one.name)) for one in fields(Memory))
        return [(name, was, now) for name, was, now in pairs if was != now]

    @property
    def rank(self) -> tuple[int | None, int | None]:
        """The memory's rank among the results, before and after."""
        before, after = (trace.ranks.get(self.memory_id) for trace in (self.before, self.after))
        return before, after

    def lists(self) -> list[BeforeAfter]:
        """The memory's rank in every list of either evidence."""
        before, after = (_in_lists(trace, self.memory_id) for trace in (self.before, self.after))
        names = dict.fromkeys(
            listed.name for trace in (self.before, self.after) for listed in trace.stage(LISTS).fields.lists
        )
        return [BeforeAfter(name, before.get(name), after.get(name)) for name in names]

    def stages(self) -> list[BeforeAfter]:
        """The memory's way through the stages after the lists."""
        k = target_rank(self.after.config)
        before, after = (memory_path(trace, self.memory_id, k) for trace in (self.before, self.after))
        names = [stage.name for stage in candidate_stages(self.after.config)[1:]]
        return [BeforeAfter(name, before.step(name), after.step(name)) for name in names]

    def others(self) -> list[MovedMemory]:
        """The other results with a changed rank, by their rank afterwards; those that are gone come last."""
        before, after = self.before.ranks, self.after.ranks
        moved = [
            MovedMemory(key, before.get(key), after.get(key))
            for key in before.keys() | after.keys()
            if key != self.memory_id and before.get(key) != after.get(key)
        ]
        return sorted(
            moved, key=lambda result: (result.after is None, result.after or 0, result.before or 0, result.memory_id)
        )

    def came(self, k: int) -> list[MovedMemory]:
        """The other memories that enter the first k results: what comes in an absent memory's place."""
        return [one for one in self.others() if within(one.after, k) and not within(one.before, k)]

    def left(self, k: int) -> list[MovedMemory]:
        """The other memories that leave the first k results."""
        return [one for one in self.others() if within(one.before, k) and not within(one.after, k)]

    @property
    def lines(self) -> tuple[str, ...]:
        """What the change does, and of an edited memory why it is not among the first results and which fields differ."""
        if not self.changes:
            return (self.sentence,)
        path = memory_path(self.after, self.memory_id, target_rank(self.after.config))
        lost = () if path.status == "in the top k" else (cause(path, self.after),)
        changed = (
            f"{name} ({len(was):,} → {len(now):,} characters)"
            if name == "content"
            else f"{name} {'none' if was is None else short_value(was)} → {'none' if now is None else short_value(now)}"
            for name, was, now in self.changes
        )
        return (self.sentence, *lost, f"Changed: {'; '.join(changed)}")

    @property
    def tables(self) -> tuple[Table, ...]:
        """The other results that move, and the memory in the lists and through the stages; before and after."""
        memories = {**self.before.evidence.memories, **self.after.evidence.memories}
        others = tuple((*one, memories[one.memory_id].content) for one in self.others())
        columns = ("memory", "rank before", "rank", "content")
        tables = [Table(columns, others, "other results that move", shown=MAX_ROWS)]
        for kind, title, pairs in (
            ("list", "in the lists", self.lists()),
            ("stage", "through the stages", self.stages()),
        ):
            rows = tuple(
                (list_label(name), *_cells(before, name), *_cells(after, name), (after and after.words) or None)
                for name, before, after in pairs
                if before or after
            )
            tables.append(Table((kind, "rank before", "score before", "rank", "score", "what happened"), rows, title))
        return tuple(tables)

    def to_json(self) -> dict[str, Any]:
        k = target_rank(self.after.config)
        return {
            "memory_id": self.memory_id,
            "sentence": self.sentence,
            "certainty": self.certainty,
            "rank": self.rank[1],
            "before": self.rank[0],
            "came": [one.memory_id for one in self.came(k)],
            "left": [one.memory_id for one in self.left(k)],
            "others": [{"memory_id": one.memory_id, "rank": one.after, "before": one.before} for one in self.others()],
            "lists": [
                {"list": name, "rank": after and after.rank, "before": before and before.rank}
                for name, before, after in self.lists()
                if before or after
            ],
        }

    @property
    def certainty(self) -> str:
        return certainty(self.approximated)

    @property
    def sentence(self) -> str:
        """What the change does to the first results, in a sentence."""
        k = target_rank(self.after.config)
        before, after = (f"{ordinal(rank)}" if rank is not None else "not in the results" for rank in self.rank)
        came, left = self.came(k), self.left(k)
        if self.edited is None:
            return f"Without {self.memory_id} ({before}), {_named(came)} {_verb(came, 'come')} into the first {k}."
        if self.stored is not None:
            return f"{self.memory_id} is {after}; before {before}."
        lost = loss(self.after, self.memory_id)
        where = "no list would find it" if lost is None else f"lost at {lost.stage}: {lost.reason}"
        if self.rank[1] is None:
            return f"This memory would not be found: {where}."
        return f"This memory would be {after}; {_named(left)} {_verb(left, 'leave')} the first {k}."


def _cells(place: Step | None, name: str) -> tuple[int | str | None, float | str | None]:
    """Rank, ✕ if it was dropped, and score: a date in the recency list, a count in the access list."""
    if place is None:
        return None, None
    rank = place.rank if place.kept else "✕"
    if place.score is None or name not in ("recency", "access"):
        return rank, place.score
    return rank, f"{datetime.fromtimestamp(place.score, UTC):%Y-%m-%d}" if name == "recency" else round(place.score)


def _named(moved: Sequence[MovedMemory]) -> str:
    return ", ".join(one.memory_id for one in moved) or "nothing"


def _verb(moved: Sequence[MovedMemory], verb: str) -> str:
    return verb if len(moved) > 1 else f"{verb}s"


def certainty(approximated: Sequence[str]) -> str:
    """The differences from a real change in sentences, or that there are none."""
    if not approximated:
        return "Exact: every rank is the one that a real change would give."
    return " ".join(("Estimated:", *approximated, "All other ranks are exact."))


def within(rank: int | None, k: int) -> bool:
    """Whether a rank among the results, None for none, is one of the first k."""
    return rank is not None and rank <= k


def absence(memory_id: str, resources: Resources) -> Edit:
    """The edit that takes a memory out. Raises InputError, naming the nearest ids, if the store does not have it."""
    return Edit(_stored(memory_id, resources), None, resources)


def presence(new: Memory, resources: Resources) -> Edit:
    """The edit that adds a memory, made by `new_memory`. Raises InputError for an id that the store has."""
    if resources.store.memories.get(new.id) is not None:
        raise InputError(f"{new.id}: the store has such a memory; edit it instead")
    return Edit(None, new, resources)


def new_memory(text: str, resources: Resources, **given: Any) -> Memory:
    """A memory of that text for `presence`, under an id that the store does not have; `given` are further fields.
    Raises InputError for an empty text and for one that is too long."""
    if not text.strip():
        raise InputError("text: it is empty; write what the memory would say")
    if len(text) > MAX_NEW_CHARS:
        raise InputError(
            f"text: it has {len(text):,} characters, and at most {MAX_NEW_CHARS:,} can be tried; shorten it"
        )
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InputError("text: it holds bytes that are not UTF-8 text; type it again")
    known, number = resources.store.memories.known, 1
    while known([NEW_ID if number == 1 else f"{NEW_ID}-{number}"]):
        number += 1
    return Memory(NEW_ID if number == 1 else f"{NEW_ID}-{number}", text, **given)


def _stored(memory_id: str, resources: Resources) -> Memory:
    stored = resources.store.memories.get(memory_id)
    if stored is None:
        require_stored(memory_id, resources.store)
        raise InputError(f"{memory_id}: no such memory; it may have been deleted")
    return stored


def applied(
    edit: Edit,
    evidence: Evidence,
    config: PipelineConfig,
    request: Request,
    *,
    switched_off: Collection[int] = (),
    progress: Progress = silent,
) -> WhatIf:
    """The effect of an edit on the evidence of a query. Nothing is written but model scores of the changed text, in
    their cache. Raises InputError for evidence without a list to rank the memory in, ModelError if the text cannot be
    embedded."""
    scratch = scored_evidence(edit, evidence, config, request, switched_off=switched_off, progress=progress)
    before, after = (replay(one, config, switched_off=switched_off) for one in (evidence, scratch))
    return WhatIf(edit.stored, edit.edited, before, after, tuple(approximated(edit, evidence)))


def scored_evidence(
    edit: Edit,
    evidence: Evidence,
    config: PipelineConfig,
    request: Request,
    *,
    switched_off: Collection[int] = (),
    progress: Progress = silent,
) -> Evidence:
    """`edited_evidence` with the reranker's and judge's scores that it needs. Raises as `applied` does."""
    if not any(ranked.variant is not None for ranked in evidence.lists):
        raise InputError(
            f"the evidence of “{short(evidence.query)}” has no list of a search to rank the memory in; gather it again"
        )
    scratch = edited_evidence(edit, evidence, config, request)
    judged = any(edit.memory_id in scores for scores in evidence.judge_scores.values())
    judged = judged or (edit.stored is None and any(evidence.judge_scores.values()))
    return gather_scores(
        scratch, config, edit.resources, progress, only=None if judged else "rerank", switched_off=switched_off
    )


def approximated(edit: Edit, evidence: Evidence) -> list[str]:
    """What differs from a real change, in sentences: which ranks are estimated; nothing if all are exact."""
    said: list[str] = []
    if edit.edited is not None and not edit.rewritten:
        return said
    what = "edit" if edit.edited and edit.stored else "import" if edit.edited else "deletion"
    live = [ranked.name for ranked in evidence.lists if answered_elsewhere(evidence, ranked.name)]
    if live:
        said.append(
            f"A running system answered {', '.join(live)}: only it knows what else it would return, and its scores may be on another scale."
        )
    if any(ranked.source == "ts_rank" for ranked in evidence.lists):
        said.append(
            f"Of equal ts_rank scores the one that was written last comes last; after a real {what} PostgreSQL may order them otherwise."
        )
    unchanged = "stay unchanged" if edit.edited else "lose it, and nothing moves up into them"
    kept = [ranked.name for ranked in evidence.lists if ranked.source not in (*RANKED_AGAIN, *ADDED_LISTS)]
    if kept:
        said.append(f"Lists that are not searched again ({', '.join(kept)}) {unchanged}.")
    added = [ranked.name for ranked in evidence.lists if ranked.source in ADDED_LISTS]
    if added:
        said.append(
            f"The lists of added sources ({', '.join(added)}) {unchanged}; only those sources know what they would return."
        )
    if gathered_parameters(evidence.notes).get("lists.vector.index") == "graph":
        said.append("The edited memory is placed by exact search; Chroma's graph might miss it.")
    if len(evidence.variants) > 1:
        said.append(
            f"The query variants are those that were searched; expansion might choose other words after a real {what}."
        )
    return said


def _in_lists(trace: Trace, memory_id: str) -> dict[str, Step]:
    """The memory's place in each list; a score is the raw one."""
    stage = trace.stage(LISTS)
    row = stage.by_id.get(memory_id)
    cut = {one.name: "past its depth" if one.active else "off" for one in stage.fields.lists}
    cut |= {one.name: f"inside {hybrid}" for one in stage.fields.lists if (hybrid := stage.fields.inside(one))}
    own = ((one, "" if one.kept else cut[one.list]) for one in (row.lists if row else ()))
    return {one.list: Step(one.list, None, one.rank, None, one.raw, one.kept, words) for one, words in own}


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
        return len(self.comparison.evaluations[0].qids)

    @property
    def first(self) -> MeasureDifference:
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
        measures = []
        for one in self.comparison.compared[0].differences:
            values = map(number, (one.baseline, one.value, one.difference))
            measures.append((str(one.measure), *values, interval_words(one.low, one.high)))
        changed = []
        for row in self.changed:
            moved = (", ".join(ids) or None for ids in (row.came, row.left))
            changed.append((row.query.qid, row.query.query, row.before, row.after, *moved, row.difference))
        columns = ("qid", "query", "rank before", "rank", "came", "left", str(self.first.measure))
        return (
            Table(("measure", "before", "after", "difference", "95 % interval"), tuple(measures), "all judged queries"),
            Table(columns, tuple(changed), "judged queries that change", shown=MAX_ROWS),
        )

    def to_json(self) -> dict[str, Any]:
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
    progress: Progress = silent,
) -> SetEffect:
    """What the edit does to the judged queries with evidence; `grades` are by qid and memory id. Raises InputError
    without a judged query, and for evidence without lists; ModelError if a text cannot be embedded. `progress` may
    raise `Cancelled`; model scores so far stay in the store's cache."""
    k, edited = target_rank(config), dict(evidences)
    kept = [query for query in queries if query.qid in evidences and grades.get(query.qid)]
    touched: set[str] = set()
    for done, query in enumerate(kept):
        progress(LABEL, done, len(kept))
        evidence = evidences[query.qid]
        if edit.edited is None and edit.memory_id not in evidence.memories and not config.rerank.prepend_question:
            continue
        request = Request(query.query, query.project, evidence.as_of)
        edited[query.qid] = scored_evidence(edit, evidence, config, request)
        touched.add(query.qid)
    progress(LABEL, len(kept), len(kept))
    of_stored = f"without {edit.memory_id}" if edit.edited is None else f"with {edit.memory_id} as edited"
    what = NEW if edit.stored is None else of_stored
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
        came = tuple(key for key in others[1] if key not in old[:k])
        left = tuple(key for key in others[0] if key not in new[:k])
        values = float(before.values[q, 0]), float(after.values[q, 0])
        changed.append(QueryEffect(query, rank_before, rank, came, left, *values))
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
