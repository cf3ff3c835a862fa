"""`tune`: search for a better config on an evidence file or a query set, cross-validated, optionally scored on a sealed hold-out."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from cems_workbench.builtin import default_preset
from cems_workbench.cli.configs import print_ranking
from cems_workbench.cli.measuring import (
    GradeOption,
    NameArgument,
    Options,
    PerQueryProjectOption,
    evidence_files,
    labelled_evidence,
    score_line,
)
from cems_workbench.cli.options import (
    ConfigChoice,
    JsonOption,
    StoreOption,
    account,
    given_options,
    present,
    progress_bar,
    settings_for,
)
from cems_workbench.cli.terminal import flat, put_json, repeated, say, say_next, words_of
from cems_workbench.errors import InputError, StoreLockedError
from cems_workbench.platform import start_up
from cems_workbench.platform.atomic_write import write_text
from cems_workbench.progress import Cancelled, Progress

if TYPE_CHECKING:
    from cems_workbench.jobs.evaluation import LabelledEvidence
    from cems_workbench.jobs.tuning import SearchResult, SearchSettings
    from cems_workbench.tuning.optimizer import Trial, Watch

INTERRUPTED = 130


def tune_command(
    evidence: NameArgument,
    out: Path,
    trials: int = 200,
    metric: list[str] | None = None,
    guard: list[str] | None = None,
    space: list[str] | None = None,
    group_by: Literal["project", "session", "type", "query"] | None = None,
    folds: int = 5,
    holdout: float = 0.2,
    open_holdout: bool = False,
    *,
    choice: ConfigChoice,
    grade: GradeOption = None,
    per_query_project: PerQueryProjectOption = False,
    seed: int = 0,
    store: StoreOption = None,
    without_labels: bool = False,
    html: Path | None = None,
    as_json: JsonOption = False,
) -> None:
    """Search for a better config than the baseline.

    The baseline is --preset or --config. Ctrl-C keeps the best config so far; the same command resumes the search.
    """
    if without_labels and open_holdout:
        raise InputError("--open-holdout: without labels nothing is sealed")
    baseline = choice.read()
    from cems_workbench.api.tuning import TuningReport
    from cems_workbench.jobs.exporting import write_proposal
    from cems_workbench.jobs.tuning import (
        SearchSettings,
        TuningData,
        card_of,
        planned_search,
        run_search,
        unlabelled_data,
        with_stability,
    )
    from cems_workbench.tuning.objective import parse_goal

    labelled, least = labelled_evidence(
        evidence,
        lambda header: [baseline],
        None,
        store,
        as_json,
        only_project=per_query_project,
        judged=not without_labels,
    )
    of_baseline = labelled[baseline]
    read = of_baseline.evidence
    relevant_from = least if grade is None else grade
    goal = parse_goal(metric or ["nDCG@10"], guard or (), 1 if without_labels else relevant_from)
    if without_labels:
        data = unlabelled_data(baseline, read.header.query_set, read)
    else:
        data = TuningData(baseline, read.header.query_set, of_baseline)
    if read.answered and not as_json:
        say(f"lists {read.answered}")
    sealed = 0.0 if without_labels else holdout
    planned = planned_search(
        data, goal, space or (), group_by=group_by, folds=folds, sealed=sealed, trials=trials, seed=seed
    )
    start_up.freeze()
    with _interruptible() as interrupted, progress_bar(as_json) as progress:
        result = run_search(planned, lambda name: _watch(name, progress, interrupted))
        if without_labels and of_baseline.grades.judgments and not result.tuned.search.cancelled:
            sealing = SearchSettings(planned.group_by, folds, holdout, trials, seed)
            result = _compare_with_judgments(result, of_baseline, sealing, relevant_from, progress, interrupted)
    if open_holdout and not result.tuned.search.cancelled and planned.sealed:
        result = _with_open_holdout(result, store)
    rankings = write_proposal(result, out, card_of(result, datetime.now(UTC).date().isoformat()))
    if html is not None:
        from cems_workbench.report.tuning import tuning_report

        with progress_bar(as_json) as progress:
            page = tuning_report(with_stability(result, progress), datetime.now(UTC))
        write_text(html, page)
    report = TuningReport(result)
    if as_json:
        put_json(report.to_json() | {"as_read": [ranking.to_json() for ranking in rankings]})
    else:
        present(report)
        for ranking in rankings:
            if ranking.export.lost:
                print_ranking(ranking)
        for line in _score_lines(result, read.path, out, _config_options(choice), store):
            say(line, err=True)
        say_next(*_next_commands(result, evidence, out, _config_options(choice), store))
    if result.tuned.search.cancelled:
        raise typer.Exit(INTERRUPTED)


def _next_commands(
    result: SearchResult, evidence: str, out: Path, baseline: Options, store: Path | None
) -> list[list[str]]:
    """How the proposal differs on each query, and its export; the rest of an interrupted search; without a proposal, where it loses."""
    from cems_workbench.config import difference, load_config

    proposed, judged = result.tuned.config, bool(result.planned.data.evidence.judgments)
    place = [] if evidence_files([evidence]) else given_options(store=store)
    if result.tuned.search.cancelled:
        return [repeated()]
    if not difference(result.tuned.plan.space.baseline, proposed) or load_config(out) != proposed:
        return [words_of("evaluate", evidence, options=["--losses", *flat(baseline), *place])] if judged else []
    plain = flat(option for option in baseline if option[0] != "--set")  # --set would change the proposal too
    compared = words_of("compare", evidence, options=[*plain, "--config", str(out), *place])
    exported = words_of("export", out, options=["--format", "env"])
    return [compared, exported] if judged else [exported]


def _compare_with_judgments(
    result: SearchResult,
    labelled: LabelledEvidence,
    settings: SearchSettings,
    relevant_from: int,
    progress: Progress,
    interrupted: Callable[[], bool],
) -> SearchResult:
    """Add the proposal's gain on judgments, unless too few queries are judged or it is interrupted."""
    from cems_workbench.jobs.unlabelled import by_judgments

    try:
        return by_judgments(
            result, labelled, settings, relevant_from, lambda name: _watch(f"{name}, judged", progress, interrupted)
        )
    except InputError as error:
        say(f"not compared with judgments: {error}", err=True)
    except Cancelled:
        say("not compared with judgments: interrupted", err=True)
    return result


def _score_lines(result: SearchResult, evidence: Path, out: Path, baseline: Options, store: Path | None) -> list[str]:
    """How to have what baseline and proposal lack of their rerankers' scores scored, and that the search is then to be run again."""
    from cems_workbench.config import load_config
    from cems_workbench.evaluation.batch import UNSCORED

    lines = []
    for lacking, needs in result.needs:
        if UNSCORED not in needs:
            continue
        if lacking == result.planned.plan.space.baseline:
            lines.append(score_line(evidence, baseline, store))
        elif load_config(out) == lacking:
            lines.append(score_line(evidence, [("--config", str(out))], store))
        else:
            lines.append(f"{out} does not hold the whole proposal; write it as YAML (--out NAME.yaml) to score for it")
    return [*lines, "then run this again: the search did not have these scores"] if lines else []


def _config_options(choice: ConfigChoice) -> Options:
    default = choice.preset or default_preset(settings_for(None).preset)[0]
    chosen = ("--config", str(choice.config)) if choice.config else ("--preset", default)
    return [chosen, *(("--set", text) for text in choice.changes or ())]


def _with_open_holdout(result: SearchResult, store: Path | None) -> SearchResult:
    """Score the sealed hold-out. The look is counted in the store of the evidence, or next to the file without a store."""
    from cems_workbench.jobs.tuning import looks_at, open_holdout, store_of

    data, settings = result.planned.data, settings_for(store)
    try:
        with store_of(data.evidence, settings) as opened:
            return open_holdout(result, looks_at(data, opened, account() or ""))
    except StoreLockedError as error:
        say(f"warning: {' '.join(str(error).split())}: the look is counted next to the evidence file", err=True)
        return open_holdout(result, looks_at(data, None))


def _watch(name: str, progress: Progress, interrupted: Callable[[], bool]) -> Watch:
    def watch(done: int, total: int, best: Trial) -> None:
        progress(name, done, total)
        if interrupted():
            raise Cancelled

    return watch


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Record Ctrl-C instead of raising, so that the current trial is finished and kept."""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)
