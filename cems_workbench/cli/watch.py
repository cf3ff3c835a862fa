"""`watch`: a query set re-evaluated on the current store, recorded, and compared with the last measurement."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cems_workbench.cli.measuring import (
    CannotTellOption,
    SeedOption,
    ToleranceOption,
    asserted_json,
    check_cannot_tell,
    exit_unless_all_hold,
    print_asserted,
    print_verdicts,
    verdicts_json,
)
from cems_workbench.cli.next_command import repeated, say_next, words_of
from cems_workbench.cli.options import (
    ConfigChoice,
    JsonOption,
    StoreOption,
    filled_resources,
    print_table,
    progress_bar,
    settings_for,
)
from cems_workbench.cli.terminal import put, put_json, say_wrapped
from cems_workbench.errors import InputError
from cems_workbench.renamed import present_arguments

if TYPE_CHECKING:
    from cems_workbench.jobs.watching import Watched

DEFAULT_GUARD = "nDCG@10 p<0.01"
"""Measured daily, a p below 0.05 comes by chance every three weeks."""
_CRON = re.compile(r"(@(hourly|daily|weekly|monthly))|(\S+ +\S+ +\S+ +\S+ +\S+)")


def watch_command(
    query_set: Annotated[str, typer.Argument(metavar="QUERY_SET", help="A query set of the store.")],
    choice: ConfigChoice,
    no_loss: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on-regression",
            metavar="[TYPE:]MEASURE[ p<N]",
            help="Exit with 1 on a loss against last time above the tolerance, with 3 if that is uncertain; with p<N, with 1 on a "
            f"significant loss (default: {DEFAULT_GUARD}).",
        ),
    ] = None,
    tolerance: ToleranceOption = None,
    cannot_tell: CannotTellOption = None,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="A note to save with the measurement.")] = "",
    cron: Annotated[
        str | None,
        typer.Option(
            "--cron", metavar="WHEN", help='Only print a crontab line for this schedule, such as "0 6 * * 1".'
        ),
    ] = None,
    seed: SeedOption = 0,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Re-evaluate a query set and compare with the last time.

    The measurement is saved; the Evaluate page plots all of them over time.
    """
    from cems_workbench.evaluation.assertions import parse_no_loss
    from cems_workbench.evaluation.evaluate import number
    from cems_workbench.jobs.watching import watch

    chosen = choice.read()
    texts = [DEFAULT_GUARD] if no_loss is None else no_loss
    for text in texts:
        parse_no_loss(text)
    decided = check_cannot_tell(cannot_tell)
    if cron is not None:
        put(_crontab_line(cron, store))
        return
    with progress_bar(as_json) as progress, filled_resources(store) as resources:
        least = resources.store.query_sets.relevant_from(query_set)
        guards = tuple(parse_no_loss(text, least) for text in texts)
        found = watch(
            chosen,
            query_set,
            guards,
            resources,
            progress,
            note=note,
            seed=seed,
            tolerance=tolerance,
            cannot_tell=decided,
        )
    last = None if found.last is None else found.last.isoformat(timespec="seconds")
    if as_json:
        values = {
            "query_set": query_set,
            "last": last,
            "changed": list(found.changed),
            "measured": found.evaluation.to_json(),
            "since": [
                {
                    "measure": str(row.measure),
                    "before": row.before,
                    "now": row.now,
                    "interval": [number(row.low), number(row.high)],
                    "p": row.p,
                    "queries": row.queries,
                }
                for row in found.since
                if row.queries
            ],
        }
        put_json(verdicts_json(found.verdicts) | values | asserted_json(found.outcomes))
    else:
        _print(found.evaluation.config.name, query_set, last, found)
        if any(outcome.failed for outcome in found.outcomes):
            options = ["--losses", *choice.words(store)]
            say_next(words_of("evaluate", query_set, options=options))
        else:
            say_next(repeated("--cron", "@daily"))
    exit_unless_all_hold(found.outcomes)


def _print(name: str, query_set: str, last: str | None, found: Watched) -> None:
    from cems_workbench.evaluation.comparison import interval_words
    from cems_workbench.evaluation.evaluate import number

    if last is None:
        rows = [
            [str(row.measure), number(row.mean), f"{row.low:.3f} to {row.high:.3f}"]
            for row in found.evaluation.summaries
        ]
        print_table(["measure", "mean", "95 % interval"], rows, f"{name} on {query_set}, for the first time")
        return
    print_verdicts(found.verdicts)
    rows = [
        [
            str(row.measure),
            row.before,
            row.now,
            f"{row.now - row.before:+.4f}",
            interval_words(row.low, row.high),
            f"{row.p:.4f}",
        ]
        for row in found.since
        if row.queries
    ]
    print_table(
        ["measure", "then", "now", "change", "95 % of change", "p"], rows, f"{name} on {query_set}, since {last}"
    )
    say_wrapped(f"changed since: {', '.join(found.changed) or 'nothing'}")
    print_asserted(found.outcomes)
    for line in found.evaluation.remarks:
        say_wrapped(line)


def _crontab_line(when: str, store: Path | None) -> str:
    """This very command as a line of crontab. Raises InputError for a time that is none of cron's."""
    if not _CRON.fullmatch(when.strip()):
        raise InputError(f'--cron "{when}": expected five fields of cron, such as "0 6 * * 1", or @daily')
    words, skip = [], False
    for word in present_arguments(sys.argv[1:]):
        if skip or word == "--cron" or word.startswith("--cron="):
            skip = word == "--cron"
            continue
        words.append(word)
    place = settings_for(store).store.resolve()
    words = [sys.executable, "-m", "cems_workbench", *words, *([] if store else ["--store", str(place)])]
    return f"{when.strip()}  cd {shlex.quote(os.getcwd())} && {shlex.join(words)}".replace("%", "\\%") + "\n"
