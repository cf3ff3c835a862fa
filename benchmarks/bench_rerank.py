"""What reranking the same 40 candidates is worth: hybrid, late interaction, a cross-encoder, and their combinations.

    python -m benchmarks.bench_rerank [--locomo ../shared/data/locomo] [--scifact ../shared/data/scifact] [--queries N]

The candidates are the first 40 of reciprocal rank fusion (k = 60) of the vector and the lexical list, 100 deep, weights 1. A
question's relevant memories are those its evidence names; one whose evidence is not among the 40 counts as a miss for all.
Combinations are sums of z-scores over the 40 (hybrid's is of its fused score). SciFact is judged by nDCG@10 of its test claims.
The cross-encoder is the one of the settings, else the packaged one; the first line says which ran.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.bench_presets import hit_at, line, ndcg_at
from cems_workbench import formats
from cems_workbench.config import preset, with_values
from cems_workbench.models.protocol import PairScorer
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.scoring import scorer
from cems_workbench.records import Query
from cems_workbench.runs.opening import open_resources
from cems_workbench.settings import Settings

DEPTH = 40
HYBRID = {
    "query.mode": "hybrid", "query.typo_correction.enabled": False, "expansion.backend": "none",
    "lists.vector.depth": 100, "lists.lexical.depth": 100, "lists.vector.weight": 1.0, "lists.lexical.weight": 1.0,
    "variants.original_weight": 1.0, "threshold.mode": "none", "fusion.method": "rrf", "fusion.k": 60,
    "fusion.top_rank_bonus.rank1": 0.0, "fusion.top_rank_bonus.rank2_3": 0.0, "fusion.normalize": "none",
    "filter.min_score": None, "rerank.backend": "none", "judge.backend": "none",
}  # fmt: skip


@dataclass(frozen=True)
class Candidates:
    """A query, the ids, texts and fused scores of its candidates, best first, and the relevant ids with their grades."""

    query: Query
    ids: tuple[str, ...]
    texts: tuple[str, ...]
    fused: np.ndarray
    relevant: dict[str, int]


def candidates(
    resources: Resources, queries: Sequence[Query], relevant: dict[str, dict[str, int]]
) -> Iterator[Candidates]:
    """The first `DEPTH` of the hybrid for each query."""
    config = with_values(preset("qmd").config, HYBRID)
    for query in queries:
        evidence = gather(Request(query.query, query.project, query.as_of), config, resources)
        rows = sorted(replay(evidence, config).stage("fusion").rows, key=lambda row: row["rank_out"])[:DEPTH]
        ids = tuple(row["memory_id"] for row in rows)
        texts = tuple(evidence.memories[memory_id].content for memory_id in ids)
        yield Candidates(query, ids, texts, np.array([row["score"] for row in rows]), relevant[query.qid])


def opened(path: Path, folder: Path) -> tuple[Resources, list[Query], dict[str, dict[str, int]]]:
    """The data imported into a store below `folder`, its judged queries, and the relevant memories of each."""
    resources = open_resources(Settings(store=folder / path.stem))
    queries: list[Query] = []
    relevant: dict[str, dict[str, int]] = {}
    for parsed in formats.read_path(path):
        resources.store.add(parsed)
        queries += parsed.queries
        for judgment in parsed.judgments:
            if judgment.grade > 0:
                relevant.setdefault(judgment.qid, {})[judgment.memory_id] = judgment.grade
    return resources, [query for query in queries if query.qid in relevant], relevant


def z(values: np.ndarray) -> np.ndarray:
    """Mean 0, deviation 1; zeros when all are equal."""
    spread = float(values.std())
    return (values - values.mean()) / spread if spread > 0 else np.zeros_like(values)


def raw(model: PairScorer, query: str, texts: Sequence[str]) -> np.ndarray:
    """The raw scores, the lowest of the others where a pair failed."""
    scores = [score.raw for score in model.score(query, texts)]
    lowest = min((score for score in scores if score is not None), default=0.0)
    return np.array([lowest if score is None else score for score in scores])


@dataclass
class Rankings:
    """How each way of ranking did; a row of values per query."""

    rows: dict[str, list[tuple[float, float, float]]]
    seconds: dict[str, float]

    def add(self, name: str, scores: np.ndarray, one: Candidates) -> None:
        """Count one query ranked by `scores`, ties in the hybrid's order."""
        ranked = [one.ids[i] for i in np.argsort(-scores, kind="stable")]
        self.rows.setdefault(name, []).append(
            (hit_at(1, ranked, one.relevant), hit_at(5, ranked, one.relevant), ndcg_at(10, ranked, one.relevant))
        )


def measure(resources: Resources, drawn: Sequence[Query], relevant: dict[str, dict[str, int]], found: Rankings) -> None:
    """Rank the candidates of every query in every way."""
    config = preset("ace").config.rerank
    late, _ = scorer("late_interaction", None, config, resources)
    cross, said = scorer("cross_encoder", None, config, resources)
    print(f"<!-- {late.label}; {cross.label}{f' ({said})' if said else ''} -->", flush=True)
    for one in candidates(resources, drawn, relevant):
        parts = {"hybrid": one.fused}
        for name, model in (("late interaction", late), ("cross-encoder", cross)):
            started = time.perf_counter()
            parts[name] = raw(model, one.query.query, one.texts)
            found.seconds[name] = found.seconds.get(name, 0.0) + time.perf_counter() - started
        both = z(parts["late interaction"]) + z(parts["cross-encoder"])
        for name, scores in {
            **parts, "late interaction + cross-encoder": both, "hybrid + both": both + z(one.fused),
            "hybrid + cross-encoder": z(one.fused) + z(parts["cross-encoder"]),
        }.items():  # fmt: skip
            found.add(name, scores, one)


def table(found: Rankings) -> None:
    """Print the means."""
    print(line(("ranking", "hit@1", "hit@5", "nDCG@10", "queries", "ms a query")))
    print(line(("---", *["---:"] * 5)))
    for name, rows in found.rows.items():
        means = [f"{value:.3f}" for value in np.mean(rows, axis=0)]
        took = f"{found.seconds[name] / len(rows) * 1e3:.0f}" if name in found.seconds else "–"
        print(line((name, *means, str(len(rows)), took)), flush=True)


def main() -> int:
    """Measure and print; 0 also where there is no data."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--locomo", type=Path, default=Path("../shared/data/locomo"))
    parser.add_argument("--scifact", type=Path, default=Path("../shared/data/scifact"))
    parser.add_argument("--queries", type=int, default=0, help="queries drawn of each set; 0 takes all")
    parser.add_argument("--only", choices=("locomo", "scifact"), default=None)
    options = parser.parse_args()
    sets = {"locomo": sorted(options.locomo.glob("*.json")), "scifact": [options.scifact]}
    for name, files in sets.items():
        if options.only not in (None, name) or not all(file.exists() for file in files) or not files:
            print(f"{name}: skipped")
            continue
        found = Rankings({}, {})
        with tempfile.TemporaryDirectory() as scratch:
            for file in files:
                resources, queries, relevant = opened(file, Path(scratch))
                count = min(options.queries or len(queries), len(queries))
                drawn = random.Random(f"0/{file.stem}").sample(queries, count)
                try:
                    measure(resources, drawn, relevant, found)
                finally:
                    resources.close()
        print(f"\n{name}: {len(files)} of them, the first {DEPTH} of the hybrid reranked\n")
        table(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
