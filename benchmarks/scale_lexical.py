"""The lexical index at 10,000, 100,000 and 1,000,000 memories, beside bm25s itself over the same texts in the same run.

    python -m benchmarks.scale_lexical [--sizes 10000,100000,1000000] [--queries 200] [--work DIR] [--out FIGURES.json]

For each size: building, its memory and its disk; queries, with filters and without; and what an edited memory, a deleted one and 1,000
new ones take from the change in the database until a query finds them, with what queries take then. `measured` does one size, for
benchmarks that measure more than this. Peers take turns query by query; building is one after the other. Exits 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.turns import Summary, in_turn
from cems_workbench.progress import silent
from cems_workbench.records import Memory, ParsedInput
from cems_workbench.store import Filter, Store
from cems_workbench.store.filter import ANY
from cems_workbench.store.search.directory import segments_of
from cems_workbench.store.search.lexical_index import LexicalIndex
from cems_workbench.store.search.tokenizer import tokenize

K = 150
VOCABULARY, WORDS, TOPICS = 200_000, 40, 500
STEP = 10_000
PORTION = 100_000
FILTERS = {
    "all": ANY,
    "0.1 %": Filter("rare", only_project=True),
    "1 %": Filter("small", only_project=True),
    "10 %": Filter("p3", only_project=True),
    "50 %": Filter(scope="shared"),
    "5 % of both": Filter("p3", only_project=True, scope="shared"),
}
RATIO, MOST_MS, EDIT_SECONDS, THOUSAND_SECONDS, OVER_ENGINE = 1.5, 30.0, 1.0, 10.0, 1.3


@dataclass
class Figures:
    """What was measured at one size; seconds, milliseconds and bytes. Building is in seconds of the processor."""

    memories: int
    build_s: float = 0.0
    build_peak: int = 0
    disk: int = 0
    peer_build_s: float = 0.0
    peer_disk: int = 0
    opened_ms: float = 0.0
    query_ms: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By filter the median and the 95th percentile."""
    peer_ms: tuple[float, float] = (0.0, 0.0)
    found_s: dict[str, float] = field(default_factory=dict)
    """From the change until a query has it: an edit, a delete, 1,000 new ones (the longest of several)."""
    segments: int = 0
    after_ms: tuple[float, float] = (0.0, 0.0)
    """Queries after all these changes."""

    def targets(self) -> dict[str, bool]:
        """Which are met."""
        return {
            f"median ≤ {RATIO} × bm25s": self.query_ms["all"][0] <= RATIO * self.peer_ms[0],
            f"95th percentile ≤ {MOST_MS:g} ms, with every filter": max(p for _, p in self.query_ms.values())
            <= MOST_MS,
            f"after changes too: ≤ {RATIO} × bm25s, ≤ {MOST_MS:g} ms": self.after_ms[0] <= RATIO * self.peer_ms[0]
            and self.after_ms[1] <= MOST_MS,
            f"edit and delete ≤ {EDIT_SECONDS:g} s": max(self.found_s["edit"], self.found_s["delete"]) <= EDIT_SECONDS,
            f"1,000 new ≤ {THOUSAND_SECONDS:g} s": self.found_s["1,000 new"] <= THOUSAND_SECONDS,
            f"build ≤ {OVER_ENGINE} × bm25s": self.build_s <= OVER_ENGINE * self.peer_build_s,
            f"disk ≤ {OVER_ENGINE} × bm25s": self.disk <= OVER_ENGINE * self.peer_disk,
        }


def synthetic(n: int, seed: int = 0) -> Iterator[Memory]:
    """`n` memories of about 40 words, drawn by Zipf's law from 200,000 made-up ones; half of each out of its topic's 2,000.

    Each begins with its number, so every one can be told from the others; projects and scopes are those of FILTERS.
    """
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    letters = letters[rng.integers(0, 26, (VOCABULARY, 10))]
    lengths = rng.integers(3, 11, VOCABULARY)
    words = np.array(["".join(row[:length]) for row, length in zip(letters, lengths, strict=True)], object)
    weights = np.cumsum(1.0 / np.arange(1, VOCABULARY + 1))
    topics = rng.integers(0, VOCABULARY, (TOPICS, 2_000))
    for start in range(0, n, STEP):
        count = min(STEP, n - start)
        drawn = np.searchsorted(weights, rng.random((count, WORDS)) * weights[-1])
        own = topics[rng.integers(0, TOPICS, count)[:, None], (2_000 ** rng.random((count, WORDS))).astype(int) - 1]
        chosen = words[np.where(np.arange(WORDS) < WORDS // 2, drawn, own)]
        ends = rng.integers(WORDS // 2 - 10, WORDS + 1, count)
        for row in range(count):
            number = start + row
            project = "rare" if number % 1_000 == 0 else "small" if number % 100 == 1 else f"p{number % 10}"
            text = f"memory{number} {' '.join(chosen[row, : ends[row]])}"
            yield Memory(f"m{number:07d}", text, project=project, scope="shared" if number % 20 < 10 else "personal")


def queries_of(texts: Sequence[str], count: int, seed: int = 1) -> list[str]:
    """Six words out of one text each, not its number."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(texts[int(rng.integers(len(texts)))].split()[1:], 6)) for _ in range(count)]


class Bm25s:
    """bm25s' own index of texts that were cut into our terms, so that both search the same."""

    def __init__(self, home: Path, seconds: float = 0.0) -> None:
        """Open what `built` left in a folder."""
        import bm25s

        self.seconds = seconds
        """Processor time that bm25s alone took to tokenize, index and save these texts."""
        self._index: Any = bm25s.BM25.load(home, mmap=True)
        self.disk = size_of(home)

    @classmethod
    def built(cls, texts: Sequence[str], home: Path) -> Bm25s:
        """Index texts in a folder."""
        import bm25s
        import Stemmer

        started = time.process_time()
        bm25s.tokenize(list(texts), stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False)
        tokenized = time.process_time() - started
        numbers: dict[str, int] = {}
        documents = [[numbers.setdefault(term, len(numbers)) for term in tokenize(text)] for text in texts]
        started = time.process_time()
        made = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
        made.index((documents, numbers), create_empty_token=False, show_progress=False)
        made.save(home, show_progress=False)
        return cls(home, tokenized + time.process_time() - started)

    def terms(self, query: str) -> list[str]:
        """The query as it takes it, cut beforehand."""
        return [term for term in tokenize(query) if term in self._index.vocab_dict]

    def search(self, terms: Sequence[str], k: int) -> tuple[Any, Any]:
        """Places and scores of the k best."""
        found = self._index.retrieve([list(terms)], k=k, show_progress=False)
        return found.documents[0], found.scores[0]


def size_of(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@contextmanager
def peak_memory() -> Iterator[Callable[[], int]]:
    """How much more memory the process has had at most since the block began."""
    before, most, ended = resident(), [0], threading.Event()

    def look() -> None:
        while not ended.wait(0.05):
            most[0] = max(most[0], resident() - before)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield lambda: most[0]
    finally:
        ended.set()
        thread.join()


def measured(n: int, work: Path, queries: int = 200) -> Figures:
    """Everything at `n` memories; `work` is an empty folder."""
    figures = Figures(n)
    texts = [memory.content for memory in synthetic(n)]
    asked = queries_of(texts, queries)
    with Store.open(work / "store") as store:
        fill(store, n)
        with peak_memory() as peak:
            started = time.process_time()
            index = refreshed(store)
            figures.build_s = time.process_time() - started
            figures.build_peak = peak()
        figures.disk = size_of(store.path / "lexical")
        started = time.perf_counter()
        index = refreshed(store)
        index.search(asked[0], K)
        figures.opened_ms = (time.perf_counter() - started) * 1e3
        peer = Bm25s.built(texts, work / "bm25s")
        figures.peer_build_s, figures.peer_disk = peer.seconds, peer.disk
        figures.query_ms["all"], figures.peer_ms = beside(index, peer, asked)
        for name, where in FILTERS.items():
            if name != "all":
                figures.query_ms[name] = searched(index, asked, where)
        del peer, texts
        changes(store, n, figures, asked)
    return figures


def fill(store: Store, n: int) -> None:
    """Import the synthetic memories."""
    portion: list[Memory] = []
    for memory in synthetic(n):
        portion.append(memory)
        if len(portion) == PORTION:
            store.add(ParsedInput("bench", "bench", memories=tuple(portion)))
            portion = []
    store.add(ParsedInput("bench", "bench", memories=tuple(portion)))


def beside(index: LexicalIndex, peer: Bm25s, asked: Sequence[str]) -> tuple[Summary, Summary]:
    """Times of both; their scores are compared."""
    terms = [peer.terms(query) for query in asked]
    ours, theirs = in_turn(len(asked), lambda i: index.search(asked[i], K), lambda i: peer.search(terms[i], K))
    for query, hits, (_, scores) in zip(asked, ours.answers, theirs.answers, strict=True):
        assert np.allclose(scores[scores > 0], [score for _, score in hits], rtol=1e-5), query
    return ours.summary, theirs.summary


def searched(index: LexicalIndex, asked: Sequence[str], where: Filter) -> Summary:
    """Times of every query under a filter."""
    return in_turn(len(asked), lambda i: index.search(asked[i], K, where))[0].summary


def changes(store: Store, n: int, figures: Figures, asked: Sequence[str]) -> None:
    """What changes take until a query finds them, in a store of `n` synthetic memories that is indexed."""
    index = refreshed(store)
    taken: dict[str, list[float]] = {"edit": [], "delete": [], "1,000 new": []}

    def timed(name: str, change: Callable[[], object], query: str, expected: Sequence[str]) -> None:
        nonlocal index
        started = time.perf_counter()
        change()
        index = refreshed(store)
        hits = {memory_id for memory_id, _ in index.search(query, 2_000)}
        taken[name].append(time.perf_counter() - started)
        assert hits == set(expected), (name, len(hits))

    rng = np.random.default_rng(5)
    for number in rng.choice(n, 10, replace=False).tolist():
        memory = store.memories.read([f"m{number:07d}"])[f"m{number:07d}"]
        edited = replace(memory, content=f"{memory.content} {spelled(number)}")
        timed("edit", partial(store.memories.update, edited), spelled(number), [memory.id])
        timed("delete", partial(store.memories.delete, memory.id), spelled(number), [])
    for count in range(5):
        new = [
            replace(each, id=f"n{count}-{each.id}", content=f"{each.content} {spelled(count)}")
            for each in synthetic(1_000, seed=10 + count)
        ]
        parsed = ParsedInput("new", "bench", memories=tuple(new))
        timed("1,000 new", partial(store.add, parsed), spelled(count), [each.id for each in new])
    figures.found_s = {name: max(times) for name, times in taken.items()}
    figures.segments = len(segments_of(store.indexes._lexical_state().manifest))
    figures.after_ms = searched(index, asked, ANY)


def spelled(number: int) -> str:
    """A word that stands nowhere else."""
    return "zyx" + "".join("abcdefghij"[int(digit)] for digit in str(number)) + "xyz"


def refreshed(store: Store) -> LexicalIndex:
    """The store's lexical index as of now, without its vectors, which are measured elsewhere."""
    indexes = store.indexes
    indexes._refresh_lexical(store.content_version, silent)
    found = indexes._lexical_state().manifest
    return LexicalIndex.open(indexes._lexical_directory.path, segments_of(found), store.memories.hidden)


def lines(found: Figures) -> Iterator[str]:
    """What was measured, in words."""
    build, disk, peak = f"{found.build_s:.1f} s of a processor", f"{found.disk / 1e6:,.0f} MB", found.build_peak / 1e6
    yield f"{found.memories:,} memories"
    yield f"  build {build} (bm25s {found.peer_build_s:.1f} s), with at most {peak:,.0f} MB more memory"
    yield f"  disk {disk} (bm25s {found.peer_disk / 1e6:,.0f} MB); opened in {found.opened_ms:.1f} ms"
    yield f"  bm25s: median {found.peer_ms[0]:.2f} ms, 95 % within {found.peer_ms[1]:.2f} ms"
    for name, (median, high) in found.query_ms.items():
        yield f"  {name}: median {median:.2f} ms ({median / found.peer_ms[0]:.2f} of bm25s), 95 % within {high:.2f} ms"
    yield "  found after " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in found.found_s.items())
    yield f"  then, {found.segments} segments: median {found.after_ms[0]:.2f} ms, 95 % within {found.after_ms[1]:.2f} ms"
    for name, met in found.targets().items():
        yield f"  {'met   ' if met else 'MISSED'} {name}"


def measure_sizes(
    about: str, queries: int, measured: Callable[[int, Path, int], Any], lines: Callable[[Any], Iterable[str]]
) -> int:
    """The command of a benchmark over sizes: measure each and print it; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--sizes", default="10000,100000,1000000")
    parser.add_argument("--queries", type=int, default=queries)
    parser.add_argument("--work", type=Path, default=None, help="a folder with some gigabytes of room")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    all_found: list[Any] = []
    for n in map(int, options.sizes.split(",")):
        with tempfile.TemporaryDirectory(dir=options.work) as work:
            found = measured(n, Path(work), options.queries)
        all_found.append(found)
        print("\n".join(lines(found)), flush=True)
    if options.out:
        options.out.write_text(json.dumps([asdict(found) for found in all_found], indent=1), "utf-8")
    return 0 if all(met for found in all_found for met in found.targets().values()) else 1


if __name__ == "__main__":
    sys.exit(measure_sizes(__doc__ or "", 200, measured, lines))
