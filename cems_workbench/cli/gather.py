"""`gather`: the evidence of a query set, in one portable file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cems_workbench.cli.next_command import say_next, unused, words_of
from cems_workbench.cli.options import (
    ConfigOption,
    DaskOption,
    JsonOption,
    PresetOption,
    SetOption,
    StoreOption,
    chosen_config,
    filled_resources,
    progress_bar,
)
from cems_workbench.cli.terminal import put_json, say

PerQueryProjectOption = Annotated[
    bool, typer.Option("--per-query-project", help="For each query that names a project, search only that project.")
]
LimitOption = Annotated[
    int | None, typer.Option("--limit", min=1, metavar="N", help="Use a random sample of N queries.")
]
SeedOption = Annotated[int, typer.Option("--seed", metavar="N", help="Random seed.")]
JudgedOption = Annotated[bool, typer.Option("--judged", help="Use only queries with a judgment.")]


def gather_command(
    query_set: Annotated[
        str, typer.Argument(metavar="QUERY_SET", help="A query set of the store, “all”, or a file of queries.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="The evidence file to write (default: the store's own, which app, evaluate, tune and why use).",
        ),
    ] = None,
    preset: PresetOption = None,
    config: ConfigOption = None,
    changes: SetOption = None,
    per_query_project: PerQueryProjectOption = False,
    judged: JudgedOption = False,
    limit: LimitOption = None,
    seed: SeedOption = 0,
    store: StoreOption = None,
    dask: DaskOption = None,
    as_json: JsonOption = False,
) -> None:
    """Gather the evidence of a query set into one file.

    An interrupted gather resumes if the same command is run again.
    """
    chosen = chosen_config(preset, config, changes)
    from cems_workbench.jobs.query_set_evidence import (
        QuerySelection,
        gather_evidence,
        gather_query_set,
        queries_named,
        sample_queries,
    )

    with progress_bar(as_json) as progress, filled_resources(store, dask) as resources:
        queries, judgments = queries_named(query_set, resources, judged)
        queries = sample_queries(queries, limit, seed)
        asked = {query.qid for query in queries}
        judgments = [row for row in judgments if row.qid in asked]
        if out is None:
            selection = QuerySelection(query_set, tuple(queries), per_query_project)
            if selection.without_project:
                say(f"note: {selection.without_project}", err=True)
            report = gather_evidence(chosen, selection, judgments, resources, progress)
        else:
            report = gather_query_set(
                out,
                queries,
                judgments,
                chosen,
                resources,
                query_set=query_set,
                only_project=per_query_project,
                progress=progress,
            )
        notices = resources.store.notices
    values: dict[str, Any] = {
        "evidence": str(report.path),
        "queries": len(queries),
        "finished_before": report.finished_before,
        "gathered": report.gathered,
        "left_out": [str(error) for error in report.left_out],
        "seconds": round(report.seconds, 3),
        "content_hash": report.content_hash,
        "notices": list(notices),
    }
    if as_json:
        put_json(values)
    else:
        say(f"{report.path}: evidence of {report.finished_before + report.gathered} of {len(queries)} queries")
        say(f"{report.gathered} gathered now in {report.seconds:.1f} s, {report.finished_before} already finished")
        say(f"content hash {report.content_hash}")
        for error in report.left_out:
            say(f"left out: {error}")
        if asked & {row.qid for row in judgments}:
            say_next(words_of("evaluate", report.path, options=["--losses"]))
        else:  # nothing to measure on
            say_next(words_of("tune", report.path, options=["--without-labels", "--out", unused("tuned.yaml")]))
    if report.left_out:
        raise typer.Exit(2)
