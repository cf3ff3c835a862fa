"""How often a verdict is wrong: simulated comparisons drawn from the differences that real configs have, query by query.

    python -m benchmarks.bench_verdicts EVIDENCE... [--comparisons 1000] [--queries 30,100,129,500,2000] [--seed 0]

Each evidence file is replayed under presets and under small changes of one of them. Every pair of which at least 2 % of the queries change
is a family: its paired differences, with their zeros and their tails. A comparison draws queries from a family, with replacement, and

- *A/A*: each difference gets a random sign, as if the two configs had changed places. Neither is better, and a verdict that fails is wrong.
- *lost*: so many of the signs are negative that the true mean is a loss of twice the tolerance, where the family has changed queries
  enough; otherwise each changed query loses as much more. A verdict that passes is wrong.
- *concentrated*: A/A, but one in fifty queries loses 1, which is a loss of twice the tolerance as well. A verdict that passes is wrong.

The table has the family with most mistakes for each number of queries, and the mean of all. For comparison it has the same rule with the
interval of the percentile bootstrap and without the bound on losses that no query showed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.evaluation.comparison import VALUE_TOLERANCE
from cems_workbench.evaluation.evaluate import evaluate
from cems_workbench.evaluation.evidence_file import read_evidence_file
from cems_workbench.evaluation.metrics import parse_measure, parse_measures
from cems_workbench.evaluation.statistics import paired_interval
from cems_workbench.evaluation.verdict import DEFAULT_TOLERANCE, verdict_of_values
from cems_workbench.jobs.evaluation import labelled_file
from cems_workbench.pipeline.table import Floats

PRESETS = ("cems", "ace_a", "recollection", "qmd", "cems_head", "workbench")
CHANGED = "workbench"
CHANGES = (
    {"dedup.enabled": True},
    {"assembly.limit": 8},
    {"lists.lexical.weight": 1.5},
    {"gap.ratio": 0.3},
    {"lists.relations.enabled": False},
)
"""Small changes of one preset: most queries keep their value."""
MEASURES = "nDCG@10 hit@5"
RESAMPLES = 400
NAMES, MEASURE = ("new", "old"), parse_measure("nDCG@10")


@dataclass(frozen=True, eq=False)
class Family:
    """The paired differences of two configs by a measure."""

    name: str
    differences: Floats

    def drawn(self, rng: np.random.Generator, shape: tuple[int, int], loss: float) -> Floats:
        """(comparisons, queries) differences whose true mean is a loss."""
        size: Floats = np.abs(rng.choice(self.differences, size=shape))
        negative = (1 + loss / np.abs(self.differences).mean()) / 2
        if negative <= 1:
            tilted: Floats = size * np.where(rng.random(shape) < negative, -1.0, 1.0)
            return tilted
        signed = size * np.where(rng.random(shape) < 0.5, -1.0, 1.0)
        shifted: Floats = np.where(size > VALUE_TOLERANCE, np.maximum(signed - self.shift(loss), -1.0), 0.0)
        return shifted

    def concentrated(self, rng: np.random.Generator, shape: tuple[int, int], loss: float) -> Floats:
        """(comparisons, queries) differences of which a share loses 1, and the others nothing on average."""
        lost: Floats = np.where(rng.random(shape) < loss, -1.0, self.drawn(rng, shape, 0.0))
        return lost

    def shift(self, loss: float) -> float:
        """What each changed query loses more, down to a difference of -1, for a true mean loss where either sign is as likely."""
        size = np.abs(self.differences)[np.abs(self.differences) > VALUE_TOLERANCE]
        both, low, high = np.concatenate([size, -size]), 0.0, 2.0
        for _ in range(60):
            middle = (low + high) / 2
            reached = -np.maximum(both - middle, -1.0).mean() * self.changed
            low, high = (middle, high) if reached < loss else (low, middle)
        return high

    @property
    def changed(self) -> float:
        """The share of queries that changed, which is the largest mean loss that a family can have."""
        return float((np.abs(self.differences) > VALUE_TOLERANCE).mean())


def families(path: Path) -> list[Family]:
    """Of the pairs of configs that differ on an evidence file."""
    batch, measures = labelled_file(read_evidence_file(path), None).batch, parse_measures(MEASURES)
    base = preset(CHANGED).config
    configs: list[tuple[str, PipelineConfig]] = [(name, preset(name).config) for name in PRESETS]
    small = [(f"{key}={value}", with_values(base, {key: value})) for one in CHANGES for key, value in one.items()]
    values = {name: evaluate(batch, config, measures, with_bounds=False).values for name, config in [*configs, *small]}
    pairs = [*combinations(PRESETS, 2), *((CHANGED, name) for name, _ in small)]
    found = []
    for first, second in pairs:
        for m, measure in enumerate(measures):
            column = values[second][:, m] - values[first][:, m]
            column = column[~np.isnan(column)]
            family = Family(f"{path.stem}: {second} against {first}, {measure}", column)
            if family.changed >= 2 * DEFAULT_TOLERANCE:
                found.append(family)
    return found


Rule = Callable[[Floats], Sequence[str]]


def by_verdict(drawn: Floats) -> Sequence[str]:
    """The verdicts on (comparisons, queries) differences."""
    return [verdict_of_values(NAMES, MEASURE, row).kind for row in drawn]


def by_student(drawn: Floats) -> Sequence[str]:
    """The same interval, without the rules on few queries."""
    return _by_ends(paired_interval(drawn.T))


def by_percentiles(drawn: Floats) -> Sequence[str]:
    """The interval of the percentile bootstrap."""
    count = drawn.shape[1]
    weights = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=RESAMPLES) / count
    return _by_ends(np.percentile(drawn @ weights.T, [2.5, 97.5], axis=1))


def _by_ends(ends: Floats) -> Sequence[str]:
    low, high = ends
    kinds = np.where(low >= -DEFAULT_TOLERANCE, "pass", np.where(high < -DEFAULT_TOLERANCE, "fail", "cannot tell"))
    return [str(kind) for kind in kinds]


RULES: dict[str, Rule] = {"verdict": by_verdict, "Student alone": by_student, "percentile bootstrap": by_percentiles}


def main() -> None:
    """Simulate, and print the tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("evidence", nargs="+", type=Path)
    parser.add_argument("--comparisons", type=int, default=1000)
    parser.add_argument("--queries", default="30,100,129,500,2000")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    every = [family for path in asked.evidence for family in families(path)]
    zeros = [1 - one.changed for one in every]
    print(
        f"{len(every)} families; unchanged queries {min(zeros):.0%} to {max(zeros):.0%}, median {np.median(zeros):.0%}\n"
    )
    print(
        "| rule | queries | A/A: fail, worst (mean) | lost: pass, worst (mean) | concentrated: pass, worst (mean) "
        "| A/A: cannot tell, mean | worst at lost |"
    )
    print("|---|---:|---:|---:|---:|---:|---|")
    for name, rule in RULES.items():
        for queries in map(int, asked.queries.split(",")):
            rng = np.random.default_rng(asked.seed)
            rows = []
            for family in every:
                shape = asked.comparisons, queries
                same = rule(family.drawn(rng, shape, 0.0))
                lost = rule(family.drawn(rng, shape, 2 * DEFAULT_TOLERANCE))
                few = rule(family.concentrated(rng, shape, 2 * DEFAULT_TOLERANCE))
                open_ = same.count("cannot tell") / len(same)
                rows.append(
                    (
                        lost.count("pass") / len(lost),
                        few.count("pass") / len(few),
                        same.count("fail") / len(same),
                        open_,
                        family.name,
                    )
                )
            passes, missed, fails, unclear, _ = zip(*rows, strict=True)
            worst = max(rows)[4]
            print(
                f"| {name} | {queries:,} | {max(fails):.1%} ({np.mean(fails):.1%}) | {max(passes):.1%} ({np.mean(passes):.1%}) "
                f"| {max(missed):.1%} ({np.mean(missed):.1%}) | {np.mean(unclear):.0%} | {worst} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
