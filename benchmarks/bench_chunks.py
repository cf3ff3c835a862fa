"""What chunks are worth on long documents: hit@5 and nDCG@10 of each list and of their fusion, by rule.

    python -m benchmarks.bench_chunks FOLDER

FOLDER has memories.jsonl, queries.jsonl and qrels.txt (TREC qrels). Each rule gets a separate store in a temporary folder, by the
packaged embedder. A preset is what it returns; a list alone, of `cems`, is its order by each memory's best chunk.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cems_workbench import formats
from cems_workbench.config import preset, with_values
from cems_workbench.jobs.factory import open_resources
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.records import CHUNK_RULES
from cems_workbench.settings import Settings

PRESETS = ("cems", "cems_head")
NAMES = ("vector", "BM25", *(f"`{name}`" for name in PRESETS))


def measures(ranking: Sequence[str], relevant: dict[str, int]) -> tuple[float, float]:
    """hit@5 and nDCG@10 (the grade is the gain, discount log2(rank + 1)) of one ranking."""
    hit = float(any(key in relevant for key in ranking[:5]))
    gains = [relevant.get(key, 0) / np.log2(rank + 1) for rank, key in enumerate(ranking[:10], 1)]
    best = sorted(relevant.values(), reverse=True)[:10]
    ideal = sum(grade / np.log2(rank + 1) for rank, grade in enumerate(best, 1))
    return hit, sum(gains) / ideal


def measured(folder: Path, rule: str) -> tuple[int, int, dict[str, tuple[float, float]]]:
    """Memories, chunks, and by list the means over the queries that have a relevant memory."""
    configs = [with_values(preset(name).config, {"judge.backend": "none"}) for name in PRESETS]
    with tempfile.TemporaryDirectory() as place:
        resources = open_resources(Settings(store=Path(place) / "store"))
        try:
            resources.store.chunks.choose(rule)
            for name in ("memories.jsonl", "queries.jsonl", "qrels.txt"):
                for parsed in formats.read_path(folder / name):
                    resources.store.add(parsed)
            relevant: dict[str, dict[str, int]] = {}
            for judgment in resources.store.judgments.read():
                if judgment.grade > 0:
                    relevant.setdefault(judgment.qid, {})[judgment.memory_id] = judgment.grade
            rows: dict[str, list[tuple[float, float]]] = {name: [] for name in NAMES}
            for query in resources.store.queries.read():
                if query.qid not in relevant:
                    continue
                asked = Request(query.query, query.project, query.as_of)
                gathered = [gather_lists(asked, config, resources) for config in configs]
                lists = {
                    ranked.name: list(dict.fromkeys(hit.memory_id for hit in ranked.hits))
                    for ranked in gathered[0].lists
                }
                returned = [
                    [result.memory_id for result in replay(evidence, config).results]
                    for evidence, config in zip(gathered, configs, strict=True)
                ]
                rankings = (lists["vector:0"], lists.get("lexical:0", []), *returned)
                for name, ranking in zip(NAMES, rankings, strict=True):
                    rows[name].append(measures(ranking, relevant[query.qid]))
            chunks = resources.store.chunks.statistics().chunks
            means = {name: tuple(np.mean(of, axis=0).tolist()) for name, of in rows.items()}
            return resources.store.memories.count(), chunks, {name: (mean[0], mean[1]) for name, mean in means.items()}
        finally:
            resources.close()


def main() -> None:
    """Print a row per rule."""
    folder = Path(sys.argv[1])
    print("| rule | chunks | " + " | ".join(f"{name} hit@5 | {name} nDCG@10" for name in NAMES) + " |")
    print("|---|---|" + "---|" * 2 * len(NAMES))
    for rule in CHUNK_RULES:
        _, chunks, means = measured(folder, rule)
        cells = " | ".join(f"{means[name][0]:.3f} | {means[name][1]:.3f}" for name in NAMES)
        print(f"| {rule} | {chunks or '–'} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
