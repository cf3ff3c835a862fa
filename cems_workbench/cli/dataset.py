"""`dataset`: memories, queries and judgments of the store, in a format that `import` and other tools read."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cems_workbench.cli.judgments import JudgeKindOption, QuerySetOption, chosen_labels
from cems_workbench.cli.next_command import say_next, unused, words_of
from cems_workbench.cli.options import JsonOption, StoreOption, open_existing_store, progress_bar, queries_of
from cems_workbench.cli.terminal import put_json, say
from cems_workbench.errors import InputError

if TYPE_CHECKING:
    from cems_workbench.formats import DataSet, Exported
    from cems_workbench.store import Store

MAX_PROBLEMS = 50


def dataset_command(
    format: Annotated[
        str,
        typer.Option(
            "--format",
            help="Output format: beir or mteb (a directory), locomo, longmemeval, beam, memories-jsonl, memories-csv, relations-jsonl, "
            "queries-jsonl.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="PATH", help="The file or new directory to write.")],
    query_set: QuerySetOption = None,
    project: Annotated[
        str | None,
        typer.Option(
            "--project",
            metavar="ORG/REPO",
            help="Only memories of this project, with their relations, queries and judgments.",
        ),
    ] = None,
    judge: Annotated[str | None, typer.Option("--judge", metavar="NAME", help="Only labels of this judge.")] = None,
    judge_kind: JudgeKindOption = "human",
    rule: Annotated[
        str | None,
        typer.Option(
            "--rule",
            metavar="NAME",
            help="Merge labels to one grade per pair: majority, strictest or decided (default: every label).",
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export memories, queries and judgments together.

    `judgments` exports judgments alone, `export` a config. What the format cannot hold is listed on stderr, with exit code 1.
    """
    from cems_workbench.formats import dataset_writers, write_dataset

    with open_existing_store(store) as opened, progress_bar(as_json) as progress:
        dataset = _dataset(opened, query_set, project, (judge, judge_kind, rule))
        done = write_dataset(format, dataset, out, progress)
    kinds = dataset_writers()[format].kinds
    others = () if len(kinds) == 1 else [name for name in ("relations", "queries", "judgments") if name not in kinds]
    left = {name: len(rows) for name in others if (rows := list(getattr(dataset, name)))}
    if as_json:
        put_json({**dataclasses.asdict(done), "no_place_for": left, "out": str(out)})
    else:
        _print_report(done, left, format, out)
        say_next(words_of("import", out, options=["--store", unused(f"{out.stem}-store")]))
    if done.left_out or done.not_kept:
        raise typer.Exit(1)


def _dataset(
    store: Store, query_set: str | None, project: str | None, labels: tuple[str | None, str, str | None]
) -> DataSet:
    """What is asked for; the memories pass through, the rest is in memory. Raises InputError for an unknown project."""
    from cems_workbench.formats import DataSet

    queries = queries_of(store, query_set)
    counts = dict(store.memories.projects())
    if problem := store.memories.project_problem(project):
        raise InputError(f"--project: {problem}")
    relations = store.relations.read()
    judgments = chosen_labels(store, {query.qid for query in queries}, *labels)
    if project is not None:
        queries = [query for query in queries if query.project in (None, project)]
        about = {memory.id for memory in store.memories.iterate(project)}
        asked = {query.qid for query in queries}
        judgments = [label for label in judgments if label.memory_id in about and label.qid in asked]
        relations = [one for one in relations if one.source_id in about and one.target_id in about]
    total = store.memories.count() if project is None else counts[project]
    memories = store.memories.iterate(project)
    return DataSet(memories, total, relations, queries, judgments, store.memories.any_validity())


def _print_report(done: Exported, left: dict[str, int], format: str, out: Path) -> None:
    say(", ".join(f"{count} {kind}" for kind, count in done.rows.items()) + f" written to {out} as {format}")
    for kind, count in left.items():
        other = "judgments --format judgments-jsonl" if kind == "judgments" else f"dataset --format {kind}-jsonl"
        say(f"note: {format} cannot hold the {count} {kind}; `{other}` writes them")
    for note in done.notes:
        say(f"note: {note}")
    for line in done.not_kept:
        say(f"not kept: {line}", err=True)
    for line in done.left_out[:MAX_PROBLEMS]:
        say(f"left out: {line}", err=True)
    if len(done.left_out) > MAX_PROBLEMS:
        say(f"left out: {len(done.left_out) - MAX_PROBLEMS} more; --json lists them all", err=True)
