"""The guard against fooling ourselves: with relevance dealt at random, how often does tuning claim a gain?

For each seed: labels are shuffled among each query's candidates, the search runs over the open queries, and its proposal is compared
with the baseline on the sealed ones. At a one-sided alpha of 0.01 about one seed in a hundred is significant by chance alone; at most 5
of 100 are allowed. Beside it the gain on the queries that were searched on, which is what a search without a hold-out would report: for
the highest scoring config, and for the one that is proposed.
Run from the checkout: python -m benchmarks.bench_shuffled [--seeds 100] [--queries 300] [--trials 100]
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import numpy as np

from benchmarks.synthetic_queries import evidences, fusion_only, shuffled
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.pipeline import Evidence
from cems_workbench.tuning.holdout import gain, split
from cems_workbench.tuning.objective import Goal
from cems_workbench.tuning.scorer import BatchScorer
from cems_workbench.tuning.space import SearchSpace, parse_axis
from cems_workbench.tuning.tune import choose, optimize

AXES = (
    "lists.vector.weight=0:3",
    "lists.lexical.weight=0:3",
    "fusion.k=1:121:5",
    "fusion.score_blend",
    "fusion.normalize",
    "fusion.top_rank_bonus.rank1",
)
ALPHA = 0.01
ALLOWED = 0.05


@dataclass(frozen=True, slots=True)
class Shuffled:
    """One seed: the gain where it was searched, of the best and of the proposal, and that of each where nobody looked."""

    best_seen: float
    proposal_seen: float
    difference: float
    p_greater: float
    best_p_greater: float
    queries: int
    is_baseline: bool


def one_seed(made: list[Evidence], seed: int, trials: int = 100) -> Shuffled:
    """Tune on labels dealt with this seed, and open the hold-out."""
    batch = shuffled(made, seed=seed)
    measure = parse_measure("nDCG@10")
    score = BatchScorer(batch, [measure], seed=seed)
    sides = split([f"group {q % 20}" for q in range(len(made))], folds=2, holdout=0.3, seed=seed)
    space = SearchSpace.of(fusion_only(), [parse_axis(text) for text in AXES])
    found = optimize(space, score, Goal((measure,)), sides.open, trials=trials, seed=seed)
    proposal, base = choose(space, found.trials), found.baseline
    on_sealed = [score(trial.config, sides.holdout)[:, 0] for trial in (base, proposal, found.best)]
    kept, best = gain(on_sealed[0], on_sealed[1], seed), gain(on_sealed[0], on_sealed[2], seed)
    return Shuffled(
        float(found.best.reached[0] - base.reached[0]),
        float(proposal.reached[0] - base.reached[0]),
        kept.difference,
        kept.p_greater,
        best.p_greater,
        kept.queries,
        proposal is base,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--trials", type=int, default=100)
    options = parser.parse_args()
    made = evidences(options.queries, lists=2, hits=30, seed=99)
    rows = []
    for seed in range(options.seeds):
        rows.append(one_seed(made, seed, options.trials))
        if (seed + 1) % 10 == 0:
            print(f"  {seed + 1} seeds", file=sys.stderr, flush=True)
    same = sum(row.is_baseline for row in rows)
    claimed = sum(row.p_greater < ALPHA for row in rows)
    best = sum(row.best_p_greater < ALPHA for row in rows)
    print(
        f"{options.seeds} seeds, {options.queries} queries, {options.trials} trials of {len(AXES)} parameters, labels at random"
    )
    print(f"where it was searched: best +{np.mean([row.best_seen for row in rows]):.4f} nDCG@10,", end=" ")
    print(f"proposal {np.mean([row.proposal_seen for row in rows]):+.4f}; the baseline itself {same} times")
    print(
        f"on the sealed queries ({rows[0].queries}): proposal {np.mean([row.difference for row in rows]):+.4f} nDCG@10 on average"
    )
    print(
        f"significant there (one-sided, {ALPHA}): proposal {claimed} of {options.seeds}, highest scoring config {best} of {options.seeds}"
    )
    print(f"allowed: {int(ALLOWED * options.seeds)} of {options.seeds}")
    return int(max(claimed, best) > ALLOWED * options.seeds)


if __name__ == "__main__":
    sys.exit(main())
