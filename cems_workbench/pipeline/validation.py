"""Validation of evidence: the same rules and messages for bundles and evidence files.

A fault is one line that names the field as a bundle writes it. Faults that only one format can have (a hit on a missing memory by its
number) are reported by its reader.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from cems_workbench.errors import InputError, one_line, short
from cems_workbench.pipeline.evidence import LANGUAGE, VARIANT_KINDS, Evidence, RankedList
from cems_workbench.pipeline.list_sources import SOURCES
from cems_workbench.pipeline.recorded import RECORDED
from cems_workbench.pipeline.supersession import EXCLUDED, SUPERSEDED, check_excluded, check_note
from cems_workbench.records import LANGUAGES, Chunk, Judgment, Memory, Query

MAX_GRADE = 1_000_000_000
"""Larger grades, of either sign, are faults; sums within it stay exact."""
KINDS = ("human", "model")
_COUNTS = ("access_count", "relevant_count", "noise_count")
NOTES = ("query", "expansion", "gathered", "models", "warnings", "rerankers", "judges")
"""Notes that are objects."""
_MEMBER = attrgetter("memory_id", "chunk")
_SCORE = attrgetter("score")


def fault(source: str, where: str, problem: str) -> InputError:
    """The error of a field."""
    return InputError(f"{source}: {one_line(where)}: {problem}")


def check(evidence: Evidence, source: str) -> None:
    """Raise InputError as `<source>: <field>: <what is wrong>` for the first fault."""
    check_memories(evidence.memories.values(), evidence.embeddings, evidence.chunks, evidence.tokens, source)
    check_query(evidence, source)


def check_memories(
    memories: Iterable[Memory],
    embeddings: Mapping[str, Any],
    chunks: Mapping[str, Sequence[Chunk]],
    tokens: Mapping[str, Sequence[int]],
    source: str,
) -> None:
    """Raise InputError for an invalid memory, embedding, chunk or token count."""
    known = set()
    for memory in memories:
        known.add(memory.id)
        if not math.isfinite(memory.priority):
            raise fault(source, f"memories.{memory.id}.priority", f"expected a finite number, found {memory.priority}")
        for name in _COUNTS:
            count = getattr(memory, name)
            if count < 0:
                raise fault(source, f"memories.{memory.id}.{name}", f"expected a count from 0, found {short(count)}")
    for what, rows in (("embeddings", embeddings), ("chunks", chunks), ("tokens", tokens)):
        for key in rows.keys() - known:
            raise fault(source, f"{what}.{key}", f"{short(key)} is not among the memories")
    lengths = {len(row) for row in embeddings.values()}
    if len(lengths) > 1:
        raise fault(source, "embeddings", "vectors of different lengths")
    for key, row in embeddings.items():
        if not np.isfinite(row).all():
            raise fault(source, f"embeddings.{key}", "expected finite numbers")
    for key, own in chunks.items():
        for i, chunk in enumerate(own):
            if chunk.seq != i:
                raise fault(source, f"chunks.{key}[{i}].seq", f"expected {i}: chunks must be in order")
            if chunk.start is not None and chunk.start < 0:
                raise fault(source, f"chunks.{key}[{i}].start", f"expected a whole number from 0, found {chunk.start}")
    for key, counts in tokens.items():
        if len(counts) != 1 + len(chunks.get(key, ())):
            raise fault(source, f"tokens.{key}", "expected the tokens of the content, then those of each chunk")
        if min(counts) < 0:
            raise fault(source, f"tokens.{key}", f"expected whole numbers from 0, found {min(counts)}")


def check_query(evidence: Evidence, source: str) -> None:
    """Raise InputError for invalid variants, lists, relations, scores or notes of a query."""
    for i, variant in enumerate(evidence.variants):
        if variant.kind not in VARIANT_KINDS:
            raise fault(
                source,
                f"variants[{i}].kind",
                f"{short(variant.kind)} is not known; allowed: {' | '.join(VARIANT_KINDS)}",
            )
    names = [ranked.name for ranked in evidence.lists]
    for i, ranked in enumerate(evidence.lists):
        _check_list(ranked, evidence, f"lists[{i}]", source)
    if len(set(names)) < len(names):
        raise fault(source, "lists", f"two lists are named {short(max(names, key=names.count))}")
    for i, relation in enumerate(evidence.relations):
        for name in ("source_id", "target_id"):
            if getattr(relation, name) not in evidence.memories:
                unknown = short(getattr(relation, name))
                raise fault(source, f"relations[{i}].{name}", f"{unknown} is not among the memories")
        if not math.isfinite(relation.weight):
            raise fault(source, f"relations[{i}].weight", f"expected a finite number, found {relation.weight}")
    _check_notes(evidence.notes, source)
    _check_recorded(evidence, source)
    if SUPERSEDED in evidence.notes:
        problem = check_note(evidence.notes[SUPERSEDED], evidence.memories)
        if problem:
            raise fault(source, f"notes.{SUPERSEDED}", problem)
    if problem := check_excluded(evidence.notes.get(EXCLUDED, {})):
        raise fault(source, f"notes.{EXCLUDED}", problem)


def _check_recorded(evidence: Evidence, source: str) -> None:
    try:
        recorded = evidence.recorded
    except ValueError as error:
        raise fault(source, f"notes.{RECORDED}", str(error)) from None
    if recorded is None:
        return
    unknown = min(recorded.ids - evidence.memories.keys(), default=None)
    if unknown is not None:
        raise fault(source, f"notes.{RECORDED}", f"{short(unknown)} is not among the memories")


def _check_list(ranked: RankedList, evidence: Evidence, where: str, source: str) -> None:
    if ranked.source not in SOURCES:
        raise fault(source, f"{where}.source", f"{short(ranked.source)} is not known; allowed: {' | '.join(SOURCES)}")
    variants = max(len(evidence.variants), 1)
    if ranked.variant is not None and not 0 <= ranked.variant < variants:
        problem = f"{short(ranked.variant)} is not an index into variants (0 to {variants - 1})"
        raise fault(source, f"{where}.variant", problem)
    for i, hit in enumerate(ranked.hits):
        if hit.memory_id not in evidence.memories:
            unknown = short(hit.memory_id)
            raise fault(source, f"{where}.hits[{i}].memory_id", f"{unknown} is not among the memories")
        if hit.chunk is not None and not 0 <= hit.chunk < len(evidence.chunks.get(hit.memory_id, ())):
            raise fault(source, f"lists.{ranked.name}", f"{short(hit.memory_id)} has no chunk {hit.chunk}")
    # The common case runs without a Python frame per hit; only a fault looks for its place.
    if not all(map(math.isfinite, map(_SCORE, ranked.hits))):
        i, score = next((i, hit.score) for i, hit in enumerate(ranked.hits) if not math.isfinite(hit.score))
        raise fault(source, f"{where}.hits[{i}].score", f"expected a finite number, found {score}")
    if len(set(map(_MEMBER, ranked.hits))) < len(ranked.hits):
        raise fault(source, f"{where}.hits", "a memory, or a chunk of it, is in the list twice")


def _check_notes(notes: Mapping[str, Any], source: str) -> None:
    for name in NOTES:
        if name in notes:
            _typed(notes[name], dict, f"notes.{name}", "an object", source)
    if LANGUAGE in notes and notes[LANGUAGE] not in LANGUAGES:
        raise fault(source, f"notes.{LANGUAGE}", f"{short(notes[LANGUAGE])} is not one of {', '.join(LANGUAGES)}")
    for stage, lines in notes.get("warnings", {}).items():
        _typed(lines, list, f"notes.warnings.{stage}", "an array", source)
    for judge, about in notes.get("judges", {}).items():
        where = f"notes.judges.{judge}"
        _typed(about, dict, where, "an object", source)
        if about.get("threshold") is not None:
            _number(about["threshold"], f"{where}.threshold", source)
        bands = about.get("bands")
        if bands is not None:
            for low in _typed(bands, list, where, "an array", source):
                _number(low, f"{where}.bands", source)
            if len(bands) != 3:
                raise fault(source, f"{where}.bands", "a judge has three")
    try:
        json.dumps(notes, allow_nan=False)  # the trace repeats them, and its JSON has no NaN
    except ValueError:
        raise fault(source, "notes", "a number in them is not finite") from None


def _typed(value: Any, kind: type, where: str, words: str, source: str) -> Any:
    if not isinstance(value, kind):
        raise fault(source, where, f"expected {words}, found {short(value)}")
    return value


def _number(value: Any, where: str, source: str) -> None:
    # bool is a subclass of int, and JSON's true is no number.
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise fault(source, where, f"expected a number, found {short(value)}")
    if not math.isfinite(value):
        raise fault(source, where, f"expected a finite number, found {value}")


def check_query_set(queries: Sequence[Query], judgments: Sequence[Judgment], source: str) -> None:
    """Raise InputError for queries with the same qid, and for duplicate judgments or invalid grades."""
    if (twice := _twice(queries, lambda query: query.qid)) is not None:
        raise fault(source, f"queries.{twice.qid}", "the query is in the file twice")
    for judgment in judgments:
        where = f"judgments.{judgment.qid} {judgment.memory_id} by {judgment.judge}"
        if judgment.kind not in KINDS:
            raise fault(source, where, f"kind {short(judgment.kind)} is not known; allowed: {' | '.join(KINDS)}")
        if not -MAX_GRADE <= judgment.grade <= MAX_GRADE:
            raise fault(source, where, f"grade {judgment.grade} is beyond {MAX_GRADE:,}")
    label = _twice(judgments, lambda judgment: (judgment.qid, judgment.memory_id, judgment.judge, judgment.kind))
    if label is not None:
        raise fault(
            source, f"judgments.{label.qid} {label.memory_id} by {label.judge}", "the judgment is in the file twice"
        )


Row = TypeVar("Row")


def _twice(rows: Iterable[Row], key: Callable[[Row], object]) -> Row | None:
    """The first row whose key an earlier one has."""
    seen = set()
    for row in rows:
        if (own := key(row)) in seen:
            return row
        seen.add(own)
    return None
