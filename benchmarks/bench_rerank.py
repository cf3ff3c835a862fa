"""What reranking the same 40 candidates is worth: hybrid, late interaction, a cross-encoder, and their combinations.

    python -m benchmarks.bench_rerank [--locomo ../shared/data/locomo] [--scifact ../shared/data/scifact] [--queries N]

The candidates are the first 40 of reciprocal rank fusion (k = 60) of the vector and the lexical list, 100 deep, weights 1. A
question's relevant memories are those its evidence names; one whose evidence is not among the 40 counts as a miss for all.
Combinations are sums of z-scores over the 40 (hybrid's is of its fused score). "With questions" reads a turn that follows a question in
its session with that question, too, and takes the better score, as `rerank.prepend_question` does. SciFact is judged by nDCG@10 of its
test claims. The last row is the answer of the preset `workbench` alone, from its own candidates.

The cross-encoder is the one of the settings, else the packaged one; the first line says which ran.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.bench_presets import hit_at, line, ndcg_at
from cems_workbench.config import preset, with_values
from cems_workbench.models.protocol import PairScorer
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.pipeline.replay import Result
from cems_workbench.pipeline.rerankers import ScorerRequest, score_with
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.scoring import with_question
from cems_workbench.records import Query
from training.candidates import DEPTH, Candidates, candidates, open_data_set, raw_scores


def z(values: np.ndarray) -> np.ndarray:
    """Mean 0, deviation 1; zeros when all are equal."""
    spread = float(values.std())
    return (values - values.mean()) / spread if spread > 0 else np.zeros_like(values)


@dataclass
class Rankings:
    """How each way of ranking did; a row of values per query."""

    rows: dict[str, list[tuple[float, float, float]]]
    seconds: dict[str, float]

    def add(self, name: str, scores: np.ndarray, pool: Candidates) -> None:
        """Count one query ranked by `scores`, ties in the hybrid's order."""
        ranked = [pool.ids[i] for i in np.argsort(-scores, kind="stable")]
        self.rows.setdefault(name, []).append(
            (hit_at(1, ranked, pool.relevant), hit_at(5, ranked, pool.relevant), ndcg_at(10, ranked, pool.relevant))
        )


def measure(
    resources: Resources, drawn: Sequence[Query], relevant: dict[str, dict[str, int]], rankings: Rankings
) -> None:
    """Rank the candidates of every query in every way."""
    config = preset("ace").config.rerank
    late, _, _ = score_with("late_interaction", ScorerRequest(None, config, resources), lambda made: made)
    cross, said, _ = score_with("cross_encoder", ScorerRequest(None, config, resources), lambda made: made)
    print(f"<!-- {late.label}; {cross.label}{f' ({said})' if said else ''} -->", flush=True)
    for pool in candidates(resources, drawn, relevant):
        parts = {"hybrid": pool.fused}
        for name, model in (("late interaction", late), ("cross-encoder", cross)):
            started = time.perf_counter()
            parts[name] = raw_scores(model, pool.query.query, pool.texts)
            rankings.seconds[name] = rankings.seconds.get(name, 0.0) + time.perf_counter() - started
        asked = with_questions(cross, pool, parts["cross-encoder"], rankings)
        both = z(parts["late interaction"]) + z(parts["cross-encoder"])
        for name, scores in {
            **parts,
            ASKED: asked,
            f"hybrid + {ASKED}": z(pool.fused) + z(asked),
            "late interaction + cross-encoder": both,
            "hybrid + both": both + z(pool.fused),
            "hybrid + cross-encoder": z(pool.fused) + z(parts["cross-encoder"]),
        }.items():
            rankings.add(name, scores, pool)
        answered = [row.memory_id for row in search(pool.query, resources)]
        rankings.add("preset workbench", -np.arange(len(answered), dtype=float), replace(pool, ids=tuple(answered)))


def search(query: Query, resources: Resources) -> Sequence[Result]:
    """What the preset answers."""
    config = with_values(preset("workbench").config, {"judge.backend": "none"})
    return replay(gather(Request(query.query, query.project, query.as_of), config, resources), config).results


ASKED = "cross-encoder with questions"


def with_questions(cross: PairScorer, pool: Candidates, alone: np.ndarray, rankings: Rankings) -> np.ndarray:
    """The better of the score alone and that with the question that a candidate follows; the second reading is timed separately."""
    places = [i for i, question in enumerate(pool.questions) if question]
    started = time.perf_counter()
    texts = [with_question(pool.questions[i], pool.texts[i]) for i in places]
    best = alone.copy()
    if places:
        best[places] = np.maximum(alone[places], raw_scores(cross, pool.query.query, texts))
    rankings.seconds[ASKED] = rankings.seconds.get(ASKED, 0.0) + time.perf_counter() - started
    return best


def table(rankings: Rankings) -> None:
    """Print the means."""
    print(line(("ranking", "hit@1", "hit@5", "nDCG@10", "queries", "ms a query")))
    print(line(("---", *["---:"] * 5)))
    for name, rows in rankings.rows.items():
        means = [f"{value:.3f}" for value in np.mean(rows, axis=0)]
        seconds = rankings.seconds.get(name, 0.0) + (rankings.seconds["cross-encoder"] if name == ASKED else 0.0)
        took = f"{seconds / len(rows) * 1e3:.0f}" if seconds else "–"
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
        rankings = Rankings({}, {})
        with tempfile.TemporaryDirectory() as scratch:
            for file in files:
                resources, queries, relevant = open_data_set(file, Path(scratch))
                count = min(options.queries or len(queries), len(queries))
                drawn = random.Random(f"0/{file.stem}").sample(queries, count)
                try:
                    measure(resources, drawn, relevant, rankings)
                finally:
                    resources.close()
        print(f"\n{name}: {len(files)} of them, the first {DEPTH} of the hybrid reranked\n")
        table(rankings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
