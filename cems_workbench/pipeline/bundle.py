"""Evidence bundles: `Evidence` as JSON and back, with one clear line for what cannot be read.

Round trip is exact: floats are written with `repr` precision, times as ISO 8601 in UTC, and keys a newer writer added are
ignored.
"""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError, short
from cems_workbench.pipeline.evidence import FORMAT, NOTES, Evidence, ModelScore, RankedList, Variant, check
from cems_workbench.platform.atomic_write import output_path
from cems_workbench.platform.parsing import MAX_FILE_BYTES, json_values, read_text
from cems_workbench.platform.typed_json import Misread, reader, written
from cems_workbench.records import RowError

ALWAYS = ("project", "session", "category", "created_at", "last_accessed", "kind", "weight", "start")
"""Fields of memories, variants, relations and chunks that are written at their default too."""


def read_bundle(path: Path, query: str = "") -> Evidence:
    """Read an evidence bundle, or what a live system explained, "-" for stdin: of several explanations that of the query, by its words, its
    id or its number ("#2"). Raises InputError naming file and field, also for the evidence of another query."""
    from cems_workbench.pipeline.explained import is_of, may_explain

    text = sys.stdin.read() if str(path) == "-" else read_text(path, "bundle", MAX_FILE_BYTES)
    try:
        bundle = json_values(text, str(path), MAX_FILE_BYTES)
    except InputError:
        if "\n{" not in text:
            raise
        bundle = None  # JSON lines
    first = bundle[0] if isinstance(bundle, list) and bundle else bundle
    own = isinstance(bundle, dict) and "format" in bundle
    if bundle is not None and (own or not (may_explain(bundle) or may_explain(first))):
        evidence = evidence_from(bundle, str(path))
        if query and not is_of(evidence, 1, query):
            raise InputError(f"{path} holds the evidence of another query: {evidence.query}")
        return evidence
    return explained_in(text, str(path), query)


def explained_in(text: str, source: str, query: str = "") -> Evidence:
    """The only explanation of a text, or that of a query. Raises InputError, with the first error where nothing can be used."""
    from cems_workbench.pipeline.explained import is_of, no_explanation, read_explanations

    errors: list[RowError] = []
    found = list(read_explanations(io.StringIO(text), source, errors, query))
    if not found:
        raise InputError(str(errors[0]))
    if not query and len(found) > 1:
        raise InputError(f"{source}: has several explanations: name the query, or #1 for the first, of {len(found)}")
    own = [one for number, one in enumerate(found, 1) if not query or is_of(one, number, query.strip())]
    if not own:
        raise no_explanation(source, query, found, len(found))
    return own[0]


def write_bundle(evidence: Evidence, path: Path) -> None:
    """Write a bundle atomically. Raises InputError if it cannot be written."""
    text = json.dumps(bundle_from(evidence), ensure_ascii=False, indent=1) + "\n"
    with output_path(path) as part:
        part.write_text(text, "utf-8", "backslashreplace")


def bundle_from(evidence: Evidence) -> dict[str, Any]:
    """The bundle as plain JSON values."""

    def keyed(rows: Mapping[str, Any]) -> dict[str, Any]:
        """Memories and chunks without the id that they are under."""
        return {key: _without(written(row, ALWAYS), "id") for key, row in sorted(rows.items())}

    bundle: dict[str, Any] = {
        "format": FORMAT,
        "query": evidence.query,
        "as_of": None if evidence.as_of is None else evidence.as_of.isoformat(),
        "project": evidence.project,
        "memories": keyed(evidence.memories),
        "variants": [written(variant, ALWAYS) for variant in evidence.variants],
        "lists": [written(ranked) for ranked in evidence.lists],
        "model_scores": _scores_values(evidence.model_scores),
    }
    parts: dict[str, Any] = {
        "judge_scores": _scores_values(evidence.judge_scores),
        "embeddings": {key: [float(x) for x in row] for key, row in sorted(evidence.embeddings.items())},
        "chunks": {
            key: [_without(written(chunk, ALWAYS), "memory_id") for chunk in chunks]
            for key, chunks in sorted(evidence.chunks.items())
        },
        # Who accepted an edge is not read by the pipeline.
        "relations": [_without(written(relation, ALWAYS), "author") for relation in evidence.relations],
        "tokens": {key: list(counts) for key, counts in sorted(evidence.tokens.items())},
        "notes": dict(evidence.notes),
    }
    return bundle | {name: part for name, part in parts.items() if part}


def _without(values: dict[str, Any], name: str) -> dict[str, Any]:
    values.pop(name, None)
    return values


def _scores_values(models: Mapping[str, Mapping[str, ModelScore]]) -> dict[str, Any]:
    return {
        model: {key: written(_finite(score)) for key, score in sorted(rows.items())}
        for model, rows in sorted(models.items())
    }


def _finite(score: ModelScore) -> ModelScore:
    if score.raw is None or math.isfinite(score.raw):
        return score
    return replace(score, raw=None, error=score.error or f"not finite: {score.raw}")  # JSON has no NaN or infinity


def evidence_from(bundle: Any, source: str = "bundle") -> Evidence:
    """Validate plain JSON values into `Evidence`. Raises InputError as `<source>: <field>: <what is wrong>`."""
    if not isinstance(bundle, dict):
        raise InputError(f"{source}: expected a JSON object, found {type(bundle).__name__}")
    if bundle.get("format") != FORMAT:
        raise InputError(f"{source}: format: {short(bundle.get('format'))} is not known; allowed: {FORMAT}")
    values = {name: value for name, value in bundle.items() if value is not None}
    values |= {
        "memories": _each(values.get("memories", {}), lambda key, one: _with(one, "id", key)),
        "chunks": _each(values.get("chunks"), _chunks_of),
        "model_scores": _each(values.get("model_scores"), _scores_of),
        "judge_scores": _each(values.get("judge_scores"), _scores_of),
    }
    try:
        evidence: Evidence = reader(Evidence)(values)
        vectors = reader(dict[str, dict[str, list[float]]])({"embeddings": values.get("embeddings", {})})
    except Misread as problem:
        raise InputError(f"{source}: {problem}") from None
    evidence = replace(
        evidence,
        variants=evidence.variants or (Variant(evidence.query),),
        lists=tuple(map(_of_variant, evidence.lists)),
        **vectors,
        notes={name: {} if note is None and name in NOTES else note for name, note in evidence.notes.items()},
    )
    check(evidence, source)
    return evidence


def _each(rows: Any, change: Callable[[str, Any], Any]) -> Any:
    """An object with each of its values changed; anything else is for the reader to refuse."""
    return {key: change(key, one) for key, one in rows.items()} if isinstance(rows, dict) else rows


def _with(values: Any, name: str, value: str) -> Any:
    return {**values, name: value} if isinstance(values, dict) else values


def _chunks_of(key: str, rows: Any) -> Any:
    return [_with(row, "memory_id", key) for row in rows] if isinstance(rows, list) else rows


def _scores_of(model: str, rows: Any) -> Any:
    return _each(rows, lambda key, one: _score(one) if isinstance(one, dict) else one)


def _score(values: dict[str, Any]) -> dict[str, Any]:
    """A score whose number cannot be read has failed."""
    try:
        reader(float | None)(values.get("raw"))
    except Misread:
        error = values.get("error") or f"not a number: {short(values['raw'])}"
        return {**values, "raw": None, "error": error}
    return values


def _of_variant(ranked: RankedList) -> RankedList:
    return replace(ranked, variant=0) if ranked.variant is None and ranked.source in ("vector", "lexical") else ranked
