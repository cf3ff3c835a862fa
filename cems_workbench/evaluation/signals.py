"""The signals of abstain over judged queries: what each says where the store has an answer, and where it has none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.pipeline.table import Bools, Floats


@dataclass(frozen=True, eq=False)
class SignalTable:
    """Of Q queries which have an answer and which have none, as far as that is known, and the value of each signal by its name.

    A query of which no relevant memory is known, and of which nobody said that it has no answer, is neither. NaN: it has no value.
    """

    qids: tuple[str, ...]
    answerable: Bools
    unanswerable: Bools
    values: Mapping[str, Floats]

    def of(self, name: str) -> tuple[Floats, Floats]:
        """The values of a signal where there is an answer, and where there is none."""
        values = self.values[name]
        known = ~np.isnan(values)
        return values[known & self.answerable], values[known & self.unanswerable]


def signal_table(batch: LabelledBatch, config: PipelineConfig, relevant_from: Mapping[str, int]) -> SignalTable:
    """The signals of every query of a batch under a config; `relevant_from` is the lowest relevant grade by qid, else 1."""
    least = np.array([relevant_from.get(qid, 1) for qid in batch.qids], dtype=np.int64)
    relevant: Bools = batch.ideal >= least[:, None]
    answerable: Bools = np.any(relevant, axis=1)
    return SignalTable(tuple(batch.qids), answerable, batch.unanswerable & ~answerable, batch.signals(config))
