"""`doctor` and `team`: packages, models, servers and the state of the store; the shared database of a team."""

from __future__ import annotations

import dataclasses
import shutil
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.cli.next_command import first_search, say_next, words_of
from cems_workbench.cli.options import (
    ConfigOption,
    JsonOption,
    PresetOption,
    StoreOption,
    chosen_config,
    filled_resources,
    given_options,
    open_existing_store,
    print_table,
    progress_bar,
    settings_for,
)
from cems_workbench.cli.serve import serve_check
from cems_workbench.cli.terminal import put_json, say

if TYPE_CHECKING:
    from cems_workbench.jobs.diagnosis import Check


DeepOption = Annotated[
    bool,
    typer.Option("--deep", help="Verify every row of the database and every file and vector of the indexes."),
]
RepairOption = Annotated[bool, typer.Option("--repair", help="First rebuild damaged indexes from the memories.")]

RecoverToOption = Annotated[
    Path | None,
    typer.Option(
        "--recover-to", metavar="NEW_STORE", help="Copy every readable row of a damaged store into a new store."
    ),
]


def doctor_command(
    preset: PresetOption = None,
    config: ConfigOption = None,
    store: StoreOption = None,
    deep: DeepOption = False,
    repair: RepairOption = False,
    recover_to: RecoverToOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check packages, models, servers and the store.

    Shows what is available and what the preset or config will use. Exits 1 if a required component is missing and has no fallback.
    """
    if recover_to is not None:
        return _recover(settings_for(store).store, recover_to, as_json)
    chosen = chosen_config(preset, config, None)
    from cems_workbench.jobs.diagnosis import diagnose

    if repair:
        with progress_bar(as_json) as progress, filled_resources(store) as resources:
            resources.repair(progress)
    checks = [*diagnose(settings_for(store), chosen, deep=deep), serve_check(str(settings_for(store).store))]
    if as_json:
        put_json([dataclasses.asdict(check) for check in checks])
    else:
        _print(checks)
        # What it would search is refused until the embedder of the vectors is named.
        refused = any(check.name == "embedder match" and check.status == "failed" for check in checks)
        say_next(None if refused else _next_command(store))
    if any(check.status == "failed" for check in checks):
        raise typer.Exit(1)


def _next_command(store: Path | None) -> list[str] | None:
    """The import of the sample into a store without memories, else a search; None for a store that cannot be opened."""
    from cems_workbench.errors import NoMemoriesError, WorkbenchError

    to_import = words_of("import", SAMPLE_DATA.name, options=given_options(store=store))
    try:
        with open_existing_store(store) as opened:
            return first_search(opened, given_options(store=store)) or to_import
    except NoMemoriesError:
        return to_import
    except WorkbenchError:
        return None


def _recover(source: Path, target: Path, as_json: bool) -> None:
    """Print of each table how much was read; exit code 1 when something was lost."""
    from cems_workbench.store.recovery import recover

    with progress_bar(as_json) as progress:
        found = recover(source, target, progress)
    if as_json:
        put_json([dataclasses.asdict(one) for one in found])
    else:
        print_table(
            ["table", "read", "lost"], [[one.table, one.read, one.lost] for one in found if one.read or one.lost != 0]
        )
        say(f"written into {target}; its indexes are built at the first search")
        say_next(words_of("doctor", options=["--deep", "--store", str(target)]))
    if any(one.lost for one in found):
        raise typer.Exit(1)


STATUS_LABELS = {"ok": "ok", "optional": "optional", "warning": "warning", "failed": "missing"}
INDENT = 10


def _print(checks: Sequence[Check]) -> None:
    """Print a block for each check, wrapped at words: how it stands, what was found, what to do."""
    width = max(shutil.get_terminal_size().columns, 4 * INDENT)
    for check in checks:
        say(f"{STATUS_LABELS[check.status]:{INDENT}}{check.name}")
        for text in (check.finding, check.advice and f"→ {check.advice}"):
            for line in textwrap.wrap(text, width - INDENT, break_long_words=False, break_on_hyphens=False):
                say(" " * INDENT + line)
    counts = Counter(STATUS_LABELS[check.status] for check in checks)
    say("\n" + ", ".join(f"{counts[word]} {word}" for word in STATUS_LABELS.values()))


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
    from cems_workbench.jobs.store_status import team_status

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
