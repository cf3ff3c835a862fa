"""`ci` and `watch`: a changed config against its previous version on committed evidence, and a query set measured again and again."""

from __future__ import annotations

import os
import re
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

import typer

from cems_workbench.cli.measuring import (
    CannotTellOption,
    MetricOption,
    SeedOption,
    ToleranceOption,
    asserted_json,
    check_cannot_tell,
    exit_unless_all_hold,
    print_asserted,
    print_verdicts,
    verdicts_json,
)
from cems_workbench.cli.options import (
    ConfigChoice,
    JsonOption,
    StoreOption,
    filled_resources,
    print_table,
    progress_bar,
    read_evidence,
    settings_for,
)
from cems_workbench.cli.terminal import put, put_json, repeated, say, say_next, say_wrapped, words_of
from cems_workbench.errors import InputError
from cems_workbench.platform.atomic_write import write_text
from cems_workbench.renamed import present_arguments

if TYPE_CHECKING:
    from cems_workbench.jobs.watching import Watched


CI_DEFAULT_GUARD = "nDCG@10 p<0.05"
"""What `ci check` asserts where nothing is named; a verdict may also exit with 3."""
WRITTEN_GUARD = "nDCG@10"
"""What `ci init` writes: a verdict, whose exit code the written workflow handles."""
LARGE_FILE_BYTES = 50_000_000
"""Bytes of a file that GitHub warns about; it refuses twice that."""

group = typer.Typer(
    name="ci",
    help="Check a changed config for regressions.",
    no_args_is_help=True,
)
EvidenceArgument = Annotated[Path, typer.Argument(help="An evidence file with judgments, committed with the config.")]
ConfigFileOption = Annotated[
    Path, typer.Option("--config", metavar="FILE", help="The config file, under version control.")
]
NoLossOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on-regression",
        metavar="[TYPE:]MEASURE[ p<N]",
        help="Exit with 1 on a loss against the previous config above the tolerance, with 3 if that is uncertain; with p<N, with 1 on a "
        f"significant loss (default: {CI_DEFAULT_GUARD}).",
    ),
]
WrittenNoLossOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on-regression",
        metavar="[TYPE:]MEASURE[ p<N]",
        help=f"What the check asserts (default: {WRITTEN_GUARD}).",
    ),
]
AssertOption = Annotated[
    list[str] | None,
    typer.Option("--assert", metavar="[TYPE:]MEASURE>=N", help="Fail unless this bound holds; repeatable."),
]


@group.command("check")
def check_command(
    evidence: EvidenceArgument,
    config: ConfigFileOption,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="COMMIT", help="Branch, tag or commit that has the previous config."),
    ] = None,
    no_loss: NoLossOption = None,
    asserted: AssertOption = None,
    tolerance: ToleranceOption = None,
    cannot_tell: CannotTellOption = None,
    metric: MetricOption = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Write a report for a pull request.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write the checks as JUnit XML.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a report as one HTML file.")
    ] = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Compare a config with its version at a commit, on an evidence file.

    The verdict comes first: pass, fail, or cannot tell. Exits 1 if a check fails, 3 if one cannot tell.
    """
    from cems_workbench.evaluation.assertions import junit_xml
    from cems_workbench.jobs.regression import check_change

    if against is None and not asserted:
        raise InputError(
            "ci check: name a commit to compare the config with (--against origin/main), or --assert a bound"
        )
    decided = check_cannot_tell(cannot_tell)
    found = check_change(
        read_evidence(evidence),
        config,
        against,
        [CI_DEFAULT_GUARD] if no_loss is None else no_loss,
        asserted or (),
        metrics=" ".join(metric) if metric else None,
        tolerance=tolerance,
        cannot_tell=decided,
        seed=seed,
    )
    if markdown is not None:
        write_text(markdown, found.markdown(evidence.name))
    if junit is not None:
        write_text(junit, junit_xml(found.outcomes, evidence.name))
    if html is not None:
        from cems_workbench.jobs.evaluation import EvaluatedConfig, losses_if_any
        from cems_workbench.report.comparison import Asserted, comparison_report

        asserted_of = Asserted(found.outcomes, found.changes, found.note, found.verdicts)
        write_text(
            html,
            comparison_report(
                found.comparison,
                [found.labelled] * len(found.comparison.evaluations),
                datetime.now(UTC),
                seed=seed,
                asserted=asserted_of,
                losses=losses_if_any(
                    [EvaluatedConfig(one.config.name, found.labelled, one) for one in found.comparison.evaluations]
                ),
            ),
        )
    if as_json:
        named = [{"parameter": name, "before": before, "now": now} for name, before, now in found.changes]
        values = {"note": found.note, "changed": named, "content_hash": found.content_hash}
        put_json(verdicts_json(found.verdicts) | values | found.comparison.to_json() | asserted_json(found.outcomes))
    else:
        print_verdicts(found.verdicts)
        print_asserted(found.outcomes)
        say_wrapped(f"{found.note}: {len(found.comparison.evaluations[0].qids)} queries of {evidence.name}")
        for name, before, now in found.changes:
            say(f"changed: {name}: {before} → {now}")
        say_next(_losses(evidence, config))
    exit_unless_all_hold(found.outcomes)


@group.command("init")
def init_command(
    evidence: EvidenceArgument,
    config: ConfigFileOption,
    no_loss: WrittenNoLossOption = None,
    asserted: AssertOption = None,
    tolerance: ToleranceOption = None,
    install: Annotated[
        str,
        typer.Option("--install", metavar="SPEC", help="What the workflow installs with pip: a name, a URL or a path."),
    ] = "cems-workbench",
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    shown: Annotated[bool, typer.Option("--print", help="Print the files instead of writing them.")] = False,
) -> None:
    """Write a GitHub workflow and a pre-commit hook that run `ci check`.

    Run it at the top of the repository.
    """
    from cems_workbench.jobs.regression import HOOKS, WORKFLOW, Gate, check_change, hook, names, workflow, written

    guards = [WRITTEN_GUARD] if no_loss is None else no_loss
    read = read_evidence(evidence)
    found = check_change(read, config, None, guards, asserted or ())  # fail now on a bound that can never hold
    gate = Gate(
        _relative_path(evidence), _relative_path(config), tuple(guards), tuple(asserted or ()), install, tolerance
    )
    files = {WORKFLOW: workflow(gate), HOOKS: hook(gate)}
    if shown:
        for path, text in files.items():
            put(f"# {path}\n{text}")
        return
    texts = {}
    for path, text in files.items():
        place = Path(path)
        texts[place] = written(place.read_text("utf-8") if place.is_file() else None, text, path, force)
    for place, text in texts.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        write_text(place, text)
    say(f"wrote {names(list(files))}; commit them with {evidence} and {config}")
    if evidence.stat().st_size > LARGE_FILE_BYTES:
        size = evidence.stat().st_size / 1e6
        say(
            f"note: {evidence} has {size:.0f} MB: keep it in Git LFS, or gather fewer queries (gather --limit)",
            err=True,
        )
    for outcome in found.outcomes:
        if not outcome.holds:
            say(f"note: now {outcome.line}", err=True)
    say_next(_losses(evidence, config))


def _losses(evidence: Path, config: Path) -> list[str]:
    return words_of("evaluate", evidence, options=["--losses", "--config", str(config)])


def _relative_path(path: Path) -> PurePosixPath:
    """The path relative to the current directory. Raises InputError for one outside, which a workflow could not reach."""
    try:
        return PurePosixPath(path.resolve().relative_to(Path.cwd()).as_posix())
    except ValueError:
        raise InputError(f"{path} is not below this folder: run ci init at the top of its repository") from None


WATCH_DEFAULT_GUARD = "nDCG@10 p<0.01"
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
            f"significant loss (default: {WATCH_DEFAULT_GUARD}).",
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
    texts = [WATCH_DEFAULT_GUARD] if no_loss is None else no_loss
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
