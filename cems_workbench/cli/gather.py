"""`gather`: the evidence of a query set into one portable file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cems_workbench.cli.options import (
    ConfigOption,
    JsonOption,
    PresetOption,
    SetOption,
    StoreOption,
    chosen_config,
    print_json,
    progress_bar,
    settings_for,
)
from cems_workbench.errors import InputError, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cems_workbench.pipeline.resources import Resources
    from cems_workbench.records import Judgment, Query

ALL = "all"
ProjectOnlyOption = Annotated[
    bool, typer.Option("--project-only", help="Search each query's own project only, where it has one.")
]
LimitOption = Annotated[int | None, typer.Option("--limit", min=1, help="Draw this many of the queries.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of what is drawn at random.")]
JudgedOption = Annotated[bool, typer.Option("--judged", help="Only queries that have a judgment.")]


def gather_command(
    query_set: Annotated[
        str, typer.Argument(metavar="QUERY_SET", help="A query set of the store, “all”, or a file with queries.")
    ],
    out: Annotated[
        Path, typer.Option("--out", help="The evidence file; a gather that was broken off is gone on with.")
    ],
    preset: PresetOption = None,
    config: ConfigOption = None,
    changes: SetOption = None,
    project_only: ProjectOnlyOption = False,
    judged: JudgedOption = False,
    limit: LimitOption = None,
    seed: SeedOption = 0,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Gather the evidence of every query of a set. What is finished stays; the same command goes on after it."""
    chosen = chosen_config(preset, config, changes)
    from cems_workbench.runs.gathering import drawn, gather_query_set
    from cems_workbench.runs.opening import open_resources

    with progress_bar(as_json) as progress:
        resources = open_resources(settings_for(store), create=False)
        try:
            if not resources.store.memories.count():
                raise StoreError(f"the store {resources.store.path} is empty; import something first")
            queries, judgments = labelled_queries(query_set, resources, judged)
            queries = drawn(queries, limit, seed)
            kept = {query.qid for query in queries}
            done = gather_query_set(
                out, queries, [row for row in judgments if row.qid in kept], chosen, resources, query_set=query_set,
                project_only=project_only, progress=progress,
            )  # fmt: skip
        finally:
            resources.close()
    values: dict[str, Any] = {
        "evidence": str(done.path),
        "queries": len(queries),
        "finished_before": done.finished_before,
        "gathered": done.gathered,
        "left_out": [str(error) for error in done.left_out],
        "seconds": round(done.seconds, 3),
        "content_hash": done.content_hash,
    }
    if as_json:
        print_json(values)
    else:
        typer.echo(f"{done.path}: evidence of {done.finished_before + done.gathered} of {len(queries)} queries")
        typer.echo(f"{done.gathered} gathered now in {done.seconds:.1f} s, {done.finished_before} were there")
        typer.echo(f"content hash {done.content_hash}")
        for error in done.left_out:
            typer.echo(f"left out: {error}")
    if done.left_out:
        raise typer.Exit(2)


def labelled_queries(name: str, resources: Resources, judged: bool) -> tuple[Sequence[Query], Sequence[Judgment]]:
    """The queries that a name or a file means, and the judgments on them; with `judged` only queries that have one.

    A set of the store goes before a file of that name. Raises InputError when there are no queries.
    """
    from cems_workbench import formats

    named = {found.name for found in resources.store.query_sets.latest()}
    queries: Sequence[Query]
    judgments: list[Judgment] = resources.store.judgments.read()
    if name in named:
        queries = resources.store.query_sets.queries(name)
    elif name == ALL:
        queries = resources.store.queries.read()
    elif Path(name).exists():
        parsed = formats.read_path(Path(name))
        queries = [query for one in parsed for query in one.queries]
        judgments = [row for one in parsed for row in one.judgments] or judgments
    else:
        known = ", ".join(sorted(named | {ALL}))
        raise InputError(f"{name}: neither a query set of the store ({known}) nor a file")
    qids = {query.qid for query in queries}
    judgments = [row for row in judgments if row.qid in qids]
    if judged:
        with_judgment = {row.qid for row in judgments}
        queries = [query for query in queries if query.qid in with_judgment]
    if not queries:
        raise InputError(f"{name} has no queries" + (" with a judgment" if judged else ""))
    if len(qids) < len(queries):
        raise InputError(f"{name}: two queries have the same qid")
    return queries, judgments
