"""`report`: a comparison, or why a memory is missing, as one HTML file for readers without the app."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import typer

from cems_workbench.cli import options as cli
from cems_workbench.cli.measuring import ComparedConfigs, Measuring, NamesArgument, ToleranceOption, measured
from cems_workbench.cli.query import explained, next_commands
from cems_workbench.cli.terminal import say, say_next, words_of
from cems_workbench.platform.atomic_write import write_text

group = typer.Typer(name="report", help="Write a comparison or an explanation as one HTML file.", no_args_is_help=True)


@group.command("compare")
@cli.grouped
def compare_command(
    evidence: NamesArgument,
    out: Path,
    choice: ComparedConfigs,
    how: Measuring,
    sort_by: str | None = None,
    tolerance: ToleranceOption = None,
    shown: int = 10,
    redact: bool = False,
) -> None:
    """Report a comparison of configs with the first one.

    Means, differences, and the queries that lost most.
    """
    from cems_workbench.analysis.losses_of_set import DEFAULT_K, SHOWN
    from cems_workbench.evaluation.verdict import DEFAULT_TOLERANCE
    from cems_workbench.report.comparison import comparison_report

    choice.require_two("report compare", evidence)
    with measured(evidence, choice, how, count_losses=DEFAULT_K) as found:
        page = comparison_report(
            found.comparison,
            [row.labelled for row in found.rows] or found.source,  # type: ignore[arg-type]
            datetime.now(UTC),
            by=sort_by,
            shown=shown,
            redact=redact,
            seed=how.seed,
            judges=how.judge_kind,
            losses=found.losses(SHOWN, if_any=True),
            tolerance=DEFAULT_TOLERANCE if tolerance is None else tolerance,
            answered=found.made_on[0][1],
        )
    _write(out, page)
    options = ["--losses", *choice.words(), *cli.given_options(store=how.store)]
    say_next(words_of("evaluate", *evidence, options=options))


@group.command("why")
@cli.grouped
def why_command(
    query: str,
    memory_id: str,
    out: Path,
    choice: cli.ConfigChoice,
    asked: cli.AskedInFull,
    cutoff: cli.CutoffOption = None,
    labelled: bool = False,
    redact: bool = False,
    store: cli.StoreOption = None,
) -> None:
    """Report why a memory is missing, and what would return it. Nothing is changed.

    It searches the store: of an external trace, `why --evidence SET` names the stage.
    """
    from cems_workbench.report.investigation import investigation_report

    found = explained(query, memory_id, choice, asked, cutoff, labelled, store, quiet=False)
    with cli.open_existing_store(store) as opened:
        memory = opened.memories.get(found.why.path.memory_id)
    trace = found.answer.trace
    _write(out, investigation_report(found.why, trace, datetime.now(UTC), memory=memory, redact=redact))
    say(found.cause)
    assert found.answer.request is not None
    say_next(*next_commands(found.why, found.answer.request, found.answer.off, choice.words(store)))


def _write(out: Path, page: str) -> None:
    write_text(out, page)
    say(f"wrote {out}, {len(page.encode()) / 1e3:.0f} kB")
