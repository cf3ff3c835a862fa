"""`tune`: search for a better config on an evidence file or a query set, cross-validated, optionally scored on a sealed hold-out."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from cems_workbench.cli.next_command import flat, repeated, say_next, words_of
from cems_workbench.cli.options import (
    ConfigChoice,
    DaskOption,
    JsonOption,
    StoreOption,
    account,
    given_options,
    print_table,
    progress_bar,
    settings_for,
)
from cems_workbench.cli.terminal import put_json, say
from cems_workbench.errors import InputError, StoreLockedError
from cems_workbench.platform import start_up
from cems_workbench.platform.atomic_write import write_text
from cems_workbench.progress import Cancelled, Progress

if TYPE_CHECKING:
    from cems_workbench.jobs.evaluation import LabelledEvidence
    from cems_workbench.jobs.exporting import ExportedRanking
    from cems_workbench.jobs.tuning import SearchResult, SearchSettings
    from cems_workbench.jobs.tuning_summary import GainRow
    from cems_workbench.tuning.holdout import Gain, GroupBy
    from cems_workbench.tuning.optimizer import Trial, Watch

INTERRUPTED = 130
MetricOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="MEASURE",
        help="Measure to optimise (default: nDCG@10); a second one gives a Pareto front. `reranked` minimises the pairs reranked.",
    ),
]
GuardOption = Annotated[
    list[str] | None,
    typer.Option(
        "--guard",
        metavar="[TYPE:]MEASURE[-TOLERANCE|<=NUMBER|>=NUMBER]",
        help="Measure that must not fall below the baseline; repeatable. With a bound: noise@5<=0.2, nDCG@10>=0.5.",
    ),
]
SpaceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--space",
        metavar="KEY[=LOW:HIGH[:STEP]|A|B]",
        help="A parameter to search, optionally with its range or values; repeatable.",
    ),
]


class Grouping(StrEnum):
    """Groups of queries that are never split between training and validation."""

    project = "project"
    session = "session"
    type = "type"
    query = "query"


def tune_command(
    evidence: NameArgument,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Write the proposed config here; the suffix sets the format (yaml, json, toml, env, py).",
        ),
    ],
    trials: Annotated[
        int, typer.Option("--trials", metavar="N", min=1, help="Maximum number of configs to try.")
    ] = 200,
    metric: MetricOption = None,
    guard: GuardOption = None,
    space: SpaceOption = None,
    group_by: Annotated[
        Grouping | None,
        typer.Option("--group-by", help="Keep queries of one group in one fold (default: project, else session)."),
    ] = None,
    folds: Annotated[int, typer.Option("--folds", metavar="N", min=2, help="Number of cross-validation folds.")] = 5,
    holdout: Annotated[
        float,
        typer.Option("--holdout", metavar="SHARE", min=0, max=0.8, help="Share of the queries to seal as hold-out."),
    ] = 0.2,
    open_holdout: Annotated[
        bool, typer.Option("--open-holdout", help="Also score the sealed hold-out; every look is counted.")
    ] = False,
    *,
    choice: ConfigChoice,
    grade: GradeOption = None,
    per_query_project: PerQueryProjectOption = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Random seed.")] = 0,
    store: StoreOption = None,
    dask: DaskOption = None,
    without_labels: Annotated[
        bool,
        typer.Option(
            "--without-labels",
            help="Tune list weights and fusion on the reranker's order instead of judgments; existing judgments only check the result.",
        ),
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a report as one HTML file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Search for a better config than the baseline.

    The baseline is --preset or --config. Ctrl-C keeps the best config so far; the same command resumes the search.
    """
    if without_labels and open_holdout:
        raise InputError("--open-holdout: without labels nothing is sealed")
    baseline = choice.read()
    from cems_workbench.jobs.cluster import cluster_at
    from cems_workbench.jobs.exporting import write_proposal
    from cems_workbench.jobs.tuning import (
        SearchSettings,
        TuningData,
        card_of,
        planned_search,
        run_search,
        unlabelled_data,
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
    by: GroupBy | None = group_by.value if group_by else None
    sealed = 0.0 if without_labels else holdout
    planned = planned_search(data, goal, space or (), group_by=by, folds=folds, sealed=sealed, trials=trials, seed=seed)
    start_up.freeze()
    address = settings_for(store).dask if dask is None else dask
    with cluster_at(address) as cluster, _interruptible() as interrupted, progress_bar(as_json) as progress:
        result = run_search(planned, lambda name: _watch(name, progress, interrupted), cluster)
        if without_labels and of_baseline.grades.judgments and not result.tuned.search.cancelled:
            sealing = SearchSettings(planned.group_by, folds, holdout, trials, seed)
            result = _compare_with_judgments(result, of_baseline, sealing, relevant_from, progress, interrupted)
    if result.not_sent:
        say(result.not_sent, err=True)
    if result.not_kept:
        say(f"warning: {planned.kept_scores.path}: cannot be written: {result.not_kept}", err=True)
    if open_holdout and not result.tuned.search.cancelled and planned.sealed:
        result = _with_open_holdout(result, store)
    rankings = write_proposal(result, out, card_of(result, datetime.now(UTC).date().isoformat()))
    if html is not None:
        _write_page(html, result, as_json)
    _report(result, as_json, rankings)
    if not as_json:
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
    compared = words_of("compare", evidence, options=[*_compared(baseline), "--config", str(out), *place])
    exported = words_of("export", out, options=["--format", "env"])
    return [compared, exported] if judged else [exported]


def _compared(baseline: Options) -> list[str]:
    """The options of the baseline for `compare`, where --set would change the proposal too."""
    return flat(option for option in baseline if option[0] != "--set")


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
    """The options that name the config that was chosen."""
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


def _write_page(out: Path, result: SearchResult, as_json: bool) -> None:
    """The report, with how far each value of the proposal can move."""
    from cems_workbench.jobs.tuning import with_stability
    from cems_workbench.report.tuning import tuning_report

    with progress_bar(as_json) as progress:
        result = with_stability(result, progress)
    write_text(out, tuning_report(result, datetime.now(UTC)))


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


def _report(result: SearchResult, as_json: bool, rankings: Sequence[ExportedRanking]) -> None:
    from cems_workbench.config import difference

    tuned, by = result.tuned, result.planned.group_by
    changed = [row for row in difference(tuned.plan.space.baseline, tuned.config)]
    measure = tuned.plan.goal.objectives[0]
    if as_json:
        put_json(
            {
                "config": tuned.config.name,
                "changes": [[path, _plain(was), _plain(now)] for path, was, now in changed],
                "trials": len(tuned.search.trials) - 1,
                "cancelled": tuned.search.cancelled,
                "group_by": by,
                "relevant_from": measure.grade,
                "counted": len(result.planned.batch.queries),
                "train": tuned.train,
                "validation": _gain(tuned.validation),
                "holdout": _gain(tuned.holdout),
                "looks": tuned.looks,
                "pareto_front": _front(result),
                "needs": result.lacking,
                "as_read": [ranking.to_json() for ranking in rankings],
                **_unlabelled(result),
            }
        )
        return
    if result.planned.data.stands_in:
        say("UNLABELLED: chosen by a reranker's order instead of judgments")
        _print_lists(result)
    if changed:
        print_table(
            ["parameter", "baseline", "proposed" if result.planned.data.stands_in else "tuned"],
            [[path, str(was), str(now)] for path, was, now in changed],
        )
    else:
        say("nothing tried is significantly better than the baseline, which is kept")
    from cems_workbench.jobs.tuning import guard_lines
    from cems_workbench.jobs.tuning_summary import gain_rows, gap_line

    for line in guard_lines(result):
        say(line)
    found = "proposed" if result.planned.data.stands_in else "tuned"
    _print_gains(gain_rows(result), found, result.planned.measure)
    say(result.planned.relevance)
    _print_by_judgments(result)
    say(gap_line(result))
    say(f"{len(tuned.search.trials) - 1} configs tried; never split: {by}")
    if tuned.looks:
        say(f"the hold-out has been opened {tuned.looks} time{'s' if tuned.looks > 1 else ''}")
    if len(tuned.plan.goal.names) > 1:
        points = _front(result)
        rows = [[value if isinstance(value, float) else str(value) for value in point.values()] for point in points]
        print_table(list(points[0]) if points else [], rows, title="Pareto front")
    for ranking in rankings:
        if ranking.export.lost:
            print_ranking(ranking)
    for line in result.lacking:
        say(f"warning: {line}", err=True)


def _unlabelled(result: SearchResult) -> dict[str, Any]:
    """What is added of a search without labels."""
    from cems_workbench.jobs.unlabelled import trust_in_lists

    planned, found = result.planned, result.by_judgments
    if not planned.data.stands_in:
        return {}
    trust = trust_in_lists(planned.data, str(planned.plan.goal.objectives[0]), planned.plan.seed)
    held = found and {
        "proposal": _gain(found.proposal),
        "as_ranked": _gain(found.as_ranked),
        "labelled": _gain(found.labelled),
        "hindsight": _gain(found.hindsight),
        "lacking": list(found.lacking),
        "labelled_values": {path: _plain(value) for path, value in found.labelled_values.items()},
        "share": found.share,
    }
    return {
        "unlabelled": {
            "stands_in": planned.data.stands_in,
            "lists": [asdict(row) for row in trust],
            "by_judgments": held,
        }
    }


def _print_lists(result: SearchResult) -> None:
    """How far each list can be trusted as far as that shows without labels."""
    from cems_workbench.jobs.unlabelled import trust_in_lists

    planned = result.planned
    measure = str(planned.plan.goal.objectives[0])
    rows = [
        [one.source, one.queries, one.agreement, f"{one.low:.4f} to {one.high:.4f}", one.read, one.shared, one.lead]
        for one in trust_in_lists(planned.data, measure, planned.plan.seed)
    ]
    columns = ["list", "queries", "agreement", "95 % interval", "read", "shared", "lead"]
    print_table(columns, rows, title=f"each list alone: {planned.measure}")
    say(
        "read: share of its first ten that the reranker scored; shared: that another list has too; lead: of its first score over its second"
    )


def _print_gains(rows: Sequence[GainRow], found: str, title: str) -> None:
    """A row for each part of the queries that was measured, named as on Tune, with what it says where the choice did not see it."""
    from cems_workbench.jobs.tuning_summary import verdict

    measured = [(row, row.gain) for row in rows if row.gain is not None]
    cells: list[list[object]] = [
        [
            row.name,
            gain.queries,
            gain.baseline,
            gain.tuned,
            gain.difference,
            f"{gain.low:+.4f} to {gain.high:+.4f}",
            gain.p if row.fair else None,
            verdict(gain) if row.fair else row.about,
        ]
        for row, gain in measured
    ]
    print_table(["", "queries", "baseline", found, "difference", "95 % interval", "p", ""], cells, title=title)


def _print_by_judgments(result: SearchResult) -> None:
    """Print the gain of an unlabelled proposal on existing judgments, compared with labelled tuning."""
    from cems_workbench.jobs.tuning_summary import judged_rows

    found = result.by_judgments
    if found is None:
        return
    title = f"{result.planned.plan.goal.objectives[0]} by judgments, which chose nothing without labels"
    _print_gains(judged_rows(found), "proposed", title)
    say(f"without labels: {found.share_words}; as ranked: with all that the config has, its reranker too")
    for line in found.lacking:
        say(f"warning: as ranked: {line}", err=True)


def _front(result: SearchResult) -> list[dict[str, Any]]:
    """What each trial of the Pareto front reached, costs as counts, and its values; the best of the first objective first."""
    from cems_workbench.jobs.tuning_summary import front_of

    plan, trials = result.tuned.plan, result.tuned.search.trials
    points = []
    for trial in (trials[i] for i in front_of(result)):
        reached = dict(zip(plan.goal.names, plan.goal.as_measured(trial.reached).tolist(), strict=True))
        values = {axis.path: _plain(value) for axis, value in zip(plan.space.axes, trial.values, strict=True)}
        points.append(reached | values)
    return points


def _gain(measured: Gain | None) -> dict[str, Any] | None:
    if measured is None:
        return None
    return {
        "queries": measured.queries,
        "baseline": measured.baseline,
        "tuned": measured.tuned,
        "difference": measured.difference,
        "interval": [measured.low, measured.high],
        "p": measured.p,
        "p_greater": measured.p_greater,
    }


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
