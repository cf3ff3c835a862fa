"""A script that retires superseded memories in the system that a store was connected to: `change_source.py` with the changes in it."""

from __future__ import annotations

import pprint
from importlib.resources import files
from pathlib import Path

from cems_workbench.config.forms.targets import SYSTEMS, system_of
from cems_workbench.errors import InputError, one_line
from cems_workbench.sources.address import parse
from cems_workbench.store import Store

_EMPTY = "CHANGES: dict[str, Any] = {}\n"
_TEXT_CHARS = 80


def script_of(store: Store, notes: Path | None = None) -> tuple[str, int]:
    """The script for the accepted pairs whose older memory is of one live source, or of the folder `notes`, and how
    many it retires. Raises InputError if there is no such pair, if they are of several sources, or if nothing can be
    retired in their source."""
    pairs = [one for one in store.supersessions.standing() if one.verdict == "accepted"]
    pairs.sort(key=lambda one: one.decided_at)
    known = store.memories.read([key for one in pairs for key in (one.older, one.newer)])
    of = store.sources.addresses([one.older for one in pairs])
    pairs = [one for one in pairs if {one.older, one.newer} <= known.keys() and (one.older in of) == (notes is None)]
    addresses = sorted({of[one.older] for one in pairs}) if notes is None else [f"notes:{notes.absolute()}"]
    if len(addresses) > 1:
        several = f"{len(addresses)} live sources ({', '.join(addresses)}); connect each to a store of its own"
        raise InputError(f"--script: the older memories of accepted pairs are of {several}")
    if not pairs:
        none = "the older memories of accepted pairs are of no live source; --notes FOLDER names a folder of Markdown notes"
        raise InputError(
            f"--script: {none if known else 'no pair is accepted; accept some on Label, or with --accept'}"
        )
    probe = next((one.probe for one in store.sources.read() if one.address == addresses[0]), {"kind": "notes"})
    kind = str(probe.get("preset") or probe.get("kind"))  # of a collection the rows say who wrote it
    system = SYSTEMS.get(kind) or system_of(kind)
    scheme, place = _place(addresses[0]) if notes is None else ("notes", str(notes.absolute()))
    if scheme not in (("notes",) if kind == "notes" else system.retires if system else ()):
        raise InputError(
            f"--script: nothing is known of how to retire a memory in {kind}; known are mem0, LangGraph, notes"
        )
    retire = {}
    for one in pairs:  # of several successors the last one decided
        old, new = (one_line(known[key].content, _TEXT_CHARS) for key in (one.older, one.newer))
        retire[one.older] = {"id": one.older, "by": one.newer, "text": old, "by_text": new}
    changes = {"system": scheme, "kind": system.name if system else kind, "place": place, "retire": [*retire.values()]}
    text = files(__package__).joinpath("change_source.py").read_text("utf-8")
    return text.replace(_EMPTY, f"CHANGES = {pprint.pformat(changes, width=140, sort_dicts=False)}\n"), len(retire)


def _place(address: str) -> tuple[str, str]:
    """The system in the script's words, and where it is: an address of libpq, a file, http://HOST:PORT/COLLECTION or FOLDER/COLLECTION."""
    parsed = parse(address, {})
    scheme = {"postgres": "postgresql", "sqlite3": "sqlite", "qdrant+https": "qdrant"}.get(parsed.scheme, parsed.scheme)
    if scheme == "postgresql":
        return scheme, address
    if not parsed.host:
        return scheme, parsed.path
    secure, host = parsed.scheme.endswith("https"), f"[{parsed.host}]" if ":" in parsed.host else parsed.host
    port = parsed.port or (443 if secure else 6333)
    return scheme.replace("chroma", "chroma server"), f"http{'s' * secure}://{host}:{port}/{parsed.path}"
