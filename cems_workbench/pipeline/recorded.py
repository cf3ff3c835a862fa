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
from dataclasses import dataclass, field
from typing import Any

from cems_workbench.records import STAGE_KINDS, StageKind

RECORDED = "recorded_stages"
"""The note."""
OWN_IDS = "own_ids"
"""The note of a stage that did not join the same texts under different ids: `formats.base.traces.TracedQuery.own_ids`."""
HEADS = "heads"
"""The note of lists and stages whose texts are the beginnings of longer ones: `jobs/traces.py`."""
ASKED = "asked"
"""The note of lists and rerankers that were given another text than the query: `formats.base.traces.TracedQuery.asked`."""
CUTTING: tuple[StageKind, ...] = ("filter", "dedup")
"""Kinds that give no rank to what has none."""
NOT_RETURNED = "not in its output"
NOT_READ = "not in its input"
NOT_KEPT = "found by a list, and not passed on"

Scored = tuple[tuple[str, float | None], ...]
"""(memory id, score) best first."""


@dataclass(frozen=True, slots=True)
class RecordedList:
    """One list as the pipeline found it; `left_out` are hits that it does not pass on, such as those past its depth.

    `lost` says which of its documents the trace lacks, and why; empty if none.
    """

    name: str
    hits: Scored
    left_out: frozenset[str] = frozenset()
    lost: str = ""


@dataclass(frozen=True, slots=True)
class RecordedStage:
    """One stage; `input` None: what the stage before left. `joined`: its input has no order, since it comes from several.

    `dropped`: by id why, and whether only its rank was at fault.
    """

    name: str
    kind: StageKind
    output: Scored
    input: Scored | None = None
    joined: bool = False
    ranked: bool = True
    dropped: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    ms: float | None = None


@dataclass(frozen=True, slots=True)
class RecordedStages:
    """The lists and stages of one query, in the order in which they ran. `kept` None: everything that a list found.

    `unknown`: nothing says what was returned, so that the empty last stage is no empty answer.
    """

    lists: tuple[RecordedList, ...]
    stages: tuple[RecordedStage, ...]
    kept: frozenset[str] | None = None
    unknown: bool = False

    @property
    def ids(self) -> set[str]:
        """Every memory that a list or a stage names."""
        found = {key for ranked in self.lists for key, _ in ranked.hits}
        for stage in self.stages:
            found |= {key for key, _ in (*stage.output, *(stage.input or ()))}
        return found

    @property
    def results(self) -> Scored:
        """What the last stage returned."""
        return self.stages[-1].output if self.stages else ()

    def to_json(self) -> dict[str, Any]:
        """The note; what is not said is left out."""
        values: dict[str, Any] = {
            "lists": [
                {"name": one.name, "hits": [list(hit) for hit in one.hits]}
                | ({"left_out": sorted(one.left_out)} if one.left_out else {})
                | ({"lost": one.lost} if one.lost else {})
                for one in self.lists
            ],
            "stages": [_stage_values(stage) for stage in self.stages],
        }
        if self.kept is not None:
            values["kept"] = sorted(self.kept)
        return values | {"unknown": True} if self.unknown else values


def _stage_values(stage: RecordedStage) -> dict[str, Any]:
    values: dict[str, Any] = {"name": stage.name, "kind": stage.kind, "output": [list(hit) for hit in stage.output]}
    if stage.input is not None:
        values["input"] = [list(hit) for hit in stage.input]
    if stage.joined:
        values["joined"] = True
    if not stage.ranked:
        values["ranked"] = False
    if stage.dropped:
        values["dropped"] = {key: list(why) for key, why in stage.dropped.items()}
    return values if stage.ms is None else values | {"ms": stage.ms}


def read_recorded(note: Any) -> RecordedStages:
    """The stages of a note. Raises ValueError, naming the field, for one that is not as `to_json` writes it."""
    values = _typed(note, dict, "")
    lists = tuple(
        RecordedList(
            _name(one, f"lists[{i}]"),
            _scored(one.get("hits"), f"lists[{i}].hits"),
            _ids(one.get("left_out", []), f"lists[{i}].left_out"),
            _typed(one.get("lost", ""), str, f"lists[{i}].lost"),
        )
        for i, one in enumerate(_objects(values.get("lists", []), "lists"))
    )
    stages = tuple(_stage(one, f"stages[{i}]") for i, one in enumerate(_objects(values.get("stages"), "stages")))
    names = ["lists", *(stage.name for stage in stages)]
    if len(set(names)) < len(names):
        raise ValueError(f"stages: two are named {max(names, key=names.count)!r}")
    listed = [one.name for one in lists]
    if len(set(listed)) < len(listed):
        raise ValueError(f"lists: two are named {max(listed, key=listed.count)!r}")
    if not stages:
        raise ValueError("stages: expected at least one")
    kept = values.get("kept")
    unknown = _typed(values.get("unknown", False), bool, "unknown")
    return RecordedStages(lists, stages, None if kept is None else _ids(kept, "kept"), unknown)


def _ids(value: Any, where: str) -> frozenset[str]:
    if not all(isinstance(key, str) for key in _typed(value, list, where)):
        raise ValueError(f"{where}: expected ids")
    return frozenset(value)


def _stage(values: Mapping[str, Any], where: str) -> RecordedStage:
    kind = values.get("kind")
    if kind not in STAGE_KINDS:
        raise ValueError(f"{where}.kind: expected one of {', '.join(STAGE_KINDS)}")
    read = values.get("input")
    reasons = _typed(values.get("dropped", {}), dict, f"{where}.dropped")
    for key, why in reasons.items():
        if not (isinstance(why, list) and len(why) == 2 and isinstance(why[0], str) and isinstance(why[1], bool)):
            raise ValueError(f"{where}.dropped.{key[:40]}: expected a reason, and whether only the rank was at fault")
    ms = values.get("ms")
    if ms is not None and (isinstance(ms, bool) or not isinstance(ms, int | float)):
        raise ValueError(f"{where}.ms: expected a number")
    return RecordedStage(
        _name(values, where),
        kind,
        _scored(values.get("output"), f"{where}.output"),
        None if read is None else _scored(read, f"{where}.input"),
        _typed(values.get("joined", False), bool, f"{where}.joined"),
        _typed(values.get("ranked", True), bool, f"{where}.ranked"),
        {key: (why[0], why[1]) for key, why in reasons.items()},
        None if ms is None else float(ms),
    )


def _name(values: Mapping[str, Any], where: str) -> str:
    name = _typed(values.get("name"), str, f"{where}.name")
    if not name:
        raise ValueError(f"{where}.name: expected a name")
    return str(name)


def _objects(value: Any, where: str) -> list[dict[str, Any]]:
    return [_typed(one, dict, f"{where}[{i}]") for i, one in enumerate(_typed(value, list, where))]


def _scored(value: Any, where: str) -> Scored:
    found = []
    for i, row in enumerate(_typed(value, list, where)):
        good = isinstance(row, list) and len(row) == 2 and isinstance(row[0], str)
        number = good and not isinstance(row[1], bool) and isinstance(row[1], int | float)
        if not good or not (number or row[1] is None):
            raise ValueError(f"{where}[{i}]: expected an id, and a score or null")
        found.append((row[0], float(row[1]) if number else None))
    if len({key for key, _ in found}) < len(found):
        raise ValueError(f"{where}: a memory is in it twice")
    return tuple(found)


def _typed(value: Any, kind: type, where: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{where}: expected {kind.__name__}, found {type(value).__name__}".removeprefix(": "))
    return value


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
    """What a stage did with its candidates: by id rank (from 1, 0 unknown) and score, before and after it.

    `lost` are those that left here with the reason, and whether only the rank was at fault; `waiting` are elsewhere.
    """

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
