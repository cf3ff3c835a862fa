"""A better config, searched on labelled evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cems_workbench.api.evidence import LoadedEvidence, loaded
from cems_workbench.api.open_store import load_config, warn
from cems_workbench.progress import Progress, silent
from cems_workbench.results import Result, Table

if TYPE_CHECKING:
    from cems_workbench.api.open_store import ConfigLike, OpenStore
    from cems_workbench.config import PipelineConfig
    from cems_workbench.jobs.tuning import SearchResult
    from cems_workbench.jobs.tuning_summary import GainRow
    from cems_workbench.tuning.holdout import Gain

Grouping = Literal["project", "session", "type", "query"]


@dataclass(frozen=True, eq=False, repr=False)
class TuningReport(Result):
    """What a search proposes, and what it is worth on queries that it was not chosen on.

    Attributes:
        result: the search, finished or cancelled.
    """

    result: SearchResult

    @property
    def config(self) -> PipelineConfig:
        """The proposal; the baseline where nothing that was tried is surely better."""
        return self.result.tuned.config

    @property
    def better(self) -> bool:
        """Is something else than the baseline proposed?"""
        return self.result.better

    @property
    def changes(self) -> dict[str, tuple[object, object]]:
        """What the proposal changes: (baseline, proposed) by path."""
        from cems_workbench.config import difference

        return {path: (was, now) for path, was, now in difference(self.result.tuned.plan.space.baseline, self.config)}

    @property
    def validation(self) -> Gain | None:
        """Cross-validated: what each fold's search chose, on the queries it did not see; None where it was cancelled before."""
        return self.result.tuned.validation

    @property
    def holdout(self) -> Gain | None:
        """On the sealed queries; None until `open_holdout`."""
        return self.result.tuned.holdout

    def open_holdout(self, store: OpenStore | None = None, who: str = "") -> TuningReport:
        """The report with baseline and proposal scored on the sealed queries; every look is counted.

        Args:
            store: the store of the evidence, where the look is counted too; it is always counted next to the evidence file.
            who: who looks, for the store's count.
        """
        from cems_workbench.jobs.tuning import looks_at, open_holdout

        looks = looks_at(self.result.planned.data, None if store is None else store.resources.store, who)
        return replace(self, result=open_holdout(self.result, looks))

    def save(self, path: str | Path) -> Path:
        """Write the proposal, in the format of the suffix, and its evidence card next to it. Raises InputError."""
        from cems_workbench.jobs.exporting import write_proposal
        from cems_workbench.jobs.tuning import card_of

        rankings = write_proposal(self.result, Path(path), card_of(self.result))
        for ranking in rankings:
            for line in ranking.lines:
                warn(line)
        return Path(path)

    @property
    def title(self) -> str:
        """The proposal, and by which measure of how many configs."""
        tuned = self.result.tuned
        tried = f"{len(tuned.search.trials) - 1} configs tried for {self.result.planned.measure}"
        return f"{self.config.name}: {tried}{', cancelled' if tuned.search.cancelled else ''}"

    @property
    def lines(self) -> tuple[str, ...]:
        """That no judgment chose it, that nothing is better, and what became of the guards, where that is so."""
        from cems_workbench.jobs.tuning import guard_lines

        unlabelled = ("UNLABELLED: chosen by a reranker's order instead of judgments",)
        kept = () if self.better else ("nothing tried is significantly better than the baseline, which is kept",)
        return (*(unlabelled if self._stands_in else ()), *kept, *guard_lines(self.result))

    @property
    def tables(self) -> tuple[Table, ...]:
        """Changes and gains; without labels how far each list can be trusted, and the gain by judgments; a Pareto front if there is one."""
        from cems_workbench.jobs.tuning_summary import gain_rows, judged_rows

        planned, found = self.result.planned, self.result.by_judgments
        what = "proposed" if self._stands_in else "tuned"
        changed = tuple((path, str(was), str(now)) for path, (was, now) in self.changes.items())
        tables = [
            Table(("parameter", "baseline", what), changed, "changes"),
            _gains(gain_rows(self.result), what, planned.measure),
        ]
        if self._stands_in:
            columns = ("list", "queries", "agreement", "low", "high", "read", "shared")
            rows = [(one.source, *(getattr(one, name) for name in columns[1:])) for one in self._trust()]
            tables.append(Table(columns, tuple(rows), f"each list alone: {planned.measure}"))
        if found is not None:
            title = f"{planned.plan.goal.objectives[0]} by judgments, which chose nothing without labels"
            tables.append(_gains(judged_rows(found), what, title))
        if len(planned.plan.goal.names) > 1 and (points := self._front()):
            cells = (tuple(one if isinstance(one, float) else str(one) for one in point.values()) for point in points)
            tables.append(Table(tuple(points[0]), tuple(cells), "Pareto front"))
        return tuple(tables)

    @property
    def notes(self) -> tuple[str, ...]:
        """What counts as relevant, what is never split, how often the hold-out was looked at, and what the evidence lacks."""
        from cems_workbench.jobs.tuning_summary import gap_line

        result, found = self.result, self.result.by_judgments
        tuned, planned = result.tuned, result.planned
        said = [planned.relevance, gap_line(result)]
        said.append(f"{len(tuned.search.trials) - 1} configs tried; never split: {planned.group_by}")
        if tuned.looks:
            said.append(f"looks at the hold-out: {tuned.looks}")
        if self._stands_in:
            said.append("read: share of its first ten that the reranker scored; shared: that another list has too")
        if found is not None:
            ranked = "as ranked: with all that the config has, its reranker too"
            said.append(f"without labels: {found.share_words}; {ranked}")
            said += [f"warning: as ranked: {line}" for line in found.lacking]
        said += [f"warning: {line}" for line in result.lacking]
        if result.not_kept:
            said.append(f"warning: {planned.kept_scores.path}: cannot be written: {result.not_kept}")
        return tuple(said)

    @property
    def _stands_in(self) -> str:
        return self.result.planned.data.stands_in

    def _trust(self) -> list[Any]:
        from cems_workbench.jobs.unlabelled import trust_in_lists

        planned = self.result.planned
        return list(trust_in_lists(planned.data, str(planned.plan.goal.objectives[0]), planned.plan.seed))

    def _front(self) -> list[dict[str, Any]]:
        """What each trial of the Pareto front reached, costs as counts, and its values; the best of the first objective first."""
        from cems_workbench.jobs.tuning_summary import front_of

        plan, trials = self.result.tuned.plan, self.result.tuned.search.trials
        points = []
        for trial in (trials[i] for i in front_of(self.result)):
            reached = dict(zip(plan.goal.names, plan.goal.as_measured(trial.reached).tolist(), strict=True))
            values = {axis.path: _plain(value) for axis, value in zip(plan.space.axes, trial.values, strict=True)}
            points.append(reached | values)
        return points

    def to_json(self) -> dict[str, Any]:
        """The search as plain values, as `tune --json` prints it."""
        tuned, planned, found = self.result.tuned, self.result.planned, self.result.by_judgments
        values = {
            "config": self.config.name,
            "changes": [[path, _plain(was), _plain(now)] for path, (was, now) in self.changes.items()],
            "trials": len(tuned.search.trials) - 1,
            "cancelled": tuned.search.cancelled,
            "group_by": planned.group_by,
            "relevant_from": planned.plan.goal.objectives[0].grade,
            "counted": len(planned.batch.queries),
            "train": tuned.train,
            "validation": _gain(self.validation),
            "holdout": _gain(self.holdout),
            "looks": tuned.looks,
            "pareto_front": self._front(),
            "needs": self.result.lacking,
        }
        if not self._stands_in:
            return values
        gains = ("proposal", "as_ranked", "labelled", "hindsight")
        held = found and {name: _gain(getattr(found, name)) for name in gains} | {
            "lacking": list(found.lacking),
            "labelled_values": {path: _plain(value) for path, value in found.labelled_values.items()},
            "share": found.share,
        }
        trust = [asdict(row) for row in self._trust()]
        return values | {"unlabelled": {"stands_in": self._stands_in, "lists": trust, "by_judgments": held}}


def _gains(rows: Sequence[GainRow], found: str, title: str) -> Table:
    """A row for each part of the queries that was measured, with what it says where the choice did not see it."""
    from cems_workbench.jobs.tuning_summary import verdict

    numbers = ("queries", "baseline", "tuned", "difference", "low", "high")
    cells = []
    for row in rows:
        if row.gain is not None:
            said = (row.gain.p, verdict(row.gain)) if row.fair else (None, row.about)
            cells.append((row.name, *(getattr(row.gain, name) for name in numbers), *said))
    columns = ("queries of", "queries", "baseline", found, "difference", "low", "high", "p", "what it says")
    return Table(columns, tuple(cells), title)


def _gain(measured: Gain | None) -> dict[str, Any] | None:
    if measured is None:
        return None
    names = ("queries", "baseline", "tuned", "difference", "interval", "p", "p_greater")
    return {name: getattr(measured, name, None) for name in names} | {"interval": [measured.low, measured.high]}


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def tune(
    evidence: LoadedEvidence | str | Path,
    baseline: ConfigLike | None = None,
    *,
    metric: str | Sequence[str] = "nDCG@10",
    guards: Sequence[str] = (),
    space: Sequence[str] | None = None,
    trials: int = 200,
    folds: int = 5,
    holdout: float = 0.2,
    group_by: Grouping | None = None,
    grade: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> TuningReport:
    """Search for a better config than the baseline, as the command `tune` does; the proposal is cross-validated.

    Args:
        evidence: what `gather` or `load_evidence` gave, or the path of an evidence file.
        baseline: a config, the name of a preset, or the path of a config file; None is the config that the evidence was gathered with.
        metric: the measure to optimise; a second one gives a Pareto front.
        guards: measures that must not get worse, such as `"temporal:hit@5"`, or with a bound `"noise@5<=0.2"`.
        space: parameters to search, such as `"fusion.k=10:120:5"`; None is weights of the lists and the fusion.
        trials: the most configs to try.
        folds: folds of the cross-validation.
        holdout: the share of the queries that is sealed.
        group_by: what is never split between folds; None is project, else session, else each query alone.
        grade: the lowest grade that counts as relevant; None is that of the query set.
        seed: the same gives the same.
        progress: called with a label, a count and a total; it may raise `Cancelled`, and the best so far is proposed.

    Returns:
        The report. Scores are saved next to the evidence file, so an interrupted search resumes, here, in the app or in the
        command.

    Raises:
        InputError: the evidence or an argument cannot be read, or no query has a relevant memory.
        Cancelled: it was cancelled before even the baseline was scored.
    """
    from cems_workbench.jobs.tuning import TuningData, planned_search, run_search
    from cems_workbench.tuning.objective import parse_goal

    read = loaded(evidence)
    start = read.config if baseline is None else load_config(baseline)
    names = [metric] if isinstance(metric, str) else list(metric)
    goal = parse_goal(names, guards, read.relevant_from if grade is None else grade)
    data = TuningData(start, read.evidence.header.query_set, read.labelled(), read.relevant_from)
    planned = planned_search(
        data, goal, space or (), group_by=group_by, folds=folds, sealed=holdout, trials=trials, seed=seed
    )
    return TuningReport(run_search(planned, lambda name: lambda done, total, best: progress(name, done, total)))
