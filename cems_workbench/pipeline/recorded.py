"""Recorded stages: what a pipeline that is not ours did with one query, as an external trace brought it.

They are the note `recorded_stages` of evidence, so that bundles and evidence files hold them. Replay returns them under any config:

    {"lists":  [{"name": "bm25", "hits": [["m1", 12.3], ["m7", null]], "left_out": ["m7"], "lost": "2 of its 9 documents …"}],
     "kept":   null, or the ids that the lists pass on together,
     "stages": [{"name": "rerank", "kind": "rerank", "ranked": true, "input": null, "output": [["m7", 0.9]],
                 "dropped": {"m1": ["below the threshold", false]}, "ms": 4.2}],
     "unknown": true, where nothing says what was returned}

Hits, inputs and outputs are pairs of memory and score, best first; a score is null where none was recorded. The input null is what the
stage before left, at the first stage what the lists found. `dropped` has reasons, and whether the only fault was the rank.

A candidate that is not in the input of a stage, and that nothing dropped before, waits: it may be on another branch of the pipeline.
One that waits for nothing is lost at the first stage that took others from where it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cems_workbench.platform.typed_json import Misread, expect, reader
from cems_workbench.records import RecordedStages, Scored, StageKind

RECORDED = "recorded_stages"
"""The note."""
OWN_IDS = "own_ids"
"""The note of a stage that did not join the same texts under different ids: `formats.base.records.TracedQuery.own_ids`."""
HEADS = "heads"
"""The note of lists and stages whose texts are the beginnings of longer ones: `jobs/traces.py`."""
ASKED = "asked"
"""The note of lists and rerankers that were given another text than the query: `formats.base.records.TracedQuery.asked`."""
CUTTING: tuple[StageKind, ...] = ("filter", "dedup")
"""Kinds that give no rank to what has none."""
NOT_RETURNED = "not in its output"
NOT_READ = "not in its input"
NOT_KEPT = "found by a list, and not passed on"

def read_recorded(note: Any) -> RecordedStages:
    """The stages of a note. Raises ValueError, naming the field, for one that is not as `to_json` writes it."""
    values = expect(note, dict, "an object")
    found: RecordedStages = reader(RecordedStages)({"lists": [], **values})
    _once("stages", ["lists", *(stage.name for stage in found.stages)], "two are named {!r}")
    _once("lists", [one.name for one in found.lists], "two are named {!r}")
    if not found.stages:
        raise Misread("expected at least one", "stages")
    ranked = [(f"lists[{i}].hits", one.hits) for i, one in enumerate(found.lists)]
    for i, stage in enumerate(found.stages):
        ranked += [(f"stages[{i}].output", stage.output), (f"stages[{i}].input", stage.input or ())]
    for where, hits in ranked:
        _once(where, [key for key, _ in hits], "{!r} is in it twice")
    return found


def _once(where: str, names: Sequence[str], problem: str) -> None:
    """Raise Misread for a name that is empty, or that stands twice."""
    if "" in names:
        raise Misread("expected a name", where)
    if len(set(names)) < len(names):
        raise Misread(problem.format(max(names, key=names.count)), where)


@dataclass(frozen=True, slots=True)
class StageHead:
    """What of a stage is the same for every query of a table. Ranks before or after it are None where it has not `ranks_in` or
    `ranks_out`."""

    name: str
    kind: StageKind
    ranks_in: bool
    ranks_out: bool


@dataclass(frozen=True, slots=True)
class StageWay:
    """What a stage did with its candidates: by id rank (from 1, 0 unknown) and score, before and after it. `lost` are
    those that left here with the reason, and whether only the rank was at fault; `waiting` are elsewhere."""

    head: StageHead
    before: Mapping[str, tuple[int, float | None]]
    after: Mapping[str, tuple[int, float | None]]
    lost: Mapping[str, tuple[str, bool]]
    waiting: frozenset[str]
    ms: float | None


def heads(recorded: RecordedStages) -> tuple[StageHead, ...]:
    """The stages after the lists, without what they did."""
    # Of several lists no candidate has a rank yet; the group of a single one that says what it passes on has none either.
    ranked = len(recorded.lists) == 1 and recorded.kept is None
    found = []
    for stage in recorded.stages:
        ranked = ranked and not stage.joined
        # The last stage ranks, whatever its kind: its order is that of the results.
        after = (stage.ranked and (ranked or stage.kind not in CUTTING)) or stage is recorded.stages[-1]
        found.append(StageHead(stage.name, stage.kind, ranked, after))
        ranked = after
    return tuple(found)


def passed_on(recorded: RecordedStages) -> dict[str, None]:
    """The candidates that the lists pass on, in the order of the first list that has each."""
    found = dict.fromkeys(key for one in recorded.lists for key, _ in one.hits if key not in one.left_out)
    return found if recorded.kept is None else {key: None for key in found if key in recorded.kept}


def ways(recorded: RecordedStages) -> list[StageWay]:
    """What each stage did with every candidate, with those that wait for nothing lost where others were taken (see the module)."""
    if len(recorded.lists) == 1:
        passed = passed_on(recorded)
        left: Scored = tuple(hit for hit in recorded.lists[0].hits if hit[0] in passed)
    else:
        left = tuple((key, None) for key in passed_on(recorded))
    present = {key for key, _ in left}
    last_seen = dict.fromkeys(present, -1)
    found: list[StageWay] = []
    for i, (stage, head) in enumerate(zip(recorded.stages, heads(recorded), strict=True)):
        before, after = _ranked(stage.input if stage.input is not None else left), _ranked(stage.output)
        lost = {key: stage.dropped.get(key, (NOT_RETURNED, False)) for key in before if key not in after}
        waiting = present - before.keys() - after.keys()
        found.append(StageWay(head, before, after, lost, frozenset(waiting), stage.ms))
        present = waiting | after.keys()
        last_seen |= dict.fromkeys(after, i)
        left = stage.output
    returned = found[-1].after.keys() if found else set()
    left_over = {key: last_seen[key] for key in present if key not in returned}
    return _without_left_over(recorded, found, left_over) if left_over else found


def _without_left_over(
    recorded: RecordedStages, found: Sequence[StageWay], left_over: Mapping[str, int]
) -> list[StageWay]:
    """The ways with every candidate of `left_over`, by the stage that had it last, lost at one of the stages after that."""
    lost_at: dict[int, dict[str, tuple[int, float | None]]] = {}
    for key, last in left_over.items():
        if last < 0:
            ranks = {}
            others = {other for one in recorded.lists if _has(one.hits, key) for other, _ in one.hits}
            if len(recorded.lists) == 1:
                ranks = _ranked(recorded.lists[0].hits)
        else:
            ranks = dict(found[last].after)
            others = set(ranks)
        later = range(last + 1, len(found))
        took = next((i for i in later if any(other in others for other in found[i].before)), len(found) - 1)
        lost_at.setdefault(took, {})[key] = ranks.get(key, (0, None))
    gone: set[str] = set()
    out = []
    for i, way in enumerate(found):
        own = lost_at.get(i, {})
        gone |= own.keys()
        said = recorded.stages[i].dropped
        out.append(
            StageWay(
                way.head,
                {**way.before, **own},
                way.after,
                {**way.lost, **{key: said.get(key, (NOT_READ, False)) for key in own}},
                way.waiting - gone,
                way.ms,
            )
        )
    return out


def _has(hits: Iterable[tuple[str, float | None]], key: str) -> bool:
    return any(one == key for one, _ in hits)


def _ranked(hits: Scored) -> dict[str, tuple[int, float | None]]:
    return {key: (rank, score) for rank, (key, score) in enumerate(hits, 1)}


def merged_names(sequences: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """One order of the names of several sequences: each new name follows the one that is before it where it is first met."""
    order: list[str] = []
    for names in sequences:
        place = 0
        for name in names:
            if name in order:
                place = order.index(name) + 1
            else:
                order.insert(place, name)
                place += 1
    return tuple(order)
