"""The command line: the same capabilities as the app, without a browser.

Exit codes: 0 done, 1 a check failed, 2 bad input (one line, no traceback), 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import typer

from cems_workbench import __version__
from cems_workbench.cli import app as opening
from cems_workbench.cli import compare as comparing
from cems_workbench.cli import config_history, doctor, export
from cems_workbench.cli import dataset as exporting_datasets
from cems_workbench.cli import evaluate as evaluating
from cems_workbench.cli import gather as gathering
from cems_workbench.cli import import_ as importing
from cems_workbench.cli import judgments as exporting_judgments
from cems_workbench.cli import replay as replaying
from cems_workbench.cli import sample as sampling
from cems_workbench.cli import search as searching
from cems_workbench.cli import tune as tuning
from cems_workbench.cli import why as explaining
from cems_workbench.errors import WorkbenchError

INTERRUPTED = 130

app = typer.Typer(
    name="cems_workbench",
    help="Inspect and tune memory retrieval, stage by stage.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("app")(opening.app_command)
app.command("import")(importing.import_command)
app.command("search")(searching.search_command)
app.command("replay")(replaying.replay_command)
app.command("why")(explaining.why_command)
app.command("gather")(gathering.gather_command)
app.command("evaluate")(evaluating.evaluate_command)
app.command("compare")(comparing.compare_command)
app.command("tune")(tuning.tune_command)
app.command("config-history")(config_history.config_history_command)
app.command("export")(export.export_command)
app.command("dataset")(exporting_datasets.dataset_command)
app.command("judgments")(exporting_judgments.judgments_command)
app.command("agreement")(exporting_judgments.agreement_command)
app.command("sample")(sampling.sample_command)
app.command("doctor")(doctor.doctor_command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cems_workbench {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


def main() -> None:
    """Run the command line; every error meant for the user becomes one line on stderr and exit code 2."""
    try:
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False) or 0
        if code == INTERRUPTED:
            print("interrupted; what was finished is kept", file=sys.stderr)
        sys.exit(code)
    except WorkbenchError as error:
        _refuse(str(error))
    except typer.TyperException as error:  # a missing argument, an unknown option
        _refuse(f"{error.format_message()} See --help.")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _refuse(message: str) -> NoReturn:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
