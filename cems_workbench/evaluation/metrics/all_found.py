"""all@k: are all relevant memories among the first k? 1 or 0: what a question needs that is answered from several memories together.

Of one query hit@k >= recall@k >= all@k, and the three are equal where one memory is relevant. More than k relevant ones never fit: 0.

Source: LongMemEval's recall_all@k (Wu et al., LongMemEval, 2025; `evaluate_retrieval` in src/retrieval/eval_utils.py). Its
run_retrieval.py leaves questions without an answer (`_abs`) and those without a target out of the mean, as every measure here does;
its print_retrieval_metrics.py leaves out the former only, and counts 1 for a question without a target.
"""

from __future__ import annotations

from cems_workbench.evaluation.metrics.measure import MeasureFamily
from cems_workbench.evaluation.metrics.rankings import GradedRankings
from cems_workbench.pipeline.table import Floats


def all_found(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) 1.0 where every relevant memory is among the first k."""
    found = rankings.relevant(grade)[:, :k].sum(axis=1)
    everything: Floats = (found >= rankings.relevant_count(grade)).astype(float)
    return everything


MEASURE = MeasureFamily(
    "all",
    "are all relevant memories among the first k? LongMemEval's recall_all@k",
    all_found,
    needs_cutoff=True,
    aliases=("recall_all",),
    place=2,
)
