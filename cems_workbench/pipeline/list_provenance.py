"""Provenance of lists: what was searched, and of live lists the note of the source that was asked for them, and how it is shown.

    notes["engine"] = {"source": "cems", "kind": "cems", "at": "2026-11-23T12:04:09+00:00", "lists": {"vector:0": {"asked": 600, …}}}

The note has the name of the database or collection, the kind of source, the time of the request and the rows it returned. It has neither
host, user nor folder: evidence leaves the machine in bundles. Functions here read the notes of evidence, of one or of several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cems_workbench.pipeline.list_sources import LIST_SOURCES
from cems_workbench.pipeline.stages.lists import INSIDE

if TYPE_CHECKING:
    from cems_workbench.pipeline.live_engine import LiveList

OWN = "the workbench's own"
"""Who answered a list that is not live."""
_SEARCHED = frozenset(source.name for source in LIST_SOURCES if source.per_variant)


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
                **({} if found.scale == "cosine" else {"scale": found.scale}),
                **({"meaning": found.meaning} if found.meaning else {}),
            }
            for name, found in lists.items()
        },
    }


def without_source(note: Mapping[str, Any]) -> dict[str, Any]:
    """The note without the name of the source, for a redacted bundle."""
    return {name: note[name] for name in ("kind", "at", "lists") if name in note}


def score_meaning(notes: Mapping[str, Any], name: str) -> str:
    """What the engine's scores of a live list mean, in a line; empty for a list of the store, and for an engine that was never run."""
    engine = notes.get("engine") or {}
    noted = engine.get("lists", {}).get(name, {})
    if not noted.get("meaning"):
        return ""
    from cems_workbench.sources.score_meanings import MEANINGS

    row = next((row for row in MEANINGS if row.key == noted["meaning"]), None)
    if row is None:
        return ""
    by_cosine = row.group == "vector" and row.score != "cosine" and "scale" not in noted
    return f"{row.system}: {row.words}." + (" Shown here as a cosine." if by_cosine else "")


def provenance_of(notes: Mapping[str, Any], name: str) -> str:
    """The provenance of a live list: "as answered by cems at 2026-11-23 12:04 UTC"; empty for a list of the store.

    A hybrid list is fused from two others; it is live if one of them is.
    """
    engine = notes.get("engine")
    source, _, variant = name.partition(":")
    made_of = INSIDE if source == "hybrid" else (source,)
    if not engine or not any(f"{part}:{variant}" in engine["lists"] for part in made_of):
        return ""
    return provenance(notes)


def answered_by(notes: Mapping[str, Any], name: str) -> str:
    """Who answered a list, if the evidence has live ones: its provenance, or "the workbench's own"; empty for what nobody searches."""
    if not notes.get("engine") or name.partition(":")[0] not in _SEARCHED:
        return ""
    return provenance_of(notes, name) or OWN


def answered_lists(notes: Mapping[str, Any], names: Iterable[str]) -> str:
    """Who answered the lists `names`: "vector:0: as answered by cems at 2026-11-23 12:04 UTC; lexical:0: the workbench's own".

    Empty if no list of the evidence is live. Lists of metadata, which nobody searches, are not named.
    """
    by_provenance: dict[str, list[str]] = {}
    for name in names:
        if line := answered_by(notes, name):
            by_provenance.setdefault(line, []).append(name)
    own = by_provenance.pop(OWN, [])
    lines = [f"{', '.join(lists)}: {line}" for line, lists in by_provenance.items()]
    return "; ".join([*lines, *([f"{', '.join(own)}: {OWN}"] if own and lines else [])])


def provenance(*evidences: Mapping[str, Any]) -> str:
    """The provenance of all live lists: "as answered by cems at 2026-11-23 12:04 UTC"; empty if there are none.

    For several requests the times are the first and the last: "from … to …".
    """
    from cems_workbench.sources.address import display_name

    engines = [engine for notes in evidences if (engine := notes.get("engine"))]
    if not engines:
        return ""
    names = dict.fromkeys(one.get("source") or display_name(one.get("kind", "")) or "the source" for one in engines)
    moments = asked_between(evidences)
    if moments is None:
        when = ""
    else:
        first, last = (f"{moment:%Y-%m-%d %H:%M}" for moment in moments)
        when = f" at {first} UTC" if first == last else f" from {first} to {last} UTC"
    return f"as answered by {' and '.join(names)}{when}"


def asked_between(evidences: Iterable[Mapping[str, Any]]) -> tuple[datetime, datetime] | None:
    """The times of the first and the last request to an engine; None if there was none, or its time was not recorded."""
    moments = [
        datetime.fromisoformat(note["at"]).astimezone(UTC)
        for notes in evidences
        if (note := notes.get("engine")) and "at" in note
    ]
    return (min(moments), max(moments)) if moments else None


def searched_lines(notes: Mapping[str, Any]) -> list[str]:
    """What was searched instead of the query, a line for each text; empty if the query itself was."""
    noted = notes.get("query")
    understood = noted if isinstance(noted, Mapping) else {}
    lines = []
    if understood.get("given"):
        lines.append(f"searched instead of the query, as given: {understood['given']}")
    elif understood.get("replaced"):
        lines.append(f"searched instead of the query, its expansion: {understood['searched']}")
    by_list = understood.get("engine_queries")
    if isinstance(by_list, Mapping):
        lines += [f"searched by {name}, as given: {text}" for name, text in by_list.items()]
    return lines
