"""One explained answer: what a live system printed of a query, in the one form that every reader gives; and the evidence that it is.

A reader names each list `source:variant`, by a list source of the pipeline and the number of the text that it searched, and the parts of a
score as the system calls them. `evidence_of` makes evidence of it that replays as any other does, with these rules:

- Ranks are those of the system. Where a rank of a list is not among the rows shown, a memory without its text takes the rank, so that the
  others keep theirs (`UNSHOWN`): it is in the system's list, and the explanation does not say which memory it is.
- Equal scores stay in the order of the system's list (`RankedList.as_given`).
- A reranker's scores are kept under the name that the config reads. A memory without one is below the cut of the answer, and is dropped.

What the evidence is of stands in its note (`pipeline.explained`), with the config that replays it: that of the system's preset with what
the explanation says of its settings, or the formula that `formula.solve` finds behind the scores.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from itertools import pairwise
from operator import getitem
from typing import TYPE_CHECKING, Any

from cems_workbench.builtin import REFERENCE_PRESET
from cems_workbench.config import PipelineConfig, difference, preset, with_values
from cems_workbench.config.model import changed
from cems_workbench.errors import InputError, counted, one_line, some
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.evidence import Hit, ModelScore, RankedList, Variant
from cems_workbench.pipeline.explained import EXPLAINED, UNSHOWN
from cems_workbench.pipeline.list_sources import SOURCES
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.records import Memory

if TYPE_CHECKING:
    from workbench_explanations.formula import Solved

BASE = "langchain"
"""The preset that a formula is a change of: one list, and nothing after it."""
MOST_UNSHOWN = 1_000
"""Unshown memories of a list; a rank further down is refused."""
NOT_SCORED = "without a score in the explanation"
MOST_TRIES = 3
"""Formulas that are solved of one system in a text; each takes about a second."""
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
    factor: float = 1.0
    """What its score is multiplied by besides what the preset computes: it stands as the memory's priority."""


@dataclass(frozen=True, slots=True)
class Explained:
    """One answer: the rows, best first, those that the answer does not have after them.

    `preset` and `changes` replay it, or one of `others`, changes as well, where the system does not say its settings; without a preset all
    are of `BASE`, and where none replays it the formula is solved. `reranked` is the part that a reranker's score is, `texts` are the
    further texts that were searched, `taken` says which of the system's lists is which of ours, and `doubts` are lines about what was not
    used. `number` is that of its document.
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
    number: int = 1
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
    values |= {"rerank.on_error": "drop"} if explained.reranked else {}
    values["assembly.limit"] = max(len(explained.returned), 1)
    config = preset(explained.preset or BASE).config
    return with_values(config, values | dict(explained.changes if changes is None else changes))


class Formulas:
    """The formulas that were solved so far in one text, by system: a program keeps its formula, and is solved a few times at most."""

    def __init__(self) -> None:
        self.found: dict[str, list[Solved]] = {}
        self.tried: Counter[str] = Counter()

    def of(self, explained: Explained, following: Sequence[Explained]) -> Solved | None:
        """The formula behind an explanation, by those that follow it as well; None with a preset, and where the tries are spent."""
        from workbench_explanations.formula import solve  # scipy takes half a second to import

        if explained.preset:
            return None
        program = [explained, *(one for one in following if one.system == explained.system)]
        for solved in self.found.setdefault(explained.system, []):
            if solved.config is not None and _replays(explained, _solved(explained, solved), solved.config):
                return solved
        self.tried[explained.system] += 1
        if self.tried[explained.system] > MOST_TRIES or all(row.final is None for row in explained.rows):
            return None
        solved = solve([_bare(one) for one in program])
        self.found[explained.system].append(solved)
        return solved


def _bare(explained: Explained) -> Explained:
    """What the formula is solved from; parts that are the scores of a list are none."""
    rows = []
    for row in explained.rows:
        listed = {score for _, score in row.lists.values()}
        parts = {name: value for name, value in row.parts.items() if value not in listed}
        rows.append(replace(row, parts=parts))
    return replace(explained, rows=rows)


def _solved(explained: Explained, solved: Solved) -> Evidence:
    """The evidence on which a formula was solved, with the texts of the memories."""
    from workbench_explanations import formula

    (evidence,) = formula.evidence_of([_bare(explained)], solved.roles)
    as_of = evidence.as_of if _aged(solved) else explained.as_of
    said: dict[str, Any] = {row.id: {"content": row.text, "title": row.title} for row in explained.rows}
    memories = {key: replace(one, **said.get(key, {})) for key, one in evidence.memories.items()}
    return replace(evidence, memories=memories, as_of=as_of)


def _aged(solved: Solved) -> bool:
    """Whether a formula takes a part for an age, which counts back from a moment that no explanation says."""
    return not {"age", "around"}.isdisjoint(solved.roles.values())


def _replays(explained: Explained, evidence: Evidence, config: PipelineConfig) -> bool:
    """Whether a config gives the order of the answer, and, where nothing but the scores says which formula it is, the scores."""
    ours = _scores(evidence, config)
    if not same_order(explained, ours):
        return False
    return bool(explained.preset) or all(
        row.final is None or _equal(row.final, ours[row.id]) for row in explained.returned
    )


def _equal(one: float, other: float) -> bool:
    return abs(one - other) <= TOLERANCE * max(1.0, abs(one))


def _scores(evidence: Evidence, config: PipelineConfig) -> dict[str, float]:
    """Our scores of all candidates that are left without the last cut, in order."""
    whole = changed(config, "assembly.limit", max(len(evidence.memories), 1))
    return {row.memory_id: row.score or 0.0 for row in replay(evidence, whole).results}


def nothing_found(explained: Explained) -> Evidence:
    """The evidence of an answer without a memory: a query that found nothing."""
    note = {"system": explained.system, "preset": BASE, "values": {}, "qid": explained.qid, "shown": 0, "order": [], "same_order": True}
    return Evidence(explained.query, {}, as_of=explained.as_of, notes={EXPLAINED: note})


def evidence_of(explained: Explained, formulas: Formulas, following: Sequence[Explained] = ()) -> Evidence:
    """The evidence of an explanation, with its note and the config that replays it: that of its system, else the formula that is solved,
    also from the explanations that follow it. Raises InputError for one without a row, with a list that no source has, or with a rank too
    far down."""
    if not explained.returned:
        raise InputError("is empty: nothing was returned" if not explained.rows else "explains no memory")
    evidence, base, doubts = _evidence(explained), explained.preset or BASE, list(explained.doubts)
    config, said = config_of(explained), ""
    for changes in (explained.changes, *explained.others):
        config = config_of(explained, changes)
        if _replays(explained, evidence, config):
            said = "" if explained.preset else _words(changes)
            break
    else:
        config = config_of(explained)
        solved = formulas.of(explained, following)
        if solved is not None and solved.config is not None:
            limited = with_values(solved.config, {"assembly.limit": len(explained.returned)})
            own = _solved(explained, solved)
            if _replays(explained, own, limited):
                evidence, config, base, said = own, limited, REFERENCE_PRESET, solved.formula
                doubts += [f"not determined: {one}" for one in solved.undetermined]
                if _aged(solved) and own.as_of is not None:
                    doubts.append(f"it says ages and no dates: they are counted back from {own.as_of:%Y-%m-%d}, which is assumed")
        elif solved is not None and solved.unexplained:
            doubts.append(f"no formula was found: {solved.unexplained}")
    ours, wanted = _scores(evidence, config), [row.id for row in explained.returned]
    same = same_order(explained, ours)
    if not same:
        first = next((i for i, pair in enumerate(zip(wanted, ours, strict=False)) if pair[0] != pair[1]), len(ours))
        doubts.append(
            f"the replay differs from the answer from rank {first + 1} on, so what a setting does there is a guess"
        )
    plain = config.model_dump(mode="json")
    paths = (path for path, _, _ in difference(preset(base).config, config))
    note = {
        "system": explained.system,
        "preset": base,
        "values": {path: reduce(getitem, path.split("."), plain) for path in paths},
        "formula": said,
        "assumed": "" if said or explained.preset else config.fusion.method,
        "qid": explained.qid,
        "shown": len(wanted),
        "order": wanted,
        "scores": [row.final for row in explained.returned],
        "same_order": same,
        "created": {row.id: row.created_at.isoformat() for row in explained.rows if row.created_at is not None},
        "taken": dict(explained.taken),
        "lines": doubts,
    }
    return replace(evidence, notes={**evidence.notes, EXPLAINED: note})


def _words(changes: Mapping[str, Any]) -> str:
    return " ".join(f"{path}={value}" for path, value in changes.items())


def same_order(explained: Explained, ours: Mapping[str, float]) -> bool:
    """Whether the order of our scores is that of the answer, where memories of equal scores may be exchanged, also at its cut."""
    rows = explained.returned
    pairs = zip(rows, ours, strict=False)
    same = (other == row.id or (row.id in ours and _equal(ours[row.id], ours[other])) for row, other in pairs)
    return len(ours) >= len(rows) and all(same) and all(row.id in ours for row in rows)


def _evidence(explained: Explained) -> Evidence:
    variants = (Variant(explained.query), *(Variant(text, "expansion") for text in explained.texts))
    memories = {
        row.id: Memory(row.id, row.text, title=row.title, created_at=row.created_at, priority=row.factor)
        for row in explained.rows
    }
    lists = []
    for name in dict.fromkeys(name for row in explained.rows for name in row.lists):
        source, _, number = name.partition(":")
        if source not in SOURCES or (number and int(number) >= len(variants)):
            raise InputError(f"{one_line(name, 60)}: no list of the pipeline")
        hits, unshown = _hits(explained, name)
        memories |= {key: Memory(key, f"({key})") for key in unshown}
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
        raw = 1 / rank if score is None else score
        while len(hits) < rank:
            shown = len(hits) + 1 == rank
            # Equal ones keep their order where a file keeps none.
            value = math.nextafter(hits[-1].score, -math.inf) if hits and raw == last else raw
            hits.append(Hit(key if shown else f"{UNSHOWN}rank {len(hits) + 1} of {name}", value))
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
