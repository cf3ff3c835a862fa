"""`promise`: the gain that a config tuned here predicts, beside the gain of a system that was recorded before and after it was set.

Both recordings have the same queries. The one of before is measured under the baseline, the one of after under the tuned config, each with
what the recordings take as given (`fidelity`). Where predicted and recorded results differ, the first cause that `fidelity` finds is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cems_workbench.config.forms.targets import base, system_behind
from cems_workbench.errors import InputError, counted
from cems_workbench.evaluation.evaluate import number
from cems_workbench.evaluation.metrics import Measure, graded
from cems_workbench.evaluation.statistics import paired_interval
from cems_workbench.results import Result, Table

if TYPE_CHECKING:
    from cems_workbench.config import PipelineConfig
    from workbench_fidelity.fidelity import MeasuredFidelity

KEPT = 0.001
"""The most that predicted and recorded gain may differ."""
SIDES = ("before", "after")


@dataclass(frozen=True, eq=False, repr=False)
class Promise(Result):
    """Both measured recordings; `values` has by side the measure of each judged query, recorded and predicted, shape (2, queries)."""

    measure: Measure
    measured: tuple[MeasuredFidelity, MeasuredFidelity]
    values: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
    others: int = 0
    """Answers that only one recording has."""

    @property
    def gains(self) -> np.ndarray[Any, Any]:
        """(2, queries): after minus before, recorded and predicted."""
        found: np.ndarray[Any, Any] = self.values[1] - self.values[0]
        return found

    @property
    def kept(self) -> bool:
        """Whether the recorded gain is the predicted one, to `KEPT`."""
        recorded, predicted = self.gains.mean(axis=1)
        return bool(abs(recorded - predicted) <= KEPT)

    @property
    def title(self) -> str:
        one, other = (each.setting.config.name for each in self.measured)
        return f"{one} to {other}: {self.measure} on {counted(self.gains.shape[1], 'judged queries')}"

    @property
    def lines(self) -> Sequence[str]:
        """Predicted and recorded gain with their intervals, and whether they are the same."""
        gains, said = self.gains, list[str]()
        low, high = paired_interval(gains.T)
        for i, name in enumerate(("recorded", "predicted")):
            between = f" [{low[i]:+.4f}, {high[i]:+.4f}]" if np.isfinite(low[i]) else ""
            said.append(f"{name} gain {gains[i].mean():+.4f}{between}")
        difference = float(np.subtract(*gains.mean(axis=1)[::-1]))
        verdict = "the promise is kept" if self.kept else f"the promise is not kept to {KEPT:g}"
        return (*said, f"predicted minus recorded {difference:+.5f}: {verdict}")

    @property
    def tables(self) -> Sequence[Table]:
        """A row a side, and the queries whose results differ with the first cause."""
        rows = [
            (side, one.setting.config.name, one.fidelity.value("same_order"), *values.mean(axis=1).tolist())
            for side, one, values in zip(SIDES, self.measured, self.values, strict=True)
        ]
        apart = [
            (side, one.query.qid, one.parting.stage if one.parting else None, one.cause.kind, one.cause.text or one.how)
            for side, measured in zip(SIDES, self.measured, strict=True)
            for one in measured.listed()
            if not one.query.same_order
        ]
        return (
            Table(("", "config", "same order", "recorded", "predicted"), tuple(rows), self.title),
            Table(("", "query", "parts at", "cause", "because"), tuple(apart), "Results that differ", shown=10),
        )

    @property
    def notes(self) -> Sequence[str]:
        apart = (
            [f"{counted(self.others, 'answers')} of one recording have no query of the other"] if self.others else []
        )
        return [
            *apart,
            *(f"{side}: {note}" for side, one in zip(SIDES, self.measured, strict=True) for note in one.notes),
        ]

    def to_json(self) -> Any:
        recorded, predicted = self.gains.mean(axis=1).tolist()
        sides = {side: one.to_json() for side, one in zip(SIDES, self.measured, strict=True)}
        return {
            "measure": str(self.measure),
            "recorded": number(recorded),
            "predicted": number(predicted),
            "kept": self.kept,
        } | sides


def before_tuning(tuned: PipelineConfig) -> PipelineConfig | None:
    """What ran before a config was tuned: what its target does; None of a config that is of no target's preset by its name."""
    system = system_behind(tuned)
    return None if system is None else base(system.form, tuned)


def promise_of(
    measured: tuple[MeasuredFidelity, MeasuredFidelity], grades: Mapping[str, Mapping[str, int]], measure: Measure
) -> Promise:
    """Measure both sides over the judged queries that both recordings have. Raises InputError if there is none."""
    rows = [{one.qid: one for one in each.fidelity.queries} for each in measured]
    qids = [qid for qid in rows[0] if qid in rows[1] and any(grade > 0 for grade in grades.get(qid, {}).values())]
    common = rows[0].keys() & rows[1].keys()
    if not qids:
        why = "have no query in common" if not common else "have no query in common that has a memory graded above 0"
        raise InputError(f"before and after {why}")

    def values(side: int) -> np.ndarray[Any, Any]:
        lists = (
            [one.recorded for one in map(rows[side].__getitem__, qids)],
            [one.ours for one in map(rows[side].__getitem__, qids)],
        )
        return np.array([measure.values(graded(each, [grades[qid] for qid in qids])) for each in lists])

    both = values(0), values(1)
    valued = np.isfinite(both[0] + both[1]).all(axis=0)
    if not valued.any():
        raise InputError(f"--metric {measure}: it has no value for a judged query that both recordings have")
    return Promise(measure, measured, (both[0][:, valued], both[1][:, valued]), len(rows[0].keys() ^ rows[1].keys()))
