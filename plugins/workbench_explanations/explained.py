"""One explained answer: what a live system printed of a query, in the one form that every reader gives; and the evidence that it is.

A reader names each list `source:variant`, by a list source of the pipeline and the number of the text that it searched, and the parts of a
score as the system calls them. `evidence_of` makes evidence of it that replays as any other does, with these rules:

- Ranks are those of the system. Where a rank of a list is not among the rows shown, a memory without text stands there, so that the others
  keep theirs (`UNSHOWN`): it is in the system's list, and the explanation does not say which memory it is.
- Equal scores stay in the order of the system's list (`RankedList.as_given`).
- A reranker's scores are kept under the name that the config reads; a memory that it did not score has failed, so that none is missing.

What the evidence is of stands in its note (`pipeline.explained`), with the config that replays it: that of the system's preset with what
the explanation says of its settings, or the formula that `formula.solve` finds behind the scores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from itertools import pairwise
from operator import getitem
from typing import Any

from cems_workbench.config import PipelineConfig, difference, preset, with_values
from cems_workbench.errors import InputError, counted, one_line, some
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.evidence import Hit, ModelScore, RankedList, Variant
from cems_workbench.pipeline.explained import EXPLAINED
from cems_workbench.pipeline.list_sources import SOURCES
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.records import Memory

BASE = "langchain"
"""The preset that a formula is a change of: one list, and nothing after it."""
UNSHOWN = "not shown: rank {rank} of {name}"
"""The id of a memory that a list has and the explanation does not show."""
MOST_UNSHOWN = 1_000
"""Unshown memories of a list; a rank further down is refused."""
NOT_SCORED = "the explanation has no score of it"
TOLERANCE = 1e-6
"""Relative difference of two printed scores that count as equal: engines compute in single precision."""


@dataclass(frozen=True, slots=True)
class Row:
    """One memory of an answer. `rank` is its place in the answer, from 1; 0 if a list has it and the answer does not. `lists` are its rank
    (from 1) and score in each list that has it, `parts` the numbers that its final score is made of."""

    id: str
    final: float | None
    rank: int
    lists: Mapping[str, tuple[int, float | None]]
    parts: Mapping[str, float] = field(default_factory=dict)
    text: str = ""
    title: str | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Explained:
    """One answer: the rows, best first, those that the answer does not have after them.

    `preset` and `changes` replay it, or one of `others`, changes as well, where the system does not say its settings; without a preset all
    are of `BASE`, and where none replays it the formula is solved. `reranked` is the part that a reranker's score is, `texts` are the
    further texts that were searched, `taken` says which of the system's lists is which of ours, and `doubts` are lines about what was not
    used.
    """

    query: str
    rows: Sequence[Row]
    system: str = ""
    preset: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    others: tuple[Mapping[str, Any], ...] = ()
    reranked: str = ""
    texts: tuple[str, ...] = ()
    taken: Mapping[str, str] = field(default_factory=dict)
    as_of: datetime | None = None
    qid: str = ""
    doubts: tuple[str, ...] = ()

    @property
    def returned(self) -> list[Row]:
        """The rows of the answer, best first."""
        return sorted((row for row in self.rows if row.rank), key=lambda row: row.rank)


def config_of(explained: Explained, changes: Mapping[str, Any] | None = None) -> PipelineConfig:
    """The config that the preset and the explanation say, or other changes, with each list that there is switched on."""
    names = sorted({name.partition(":")[0] for row in explained.rows for name in row.lists})
    values: dict[str, Any] = {f"lists.{name}.enabled": True for name in names}
    if not explained.preset:
        plain = {name: "none" for name in names if name not in ("vector", "relations", "entities")}
        values |= {f"lists.{name}.normalization": value for name, value in plain.items()}
        values |= {"query.mode": "hybrid", "fusion.single_list": "fuse", "fusion.tie_break": "first_seen"}
    values["assembly.limit"] = max(len(explained.returned), 1)
    config = preset(explained.preset or BASE).config
    return with_values(config, values | dict(explained.changes if changes is None else changes))


def evidence_of(explained: Explained) -> Evidence:
    """The evidence of an explanation, with its note and the config that replays it best. Raises InputError for one without a row, with a
    list that no source has, or with a rank too far down."""
    if not explained.returned:
        raise InputError("explains no memory")
    evidence = _evidence(explained)
    config, formula, doubts = _explained_by(explained, evidence)
    order = [row.memory_id for row in replay(evidence, config).results]
    wanted = [row.id for row in explained.returned]
    same = same_order(explained, order)
    lines = [*explained.doubts, *doubts]
    if not same:
        first = next((i for i, pair in enumerate(zip(wanted, order, strict=False)) if pair[0] != pair[1]), len(order))
        lines.append(
            f"the replay differs from the answer from rank {first + 1} on, so what a setting does there is a guess"
        )
    plain = config.model_dump(mode="json")
    changed = (path for path, _, _ in difference(preset(explained.preset or BASE).config, config))
    values = {path: reduce(getitem, path.split("."), plain) for path in changed}
    note = {
        "system": explained.system,
        "preset": explained.preset or BASE,
        "values": values,
        "formula": formula,
        "qid": explained.qid,
        "shown": len(explained.returned),
        "order": wanted,
        "same_order": same,
        "taken": dict(explained.taken),
        "lines": lines,
    }
    return replace(evidence, notes={**evidence.notes, EXPLAINED: note})


def _explained_by(explained: Explained, evidence: Evidence) -> tuple[PipelineConfig, str, list[str]]:
    """The config, the formula where it was solved, and lines about what is not explained."""
    first = config_of(explained)
    for changes in (explained.changes, *explained.others):
        config = config_of(explained, changes)
        if same_order(explained, [row.memory_id for row in replay(evidence, config).results]):
            return config, "" if explained.preset else _words(changes), []
    return first, "", []


def _words(changes: Mapping[str, Any]) -> str:
    return " ".join(f"{path}={value}" for path, value in changes.items())


def same_order(explained: Explained, order: Sequence[str]) -> bool:
    """Whether an order is that of the answer, where rows of equal final scores may be exchanged."""
    rows = explained.returned
    if len(order) < len(rows):
        return False
    final = {row.id: row.final for row in rows}
    for row, other in zip(rows, order, strict=False):
        theirs, ours = row.final, final.get(other)
        if other != row.id and (
            theirs is None or ours is None or abs(theirs - ours) > TOLERANCE * max(1.0, abs(theirs))
        ):
            return False
    return len(set(order[: len(rows)]) & final.keys()) == len(rows)


def _evidence(explained: Explained) -> Evidence:
    variants = (Variant(explained.query), *(Variant(text, "expansion") for text in explained.texts))
    memories = {row.id: Memory(row.id, row.text, title=row.title, created_at=row.created_at) for row in explained.rows}
    lists = []
    for name in dict.fromkeys(name for row in explained.rows for name in row.lists):
        source, _, number = name.partition(":")
        if source not in SOURCES or (number and int(number) >= len(variants)):
            raise InputError(f"{one_line(name, 60)}: no list of the pipeline")
        hits, unshown = _hits(explained, name)
        memories |= {key: Memory(key, "") for key in unshown}
        lists.append(RankedList(name, source, int(number) if number else None, hits, as_given=True))
    lists.sort(key=lambda one: (one.variant is None, one.variant or 0, SOURCES.index(one.source)))
    scores = {}
    if explained.reranked:
        key = model_key(config_of(explained).rerank)
        parts = {row.id: row.parts.get(explained.reranked) for row in explained.rows}
        scores[key] = {one: ModelScore(raw) for one, raw in parts.items() if raw is not None}
        scores[key] |= {one: ModelScore(None, error=NOT_SCORED) for one in memories if one not in scores[key]}
    return Evidence(explained.query, memories, variants, tuple(lists), explained.as_of, model_scores=scores)


def _hits(explained: Explained, name: str) -> tuple[tuple[Hit, ...], list[str]]:
    """The hits of a list with one at every rank, and the ids of those that are not shown. A hit without a score has the less, the further
    down it is; an unshown one has that of the next shown one, or less where its ranks say so."""
    held = sorted((row.lists[name], row.id) for row in explained.rows if name in row.lists)
    ranks = [rank for (rank, _), _ in held]
    if ranks and ranks[-1] > len(ranks) + MOST_UNSHOWN:
        raise InputError(f"{name}: rank {ranks[-1]} of a list of which {counted(len(ranks), 'memories')} are shown")
    hits: list[Hit] = []
    unshown, last = [], math.nan
    for (rank, score), key in held:
        raw = -float(rank) if score is None else score
        while len(hits) < rank:
            shown = len(hits) + 1 == rank
            # Equal ones keep their order where a file keeps none.
            value = math.nextafter(hits[-1].score, -math.inf) if hits and raw == last else raw
            hits.append(Hit(key if shown else UNSHOWN.format(rank=len(hits) + 1, name=name), value))
            unshown += [] if shown else [hits[-1].memory_id]
            last = raw
    return tuple(hits), unshown


def contradictions(rows: Sequence[Row]) -> tuple[str, ...]:
    """Lines about scores that contradict the ranks: of the answer, and of each list; the ranks are taken."""
    found = []
    names = dict.fromkeys(name for row in rows for name in row.lists)
    said = [("the answer", [(row.rank, row.final, row.id) for row in rows if row.rank])]
    said += [(name, [(*row.lists[name], row.id) for row in rows if name in row.lists]) for name in names]
    for what, ranked in said:
        ranked.sort(key=lambda one: one[0])
        wrong = [
            f"rank {below[0]} ({one_line(below[2], 40)})"
            for above, below in pairwise(ranked)
            if above[1] is not None
            and below[1] is not None
            and below[1] > above[1] + TOLERANCE * max(1.0, abs(above[1]))
        ]
        if wrong:
            found.append(f"{what}: {some(wrong, 3)} has a higher score than the rank above: the ranks are taken")
    return tuple(found)
