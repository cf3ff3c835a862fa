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
    given_options,
    opened_store,
    present,
    progress_bar,
)
from cems_workbench.cli.terminal import repeated, words_of
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
    from workbench_audit.api import audit
    from workbench_audit.audit import chosen_kinds

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
    from workbench_audit.api import leak

    config = choice.read(store)
    with opened_store(store) as opened, progress_bar(as_json) as progress:
        found = leak(opened, query_set, config, by=by, only_project=only_project, progress=progress)
    then = repeated("--only-project") if found.leaks and by == "project" and not only_project else None
    present(replace(found, ids=ids), as_json, then, titled=True)
    if found.leaks:
        raise typer.Exit(FOUND)


def forgotten_command(
    memory_id: str,
    choice: ConfigChoice,
    text: Path | None = None,
    out: Path | None = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search every table, index, list, file and near paraphrase for a deleted memory, and print a receipt.

    Exits 1 if anything still holds its text or says the same."""
    from workbench_audit.api import forgotten

    config, said = choice.read(store), None if text is None else read_text(text, "text of a memory")
    with opened_store(store) as opened, progress_bar(as_json) as progress:
        found = forgotten(opened, memory_id, said, config, progress=progress)
    if out is not None:
        write_text(out, json.dumps(found.to_json(), indent=1))
    index = any(one.kind in ("lexical", "vectors") for one in found.holding)
    present(found, as_json, words_of("reindex", options=given_options(store=store)) if index else None, titled=True)
    if not found.forgotten:
        raise typer.Exit(FOUND)


AUDIT = Command("audit", audit_command, place=236)
LEAK = Command("leak", leak_command, place=237)
FORGOTTEN = Command("forgotten", forgotten_command, place=238)
