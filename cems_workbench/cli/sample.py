"""`sample`: a query set drawn from a query log."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from cems_workbench.cli.next_command import say_next, unused, words_of
from cems_workbench.cli.options import StoreOption, given_options, print_table, progress_bar, settings_for
from cems_workbench.cli.terminal import say
from cems_workbench.errors import InputError

MAX_PROBLEMS = 20


def sample_command(
    log: Annotated[
        Path,
        typer.Argument(
            help="Query log: hook_events.jsonl of CEMS, retriever spans, or JSONL or CSV with time, query and results."
        ),
    ],
    query_set: Annotated[
        str, typer.Option("--query-set", metavar="NAME", help="Query set that receives the sampled queries.")
    ],
    strategy: Annotated[
        str, typer.Option("--strategy", help="Sampling strategy: frequent, random, or worst (lowest judge score).")
    ] = "frequent",
    size: Annotated[int, typer.Option("--size", min=1, metavar="N", help="Number of queries.")] = 100,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Random seed.")] = 0,
    store: StoreOption = None,
) -> None:
    """Sample a query log into a query set.

    Exits 2 if rows of the log were left out.
    """
    from cems_workbench.evaluation import log_sampling
    from cems_workbench.formats import log_format, logs, read
    from cems_workbench.formats.logs import askings, not_recorded
    from cems_workbench.jobs.factory import open_resources

    if strategy not in log_sampling.STRATEGIES:
        raise InputError(f"--strategy: {strategy!r} is not one of {', '.join(log_sampling.STRATEGIES)}")
    with progress_bar() as progress:
        parsed = read(log, log_format(log) or logs.NAME, progress)
        errors = parsed.errors
        if not parsed.queries:
            raise InputError(f"{log} has no query that can be read" + (f"; {errors[0]}" if errors else ""))
        with closing(open_resources(settings_for(store))) as resources:
            answers = resources.store.recorded_answers.resolved(parsed.answers, parsed.extra.get("id_length"))
            entries = askings(parsed.queries, answers)
            chosen, scores = log_sampling.sampled(entries, strategy, size, seed, resources, progress)
            made = resources.store.query_sets.put(query_set, [logged.query for logged in chosen], log.name)
    rows = [[logged.query.qid, logged.query.query, logged.times, scores.get(logged.query.qid)] for logged in chosen]
    print_table(["qid", "query", "times", "judge"], rows)
    if len(answers) < len(entries):
        say(not_recorded(len(entries) - len(answers), len(entries)))
    say(f"query set {made.name}, version {made.version}: {made.size} queries")
    options = ["--out", unused(f"{made.name}.evidence"), *given_options(store=store)]
    say_next(words_of("gather", made.name, options=options))
    for error in errors[:MAX_PROBLEMS]:
        say(f"left out: {error}", err=True)
    if len(errors) > MAX_PROBLEMS:
        say(f"left out: {len(errors) - MAX_PROBLEMS} more rows", err=True)
    if errors:
        raise typer.Exit(2)
