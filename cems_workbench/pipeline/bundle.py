"""Evidence bundles: `Evidence` as JSON and back, with one clear line for what cannot be read.

Round trip is exact: floats are written with `repr` precision, times as ISO 8601 in UTC, and keys a newer writer added are
ignored.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError, short
from cems_workbench.pipeline.evidence import (
    FORMAT,
    NOTES,
    Evidence,
    Hit,
    ModelScore,
    RankedList,
    Variant,
    check,
)
from cems_workbench.platform.atomic_write import output_path
from cems_workbench.platform.parsing import MAX_FILE_BYTES, json_values, read_text
from cems_workbench.records import TIMES, Chunk, Memory, Relation

_RELATION_FIELDS = ("source_id", "target_id", "kind", "weight")
"""Of an edge in evidence; its author is not read by the pipeline."""
_MEMORY_FIELDS = {item.name for item in dataclasses.fields(Memory)} - {"id"}
_NUMBERS = ("priority", "access_count", "relevant_count", "noise_count")


def read_bundle(path: Path) -> Evidence:
    """Read an evidence bundle. Raises InputError naming file and field."""
    text = read_text(path, "bundle", MAX_FILE_BYTES)
    return evidence_from(json_values(text, str(path), MAX_FILE_BYTES), str(path))


def write_bundle(evidence: Evidence, path: Path) -> None:
    """Write a bundle atomically. Raises InputError if it cannot be written."""
    text = json.dumps(bundle_from(evidence), ensure_ascii=False, indent=1) + "\n"
    with output_path(path) as part:
        part.write_text(text, "utf-8", "backslashreplace")


def bundle_from(evidence: Evidence) -> dict[str, Any]:
    """The bundle as plain JSON values."""
    bundle: dict[str, Any] = {
        "format": FORMAT,
        "query": evidence.query,
        "as_of": _time_text(evidence.as_of),
        "project": evidence.project,
        "memories": {key: _memory_values(memory) for key, memory in sorted(evidence.memories.items())},
        "variants": [{"text": variant.text, "kind": variant.kind} for variant in evidence.variants],
        "lists": [
            {
                "name": ranked.name,
                "source": ranked.source,
                "variant": ranked.variant,
                "hits": [_hit_values(hit) for hit in ranked.hits],
            }
            for ranked in evidence.lists
        ],
        "model_scores": _scores_values(evidence.model_scores),
    }
    if evidence.judge_scores:
        bundle["judge_scores"] = _scores_values(evidence.judge_scores)
    if evidence.embeddings:
        bundle["embeddings"] = {key: [float(x) for x in row] for key, row in sorted(evidence.embeddings.items())}
    if evidence.chunks:
        bundle["chunks"] = {
            key: [{"seq": chunk.seq, "text": chunk.text, "start": chunk.start} for chunk in chunks]
            for key, chunks in sorted(evidence.chunks.items())
        }
    if evidence.relations:
        bundle["relations"] = [
            {name: getattr(relation, name) for name in _RELATION_FIELDS} for relation in evidence.relations
        ]
    if evidence.tokens:
        bundle["tokens"] = {key: list(counts) for key, counts in sorted(evidence.tokens.items())}
    if evidence.notes:
        bundle["notes"] = dict(evidence.notes)
    return bundle


def evidence_from(bundle: Any, source: str = "bundle") -> Evidence:
    """Validate plain JSON values into `Evidence`. Raises InputError as `<source>: <field>: <what is wrong>`."""
    if not isinstance(bundle, dict):
        raise InputError(f"{source}: expected a JSON object, found {type(bundle).__name__}")
    if bundle.get("format") != FORMAT:
        raise InputError(f"{source}: format: {short(bundle.get('format'))} is not known; allowed: {FORMAT}")
    read = _Reader(source)
    query = read.typed(bundle.get("query"), str, "query", "text")
    memories = {
        str(key): read.memory(str(key), value)
        for key, value in read.mapping(bundle.get("memories"), "memories").items()
    }
    variants = tuple(
        read.variant(value, f"variants[{i}]") for i, value in enumerate(read.array(bundle.get("variants"), "variants"))
    )
    lists = tuple(
        read.ranked_list(value, f"lists[{i}]") for i, value in enumerate(read.array(bundle.get("lists"), "lists"))
    )
    evidence = Evidence(
        query=query,
        memories=memories,
        variants=variants or (Variant(query),),
        lists=lists,
        as_of=read.time(bundle.get("as_of"), "as_of"),
        project=read.optional_text(bundle.get("project"), "project"),
        model_scores=read.scores(bundle.get("model_scores"), "model_scores"),
        judge_scores=read.scores(bundle.get("judge_scores"), "judge_scores"),
        embeddings=read.embeddings(bundle.get("embeddings")),
        chunks=read.chunks(bundle.get("chunks")),
        relations=read.relations(bundle.get("relations")),
        tokens=read.tokens(bundle.get("tokens")),
        notes={
            name: {} if note is None and name in NOTES else note
            for name, note in read.mapping(bundle.get("notes"), "notes").items()
        },
    )
    check(evidence, source)
    return evidence


class _Reader:
    """Typed access to JSON values whose errors name the source and the field."""

    def __init__(self, source: str) -> None:
        self.source = source

    def fail(self, where: str, problem: str) -> InputError:
        return InputError(f"{self.source}: {where}: {problem}")

    def typed(self, value: Any, kind: type, where: str, words: str) -> Any:
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            raise self.fail(where, f"expected {words}, found {value!r:.60}")
        return value

    def number(self, value: Any, where: str) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.fail(where, f"expected a number, found {value!r:.60}")
        try:
            return float(value)
        except OverflowError:
            raise self.fail(where, "the number is too large") from None

    def optional_text(self, value: Any, where: str) -> str | None:
        return None if value is None else str(self.typed(value, str, where, "text or null"))

    def mapping(self, value: Any, where: str) -> dict[str, Any]:
        return {} if value is None else dict(self.typed(value, dict, where, "an object"))

    def array(self, value: Any, where: str) -> list[Any]:
        return [] if value is None else list(self.typed(value, list, where, "an array"))

    def time(self, value: Any, where: str) -> datetime | None:
        if value is None:
            return None
        try:
            parsed = datetime.fromisoformat(value)
            return parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=UTC)
        except (TypeError, ValueError, OverflowError):
            raise self.fail(where, f"expected an ISO 8601 time, found {value!r:.60}") from None

    def memory(self, key: str, value: Any) -> Memory:
        where = f"memories.{key}"
        values = self.mapping(value, where)
        known: dict[str, Any] = {
            name: item for name, item in values.items() if name in _MEMORY_FIELDS and item is not None
        }
        if not isinstance(known.get("content"), str):
            raise self.fail(f"{where}.content", "missing, or not text")
        for name in TIMES:
            known[name] = self.time(values.get(name), f"{where}.{name}")
        for name in _NUMBERS:
            if name in known:
                number = self.number(known[name], f"{where}.{name}")
                if name != "priority" and not number.is_integer():
                    raise self.fail(f"{where}.{name}", f"expected a whole number, found {number!r}")
                known[name] = number if name == "priority" else int(number)
        if "pinned" in known:
            self.typed(known["pinned"], bool, f"{where}.pinned", "true or false")
        if "tags" in known:
            known["tags"] = tuple(str(tag) for tag in self.array(known["tags"], f"{where}.tags"))
        for name in ("title", "category", "project", "session", "author", "importance", "scope", "source_ref"):
            self.optional_text(known.get(name), f"{where}.{name}")
        return Memory(id=key, **known)

    def variant(self, value: Any, where: str) -> Variant:
        values = self.mapping(value, where)
        kind = self.typed(values.get("kind", "original"), str, f"{where}.kind", "text")
        return Variant(self.typed(values.get("text"), str, f"{where}.text", "text"), kind)

    def ranked_list(self, value: Any, where: str) -> RankedList:
        values = self.mapping(value, where)
        source = self.typed(values.get("source"), str, f"{where}.source", "text")
        variant = values.get("variant")
        if variant is not None:
            self.typed(variant, int, f"{where}.variant", "a whole number")
        if variant is None and source in ("vector", "lexical"):
            variant = 0
        hits = []
        for i, hit in enumerate(self.array(values.get("hits"), f"{where}.hits")):
            at = f"{where}.hits[{i}]"
            fields = self.mapping(hit, at)
            memory_id = self.typed(fields.get("memory_id"), str, f"{at}.memory_id", "text")
            chunk = fields.get("chunk")
            hits.append(
                Hit(
                    memory_id,
                    self.number(fields.get("score"), f"{at}.score"),
                    None if chunk is None else self.whole(chunk, f"{at}.chunk"),
                )
            )
        name = self.typed(values.get("name"), str, f"{where}.name", "text")
        return RankedList(name, source, variant, tuple(hits))

    def whole(self, value: Any, where: str) -> int:
        if type(value) is not int or value < 0:
            raise self.fail(where, f"expected a whole number from 0, found {value!r:.60}")
        return int(value)

    def chunks(self, value: Any) -> dict[str, tuple[Chunk, ...]]:
        found = {}
        for key, rows in self.mapping(value, "chunks").items():
            read = []
            for i, row in enumerate(self.array(rows, f"chunks.{key}")):
                at = f"chunks.{key}[{i}]"
                fields = self.mapping(row, at)
                seq = self.whole(fields.get("seq"), f"{at}.seq")
                start = fields.get("start")
                text = self.typed(fields.get("text"), str, f"{at}.text", "text")
                read.append(Chunk(key, seq, text, None if start is None else self.whole(start, f"{at}.start")))
            found[key] = tuple(read)
        return found

    def relations(self, value: Any) -> tuple[Relation, ...]:
        found = []
        for i, row in enumerate(self.array(value, "relations")):
            at = f"relations[{i}]"
            fields = self.mapping(row, at)
            source, target = (
                self.typed(fields.get(name), str, f"{at}.{name}", "text") for name in ("source_id", "target_id")
            )
            kind = self.typed(fields.get("kind", "related"), str, f"{at}.kind", "text")
            found.append(Relation(source, target, kind, self.number(fields.get("weight", 1.0), f"{at}.weight")))
        return tuple(found)

    def tokens(self, value: Any) -> dict[str, tuple[int, ...]]:
        found = {}
        for key, row in self.mapping(value, "tokens").items():
            where = f"tokens.{key}"
            counts = [self.whole(count, f"{where}[{i}]") for i, count in enumerate(self.array(row, where))]
            found[key] = tuple(counts)
        return found

    def scores(self, value: Any, where: str) -> dict[str, dict[str, ModelScore]]:
        return {
            model: {
                key: self.score(item, f"{where}.{model}.{key}")
                for key, item in self.mapping(rows, f"{where}.{model}").items()
            }
            for model, rows in self.mapping(value, where).items()
        }

    def score(self, value: Any, where: str) -> ModelScore:
        values = self.mapping(value, where)
        raw, error = values.get("raw"), self.optional_text(values.get("error"), f"{where}.error")
        if raw is not None and (isinstance(raw, bool) or not isinstance(raw, (int, float))):
            raw, error = None, error or f"not a number: {raw!r:.60}"
        detail = values.get("detail")
        return ModelScore(
            raw=None if raw is None else _as_float(raw),
            chunk=self.optional_text(values.get("chunk"), f"{where}.chunk"),
            error=error,
            detail=self.mapping(detail, f"{where}.detail") if detail is not None else None,
        )

    def embeddings(self, value: Any) -> dict[str, list[float]]:
        return {
            key: [self.number(x, f"embeddings.{key}[{i}]") for i, x in enumerate(self.array(row, f"embeddings.{key}"))]
            for key, row in self.mapping(value, "embeddings").items()
        }


def _hit_values(hit: Hit) -> dict[str, Any]:
    values: dict[str, Any] = {"memory_id": hit.memory_id, "score": hit.score}
    return values if hit.chunk is None else values | {"chunk": hit.chunk}


def _memory_values(memory: Memory) -> dict[str, Any]:
    defaults = Memory(id="", content="")
    values = {}
    for item in dataclasses.fields(Memory):
        value = getattr(memory, item.name)
        if item.name != "id" and (
            item.name in ("content", "project", "session", "category", "created_at", "last_accessed")
            or value != getattr(defaults, item.name)
        ):
            values[item.name] = (
                _time_text(value) if isinstance(value, datetime) else list(value) if isinstance(value, tuple) else value
            )
    return values


def _scores_values(models: Mapping[str, Mapping[str, ModelScore]]) -> dict[str, Any]:
    return {
        model: {key: _score_values(score) for key, score in sorted(rows.items())}
        for model, rows in sorted(models.items())
    }


def _score_values(score: ModelScore) -> dict[str, Any]:
    raw, error = score.raw, score.error
    if raw is not None and not math.isfinite(raw):  # JSON has no NaN or infinity
        raw, error = None, error or f"not finite: {score.raw}"
    values: dict[str, Any] = {"raw": raw}
    values |= {k: v for k, v in (("chunk", score.chunk), ("error", error), ("detail", score.detail)) if v is not None}
    return values


def _as_float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:  # a whole number past the largest float: a failed score, as any that is not finite
        return math.inf if number > 0 else -math.inf


def _time_text(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()
