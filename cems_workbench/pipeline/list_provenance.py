"""Whose lists evidence holds: what is noted of a running system that was asked, and how that is said everywhere.

    notes["engine"] = {"source": "cems", "kind": "cems", "at": "2026-11-23T12:04:09+00:00", "lists": {"vector:0": {"asked": 600, …}}}

The note names the database or collection and says what kind of source it is, when it was asked and how many rows came. Where it is (host,
user, directory) is not in it: evidence leaves the machine in bundles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.live_engine import LiveList
from cems_workbench.pipeline.stages.lists import INSIDE

KINDS: Mapping[str, str] = {"cems": "CEMS", "mem0": "mem0", "chroma": "Chroma", "qdrant": "Qdrant"}
"""What a source is called where its own name is not known, as in a redacted bundle."""


def engine_note(source: str, kind: str, at: datetime, lists: Mapping[str, LiveList]) -> dict[str, Any]:
    """What evidence keeps of an engine: its name and kind, when it was asked, and of each list, by name, the rows and seconds."""
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
    """The note without the name of the source, for a bundle without texts."""
    return {name: note[name] for name in ("kind", "at", "lists") if name in note}


def provenance_of(evidence: Evidence, name: str) -> str:
    """Whose list this is where the running system answered it: "as answered by cems at 2026-11-23 12:04 UTC"; else empty.

    A hybrid list is made of two others, and is the engine's as far as they are.
    """
    engine = evidence.notes.get("engine")
    source, _, variant = name.partition(":")
    made_of = INSIDE if source == "hybrid" else (source,)
    if not engine or not any(f"{part}:{variant}" in engine["lists"] for part in made_of):
        return ""
    return provenance(evidence)


def answered_lists(evidence: Evidence, names: Iterable[str]) -> str:
    """Which of these lists the running system answered: "vector:0, ts_rank:0: as answered by cems at 2026-11-23 12:04 UTC"; else empty."""
    said: dict[str, list[str]] = {}
    for name in names:
        if whose := provenance_of(evidence, name):
            said.setdefault(whose, []).append(name)
    return "; ".join(f"{', '.join(of)}: {whose}" for whose, of in said.items())


def provenance(*evidences: Evidence) -> str:
    """By whom and when lists of these were answered: "as answered by cems at 2026-11-23 12:04 UTC"; empty where nobody was asked.

    Of several the moments are the first and the last: "from … to …".
    """
    notes = [note for evidence in evidences if (note := evidence.notes.get("engine"))]
    if not notes:
        return ""
    names = dict.fromkeys(note.get("source") or KINDS.get(note.get("kind", ""), "the source") for note in notes)
    moments = asked_between(evidences)
    if moments is None:
        when = ""
    else:
        first, last = (f"{moment:%Y-%m-%d %H:%M}" for moment in moments)
        when = f" at {first} UTC" if first == last else f" from {first} to {last} UTC"
    return f"as answered by {' and '.join(names)}{when}"


def asked_between(evidences: Iterable[Evidence]) -> tuple[datetime, datetime] | None:
    """The first and the last moment at which an engine was asked for lists of these; None where none was, or it was not noted."""
    moments = [
        datetime.fromisoformat(note["at"]).astimezone(UTC)
        for evidence in evidences
        if (note := evidence.notes.get("engine")) and "at" in note
    ]
    return (min(moments), max(moments)) if moments else None
