"""`audit`, `leak` and `forgotten`: what a store should not hold, who gets whose memories, and whether a deleted memory is gone."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import typer

from cems_workbench.cli.main import Command
from cems_workbench.cli.options import (
    ConfigChoice,
    IdsOption,
    JsonOption,
    StoreOption,
    opened_store,
    present,
    progress_bar,
)
from cems_workbench.cli.terminal import repeated
from cems_workbench.errors import InputError
from cems_workbench.platform.atomic_write import write_text
from cems_workbench.platform.parsing import read_text
from workbench_audit.audit import NEAR

FOUND = 1


def audit_command(
    choice: ConfigChoice,
    query_set: str | None = None,
    kinds: list[str] | None = None,
    near: float = NEAR,
    report: Path | None = None,
    ids: IdsOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """What a store holds that it should not: duplicates, contradictions, junk, secrets, invented, expired, hubs, and
    what is never returned; which judged queries it costs, and what removing it would do. Nothing is changed."""
    from workbench_audit.audit import audit, chosen_kinds

    chosen_kinds(kinds or ())
    config = choice.read(store)
    with opened_store(store) as opened, progress_bar(as_json) as progress:
        found = audit(opened, query_set, config, kinds=kinds or (), near=near, progress=progress)
    found = replace(found, ids=ids, options=tuple(choice.words(store)))
    if report is not None:
        from cems_workbench.report.page import result_report

        write_text(report, result_report(found, datetime.now(UTC)))
    present(found, as_json, found.next_words or None, titled=True)


def leak_command(
    choice: ConfigChoice,
    query_set: str = "all",
    by: str = "project",
    only_project: bool = False,
    ids: IdsOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask each judged query as every other project or author: which memories cross, at which rank, by which list; and
    what a filter after the cut loses against one before it.

    Exits 1 if a memory crosses."""
    from workbench_audit.leaks import leak

    config = choice.read(store)
    with opened_store(store) as opened, progress_bar(as_json) as progress:
        found = leak(opened, query_set, config, by=by, only_project=only_project, ids=ids, progress=progress)
    then = repeated("--only-project") if found.total and by == "project" and not only_project else None
    present(found, as_json, then, titled=True)
    if found.total:
        raise typer.Exit(FOUND)


def forgotten_command(
    memory_id: str,
    choice: ConfigChoice,
    text: Path | None = None,
    erase: bool = False,
    apply: bool = False,
    out: Path | None = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search every table, index, list, file and near paraphrase for a deleted memory, and print a receipt.

    Exits 1 if anything still holds its text or says the same. --erase prints what would be removed for good, --erase --apply
    removes it first."""
    from workbench_audit.forgotten import forgotten, would_erase

    if apply and not erase:
        raise InputError("--apply: it belongs to --erase")
    config, said = choice.read(store), None if text is None else read_text(text, "text of a memory")
    with opened_store(store) as opened, progress_bar(as_json) as progress:
        if erase and not apply:
            return present(would_erase(opened, memory_id, said), as_json, repeated("--apply"), titled=True)
        found = forgotten(opened, memory_id, said, config, erase=erase, progress=progress)
    if out is not None:
        write_text(out, json.dumps(found.to_json(), indent=1))
    present(found, as_json, None if found.forgotten or erase else repeated("--erase"), titled=True)
    if not found.forgotten:
        raise typer.Exit(FOUND)


AUDIT = Command("audit", audit_command, place=236)
LEAK = Command("leak", leak_command, place=237)
FORGOTTEN = Command("forgotten", forgotten_command, place=238)
