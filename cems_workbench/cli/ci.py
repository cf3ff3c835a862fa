"""`ci` and `watch`: a changed config against its previous version on committed evidence, and a query set measured again and again."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from string import Template
from typing import Annotated

import typer

from cems_workbench.cli import measuring
from cems_workbench.cli import options as cli
from cems_workbench.cli.terminal import put, repeated, say, say_next, words_of
from cems_workbench.errors import InputError
from cems_workbench.platform.atomic_write import write_text

WORKFLOW = PurePosixPath(".github/workflows/memory-retrieval.yml")
HOOKS = PurePosixPath(".pre-commit-config.yaml")
REPORT = "memory-retrieval"
"""The reports of a check in the workflow, without suffix."""
WRITTEN_GUARD = "nDCG@10"
"""What `ci init` writes: a verdict, whose exit code the written workflow handles."""
LARGE_FILE_BYTES = 50_000_000
"""Bytes of a file that GitHub warns about; it refuses twice that."""

group = typer.Typer(name="ci", help="Check a changed config for regressions.", no_args_is_help=True)
EvidenceArgument = Annotated[Path, cli.option("EvidenceArgument")]
ConfigFileOption = Annotated[Path, cli.option("ConfigFileOption")]
WrittenNoLossOption = Annotated[list[str] | None, cli.option("WrittenNoLossOption")]


@group.command("check")
@cli.grouped
def check_command(
    evidence: EvidenceArgument,
    config: ConfigFileOption,
    against: str | None = None,
    *,
    guards: measuring.Guards,
    bounds: measuring.BoundsOption = None,
    metric: measuring.MetricOption = None,
    as_markdown: Path | None = None,
    junit: Path | None = None,
    html: Path | None = None,
    seed: measuring.SeedOption = 0,
    as_json: cli.JsonOption = False,
) -> None:
    """Compare a config with its version at a commit, on an evidence file.

    The first line is pass or fail; a verdict without p<LEVEL may not tell. Exits 1 if a check fails, 3 if one cannot tell.
    """
    from cems_workbench.evaluation.assertions import junit_xml
    from cems_workbench.jobs.regression import check_change, markdown

    if against is None and not bounds:
        raise InputError(
            "ci check: name a commit to compare the config with (--against origin/main), or --assert a bound"
        )
    asserted, metrics = guards.asserted([measuring.CI_GUARD], bounds), " ".join(metric) if metric else None
    found = check_change(cli.read_evidence(evidence), config, against, asserted, metrics=metrics, seed=seed)
    if as_markdown is not None:
        write_text(as_markdown, markdown(found, evidence.name))
    if junit is not None:
        write_text(junit, junit_xml(found.outcomes, evidence.name))
    if html is not None:
        from cems_workbench.jobs.evaluation import EvaluationReport, losses_if_any
        from cems_workbench.report.comparison import comparison_report

        assert found.comparison is not None and found.labelled is not None
        evaluations, on = found.comparison.evaluations, found.labelled
        losses = losses_if_any([EvaluationReport(one.config.name, on, one) for one in evaluations])
        made_on, moment = [on] * len(evaluations), datetime.now(UTC)
        write_text(html, comparison_report(found.comparison, made_on, moment, seed=seed, asserted=found, losses=losses))
    unscored = found.comparison is not None and any(one.rankings.unscored for one in found.comparison.evaluations)
    scored = measuring.score_command(evidence, [("--config", str(config))])
    measuring.decide(found, as_json, scored if unscored else _losses(evidence, config))


@group.command("init")
@cli.grouped
def init_command(
    evidence: EvidenceArgument,
    config: ConfigFileOption,
    no_loss: WrittenNoLossOption = None,
    bounds: measuring.BoundsOption = None,
    tolerance: measuring.ToleranceOption = None,
    install: str | None = None,
    force: bool = False,
    shown: bool = False,
) -> None:
    """Write a GitHub workflow and a pre-commit hook that run `ci check`.

    Run it at the top of the repository.
    """
    from cems_workbench.evaluation.assertions import Asserted
    from cems_workbench.jobs.regression import check_change, installed_from

    install = install or installed_from()
    guards = [WRITTEN_GUARD] if no_loss is None else no_loss
    found = check_change(
        cli.read_evidence(evidence), config, None, Asserted(guards, bounds or ())
    )  # a bound that can never hold fails now
    texts = files(_relative_path(evidence), _relative_path(config), guards, bounds or (), install, tolerance)
    if shown:
        for path, text in texts.items():
            put(f"# {path}\n{text}")
        return
    for path, text in texts.items():
        if Path(path).is_file() and Path(path).read_text("utf-8") != text and not force:
            raise InputError(f"{path} exists: --force replaces it, --print shows the new text")
    for path, text in texts.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_text(Path(path), text)
    say(f"wrote {' and '.join(map(str, texts))}; commit them with {evidence} and {config}")
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


class _Template(Template):
    """A file of this folder with values for its %names."""

    delimiter = "%"

    @classmethod
    def filled(cls, name: str, **values: str) -> str:
        return cls(Path(__file__).with_name(name).read_text("utf-8")).substitute(values)


def files(
    evidence: PurePosixPath,
    config: PurePosixPath,
    no_loss: Sequence[str],
    asserted: Sequence[str],
    install: str,
    tolerance: float | None,
) -> dict[PurePosixPath, str]:
    """A workflow that comments gains and losses of a config on its pull request and fails where it loses more than tolerated, and a
    pre-commit hook that compares it with that of the last commit; `install` is what pip installs.

    Where that cannot be told (exit code 3) the workflow warns, and the hook does not stop the commit. Names are quoted for the shell; what
    a pull request controls (the name of its base) reaches the shell as a variable, never as script text. Raises InputError for values that
    do not fit on one line of a script.

    Source: docs.github.com, "Workflow syntax" and "Security hardening: script injection"; pre-commit.com, "Repository local hooks".
    """
    from cems_workbench.evaluation.assertions import parse_no_loss
    from cems_workbench.evaluation.verdict import DEFAULT_TOLERANCE

    for text in (str(evidence), str(config), *no_loss, *asserted, install):
        if not text.isprintable() or "${{" in text:
            raise InputError(f"{text!r} cannot be used in a workflow: only printable characters, without ${{{{")

    def quoted(value: object) -> str:
        return json.dumps(value, ensure_ascii=False)

    words = ["cems-workbench", "ci", "check", str(evidence), "--config", str(config)]
    words += [word for text in no_loss for word in ("--fail-on-regression", text)]
    words += [word for text in asserted for word in ("--assert", text)]
    if tolerance is not None or any(parse_no_loss(text).level is None for text in no_loss):
        words += ["--tolerance", f"{DEFAULT_TOLERANCE if tolerance is None else tolerance:g}"]
    command, paths = shlex.join(words), quoted([str(config), str(evidence), str(WORKFLOW)])
    check = f'{command} --against "origin/$BASE" --markdown {REPORT}.md --junit {REPORT}.xml --html {REPORT}.html'
    entry = quoted(f"{command} --against HEAD --cannot-tell pass")
    return {
        WORKFLOW: _Template.filled("ci_workflow.yml", paths=paths, install=shlex.quote(install), check=check),
        HOOKS: _Template.filled("ci_hook.yml", entry=entry, pattern=quoted(_pattern(config))),
    }


def _pattern(path: PurePosixPath) -> str:
    """A regular expression that matches exactly this path."""
    return "^" + "".join(c if c.isalnum() or c in "/_-" or not c.isascii() else f"\\{c}" for c in str(path)) + "$"


def _losses(evidence: Path, config: Path) -> list[str]:
    return words_of("evaluate", evidence, options=["--losses", "--config", str(config)])


def _relative_path(path: Path) -> PurePosixPath:
    """The path relative to the current directory. Raises InputError for one outside, which a workflow could not reach."""
    try:
        return PurePosixPath(path.resolve().relative_to(Path.cwd()).as_posix())
    except ValueError:
        raise InputError(f"{path} is not below this folder: run ci init at the top of its repository") from None


_CRON = re.compile(r"(@(hourly|daily|weekly|monthly))|(\S+ +\S+ +\S+ +\S+ +\S+)")


def watch_command(
    query_set: str,
    choice: cli.ConfigChoice,
    guards: measuring.Guards,
    note: str = "",
    cron: str | None = None,
    seed: measuring.SeedOption = 0,
    store: cli.StoreOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Re-evaluate a query set and compare with the last time.

    The measurement is saved; the Evaluate page plots all of them over time.
    """
    from cems_workbench.jobs.regression import watch

    chosen, asserted = choice.read(store), guards.asserted([measuring.WATCH_GUARD])
    if cron is not None:
        put(_crontab_line(cron, store))
        return
    with cli.progress_bar(as_json) as progress, cli.filled_resources(store) as resources:
        found = watch(chosen, query_set, asserted, resources, progress, note=note, seed=seed)
    if any(outcome.failed for outcome in found.outcomes):
        then = words_of("evaluate", query_set, options=["--losses", *choice.words(store)])
    else:
        then = repeated("--cron", "@daily")
    measuring.decide(found, as_json, then)


def _crontab_line(when: str, store: Path | None) -> str:
    """This very command as a line of crontab. Raises InputError for a time that is none of cron's."""
    if not _CRON.fullmatch(when.strip()):
        raise InputError(f'--cron "{when}": expected five fields of cron, such as "0 6 * * 1", or @daily')
    words, skip = [], False
    for word in sys.argv[1:]:
        if skip or word == "--cron" or word.startswith("--cron="):
            skip = word == "--cron"
            continue
        words.append(word)
    place = cli.settings_for(store).store.resolve()
    words = [sys.executable, "-m", "cems_workbench", *words, *([] if store else ["--store", str(place)])]
    return f"{when.strip()}  cd {shlex.quote(os.getcwd())} && {shlex.join(words)}".replace("%", "\\%") + "\n"
