"""Pairs per second of the packaged cross-encoder against sentence-transformers' `CrossEncoder.predict` in single precision.

    python -m benchmarks.bench_judge [--queries 12] [--rounds 3]

Both read the same pairs, questions of the sample data with all of its memories that are drawn, on all CPUs, in one run, in turn.
The peer is a BERT cross-encoder of the very size (six layers, 384 wide, one output) with the packaged MiniLM weights and a fresh
head: what it answers means nothing, how long it takes is what any cross-encoder of this size takes. It sorts by length too.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from cems_workbench import formats
from cems_workbench.models.minilm_judge import MODEL_ID, MiniLMJudge, available
from cems_workbench.models.resolve import packaged_minilm

SAMPLE = Path(__file__).parents[1] / "sample_data"
TEXTS = 64


def sample_pairs(count: int) -> list[tuple[str, list[str]]]:
    """`count` queries of the sample data, each with `TEXTS` of its memories."""
    queries: list[str] = []
    texts: list[str] = []
    for parsed in formats.read_path(SAMPLE):
        queries += [query.query for query in parsed.queries]
        texts += [memory.content for memory in parsed.memories]
    chance = random.Random(0)
    return [(query, chance.sample(texts, TEXTS)) for query in chance.sample(sorted(queries), count)]


def main() -> int:
    """Measure and print; 0 also where the weights are not there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--queries", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    folder = packaged_minilm()
    if folder is None or not available():
        print("skipped: the packaged weights are not there")
        return 0
    from sentence_transformers import CrossEncoder
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    with tempfile.TemporaryDirectory() as plain:
        AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1).save_pretrained(plain)
        AutoTokenizer.from_pretrained(folder).save_pretrained(plain)
        peer = CrossEncoder(plain, device="cpu", local_files_only=True)
        ours = MiniLMJudge()
        asked = sample_pairs(options.queries)
        took: dict[str, list[float]] = {"peer": [], "ours": []}
        for number in range(options.rounds + 1):
            for name in took:
                started = time.perf_counter()
                for query, texts in asked:
                    if name == "ours":
                        ours.score(query, texts)
                    else:
                        peer.predict([(query, text) for text in texts], batch_size=32, show_progress_bar=False)
                if number:  # the first round loads and warms up
                    took[name].append(time.perf_counter() - started)
    pairs = sum(len(texts) for _, texts in asked)
    speeds = {name: pairs / statistics.median(seconds) for name, seconds in took.items()}
    print(f"{pairs} pairs, median of {options.rounds} rounds in turn")
    print(f"CrossEncoder.predict, single precision: {speeds['peer']:.0f} pairs/s")
    print(f"{MODEL_ID}: {speeds['ours']:.0f} pairs/s, {speeds['ours'] / speeds['peer']:.2f} times as many")
    return 0


if __name__ == "__main__":
    sys.exit(main())
