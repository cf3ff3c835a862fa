"""What typo correction costs: a query against 50,000 words, and the vocabulary of 100,000 memories.

    python -m benchmarks.bench_typos [--words 50000] [--memories 100000]

Words are drawn from the packaged model's vocabulary and its inflections. Medians; exits 1 when a query of four typos takes
50 ms or more.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks.bench_store import english_texts, synthetic_texts
from cems_workbench.config.sections.understanding import TypoCorrection
from cems_workbench.pipeline.stages.query import features
from cems_workbench.pipeline.typos import correct, shipped_terms
from cems_workbench.progress import silent
from cems_workbench.records import Memory, ParsedInput
from cems_workbench.store import Store, Vocabulary
from cems_workbench.store.meta import content_identity, read_content_version
from cems_workbench.store.search.entries import Document
from cems_workbench.store.search.lexical import lexical_refresh

QUERIES = {
    "no typo": "how does the system keep the history",
    "four typos": "deploymnet authentciation kuberentes servre",
    "twelve typos": "wrold goverment histroy langauge absense acheive begining beleive calender comittee definately enviroment",
}
ENDINGS = ("s", "ed", "er", "ing", "ment", "tion", "able", "ness", "ly")
TARGET_MS = 50.0


def words(count: int, rng: np.random.Generator) -> dict[str, int]:
    """`count` distinct words with made-up frequencies."""
    plain = sorted({word for text in english_texts(3_000, rng) for word in text.split()})
    forms = dict.fromkeys([*plain, *(word + ending for ending in ENDINGS for word in plain)])
    return {word: 1 + position % 97 for position, word in enumerate(islice(forms, count))}


def milliseconds(call: Callable[[], object], rounds: int = 31) -> float:
    """Median time of a call."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        call()
        times.append((time.perf_counter() - started) * 1e3)
    return statistics.median(times)


def bench_correction(count: int, rng: np.random.Generator) -> float:
    """Milliseconds for the query of four typos; prints those of all queries."""
    vocabulary, config = Vocabulary(words(count, rng)), TypoCorrection(enabled=True)
    started = time.perf_counter()
    correct("wrold", vocabulary, [], config)
    print(f"{len(vocabulary):,} words; the first correction, which sorts them by length: {since(started):.1f} ms")
    taken = {}
    for name, query in QUERIES.items():
        taken[name] = milliseconds(partial(correct, query, vocabulary, [], config))
        found = len(correct(query, vocabulary, [], config).corrections)
        print(f"  {name:<14} {taken[name]:7.2f} ms, {found} corrected")
    print(f"  features       {milliseconds(lambda: features(QUERIES['twelve typos'], shipped_terms())):7.2f} ms")
    return taken["four typos"]


def bench_vocabulary(count: int, rng: np.random.Generator) -> None:
    """Prints what the vocabulary of `count` memories takes, from the memories and from a fresh lexical index.

    The index is lent to a store of one memory and the same content version, so that nothing is known there yet.
    """
    texts = synthetic_texts(count, rng)
    memories = tuple(Memory(f"m{number:06d}", text) for number, text in enumerate(texts))
    with tempfile.TemporaryDirectory() as home, Store.open(Path(home) / "store") as store:
        store.add(ParsedInput("bench", "bench", memories=memories))
        started = time.perf_counter()
        found = store.indexes.vocabulary()
        print(f"{count:,} memories: {len(found):,} words counted in {since(started):.0f} ms")
        print(f"  again {milliseconds(store.indexes.vocabulary):.2f} ms")
        documents = (Document(memory.id, memory.content, None, "personal") for memory in memories)
        with Store.open(store.path.parent / "other") as other:
            other.add(ParsedInput("bench", "bench", memories=memories[:1]))
            with other._database.reading() as cursor:
                version, identity = read_content_version(cursor), content_identity(cursor)
            lexical_refresh.build(other.path / "lexical", documents, count, version, silent, identity)
            started = time.perf_counter()
            assert len(other.indexes.vocabulary()) == len(found)
            print(f"  read from a fresh lexical index {since(started):.1f} ms")


def since(started: float) -> float:
    """Milliseconds since `started`."""
    return (time.perf_counter() - started) * 1e3


def main() -> int:
    """Run both, say by the exit code whether the target is met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--words", type=int, default=50_000)
    parser.add_argument("--memories", type=int, default=100_000, help="0 leaves the store out")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    taken = bench_correction(options.words, rng)
    if options.memories:
        bench_vocabulary(options.memories, rng)
    print(f"four typos: {taken:.1f} ms (target < {TARGET_MS:.0f}) {'met' if taken < TARGET_MS else 'MISSED'}")
    return 0 if taken < TARGET_MS else 1


if __name__ == "__main__":
    raise SystemExit(main())
