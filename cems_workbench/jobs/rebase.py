"""Judgments that follow their memories to other ids: by command, and after an import or a connect that replaced judged memories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from cems_workbench import formats
from cems_workbench.errors import InputError, counted
from cems_workbench.results import Report, Table
from cems_workbench.store import ImportReport, Store
from cems_workbench.store.rebase import PERHAPS, Rebase

SHOWN = 20


def texts_of(path: Path) -> Mapping[str, str]:
    """By id the texts of the memories of a file, a folder of files, or another store. Raises InputError if it has none, and StoreError."""
    if Store.exists(path):
        with Store.open(path, create=False) as other:
            texts = {memory.id: memory.content for memory in other.memories.iterate()}
    else:
        inputs = formats.read_path(path, "auto")
        texts = {memory.id: memory.content for parsed in inputs for memory in parsed.memories}
    if not texts:
        raise InputError(f"--texts: {path} has no memories; name the file or store whose memories were judged")
    return texts


def rebase(store: Store, texts: Mapping[str, str] | None = None, *, apply: bool = False) -> Report:
    """Where the judged memories of a store are now, and which judgments move; only with `apply` they do, as an import on record."""
    planned = store.plan_rebase(texts)
    moved = {key: one for key, one in planned.found.items() if one.status != "valid"}
    rows = [
        (key, one.status, ", ".join(one.targets or one.doubtful), one.how or PERHAPS * bool(one.doubtful))
        for key, one in moved.items()
    ]
    notes = []
    if planned.unkept:
        many = counted(len(planned.unkept), "memories")
        notes.append(f"{many} are not here and have no kept text, such as {planned.unkept[0]}: --texts OLD names what has them")
    number = 0
    if apply and planned.changes:
        done = store.rebase(planned)
        number, notes = done.event, [*notes, *done.notes, *map(str, done.errors)]
        if number:
            notes.append(f"on record as import {number}; import {number} --undo takes it back")
    elif planned.changes:
        notes.append(f"nothing is changed yet; {counted(len(planned.moved), 'judgments')} would be written, with --apply")
    values = {
        "counts": dict(planned.counts),
        "written": len(planned.moved),
        "taken_away": len(planned.stale),
        "doubtful": [list(pair) for pair in planned.doubtful],
        "memories": {key: asdict(one) for key, one in moved.items()},
        "no_kept_text": planned.unkept,
        "import": number or None,
    }
    tables = [Table(("judged memory", "status", "now", "how"), tuple(rows), shown=SHOWN)] if rows else []
    return Report(planned.words, (), tables, notes, values)


def followed(store: Store) -> tuple[Rebase, ImportReport | None]:
    """Move the judgments of memories that the store no longer has to those with their text, unless that was undone: the plan, and what was
    done where it changes something."""
    planned = store.plan_rebase(by_itself=True)
    return planned, store.rebase(planned) if planned.changes else None


def follow(store: Store) -> list[str]:
    """As `followed`; a line on it."""
    planned, done = followed(store)
    if done is None:
        return []
    queue = f"; labelling queue {done.queue}" if done.queue else ""
    undo = f"; import {done.event} --undo takes it back" if done.event else ""
    return [f"{planned.words}{queue}{undo}"]
