"""Evidence of a query with some parts as other evidence of it has them: what can be put back without a store.

The parts are the vector lists with the embeddings, all other lists with the texts and chunks, supersession, dates (with the moment of the
query) and the other fields of memories. Lists by date and use follow from the candidates.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline.evidence import Evidence, RankedList
from cems_workbench.pipeline.gather import metadata_lists
from cems_workbench.pipeline.supersession import SUPERSEDED
from cems_workbench.records import Memory
from cems_workbench.store.parts import COLUMNS, DATES, FIELDS, SUPERSESSION, TEXTS

VECTOR_LISTS, OTHER_LISTS = "vector lists", "lexical and other lists"
EVIDENCE_PARTS = (VECTOR_LISTS, OTHER_LISTS, SUPERSESSION, DATES, FIELDS)
"""In the order in which they are put back."""
_BY_DATE = ("recency", "access")


def differ(part: str, was: Evidence, now: Evidence) -> bool:
    """Whether a part of the evidence is another one; of memories that both have."""
    both = was.memories.keys() & now.memories.keys()
    if part in (DATES, FIELDS):
        names = COLUMNS[part]
        pairs = ((was.memories[key], now.memories[key]) for key in both)
        other = any(getattr(one, name) != getattr(two, name) for one, two in pairs for name in names)
        return other or (part == DATES and was.as_of != now.as_of)
    if part == SUPERSESSION:
        first, second = (evidence.notes.get(SUPERSEDED) or {} for evidence in (was, now))
        return any(first.get(key) != second.get(key) for key in both)
    lists = [[ranked for ranked in evidence.lists if _list_part(ranked) == part] for evidence in (was, now)]
    return lists[0] != lists[1]


def _list_part(ranked: RankedList) -> str:
    return DATES if ranked.source in _BY_DATE else VECTOR_LISTS if ranked.source == "vector" else OTHER_LISTS


def renamed(evidence: Evidence, names: Mapping[str, str]) -> Evidence:
    """The evidence with its memories under other ids; `names` has all of them."""

    def keys(of: Mapping[str, Any]) -> dict[str, Any]:
        return {names[key]: value for key, value in of.items()}

    noted = {
        names[key]: [one | {"id": names[one["id"]]} for one in own]
        for key, own in (evidence.notes.get(SUPERSEDED) or {}).items()
    }
    return replace(
        evidence,
        memories={names[key]: replace(one, id=names[key]) for key, one in evidence.memories.items()},
        lists=tuple(
            replace(ranked, hits=tuple(replace(hit, memory_id=names[hit.memory_id]) for hit in ranked.hits))
            for ranked in evidence.lists
        ),
        embeddings=keys(evidence.embeddings),
        chunks={
            names[key]: tuple(replace(one, memory_id=names[key]) for one in own) for key, own in evidence.chunks.items()
        },
        tokens=keys(evidence.tokens),
        relations=tuple(
            replace(one, source_id=names[one.source_id], target_id=names[one.target_id]) for one in evidence.relations
        ),
        model_scores={model: keys(own) for model, own in evidence.model_scores.items()},
        judge_scores={model: keys(own) for model, own in evidence.judge_scores.items()},
        notes={**evidence.notes, SUPERSEDED: noted} if SUPERSEDED in evidence.notes else evidence.notes,
    )


def with_parts(now: Evidence, was: Evidence, back: Collection[str], config: PipelineConfig) -> Evidence:
    """The evidence `now` with these parts of `was`, whose memories have the same ids."""
    columns = [name for part in (DATES, FIELDS) if part in back for name in COLUMNS[part]]
    columns += COLUMNS[TEXTS] if OTHER_LISTS in back else ()

    def memory(key: str, one: Memory) -> Memory:
        before = was.memories.get(key)
        return one if before is None else replace(one, **{name: getattr(before, name) for name in columns})

    def merged(part: str, name: str) -> dict[str, Any]:
        first, second = (was, now) if part in back else (now, was)
        return {**getattr(second, name), **getattr(first, name)}

    memories = {**was.memories, **{key: memory(key, one) for key, one in now.memories.items()}}
    known = [
        ranked
        for side, taken in ((now, False), (was, True))
        for ranked in side.lists
        if _list_part(ranked) != DATES and (_list_part(ranked) in back) == taken
    ]
    order = {ranked.name: place for place, ranked in enumerate([*now.lists, *was.lists])}
    known.sort(key=lambda ranked: order[ranked.name])
    noted = (was if SUPERSESSION in back else now).notes.get(SUPERSEDED)
    others = {name: note for name, note in now.notes.items() if name != SUPERSEDED}
    return replace(
        now,
        memories=memories,
        lists=(
            *known,
            *metadata_lists(
                {hit.memory_id: memories[hit.memory_id] for one in known for hit in one.hits}, known, config
            ),
        ),
        as_of=was.as_of if DATES in back else now.as_of,
        embeddings=merged(VECTOR_LISTS, "embeddings"),
        chunks=merged(OTHER_LISTS, "chunks"),
        tokens=merged(OTHER_LISTS, "tokens"),
        relations=(was if OTHER_LISTS in back else now).relations,
        model_scores={name: {**was.model_scores.get(name, {}), **own} for name, own in now.model_scores.items()},
        judge_scores={name: {**was.judge_scores.get(name, {}), **own} for name, own in now.judge_scores.items()},
        notes=others if noted is None else {**others, SUPERSEDED: noted},
    )
