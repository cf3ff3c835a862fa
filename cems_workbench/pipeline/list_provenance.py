"""Provenance of live lists: the note in evidence of a source that was asked for them, and how it is shown.

    notes["engine"] = {"source": "cems", "kind": "cems", "at": "2026-11-23T12:04:09+00:00", "lists": {"vector:0": {"asked": 600, …}}}

The note has the name of the database or collection, the kind of source, the time of the request and the rows it returned. It has neither
host, user nor folder: evidence leaves the machine in bundles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.live_engine import LiveList
from cems_workbench.pipeline.stages.lists import INSIDE
from cems_workbench.sources.kinds import display_name


def engine_note(source: str, kind: str, at: datetime, lists: Mapping[str, LiveList]) -> dict[str, Any]:
    """The note of an engine: its name and kind, the time of the request, and by list the rows and seconds."""
    return {
        "source": source,
        "kind": kind,
        "at": at.astimezone(UTC).isoformat(),
        "lists": {
            name: {
                "asked": found.asked,
                "returned": found.returned,
                "unknown": len(found.unknown),
                "seconds": round(found.seconds, 4),
            }
            for name, found in lists.items()
        },
    }


def without_source(note: Mapping[str, Any]) -> dict[str, Any]:
    """The note without the name of the source, for a redacted bundle."""
    return {name: note[name] for name in ("kind", "at", "lists") if name in note}


def provenance_of(evidence: Evidence, name: str) -> str:
    """The provenance of a live list: "as answered by cems at 2026-11-23 12:04 UTC"; empty for a list of the store.

    A hybrid list is fused from two others; it is live if one of them is.
    """
    engine = evidence.notes.get("engine")
    source, _, variant = name.partition(":")
    made_of = INSIDE if source == "hybrid" else (source,)
    if not engine or not any(f"{part}:{variant}" in engine["lists"] for part in made_of):
        return ""
    return provenance(evidence)


def answered_lists(evidence: Evidence, names: Iterable[str]) -> str:
    """The live lists among `names`, with provenance: "vector:0, ts_rank:0: as answered by cems at 2026-11-23 12:04 UTC"; else empty."""
    by_provenance: dict[str, list[str]] = {}
    for name in names:
        if line := provenance_of(evidence, name):
            by_provenance.setdefault(line, []).append(name)
    return "; ".join(f"{', '.join(lists)}: {line}" for line, lists in by_provenance.items())


def provenance(*evidences: Evidence) -> str:
    """The provenance of all live lists: "as answered by cems at 2026-11-23 12:04 UTC"; empty if there are none.

    For several requests the times are the first and the last: "from … to …".
    """
    notes = [note for evidence in evidences if (note := evidence.notes.get("engine"))]
    if not notes:
        return ""
    names = dict.fromkeys(note.get("source") or display_name(note.get("kind", "")) or "the source" for note in notes)
    moments = asked_between(evidences)
    if moments is None:
        when = ""
    else:
        first, last = (f"{moment:%Y-%m-%d %H:%M}" for moment in moments)
        when = f" at {first} UTC" if first == last else f" from {first} to {last} UTC"
    return f"as answered by {' and '.join(names)}{when}"


def asked_between(evidences: Iterable[Evidence]) -> tuple[datetime, datetime] | None:
    """The times of the first and the last request to an engine; None if there was none, or its time was not recorded."""
    moments = [
        datetime.fromisoformat(note["at"]).astimezone(UTC)
        for evidence in evidences
        if (note := evidence.notes.get("engine")) and "at" in note
    ]
    return (min(moments), max(moments)) if moments else None
