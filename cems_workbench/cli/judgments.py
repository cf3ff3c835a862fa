"""`judgments`: the labels of the store, or its queries, in a format that other tools read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cems_workbench.cli.next_command import say_next, words_of
from cems_workbench.cli.options import StoreOption, given_options, open_existing_store, queries_of
from cems_workbench.cli.terminal import put, say
from cems_workbench.errors import InputError
from cems_workbench.platform.atomic_write import write_text

if TYPE_CHECKING:
    from cems_workbench.records import Judgment
    from cems_workbench.store import Store

QUERIES_FORMAT = "queries-jsonl"
QuerySetOption = Annotated[
    str | None, typer.Option("--query-set", metavar="NAME", help="Only queries of this query set.")
]
JudgeKindOption = Annotated[
    str,
    typer.Option("--judge-kind", metavar="human|model|all", help="Only labels of people, of models, or all of them."),
]


def judgments_command(
    format: Annotated[
        str, typer.Option("--format", help="Output format: a judgment format of import, or queries-jsonl.")
    ] = "judgments-jsonl",
    query_set: QuerySetOption = None,
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
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write to this file instead of stdout.")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Export judgments, or the queries.

    What the format cannot hold is listed on stderr, with exit code 1.
    """
    from cems_workbench.formats import write_judgments
    from cems_workbench.formats.queries import write as queries_written

    left_out: tuple[str, ...] = ()
    with open_existing_store(store) as opened:
        every_label = opened.judgments.read()
        queries = {query.qid: query for query in queries_of(opened, query_set)}
        if format == QUERIES_FORMAT:
            text = queries_written(queries.values())
        else:
            every = {query.qid: query for query in opened.queries.read()}  # others may have the same words
            written = write_judgments(format, chosen_labels(opened, set(queries), judge, judge_kind, rule), every)
            text, left_out = written.text, written.left_out
    if out is None:
        put(text)
    else:
        write_text(out, text, newline="")
        if every_label:
            say_next(words_of("evaluate", query_set or "all", options=["--losses", *given_options(store=store)]))
    for line in left_out:
        say(f"left out: {line}", err=True)
    if left_out:
        raise typer.Exit(1)


def chosen_labels(store: Store, qids: set[str], judge: str | None, kind: str, rule: str | None) -> list[Judgment]:
    """The labels asked for, raw or one per pair; what a rule leaves open is named on stderr."""
    from cems_workbench.evaluation.labelling.agreement import choose_judgments

    try:
        chosen = choose_judgments(store, qids, judge, kind, rule)  # type: ignore[arg-type]
    except InputError as error:
        raise InputError(f"--{error}") from None
    for line in chosen.still_open:
        say(f"open: {line}", err=True)
    return list(chosen.judgments)
