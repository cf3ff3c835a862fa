"""`what-if`: a query without a memory, or with one that does not exist yet; and the same over all judged queries."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cems_workbench.cli.next_command import repeated, request_options, say_next, words_of
from cems_workbench.cli.options import (
    AsOfOption,
    ConfigOption,
    JsonOption,
    OnlyProjectOption,
    PresetOption,
    ProjectOption,
    SetOption,
    StoreOption,
    chosen_config,
    filled_resources,
    given_options,
    print_table,
    progress_bar,
    request_and_config,
    warn_unknown_project,
)
from cems_workbench.cli.terminal import put_json, say, say_wrapped
from cems_workbench.errors import InputError

if TYPE_CHECKING:
    from cems_workbench.analysis.edited_evidence import Edit
    from cems_workbench.analysis.what_if import WhatIf
    from cems_workbench.analysis.what_if_set import SetEffect
    from cems_workbench.pipeline.resources import Resources

MAX_ROWS = 20


def what_if_command(
    query: Annotated[str, typer.Argument(help="The query.")],
    without: Annotated[
        str | None, typer.Option("--without", metavar="MEMORY_ID", help="Leave this memory out.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--with", metavar="TEXT", help="Add a memory with this text that does not exist yet.")
    ] = None,
    text_file: Annotated[
        Path | None, typer.Option("--with-file", metavar="FILE", help="Add a memory with the text of this file.")
    ] = None,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="Title of the new memory.")] = None,
    of_project: Annotated[
        str | None, typer.Option("--memory-project", metavar="ORG/REPO", help="Project of the new memory.")
    ] = None,
    scope: Annotated[str, typer.Option("--scope", help="Scope of the new memory: personal or shared.")] = "personal",
    queries: Annotated[
        str | None,
        typer.Option("--queries", metavar="QUERY_SET", help="Also try it on the judged queries of a set, or of all."),
    ] = None,
    preset: PresetOption = None,
    config: ConfigOption = None,
    changes: SetOption = None,
    project: ProjectOption = None,
    only_project: OnlyProjectOption = False,
    as_of: AsOfOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what comes in a memory's place, or whether a new memory would be found. Nothing is stored."""
    if sum(given is not None for given in (without, text, text_file)) != 1:
        raise InputError("pass one of --without MEMORY_ID, --with TEXT and --with-file FILE")
    chosen = chosen_config(preset, config, changes)
    request, chosen = request_and_config(query, project, only_project, as_of, None, chosen)
    from cems_workbench.analysis.what_if import applied
    from cems_workbench.jobs.what_if import effect_on_queries
    from cems_workbench.pipeline.gather import gather

    with progress_bar(as_json) as progress, filled_resources(store) as resources:
        edit = _edit(without, text, text_file, title, of_project, scope, resources)
        warn_unknown_project(resources.store, project, only_project)
        evidence = gather(request, chosen, resources, judge="decisive")
        found = applied(edit, evidence, chosen, request)
        any_judged = not as_json and bool(resources.store.judgments.read())
        effect = None if queries is None else effect_on_queries(edit, chosen, queries, progress=progress)
    if as_json:
        put_json(found.to_json() | ({"queries": effect.to_json()} if effect else {}))
        return
    _print_outcome(found)
    if effect is not None:
        _print_effect(effect)
    if queries is None and any_judged:
        say_next(repeated("--queries", "all"))
    else:
        options = [*request_options(request), *given_options(preset, config, changes, store)]
        say_next(words_of("search", query, options=options))


def _edit(
    without: str | None,
    text: str | None,
    text_file: Path | None,
    title: str | None,
    project: str | None,
    scope: str,
    resources: Resources,
) -> Edit:
    from cems_workbench.analysis.what_if import absence, new_memory, presence
    from cems_workbench.platform.parsing import read_text

    if without is not None:
        return absence(without, resources)
    if text_file is not None:
        text = read_text(text_file, "text of a memory")
    if scope not in ("personal", "shared"):
        raise InputError(f"--scope {scope[:40]}: expected personal or shared")
    return presence(new_memory(text or "", resources, title=title, project=project, scope=scope), resources)


def _print_outcome(found: WhatIf) -> None:
    say_wrapped(found.sentence)
    rows: list[list[Any]] = [
        [one.memory_id, one.before, one.after, found.text_of(one.memory_id)] for one in found.others()[:MAX_ROWS]
    ]
    if rows:
        print_table(["memory", "rank before", "rank", "text"], rows, "other results that move")
    lists = [
        [pair.name, pair.before and pair.before.rank, pair.after and pair.after.rank]
        for pair in found.lists()
        if pair.before or pair.after
    ]
    if lists:
        print_table(["list", "rank before", "rank"], lists)
    say_wrapped(found.certainty)


def _print_effect(effect: SetEffect) -> None:
    say()
    say_wrapped(effect.sentence)
    rows: list[list[Any]] = [
        [
            row.query.qid,
            row.before,
            row.after,
            ", ".join(row.came) or None,
            ", ".join(row.left) or None,
            None if isnan(row.difference) else f"{row.difference:+.3f}",
        ]
        for row in effect.changed[:MAX_ROWS]
    ]
    if rows:
        print_table(["query", "rank before", "rank", "came", "left", str(effect.first.measure)], rows)
    if len(effect.changed) > MAX_ROWS:
        say(f"and {len(effect.changed) - MAX_ROWS} more; --json lists them all")
    for note in effect.notes:
        say_wrapped(note)
