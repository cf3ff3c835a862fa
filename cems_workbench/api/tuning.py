"""A better config, searched on labelled evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cems_workbench.api.evidence import LoadedEvidence, load_evidence
from cems_workbench.api.open_store import load_config, warn
from cems_workbench.progress import Progress, silent
from cems_workbench.results import Result, Table

if TYPE_CHECKING:
    from cems_workbench.api.open_store import ConfigLike, OpenStore
    from cems_workbench.config import PipelineConfig
    from cems_workbench.jobs.tuning import SearchResult
    from cems_workbench.tuning.holdout import Gain
    from cems_workbench.tuning.optimizer import Trial, Watch

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

        rankings = write_proposal(self.result, Path(path), card_of(self.result, datetime.now(UTC).date().isoformat()))
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
        """What became of the guards, and that nothing is better, where that is so."""
        from cems_workbench.jobs.tuning import guard_lines

        kept = () if self.better else ("Nothing that was tried is surely better than the baseline, which is kept.",)
        return (*kept, *guard_lines(self.result))

    @property
    def tables(self) -> tuple[Table, ...]:
        """What the proposal changes, and what it gains with its interval."""
        rows = tuple(
            (name, gain.queries, gain.baseline, gain.tuned, gain.difference, gain.low, gain.high, gain.p)
            for name, gain in (("cross-validated", self.validation), ("hold-out", self.holdout))
            if gain is not None
        )
        gains = Table(("queries of", "queries", "baseline", "tuned", "difference", "low", "high", "p"), rows, "gain")
        changed = tuple((path, str(was), str(now)) for path, (was, now) in self.changes.items())
        return Table(("parameter", "baseline", "tuned"), changed, "changes"), gains

    @property
    def notes(self) -> tuple[str, ...]:
        """What counts as relevant, what is never split, how often the hold-out was looked at, and what the evidence lacks."""
        tuned = self.result.tuned
        looks = (f"looks at the hold-out: {tuned.looks}",) if tuned.looks else ()
        not_kept = (f"its scores could not be kept: {self.result.not_kept}",) if self.result.not_kept else ()
        return (
            self.result.planned.relevance,
            f"never split: {self.result.planned.group_by}; on the queries searched on: {tuned.train:.4f}",
            *looks,
            *self.result.lacking,
            *not_kept,
        )


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

    read = evidence if isinstance(evidence, LoadedEvidence) else load_evidence(evidence)
    start = read.config if baseline is None else load_config(baseline)
    goal = parse_goal(
        [metric] if isinstance(metric, str) else list(metric), guards, read.relevant_from if grade is None else grade
    )
    data = TuningData(start, read.evidence.header.query_set, read._labelled(), read.relevant_from)
    planned = planned_search(
        data, goal, space or (), group_by=group_by, folds=folds, sealed=holdout, trials=trials, seed=seed
    )

    def stage(name: str) -> Watch:
        def watch(done: int, total: int, best: Trial) -> None:
            progress(name, done, total)

        return watch

    return TuningReport(run_search(planned, stage))
