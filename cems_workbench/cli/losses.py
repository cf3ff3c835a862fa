"""Printing where relevant memories are lost: the sentence, the branches, then the memories behind each."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from cems_workbench.cli.options import print_table
from cems_workbench.cli.terminal import say, say_wrapped

if TYPE_CHECKING:
    from cems_workbench.analysis.losses_of_set import Losses, LostMemory

MAX_ROWS = 100
"""`evaluation.losses.MAX_ROWS`, which is not loaded for a list of options."""
LossesOption = Annotated[
    bool,
    typer.Option(
        "--losses",
        help="Say first which stage loses the relevant memories, and which ones; with several configs, what they save and break.",
    ),
]
LossesCutoffOption = Annotated[
    int | None,
    typer.Option(
        "--cutoff", metavar="RANK", min=1, help="With --losses: a memory below this rank counts as lost (default: 10)."
    ),
]
LossesShownOption = Annotated[
    int | None,
    typer.Option(
        "--show", metavar="N", min=0, max=MAX_ROWS, help="With --losses: memories to list of each branch (default: 10)."
    ),
]


def print_losses(losses: Losses, said: Collection[str] = ()) -> None:
    """Print the losses of configs, with the rows that they have; remarks that are `said` elsewhere are left out."""
    for line in (*losses.sentences, *losses.mistakes):
        say_wrapped(line)
    print_table(*losses.table())
    for one in losses.maps:
        several = f"{one.config_name}, " if len(losses.maps) > 1 else ""
        if len(one.by_type) > 1:
            print_table(*one.groups("type"), f"{several}by type of query")
        if len(one.by_project) > 1:
            print_table(*one.groups("project"), f"{several}by project")
        for branch, count in one.branches.items():
            _print_rows(one.rows_of(branch), f"{several}{branch.words(one.k)}", count)
    for change in losses.differences:
        for word, rows, counts in (
            ("saved", change.saved_rows, change.saved),
            ("broken", change.broken_rows, change.broken),
        ):
            _print_rows(rows, f"{word} by {change.after}", sum(counts.values()))
    for line in losses.remarks:
        if line not in said:
            say_wrapped(line)


def _print_rows(rows: Iterable[LostMemory], title: str, count: int) -> None:
    listed = [(row.qid, row.memory_id, row.words) for row in rows]
    if listed:
        print_table(("query", "memory", "what happened"), listed, f"{title}: {count}")
    if 0 < len(listed) < count:
        say(f"and {count - len(listed)} more")
