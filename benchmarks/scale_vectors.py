"""The vector index at 10,000, 100,000 and 1,000,000 memories, beside exact search by simsimd and by numpy alone over the same matrix.

    python -m benchmarks.scale_vectors [--sizes 10000,100000,1000000] [--queries 100] [--work DIR] [--out FIGURES.json]
    python -m benchmarks.scale_vectors --graph embedded:FOLDER|made-up SIZE...

For each size: writing the segments and their disk; queries, with filters and without, with the share of the exact nearest that they find;
and up to 100,000, in a store, what edits and 1,000 new memories take from the change in the database until a query by their vectors finds
them, the longest of each. Vectors are those of scale_memories.py. All three take turns query by query. Exits 1 where a target is missed.

With --graph: the recall of Chroma's graph with our settings, by ef_search, as rows of a table; of the made-up vectors, or of the texts of
scale_memories.py embedded by the packaged model, whose vectors are kept in FOLDER. A query is seven words of a memory, embedded; a made-up
one is near a memory's vector. All are searched on one graph: one with an ef_search of 1, asked for n rows, searches with n.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scale_lexical import measure_sizes, size_of
from benchmarks.scale_memories import BLOCK, DIMENSION, memories, memory_id, vectors
from benchmarks.turns import Summary, in_turn
from cems_workbench.models.protocol import Float32
from cems_workbench.progress import Progress, silent
from cems_workbench.records import ParsedInput
from cems_workbench.store import Filter, Store
from cems_workbench.store.filter import ANY
from cems_workbench.store.search import chroma, vector_segments
from cems_workbench.store.search.directory import Segment
from cems_workbench.store.search.vector_index import VectorIndex
from cems_workbench.store.search.vector_segments import VectorRows

K = 150
RATIO, LEAST_RECALL, EDIT_SECONDS, THOUSAND_SECONDS = 1.5, 0.99999, 1.0, 10.0
STORE_SIZE = 100_000
"""The largest size at which changes of a store are measured."""
WRITE_ROWS = 8_192
ALONE = "alone"
"""The name of Chroma's own collection."""
SHARES = (0.001, 0.01, 0.1, 0.25, 0.5)


@dataclass
class Figures:
    """What was measured at one size; seconds, milliseconds and bytes. Building is in seconds of the processor."""

    memories: int
    build_s: float = 0.0
    disk: int = 0
    query_ms: dict[str, Summary] = field(default_factory=dict)
    """By filter the median and the 95th percentile."""
    peer_ms: dict[str, Summary] = field(default_factory=dict)
    """The same of each peer, over all vectors."""
    recall: dict[str, float] = field(default_factory=dict)
    """By filter the share of the exact nearest K that was found."""
    found_s: dict[str, float] = field(default_factory=dict)
    """From the change until a query has it: an edit, 1,000 new ones (the longest of several); empty above STORE_SIZE."""

    def targets(self) -> dict[str, bool]:
        """Which are met."""
        fastest = min(high for _, high in self.peer_ms.values())
        met = {
            f"95th percentile ≤ {RATIO} × the faster peer ({self.query_ms['all'][1] / fastest:.2f})": self.query_ms[
                "all"
            ][1]
            <= RATIO * fastest,
            "recall 1.000 with every filter": min(self.recall.values()) >= LEAST_RECALL,
        }
        if self.found_s:
            met[f"edit ≤ {EDIT_SECONDS:g} s"] = self.found_s["edit"] <= EDIT_SECONDS
            met[f"1,000 new ≤ {THOUSAND_SECONDS:g} s"] = self.found_s["1,000 new"] <= THOUSAND_SECONDS
        return met


class ReadsWhole:
    """An embedder that reads every text whole, so that none is cut: the engines alone cut none either."""

    room = 2**31

    def spans(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Never asked for, since every text fits."""
        raise NotImplementedError

    def truncated(self, texts: Sequence[str]) -> list[bool]:
        """None is."""
        return [False] * len(texts)


class ByNumber(ReadsWhole):
    """An embedder with precomputed vectors: one of memory number n, and one near it of the edited memory."""

    model_id, line, dimension = "benchmark/by-number", "", DIMENSION

    def __init__(self, rows: Float32) -> None:
        self.rows = rows

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        """By the number that each text begins with, moved by what `again` in it says."""
        return np.stack([self.vector(text) for text in texts]) if texts else np.empty((0, DIMENSION), np.float32)

    def vector(self, text: str) -> Float32:
        """Of one text."""
        found = re.search(r"\bnote(\d+)\b(?: again(\d+)\b)?", text)
        assert found, text
        row: Float32 = self.rows[int(found[1]) % len(self.rows)]
        if found[2] is None and int(found[1]) < len(self.rows):
            return row
        moved = row + 0.3 * np.random.default_rng([int(found[1]), int(found[2] or 0)]).normal(size=DIMENSION).astype(
            np.float32
        )
        return np.asarray(moved / np.linalg.norm(moved), np.float32)


def filters_of(count: int) -> dict[str, tuple[Filter, np.ndarray]]:
    """Filters that about the `SHARES` of the memories pass, with the rows that do; the made-up projects are of very unlike size."""
    projects = np.array([one.project or "" for one in memories(count)], object)
    scopes = np.arange(count) % 4 == 0
    sizes = {name: float((projects == name).mean()) for name in set(projects.tolist()) - {""}}
    found = {"all": (ANY, np.arange(count))}
    for share in SHARES:
        name = min(sizes, key=lambda name: (abs(np.log(sizes[name] / share)), name))
        where = Filter(name, only_project=True)
        found[f"{100 * sizes[name]:.2g} %"] = where, np.flatnonzero(projects == name)
    return found | {"25 %": (Filter(scope="shared"), np.flatnonzero(scopes))}


def measured(n: int, work: Path, queries: int = 100) -> Figures:
    """Everything at `n` memories; `work` is an empty folder."""
    figures, rows = Figures(n), np.vstack(list(vectors(n)))
    rows[999::1000] = rows[998::1000]  # these say the same as the one before
    rng = np.random.default_rng(3)
    asked = rows[rng.integers(0, n, queries)] + 0.02 * rng.normal(size=(queries, DIMENSION)).astype(np.float32)
    asked /= np.linalg.norm(asked, axis=1, keepdims=True)
    directory = work / "segments"
    directory.mkdir()
    started, segments = time.process_time(), list[Segment]()
    for start in range(0, n, WRITE_ROWS):
        given = list(memories(min(WRITE_ROWS, n - start), start))
        ids, projects, scopes = zip(*(((one.id, None), one.project, one.scope) for one in given), strict=True)
        block = VectorRows(list(ids), list(projects), list(scopes), rows[start : start + len(given)])
        segments, _ = vector_segments.replace_rows(directory, segments, [], block)
        listed = {each.name for each in segments}
        for path in directory.iterdir():
            if path.name not in listed:
                path.unlink()
    figures.build_s, figures.disk = time.process_time() - started, size_of(directory)
    index = VectorIndex(vector_segments.open_vectors(directory, segments))
    for name, (where, passing) in filters_of(n).items():
        _queries(figures, name, index, where, asked, rows, passing)
    if n <= STORE_SIZE:
        embedder = ByNumber(rows)
        with Store.open(work / "store") as store:
            store.add(ParsedInput("bench", "bench", memories=tuple(memories(n))))
            store.indexes.refresh(embedder)
            _changes(store, embedder, n, figures)
    return figures


def by_simsimd(rows: Float32, query: Float32) -> np.ndarray:
    """The rows nearest to a query, by simsimd alone."""
    import simsimd

    products = np.asarray(simsimd.cdist(query[None, :], rows, "dot", threads=os.cpu_count() or 1))[0]
    return _nearest(products)


def by_numpy(rows: Float32, query: Float32) -> np.ndarray:
    """The rows nearest to a query, by numpy alone."""
    return _nearest(rows @ query)


def _nearest(products: np.ndarray) -> np.ndarray:
    depth = min(K, len(products))
    best = np.argpartition(products, -depth)[-depth:]
    return best[np.argsort(-products[best])]


def chroma_alone(n: int, rows: Float32, place: Path, **hnsw: int) -> tuple[Any, float]:
    """These vectors in a collection of Chroma with our graph, with id, project and scope each; and seconds of the processor for it."""
    collection = chroma.create_collection(chroma.connect(place, None), ALONE, "none", hnsw)
    seconds = 0.0
    for start in range(0, n, chroma.BATCH_SIZE):
        end = min(start + chroma.BATCH_SIZE, n)
        given = list(memories(end - start, start))
        labels: Any = [{"project": one.project or "", "scope": one.scope} for one in given]
        started = time.process_time()
        collection.add(ids=[one.id for one in given], embeddings=rows[start:end], metadatas=labels)
        seconds += time.process_time() - started
    return collection, seconds


def _queries(
    figures: Figures, name: str, index: VectorIndex, where: Filter, asked: Float32, rows: Float32, passing: np.ndarray
) -> None:
    """Times of ours, and of the peers over all vectors, with what we find of the exact nearest."""
    depth, worst = min(K, len(passing)), []
    for query in asked:
        cosines = rows[passing] @ query if len(passing) < len(rows) else rows @ query
        worst.append(float(np.sort(np.partition(cosines, -depth)[-depth:])[0]) - 1e-5)
    index.search(asked[0], K, where)
    peers = {"simsimd": by_simsimd, "numpy": by_numpy} if name == "all" else {}
    ours, *theirs = in_turn(
        len(asked),
        lambda i: index.search(asked[i], K, where),
        *(lambda i, search=search: search(rows, asked[i]) for search in peers.values()),
    )
    found = sum(sum(score >= least for _, score in hits) for hits, least in zip(ours.answers, worst, strict=True))
    figures.query_ms[name], figures.recall[name] = ours.summary, min(1.0, found / depth / len(asked))
    figures.peer_ms |= {peer: one.summary for peer, one in zip(peers, theirs, strict=True)}


def _changes(store: Store, embedder: ByNumber, n: int, figures: Figures) -> None:
    """What changes take until a query by the new vector finds them."""
    taken: dict[str, list[float]] = {"edit": [], "1,000 new": []}

    def timed(name: str, change: Callable[[], object], text: str, expected: str) -> None:
        started = time.perf_counter()
        change()
        store.indexes.refresh(embedder)
        hits = store.indexes.open(embedder).vectors.search(embedder.vector(text), 3)
        taken[name].append(time.perf_counter() - started)
        assert hits[0][0] == expected, (name, hits)

    for turn, number in enumerate(np.random.default_rng(5).choice(n, 5, replace=False).tolist()):
        memory = store.memories.read([memory_id(number)])[memory_id(number)]
        text = memory.content.replace(f"note{number}", f"note{number} again{turn + 1}", 1)
        edited = replace(memory, content=text)
        timed("edit", lambda edited=edited: store.memories.update(edited), text, memory.id)  # type: ignore[misc]
    for turn in range(3):
        first = (n // BLOCK + 1 + turn) * BLOCK
        new = tuple(memories(1_000, first))
        parsed = ParsedInput("new", "bench", memories=new)
        timed("1,000 new", lambda parsed=parsed: store.add(parsed), new[7].content, new[7].id)  # type: ignore[misc]
    figures.found_s = {name: max(times) for name, times in taken.items()}


def lines(found: Figures) -> list[str]:
    """What was measured, in words."""
    said = [
        f"{found.memories:,} memories",
        f"  written in {found.build_s:.1f} s of a processor, {found.disk / 1e6:,.0f} MB",
    ]
    for peer, (median, high) in found.peer_ms.items():
        said.append(f"  {peer} alone: median {median:.2f} ms, 95 % within {high:.2f} ms")
    for name, (median, high) in found.query_ms.items():
        said.append(f"  {name}: median {median:.2f} ms, 95 % within {high:.2f} ms, recall {found.recall[name]:.4f}")
    if found.found_s:
        said.append("  found after " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in found.found_s.items()))
    return said + [f"  {'met   ' if met else 'MISSED'} {name}" for name, met in found.targets().items()]


EMBEDDED = 1_000
"""Texts in a file of vectors."""
CUTOFFS, EF_SEARCH = (10, K), (10, 20, 50, 100, 200, 300, 1000)


def embedded(n: int, folder: Path, queries: int) -> tuple[Float32, Float32]:
    """The vectors of the first n texts, kept in `folder`, and of queries: unit vectors, (n, DIMENSION) and (queries, DIMENSION)."""
    from cems_workbench.models.minilm_embedder import MiniLMEmbedder
    from cems_workbench.models.resolve import PACKAGED_ID, resolve
    from cems_workbench.store.text_rule import searched_text

    model, rows = MiniLMEmbedder(resolve(PACKAGED_ID)), list[Float32]()
    for start in range(0, n, EMBEDDED):
        path = folder / f"{start:06d}.npy"
        if not path.exists():
            np.save(path, model.encode([searched_text(one) for one in memories(EMBEDDED, start)]))
        rows.append(np.load(path))
    rng, texts = np.random.default_rng(3), list[str]()
    for row in rng.integers(0, n, queries).tolist():
        words = next(iter(memories(1, row))).content.split()[1:]
        texts.append(" ".join(rng.choice(words, min(7, len(words)), replace=False)))
    return np.vstack(rows)[:n], np.stack([model.encode_query(text) for text in texts])


def graph_rows(n: int, rows: Float32, asked: Float32, work: Path) -> list[str]:
    """Rows of a table: memories, k, and the recall at k for each ef_search, with the lowest of a query."""
    collection, seconds = chroma_alone(n, rows, work / "chroma", ef_search=1)
    told = [f"{n:,} vectors linked in {seconds:.0f} s of a processor"]
    for k in CUTOFFS:
        cells = []
        for ef_search in EF_SEARCH:
            shares = []
            for query in asked:
                answer = collection.query(query_embeddings=query[None, :], n_results=max(k, ef_search), include=[])
                cosines = rows @ query
                last = np.sort(np.partition(cosines, -k)[-k:])[0] - 1e-6
                found = [int(memory[1:]) for memory in answer["ids"][0][:k]]
                shares.append(float((cosines[found] >= last).mean()))
            cells.append(f"{np.mean(shares):.4f} ({min(shares):.2f})")
        told.append(f"| {n:,} | {k} | {' | '.join(cells)} |")
    return told


def measure_graph(vectors_of: str, sizes: Sequence[int], queries: int = 200) -> None:
    """Print the recall of the graph at each size."""
    for n in sizes:
        if vectors_of == "made-up":
            rng, rows = np.random.default_rng(3), np.vstack(list(vectors(n)))
            asked = rows[rng.integers(0, n, queries)] + 0.02 * rng.normal(size=(queries, DIMENSION)).astype(np.float32)
            asked /= np.linalg.norm(asked, axis=1, keepdims=True)
        else:
            rows, asked = embedded(n, Path(vectors_of.removeprefix("embedded:")), queries)
        with tempfile.TemporaryDirectory() as work:
            print("\n".join(graph_rows(n, rows, asked, Path(work))), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--graph"]:
        measure_graph(sys.argv[2], [int(size) for size in sys.argv[3:]])
        sys.exit()
    sys.exit(measure_sizes(__doc__ or "", 100, measured, lines))
