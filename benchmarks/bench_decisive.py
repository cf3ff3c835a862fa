"""How many labels tell which of two configs is better: from the top, shuffled, or decisive first, on LoCoMo.

    python -m benchmarks.bench_decisive [--data FOLDER] [--queries 60] [--studies 20] [--sample 200] [--seed 0] [--evidence FILE]

Two configs differ in one setting; the pool is the first ten of both. A study draws `--sample` of the queries and has a simulated
reviewer, who grades as LoCoMo's evidence does but misses a relevant memory one time in ten and takes another for relevant one time in a
hundred. Labels are given one by one in each order, what is not labelled counts as not relevant, and the sign of the difference in mean
nDCG@10 is watched. A verdict is *reached* at the label from which on the sign is the one of all labels and never changes again. Printed
is, of all studies, the mean, and the number of labels after which nine of ten studies have their verdict (one study alone may be right
with its first label by luck). Exits 1 when decisive first needs more than half the labels of top first, over all pairs of configs
together, by either number.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_presets import DATA, line
from cems_workbench import formats
from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.evidence_file import read_evidence_file
from cems_workbench.evaluation.labelling.pooling import Pair, PooledPair, pool, shuffled, top_first
from cems_workbench.evaluation.labelling.queue import CUTOFF, decisive_first, discount
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.jobs.factory import open_resources
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.records import Query
from cems_workbench.settings import Settings

MISSED, MISTAKEN = 0.10, 0.01
HALF = 0.5
BASE: dict[str, Any] = {"judge.backend": "none", "rerank.backend": "none"}
COMPARED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "vectors alone | words alone": ({"lists.lexical.enabled": False}, {"lists.vector.enabled": False}),
    "both lists | vectors alone": ({}, {"lists.lexical.enabled": False}),
    "both lists | words alone": ({}, {"lists.vector.enabled": False}),
    "bonus for first ranks | none": ({}, {"fusion.top_rank_bonus.rank1": 0.0, "fusion.top_rank_bonus.rank2_3": 0.0}),
    "time decay | none": ({}, {"adjust.time_decay.mode": "none"}),
    "fusion.k 60 | 5": ({}, {"fusion.k": 5}),
    "words weigh 1 | 0.5": ({}, {"lists.lexical.weight": 0.5}),
}
"""Pairs of configs, as changes of preset cems."""


@dataclass(frozen=True)
class Labelled:
    """Queries with their evidence and what LoCoMo says is relevant."""

    queries: tuple[Query, ...]
    evidences: dict[str, Evidence]
    relevant: dict[str, set[str]]


@dataclass(frozen=True)
class Needed:
    """Of the studies of one pair of configs: mean difference, mean size of the pool, labels needed by each order."""

    gap: float
    pool: float
    labels: dict[str, list[int]]

    def mean(self, order: str) -> float:
        """Labels needed in the mean."""
        return statistics.fmean(self.labels[order])

    def most(self, order: str) -> float:
        """Labels after which nine of ten studies have their verdict."""
        return float(np.percentile(self.labels[order], 90, method="inverted_cdf"))


def gathered(files: Sequence[Path], count: int, seed: int, home: Path) -> Labelled:
    """Import the conversations into one store and gather `count` queries of each that have evidence."""
    config = with_values(preset("cems").config, BASE)
    relevant: dict[str, set[str]] = {}
    chosen: list[Query] = []
    resources = open_resources(Settings(store=home))
    try:
        for parsed in (one for file in files for one in formats.read_path(file)):
            resources.store.add(parsed)
            for judgment in parsed.judgments:
                relevant.setdefault(judgment.qid, set()).add(judgment.memory_id)
            judged = [query for query in parsed.queries if query.qid in relevant]
            chosen += random.Random(f"{seed}/{parsed.source}").sample(judged, min(count, len(judged)))
        resources.refresh()
        evidences = {
            query.qid: gather(Request(query.query, query.project, query.as_of), config, resources) for query in chosen
        }
    finally:
        resources.close()
    return Labelled(tuple(chosen), evidences, relevant)


def from_file(path: Path) -> Labelled:
    """The labelled queries of an evidence file that `gather` wrote."""
    held = read_evidence_file(path)
    relevant: dict[str, set[str]] = {}
    for judgment in held.judgments:
        if judgment.grade > 0:
            relevant.setdefault(judgment.qid, set()).add(judgment.memory_id)
    queries = tuple(query for query in held.queries if query.qid in relevant and query.qid in held.evidences)
    return Labelled(queries, dict(held.evidences), relevant)


def reviewer(pairs: Sequence[PooledPair], relevant: Mapping[str, set[str]], seed: int) -> dict[Pair, int]:
    """What one simulated person says of every pair."""
    drawn = random.Random(seed)
    said = {}
    for one in sorted(pairs, key=lambda one: one.pair):
        truth = one.memory_id in relevant.get(one.qid, ())
        said[one.pair] = int(drawn.random() >= MISSED if truth else drawn.random() < MISTAKEN)
    return said


def differences(order: Sequence[PooledPair], said: Mapping[Pair, int], queries: int) -> list[float]:
    """Mean nDCG@10 of config `a` less that of `b` after each label; what has no label counts as not relevant."""
    ideal = np.cumsum([0.0, *(discount(rank) for rank in range(1, CUTOFF + 1))])
    gain: dict[str, float] = {}
    found: dict[str, int] = {}
    total = 0.0
    after = []
    for one in order:
        if said[one.pair]:
            known = found.get(one.qid, 0)
            before = gain.get(one.qid, 0.0) / ideal[min(known, CUTOFF)] if known else 0.0
            gain[one.qid] = gain.get(one.qid, 0.0) + discount(one.ranks.get("a")) - discount(one.ranks.get("b"))
            found[one.qid] = known + 1
            total += gain[one.qid] / ideal[min(known + 1, CUTOFF)] - before
        after.append(total / queries)
    return after


def reached(after: Sequence[float]) -> int:
    """The number of labels from which on the sign is the last one."""
    last = math.copysign(1, after[-1]) if abs(after[-1]) > 1e-12 else 0
    for place in range(len(after) - 1, -1, -1):
        sign = math.copysign(1, after[place]) if abs(after[place]) > 1e-12 else 0
        if sign != last:
            return place + 2
    return 1


def checked(batch: LabelledBatch, configs: Sequence[PipelineConfig], said: Mapping[Pair, int], by_hand: float) -> None:
    """Raise ValueError unless the evaluation's own nDCG@10 gives the difference that was summed up here."""
    grades: dict[str, dict[str, int]] = {}
    for (qid, memory_id), grade in said.items():
        grades.setdefault(qid, {})[memory_id] = grade
    measure = parse_measure(f"nDCG@{CUTOFF}")
    own = LabelledBatch(batch.queries, dict(zip(batch.qids, batch.evidences, strict=True)), grades)
    first, second = (float(np.nansum(measure.values(own.rankings(config).graded))) for config in configs)
    if abs((first - second) / len(grades) - by_hand) > 1e-9:
        raise ValueError(f"nDCG@{CUTOFF} differs by {(first - second) / len(grades)}, by hand by {by_hand}")


def compare(labelled: Labelled, changes: tuple[dict[str, Any], dict[str, Any]], studies: int, sample: int) -> Needed:
    """How many labels each order needs to tell two configs apart."""
    configs = [with_values(preset("cems").config, BASE | change) for change in changes]
    truth = {qid: dict.fromkeys(found, 1) for qid, found in labelled.relevant.items()}
    batch = LabelledBatch(labelled.queries, labelled.evidences, truth)
    ranked = {
        name: dict(zip(batch.qids, batch.result_ids(batch.rankings(config)), strict=True))
        for name, config in zip("ab", configs, strict=True)
    }
    pairs = pool(ranked, CUTOFF)
    decisive = decisive_first(pairs, "a", "b")
    kept = {one.pair for one in decisive}
    orders = {
        "top": top_first(pairs),
        "shuffled": shuffled(pairs, 0),
        "decisive": [*decisive, *top_first(one for one in pairs if one.pair not in kept)],
    }
    needed: dict[str, list[int]] = {name: [] for name in orders}
    gaps, sizes = [], []
    for study in range(studies):
        drawn = set(random.Random(study).sample(sorted(batch.qids), min(sample, len(batch.qids))))
        said = reviewer([one for one in pairs if one.qid in drawn], labelled.relevant, study)
        last = 0.0
        for name, order in orders.items():
            after = differences([one for one in order if one.qid in drawn], said, len(drawn))
            needed[name].append(reached(after))
            last = after[-1]
        gaps.append(last)
        sizes.append(len(said))
        if study == 0:
            checked(batch, configs, said, last)
    return Needed(statistics.fmean(gaps), statistics.fmean(sizes), needed)


def main() -> int:
    """Measure and print; 0 also where there is no data."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of LoCoMo conversations, one JSON file each")
    parser.add_argument("--queries", type=int, default=60, help="queries drawn of each conversation")
    parser.add_argument("--studies", type=int, default=20)
    parser.add_argument("--sample", type=int, default=200, help="queries of a study")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--evidence", type=Path, help="an evidence file of labelled queries, in place of gathering")
    options = parser.parse_args()
    if options.evidence is not None:
        return report(from_file(options.evidence), options.studies, options.sample)
    files = sorted(options.data.glob("*.json")) if options.data.is_dir() else []
    if not files:
        print(f"skipped: no LoCoMo conversations at {options.data}; name their folder with --data")
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        labelled = gathered(files, options.queries, options.seed, Path(scratch) / "store")
    return report(labelled, options.studies, options.sample)


def report(labelled: Labelled, studies: int, sample: int) -> int:
    """Print the table; 1 when decisive first needs more than half of what top first needs."""
    asked = min(sample, len(labelled.queries))
    print(
        f"{studies} studies of {asked} out of {len(labelled.queries)} queries; labels until the verdict stands, mean / nine of ten\n"
    )
    print(line(["configs", "ΔnDCG@10", "pool", "top first", "shuffled", "decisive first", "of top first"]))
    print(line(["---", *["---:"] * 6]))
    sums = np.zeros((2, 2))
    for name, changes in COMPARED.items():
        found = compare(labelled, changes, studies, sample)
        cells = [f"{found.mean(order):.0f} / {found.most(order):.0f}" for order in ("top", "shuffled", "decisive")]
        mean, most = (np.array([of("top"), of("decisive")]) for of in (found.mean, found.most))
        sums += np.stack([mean, most])
        share = f"{mean[1] / mean[0]:.0%} / {most[1] / most[0]:.0%}"
        print(line([name.replace("|", "against"), f"{found.gap:+.4f}", f"{found.pool:.0f}", *cells, share]), flush=True)
    shares = sums[:, 1] / sums[:, 0]
    print(
        f"\ndecisive first needs {shares[0]:.0%} (mean) and {shares[1]:.0%} (nine of ten) of the labels of top first, over all pairs"
    )
    return int(bool((shares > HALF).any()))


if __name__ == "__main__":
    sys.exit(main())
