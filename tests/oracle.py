"""ir-measures over pytrec_eval, the oracle of the measures; what asks it skips where it is not installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cems_workbench.evaluation.metrics import Measure


def oracle(measure: Measure) -> Any:
    """The same measure there."""
    ir = pytest.importorskip("ir_measures")
    names = {
        "hit": ir.Success,
        "recall": ir.R,
        "P": ir.P,
        "MRR": ir.RR,
        "AP": ir.AP,
        "nDCG": ir.nDCG,
        "Judged": ir.Judged,
    }
    found = names[measure.family]
    if measure.family not in ("nDCG", "Judged"):
        found = found(rel=measure.grade)
    return found if measure.k is None else found @ measure.k


def judged_run(
    rankings: Mapping[str, Sequence[str]], grades: Mapping[str, Mapping[str, int]]
) -> tuple[list[Any], list[Any]]:
    """Qrels and run in its form. It sorts by score, so ranks are given as falling scores."""
    ir = pytest.importorskip("ir_measures")
    qrels = [ir.Qrel(qid, key, grade) for qid, row in grades.items() for key, grade in row.items()]
    run = [ir.ScoredDoc(qid, key, 1 / rank) for qid, row in rankings.items() for rank, key in enumerate(row, 1)]
    return qrels, run
