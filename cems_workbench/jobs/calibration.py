"""Calibration job: every abstain signal calibrated on one labelled batch."""

from __future__ import annotations

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.signals import signal_table
from cems_workbench.jobs.traces import require_replayable
from cems_workbench.pipeline.stages.abstain import CONFIDENCE_FEATURES
from cems_workbench.tuning.calibration import Calibration, Method, calibrate
from cems_workbench.tuning.folds import GROUP_WORDS, groups_of, natural_grouping


def calibrations(
    batch: LabelledBatch,
    config: PipelineConfig,
    relevant_from: int,
    signal: str | None = None,
    method: Method = "logistic",
    probability: float = 0.5,
) -> tuple[str, list[Calibration], dict[str, str]]:
    """The grouping of the folds, the calibration of each signal (or of one), and by signal the reason why it has none.

    Raises InputError for an unknown signal, and for a probability out of range.
    """
    require_replayable("this evidence", any(one.external for one in batch.evidences), "calibration")
    if signal is not None and signal not in CONFIDENCE_FEATURES:
        raise InputError(f"{signal}: no such signal; there are {', '.join(CONFIDENCE_FEATURES)}")
    if not 0 < probability < 1:
        raise InputError(f"the probability is {probability:g}; it must be above 0 and below 1")
    table = signal_table(batch, config, dict.fromkeys(batch.qids, relevant_from))
    by = natural_grouping(batch)
    groups = groups_of(batch, by)
    found, without = [], {}
    for name in [signal] if signal else CONFIDENCE_FEATURES:
        try:
            found.append(calibrate(table, groups, name, method, probability))
        except InputError as error:
            without[name] = str(error)
    return GROUP_WORDS[by], found, without
