"""`team`: the shared database of a team's labels, query sets, configs and hold-out looks."""

from __future__ import annotations

from dataclasses import asdict

import typer

from cems_workbench.cli.next_command import say_next, words_of
from cems_workbench.cli.options import JsonOption, StoreOption, given_options, open_existing_store, print_table
from cems_workbench.cli.terminal import put_json, say

team_commands = typer.Typer(
    help="Share labels, query sets and configs in PostgreSQL.\n\nCEMS_WORKBENCH_TEAM names the database.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@team_commands.command("push")
def push_command(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Copy this store's labels, query sets and configs to the team's database.

    Repeating it creates no duplicates.
    """
    with open_existing_store(store) as opened:
        report = opened.push()
        where = opened.team.state().line
    if as_json:
        return put_json({"rows": [asdict(row) for row in report.rows], "lines": report.lines})
    print_table(
        ["", "copied", "there", "left behind"], [[row.what, row.copied, row.there, row.left] for row in report.rows]
    )
    for line in report.lines:
        say(line, err=True)
    say(f"labels are {where}; this store's own database is unchanged")
    say_next(words_of("team status", options=given_options(store=store)))


@team_commands.command("status")
def status_command(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show which database holds the labels, and whether its memories match the store's."""
    from cems_workbench.jobs.team_status import team_status

    with open_existing_store(store) as opened:
        state, lines = opened.team.state(), team_status(opened)
        shared = bool(opened.team.place)
    if as_json:
        return put_json({"where": state.line, "shared": shared, "rows": dict(state.counts), "lines": lines})
    say(f"labels are {state.line}")
    print_table(["table", "rows"], sorted(state.counts.items()))
    for line in lines:
        say(line)
    if state.counts.get("judgments"):
        say_next(words_of("agreement", options=given_options(store=store)))
