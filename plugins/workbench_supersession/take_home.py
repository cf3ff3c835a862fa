"""A script that retires superseded memories in the system that a store was connected to: `change_source.py` with the changes in it."""

from __future__ import annotations

import pprint
from importlib.resources import files
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError, one_line
from cems_workbench.store import Store

KINDS = {
    **{"sqlite": ("langgraph",), "postgresql": ("langgraph", "mem0"), "qdrant": ("qdrant",)},
    **{"chroma": ("chroma",), "notes": ("notes",)},
}
"""By scheme of a source's address, the layouts in which something can be retired."""
_SCHEMES = {"postgres": "postgresql", "sqlite3": "sqlite", "qdrant+https": "qdrant"}
_EMPTY = "CHANGES: dict[str, Any] = {}\n"
_TEXT_CHARS = 80


def script_of(store: Store, notes: Path | None = None) -> tuple[str, int]:
    """The script for the accepted pairs whose older memory is of one live source, or of the folder `notes`, and how
    many it retires. Raises InputError if there is no such pair, if they are of several sources, or if nothing can be
    retired in their source."""
    pairs = [one for one in store.supersessions.standing() if one.verdict == "accepted"]
    known = store.memories.read([key for one in pairs for key in (one.older, one.newer)])
    of = store.sources.addresses([one.older for one in pairs])
    pairs = [one for one in pairs if {one.older, one.newer} <= known.keys() and (one.older in of) == (notes is None)]
    addresses = sorted({of[one.older] for one in pairs}) if notes is None else [f"notes:{notes.absolute()}"]
    if len(addresses) > 1:
        several = f"{len(addresses)} live sources ({', '.join(addresses)}); connect each to a store of its own"
        raise InputError(f"--script: the older memories of accepted pairs are of {several}")
    if not pairs:
        none = "are of no live source; --notes FOLDER names a folder of Markdown notes" if known else "do not exist"
        raise InputError(f"--script: the older memories of accepted pairs {none}")
    scheme, _, place = addresses[0].partition(":")
    scheme = _SCHEMES.get(scheme, scheme)
    kind = next((str(one.probe.get("kind")) for one in store.sources.read() if one.address == addresses[0]), "notes")
    if kind not in KINDS.get(scheme, ()):
        raise InputError(
            f"--script: nothing is known of how to retire a memory in {kind}; known are mem0, LangGraph, notes"
        )
    changes: dict[str, Any] = {
        "system": scheme,
        "kind": kind,
        "place": place if scheme in ("sqlite", "notes") else addresses[0],
        "retire": [],
    }
    for one in pairs:
        old, new = (one_line(known[key].content, _TEXT_CHARS) for key in (one.older, one.newer))
        changes["retire"].append({"id": one.older, "by": one.newer, "text": old, "by_text": new})
    text = files(__package__).joinpath("change_source.py").read_text("utf-8")
    return text.replace(_EMPTY, f"CHANGES = {pprint.pformat(changes, width=140, sort_dicts=False)}\n"), len(pairs)
