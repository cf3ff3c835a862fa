"""Tuning summary: sentences and rows about a search that the Tune page and the report share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cems_workbench.config.fields import short_value
from cems_workbench.errors import counted
from cems_workbench.evaluation.comparison import BETTER, LEVEL, OPEN_WORD, SAME_WORD, WORSE
from cems_workbench.jobs.tuning import NO_CONFIG_HOLDS_GUARDS, ByJudgments, SearchResult
from cems_workbench.pipeline.table import Floats
from cems_workbench.tuning.holdout import Gain, gain
from cems_workbench.tuning.learned import Region
from cems_workbench.tuning.objective import RERANKED, Guard

COST = "candidates reranked"
CROSS_VALIDATED = "Cross-validated"
"""Name of the row of the folds."""


def headline(result: SearchResult) -> str:
    """The verdict in one line."""
    tuned, plan = result.tuned, result.planned.plan
    held = () if tuned.proposal.broken else tuned.search.baseline.broken
    said = headline_of(result.planned.measure, plan.space.baseline.name, result.better, tuned.validation, held)
    if (found := tuned.holdout) is None or not result.better:
        return said
    return f"{said}; on {counted(found.queries, 'sealed queries')} {found.baseline:.3f} → {found.tuned:.3f}{_chance(found)}"


def _chance(gained: Gain) -> str:
    return "" if gained.p < LEVEL else ", which may be chance"


def headline_of(measure: str, base: str, better: bool, gained: Gain | None, held: Sequence[Guard] = ()) -> str:
    """The verdict on a proposal, `better` if it is not the baseline, with its gain on the folds. `held` are the guards
    that it holds and the baseline does not, which may lower the objective."""
    if not better:
        return f"Nothing significantly better than {base}: the baseline is proposed"
    if gained is None:
        return f"{measure}: a candidate better than {base}, not yet cross-validated"
    where = "queries that the search did not see"
    if held:
        change = f"{measure} {gained.baseline:.3f} → {gained.tuned:.3f} on {where}"
        return f"With {' and '.join(map(str, held))}, which {base} does not hold: {change}"
    if gained.improvement <= 0:
        return f"No gain over {base} on queries that the search did not see"
    return f"{measure} {gained.baseline:.3f} → {gained.tuned:.3f} on {where}{_chance(gained)}"


def about_lines(result: SearchResult) -> list[str]:
    """Facts about the search, one line each."""
    planned, trials = result.planned, result.tuned.search.trials
    given_up = sum(trial.pruned for trial in trials)
    broken = sum(bool(trial.broken) for trial in trials)
    return [
        f"“{planned.data.query_set}”, baseline {planned.plan.space.baseline.name}",
        f"{len(trials) - 1} configs of {len(planned.plan.space.axes)} parameters",
        planned.relevance,
        *([f"{given_up} given up early"] if given_up else []),
        *([f"{broken} broke a guard"] if broken else []),
        f"seed {planned.plan.seed}",
    ]


def doubt_line(result: SearchResult) -> str:
    """Why the baseline is proposed; empty if another config is."""
    if result.better:
        return ""
    goal, searched = result.planned.plan.goal, result.tuned.search
    best, base = (goal.as_measured(trial.reached)[0] for trial in (searched.best, searched.baseline))
    if not searched.best.usable:
        return NO_CONFIG_HOLDS_GUARDS
    return f"The best config reached {best:.4f}, the baseline {base:.4f}: within the luck of the best of many."


def _plus(value: float) -> str:
    """The value with its sign; zero has none."""
    return f"{round(value, 3) + 0.0:+.3f}"


def judged_rows(found: ByJudgments) -> list[GainRow]:
    """The gains by judgments of a proposal that was tuned without them, compared with a search on judgments."""
    return [
        GainRow("Without judgments", "this proposal, after fusion", found.proposal),
        GainRow("With judgments", "cross-validated, after fusion", found.labelled),
        GainRow("With, in hindsight", "flatters: on the queries that chose it", found.hindsight, fair=False),
        GainRow("Without, as ranked", "this proposal, with all that follows the fusion", found.as_ranked),
    ]


def judged_lines(found: ByJudgments) -> list[str]:
    """The share of the labelled gain that is reached without judgments, the labelled choice, and missing evidence."""
    chosen = ", ".join(f"{path} {short_value(value)}" for path, value in found.labelled_values.items())
    return [
        f"Without judgments: {found.share_words}. With judgments: {chosen}.",
        *(f"Not complete as ranked: {line}." for line in found.lacking),
    ]


@dataclass(frozen=True, slots=True)
class GainRow:
    """One part of the queries: its name, its description, and the gain there; None while it is sealed or not scored."""

    name: str
    about: str
    gain: Gain | None
    absent: str = ""
    fair: bool = True
    """Were these queries unseen by the search? Otherwise p is meaningless: it is the best of many."""


def gain_rows(result: SearchResult) -> list[GainRow]:
    """The tuning queries, the folds, and the hold-out."""
    tuned, planned = result.tuned, result.planned
    folds = len(planned.plan.split.folds)
    sealed = len(planned.plan.split.holdout)
    stopped = "stopped before" if tuned.search.cancelled else ""
    unseen = f"{sealed} queries, sealed" if sealed else "no query was sealed"
    return [
        GainRow("Searched on", "flatters: the best of many", searched_gain(result), fair=False),
        GainRow(CROSS_VALIDATED, f"chosen on {folds - 1} folds, scored on the other", tuned.validation, stopped),
        GainRow("Hold-out", "seen by no search", tuned.holdout, unseen),
    ]


def searched_gain(result: SearchResult) -> Gain:
    """The gain of the proposal over the baseline on the tuning queries."""
    base, best = result.tuned.search.baseline.scores[:, 0], result.tuned.proposal.scores[:, 0]
    return gain(base, best, result.planned.plan.seed, result.planned.plan.goal.objectives[0].direction)


def verdict(gain: Gain) -> str:
    """A gain in a word, with its sign."""
    if abs(gain.difference) < 1e-9 and gain.low == gain.high:
        return SAME_WORD
    if gain.p >= LEVEL:
        return OPEN_WORD
    return BETTER if gain.improvement > 0 else WORSE


def gap_line(result: SearchResult) -> str:
    """How much of the gain on the tuning queries is left on unseen queries."""
    tuned = result.tuned
    parts = [f"searched on {tuned.plan.goal.as_measured(tuned.proposal.reached)[0]:.3f}"]
    if tuned.validation is not None:
        parts = [f"folds: chosen on {tuned.train:.3f}, scored on the other {tuned.validation.tuned:.3f}"]
        parts.append(f"gap {_plus(tuned.train - tuned.validation.tuned)}")
    if tuned.holdout is not None:
        parts.append(f"hold-out {tuned.holdout.tuned:.3f}")
        if tuned.validation is not None:
            parts.append(f"gap to the folds {_plus(tuned.validation.tuned - tuned.holdout.tuned)}")
    return " · ".join(parts)


def front_of(result: SearchResult) -> list[int]:
    """The trials of the Pareto front, the best of the first objective first."""
    trials = result.tuned.search.trials
    return sorted(result.tuned.search.front, key=lambda i: -float(trials[i].reached[0]))


def objective_names(result: SearchResult) -> list[str]:
    """The display names of the objectives in their order; the cost is last."""
    return [COST if name == RERANKED else name for name in result.planned.plan.goal.names]


def all_reached(result: SearchResult) -> Floats:
    """(T, M) the objectives of every trial, the cost as a count."""
    return result.planned.plan.goal.as_measured(np.stack([trial.reached for trial in result.tuned.search.trials]))


def stable_words(region: Region | None) -> str:
    """The region as text: `0.4 to 1.2`; “up to” or “from … on” if it reaches an end of the range."""
    if region is not None and region.choices:
        return ", ".join(map(short_value, region.choices))
    if region is None or region.low is None:
        return "–"
    if region.at_low_edge and region.at_high_edge:
        return "any value"
    if region.at_low_edge:
        return f"up to {short_value(region.high)}"
    if region.at_high_edge:
        return f"from {short_value(region.low)} on"
    return f"{short_value(region.low)} to {short_value(region.high)}"
