"""Texts embedded a second, and what the vectors find, beside sentence-transformers' `encode` of the same weights.

    python -m benchmarks.bench_embed [--texts 600] [--rounds 3] [--quality]

By turns on the same texts, half turns of conversations (LoCoMo), half abstracts (SciFact): wall clock and processor time. `--quality` ranks
every judged query of both by cosine alone, in each conversation of LoCoMo, and compares nDCG@10
with and without 8 bits; it embeds all texts twice.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.report import DATA
from cems_workbench import formats
from cems_workbench.evaluation.statistics import bootstrap
from cems_workbench.models.embedder import SentenceTransformerEmbedder
from cems_workbench.models.minilm_embedder import local_embedder
from cems_workbench.models.protocol import Float32
from cems_workbench.models.resolve import EIGHT_BIT_ID, PACKAGED_ID, resolve
from cems_workbench.records import Memory, Query
from cems_workbench.store.text_rule import searched_text

SETS = {"LoCoMo": (DATA / "locomo", True), "SciFact": (DATA / "scifact", False)}
Encode = Callable[[Sequence[str]], Float32]


def read(folder: Path) -> tuple[list[Memory], list[Query], dict[str, dict[str, float]]]:
    """Memories, queries with something relevant, and their grades by query and memory."""
    memories: list[Memory] = []
    queries: list[Query] = []
    grades: dict[str, dict[str, float]] = {}
    for parsed in formats.read_path(folder):
        memories += parsed.memories
        queries += parsed.queries
        for judgment in parsed.judgments:
            if judgment.grade > 0:
                grades.setdefault(judgment.qid, {})[judgment.memory_id] = float(judgment.grade)
    return memories, [query for query in queries if query.qid in grades and not query.qid.startswith("train")], grades


def ndcg(encode: Encode, folder: Path, by_conversation: bool) -> np.ndarray:
    """(Q) nDCG@10 of each query by cosine alone, linear gain."""
    memories, queries, grades = read(folder)
    vectors, asked = encode([searched_text(memory) for memory in memories]), encode([query.query for query in queries])
    conversations = np.array([memory.id.split("/")[0] for memory in memories])
    discount = 1 / np.log2(np.arange(2, 12))
    found = []
    for query, vector in zip(queries, asked, strict=True):
        score = vectors @ vector
        if by_conversation:
            score = np.where(conversations == query.qid.split("/")[0], score, -2)
        first = [memories[i].id for i in np.argsort(-score, kind="stable")[:10]]
        gains = np.array([grades[query.qid].get(key, 0.0) for key in first])
        ideal = np.sort(list(grades[query.qid].values()))[::-1][:10]
        found.append(float(gains @ discount[: len(gains)]) / float(ideal @ discount[: len(ideal)]))
    return np.array(found)


def main() -> None:
    """Time, and with `--quality` rank, then print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--texts", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quality", action="store_true")
    options = parser.parse_args()
    model = SentenceTransformerEmbedder(resolve(PACKAGED_ID), device="cpu").model
    packaged, small = local_embedder(PACKAGED_ID, device="cpu"), local_embedder(EIGHT_BIT_ID)
    ways: dict[str, Encode] = {
        "SentenceTransformer.encode": lambda texts: np.asarray(model.encode(list(texts), normalize_embeddings=True)),
        "packaged": packaged.encode,
        EIGHT_BIT_ID: small.encode,
    }
    draw = np.random.default_rng(0)
    texts: list[str] = []
    for folder, _ in SETS.values():
        rows = [searched_text(memory) for memory in read(folder)[0]]
        texts += [rows[i] for i in draw.choice(len(rows), options.texts // 2, replace=False)]
    for encode in ways.values():
        encode(texts[:8])
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    vectors: dict[str, Float32] = {}
    for _ in range(options.rounds):
        for name, encode in ways.items():
            wall, cpu = time.perf_counter(), time.process_time()
            vectors[name] = encode(texts)
            seconds[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    print(f"{len(texts)} texts, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; best of {options.rounds} rounds")
    peer = np.min(seconds["SentenceTransformer.encode"], axis=0)
    for name in ways:
        best = np.min(seconds[name], axis=0)
        cosine = (vectors[name] * vectors["SentenceTransformer.encode"]).sum(axis=1)
        print(
            f"{name:28s} {len(texts) / best[0]:7.1f} texts/s  wall {peer[0] / best[0]:.2f} x, processor time {peer[1] / best[1]:.2f} x, "
            f"cosine {cosine.mean():.4f}, lowest {cosine.min():.4f}"
        )
    if options.quality:
        for title, (folder, by_conversation) in SETS.items():
            exact, rounded = (ndcg(embedder.encode, folder, by_conversation) for embedder in (packaged, small))
            change = rounded - exact
            low, high = bootstrap(change[:, None], 0)
            print(
                f"{title}: {len(change)} queries, vector list alone, nDCG@10 {exact.mean():.4f}, in 8 bits {rounded.mean():.4f}: "
                f"{change.mean():+.4f} [{low[0]:+.4f}, {high[0]:+.4f}]"
            )


if __name__ == "__main__":
    main()
