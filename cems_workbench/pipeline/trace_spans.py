"""A trace as spans of OpenInference, a JSON line each: for other tools that read them, and for `import`, which reads them back.

A list of the evidence is a RETRIEVER below the group `lists`, which says what they pass on; every later stage that can drop a memory is a
span with its results, and why it dropped which. Read back, every memory is lost at the same stage in the same manner.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from cems_workbench.pipeline.replay import Trace
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.pipeline.stages.result import StageFields, StageRow, StageTrace
from cems_workbench.pipeline.stages.stage import AnyStage
from cems_workbench.records import StageKind

KINDS: dict[str, StageKind] = {
    "threshold": "filter",
    "fusion": "fusion",
    "filter": "filter",
    "rerank": "rerank",
    "adjust": "adjust",
    "gap": "filter",
    "dedup": "dedup",
    "abstain": "filter",
    "assembly": "assembly",
}
"""What a stage of ours does, as spans say it; any other is `other`."""
_EPOCH, _STEP = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
Documents = Iterable[tuple[str, float | None]]


def trace_spans(trace: Trace) -> Iterator[str]:
    """The spans of a trace as JSON lines, the root last. Ids are digests of its content; without a moment it begins in 1970."""
    begun = trace.evidence.as_of or _EPOCH
    trace_id = hashlib.sha256(json.dumps(trace.to_json(), sort_keys=True, default=str).encode()).hexdigest()[:32]
    written: set[str] = set()

    def span(name: str, place: int, parent: str | None, attributes: dict[str, Any]) -> str:
        own = hashlib.sha256(f"{trace_id} {name}".encode()).hexdigest()[:16]
        above = None if parent is None else hashlib.sha256(f"{trace_id} {parent}".encode()).hexdigest()[:16]
        values = {
            "trace_id": trace_id,
            "span_id": own,
            "parent_id": above,
            "name": name,
            "start_time": (begun + (0 if parent is None else place) * _STEP).isoformat(),
            "end_time": (begun + (place + 1) * _STEP).isoformat(),
            "status_code": "OK",
            "attributes": {"input.value": trace.evidence.searched, **attributes},
        }
        return json.dumps(values, ensure_ascii=False)

    def documents(prefix: str, found: Documents) -> dict[str, Any]:
        flat: dict[str, Any] = {}
        for n, (key, score) in enumerate(found):
            flat[f"{prefix}.{n}.document.id"] = key
            if score is not None:
                flat[f"{prefix}.{n}.document.score"] = score
            if key not in written:
                written.add(key)
                flat[f"{prefix}.{n}.document.content"] = trace.evidence.memories[key].content
        return flat

    place = 0
    lists = trace.stage(LISTS)
    for listed in lists.fields.lists:
        hits = [
            (entry.rank, row.memory_id, entry.raw, entry.kept)
            for row in lists.rows
            for entry in row.lists
            if entry.list == listed.name
        ]
        hits.sort(key=lambda hit: hit[:2])
        found = [(key, raw) for _, key, raw, _ in hits]
        more = _stage(listed.name, "list", "RETRIEVER", len(found))
        for n, key in enumerate(key for _, key, _, kept in hits if not kept):
            more[f"workbench.stage.dropped.{n}.document.id"] = key
        place += 1
        yield span(f"list {listed.name}", place, LISTS.name, {**more, **documents("retrieval.documents", found)})
    for stage in trace.candidate_stages:
        traced = trace.stage(stage)
        kept = [(row.memory_id, row.score) for row in traced.kept]
        kind: StageKind = "list" if stage.name == LISTS.name else KINDS.get(stage.name, "other")
        own = _stage(stage.name, kind, "RERANKER" if kind == "rerank" else "CHAIN", len(kept))
        own |= documents("reranker.output_documents" if kind == "rerank" else "retrieval.documents", kept)
        if stage.works_on == "lists":
            own["workbench.stage.ranked"] = False
        place += 1
        yield span(stage.name, place, "search", own | _dropped(trace, stage, traced))
    results = [(result.memory_id, result.score) for result in trace.results]
    root = {"openinference.span.kind": "CHAIN", "workbench.stage.results": len(results)}
    yield span("search", place + 1, None, root | documents("retrieval.documents", results))


def _stage(name: str, kind: StageKind, span_kind: str, results: int) -> dict[str, Any]:
    return {
        "openinference.span.kind": span_kind,
        "workbench.stage.name": name,
        "workbench.stage.kind": kind,
        "workbench.stage.results": results,
    }


def _dropped(trace: Trace, stage: AnyStage, traced: StageTrace[StageRow, StageFields]) -> dict[str, Any]:
    arrays = trace.run.of(stage)
    flat: dict[str, Any] = {}
    for n, row in enumerate(row for row in traced.rows if not row.kept):
        prefix = f"workbench.stage.dropped.{n}"
        flat[f"{prefix}.document.id"] = row.memory_id
        flat[f"{prefix}.reason"] = row.reason or "dropped"
        if arrays.past_limit(0, trace.columns[row.memory_id]):
            flat[f"{prefix}.past_limit"] = True
    return flat
