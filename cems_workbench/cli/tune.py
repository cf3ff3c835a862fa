"""`tune`: search for a better config on an evidence file; cross-validated, and on a sealed hold-out when that is asked for."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cems_workbench import collector
from cems_workbench.cli.options import (
    ConfigOption,
    JsonOption,
    PresetOption,
    SetOption,
    chosen_config,
    print_json,
    print_table,
    progress_bar,
)
from cems_workbench.errors import InputError
from cems_workbench.progress import Cancelled, Progress

if TYPE_CHECKING:
    from cems_workbench.evaluation.batch import LabelledBatch
    from cems_workbench.evaluation.evidence_file import EvidenceSet
    from cems_workbench.tuning.holdout import Gain
    from cems_workbench.tuning.scorer import BatchScorer
    from cems_workbench.tuning.search import Trial, Watch
    from cems_workbench.tuning.tune import Plan, Tuned

INTERRUPTED = 130
DEFAULT_SPACE = (
    "lists.vector.weight", "lists.lexical.weight", "fusion.k", "fusion.score_blend", "fusion.top_rank_bonus.rank1",
    "lists.lexical.normalization",
)  # fmt: skip


MetricOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        help="What is maximised (default nDCG@10); a further one makes a Pareto front; reranked: fewer candidates reranked.",
    ),
]
GuardOption = Annotated[
    list[str] | None,
    typer.Option("--guard", metavar="[TYPE:]MEASURE[-TOLERANCE]", help="May not fall below the baseline; repeatable."),
]
SpaceOption = Annotated[
    list[str] | None,
    typer.Option("--space", metavar="KEY[=LOW:HIGH[:STEP]|A|B]", help="A parameter to search; repeatable."),
]


class Grouping(StrEnum):
    """What is never split between what is searched on and what is measured on."""

    project = "project"
    session = "session"
    type = "type"
    query = "query"


def tune_command(
    evidence: Annotated[Path, typer.Argument(help="An evidence file of a labelled query set.")],
    out: Annotated[Path, typer.Option("--out", help="Write the proposal here; the suffix says the form (yaml, json, toml, env, py).")],
    trials: Annotated[int, typer.Option("--trials", min=1, help="Configs tried, at most.")] = 200,
    metric: MetricOption = None,
    guard: GuardOption = None,
    space: SpaceOption = None,
    group_by: Annotated[Grouping | None, typer.Option("--group-by", help="What is never split (default: project, else session).")] = None,
    folds: Annotated[int, typer.Option("--folds", min=2, help="Folds of the cross-validation.")] = 5,
    holdout: Annotated[float, typer.Option("--holdout", min=0, max=0.8, help="Share of the queries that is sealed.")] = 0.2,
    open_holdout: Annotated[bool, typer.Option("--open-holdout", help="Score the sealed queries too; every look is counted.")] = False,
    config: ConfigOption = None,
    preset: PresetOption = None,
    changes: SetOption = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same result.")] = 0,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Search for a better config than the baseline (--preset or --config). Ctrl-C keeps the best so far; run again, it goes on."""
    baseline = chosen_config(preset, config, changes)
    from cems_workbench.evaluation.batch import LabelledBatch
    from cems_workbench.evaluation.evidence_file import read_evidence_file
    from cems_workbench.tuning.folds import groups_of, natural_grouping, split
    from cems_workbench.tuning.objective import parse_goal
    from cems_workbench.tuning.scorer import BatchScorer, answerable
    from cems_workbench.tuning.space import SearchSpace, parse_axis
    from cems_workbench.tuning.tune import Plan

    goal = parse_goal(metric or ["nDCG@10"], guard or ())
    found = read_evidence_file(evidence)
    batch = answerable(LabelledBatch.of(found), goal.measures)
    if not batch.queries:
        raise InputError(f"{evidence}: no query in it has a relevant memory; label some first")
    axes = [parse_axis(text, found.header.config) for text in space or DEFAULT_SPACE]
    by = group_by.value if group_by else natural_grouping(batch)
    plan = Plan(
        SearchSpace.of(baseline, axes),
        goal,
        split(groups_of(batch, by), folds, holdout, seed),
        batch.types,
        trials,
        seed,
    )
    score = BatchScorer(batch, goal.measures, seed)
    collector.freeze()
    tuned = _tuned(plan, score, batch, found, out, open_holdout, as_json)
    _write(tuned, found, out, by)
    _report(tuned, batch, found, by, as_json)
    if tuned.found.cancelled:
        raise typer.Exit(INTERRUPTED)


def _tuned(
    plan: Plan, score: BatchScorer, batch: LabelledBatch, evidence: EvidenceSet, out: Path, opened: bool, quiet: bool
) -> Tuned:
    """The search, gone on with where an earlier one of the same kind was interrupted."""
    from cems_workbench.tuning.holdout import LooksFile, looks_path
    from cems_workbench.tuning.scorer import read_scores, search_marks, write_scores
    from cems_workbench.tuning.tune import open_holdout, tune

    kept = out.with_name(f"{out.stem}.scores.npz")
    belongs_to = search_marks(evidence.content_hash, batch, plan.goal.measures, plan.seed)
    score.recall(read_scores(kept, belongs_to))
    with _interruptible() as interrupted, progress_bar(quiet) as progress:
        tuned = tune(plan, score, lambda name: _watch(name, progress, interrupted))
    try:
        if tuned.found.cancelled:
            write_scores(kept, belongs_to, score.known())
        else:
            kept.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{kept}: cannot be written: {error.strerror}") from None
    if opened and not tuned.found.cancelled and len(plan.split.holdout):
        query_set = evidence.header.query_set
        looks = LooksFile(looks_path(evidence.path, query_set))
        sealed = [batch.qids[row] for row in plan.split.holdout.tolist()]
        tuned = open_holdout(tuned, score, looks, query_set, sealed)
    return tuned


def _watch(name: str, progress: Progress, interrupted: Callable[[], bool]) -> Watch:
    def watch(done: int, total: int, best: Trial) -> None:
        progress(name, done, total)
        if interrupted():
            raise Cancelled

    return watch


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Ctrl-C is remembered instead of raised, so that the trial at hand is finished and kept."""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


def _write(tuned: Tuned, evidence: EvidenceSet, out: Path, by: str) -> None:
    from cems_workbench.config import card_path, export_config
    from cems_workbench.config.forms.reading import SUFFIXES
    from cems_workbench.tuning.card import evidence_card

    card = evidence_card(tuned, evidence, by, datetime.now(UTC).date().isoformat())
    try:
        out.write_text(export_config(tuned.config, SUFFIXES.get(out.suffix.lower(), "yaml"), card), encoding="utf-8")
        card_path(out).write_text(card.to_json(), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror}") from None


def _report(tuned: Tuned, batch: LabelledBatch, evidence: EvidenceSet, by: str, as_json: bool) -> None:
    from cems_workbench.config import difference

    changed = [row for row in difference(tuned.plan.space.baseline, tuned.config)]
    needs = [f"{words} ({count} queries)" for words, count in batch.rankings(tuned.config).needs.items()]
    values = {"train": tuned.train, "validation": tuned.validation, "hold-out": tuned.holdout}
    if as_json:
        print_json({
            "config": tuned.config.name, "changes": [[path, _plain(was), _plain(now)] for path, was, now in changed],
            "trials": len(tuned.found.trials) - 1, "cancelled": tuned.found.cancelled, "group_by": by,
            "train": tuned.train, "validation": _gain(tuned.validation), "holdout": _gain(tuned.holdout),
            "looks": tuned.looks, "pareto_front": _front(tuned), "needs": needs,
        })  # fmt: skip
        return
    print_table(["parameter", "baseline", "tuned"], [[path, str(was), str(now)] for path, was, now in changed])
    if not changed:
        typer.echo("nothing tried is significantly better than the baseline, which is kept")
    measure = tuned.plan.goal.objectives[0]
    rows = [
        [name, one.queries, one.baseline, one.tuned, one.difference, f"{one.low:+.4f} to {one.high:+.4f}", one.p]
        for name, one in values.items()
        if one is not None and not isinstance(one, float)
    ]
    print_table(["", "queries", "baseline", "tuned", "difference", "95 % interval", "p"], rows, title=str(measure))
    typer.echo(
        f"on what was searched: {tuned.train:.4f}; {len(tuned.found.trials) - 1} configs tried; never split: {by}"
    )
    if tuned.looks:
        typer.echo(f"the hold-out has been opened {tuned.looks} time{'s' if tuned.looks > 1 else ''}")
    if len(tuned.plan.goal.names) > 1:
        points = _front(tuned)
        rows = [[value if isinstance(value, float) else str(value) for value in point.values()] for point in points]
        print_table(list(points[0]) if points else [], rows, title="Pareto front")
    for need in needs:
        typer.echo(f"warning: {need}", err=True)


def _front(tuned: Tuned) -> list[dict[str, Any]]:
    """What each trial of the Pareto front reached, costs as counts, and its values; the best of the first objective first."""
    plan = tuned.plan
    trials = sorted((tuned.found.trials[i] for i in tuned.found.front), key=lambda trial: -float(trial.reached[0]))
    points = []
    for trial in trials:
        reached = dict(zip(plan.goal.names, trial.reached.tolist(), strict=True))
        if plan.goal.fewer_reranked:
            reached[plan.goal.names[-1]] = 0.0 - reached[plan.goal.names[-1]]
        values = {axis.path: _plain(value) for axis, value in zip(plan.space.axes, trial.values, strict=True)}
        points.append(reached | values)
    return points


def _gain(found: Gain | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "queries": found.queries, "baseline": found.baseline, "tuned": found.tuned, "difference": found.difference,
        "interval": [found.low, found.high], "p": found.p, "p_greater": found.p_greater,
    }  # fmt: skip


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
