"""Precision and recall of proposed `supersedes` edges: the table in docs/use/labelling.md.

    python -m benchmarks.proposed_edges [--conversation ../shared/data/locomo/41.json] [--memories 100000]

Two sets. The sample, with its 44 stored edges removed first. And LoCoMo conversation 41 (most text of the five), of which 50
pairs were annotated by hand (benchmarks/data/supersessions_locomo_41.csv, ids and verdicts only): the 25 best proposals, 9 pairs found by
reading the conversation, and 16 candidates drawn at random (seed 53). "Supersedes" means that somebody who asks for the present state is
misled by the older one alone.

The weights that ship are fitted on the sample (`fit`: logistic regression, ridge 1). Rows:

    left out        sample: each pair is scored by weights fitted without the pairs of its older memory's tenth
    shipped         sample: by the weights that ship, which saw these edges; the conversation: which they did not see
    conversation    sample: by weights fitted on the 50 annotated pairs

The features and word lists were chosen on the sample, so its rows are optimistic; the conversation was looked at afterwards only.
`--memories` times it on so many synthetic memories, in seconds of processor time, relative to the neighbour search of the vector index.
"""

from __future__ import annotations

import argparse
import csv
import random
import resource
import tempfile
import time
import zlib
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import SAMPLE
from cems_workbench import formats
from cems_workbench.analysis.proposed_edges import BIAS, FEATURES, NEIGHBOURS, WEIGHTS, ProposedEdge, scored_pairs
from cems_workbench.jobs.factory import open_resources
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.records import SUPERSEDES, Memory, ParsedInput
from cems_workbench.settings import Settings
from workbench_supersession.proposals import candidate_pairs, proposed_edges

ANNOTATED = Path(__file__).parent / "data" / "supersessions_locomo_41.csv"
CUTOFFS = (10, 25, 50, 75, 100, 200)
RIDGE, FOLDS = 1.0, 10
Pair = tuple[str, str]


class Scored(NamedTuple):
    """The candidate pairs of a store that show a sign, with their features and what is known of them."""

    edges: list[ProposedEdge]
    features: NDArray[np.float64]
    known: set[Pair]

    @property
    def truth(self) -> NDArray[np.float64]:
        """1 for a known edge."""
        return np.array([(edge.newer, edge.older) in self.known for edge in self.edges], float)


def scored(resources: Resources, known: set[Pair]) -> Scored:
    """Every candidate pair of a store, without those that show no sign."""
    found = candidate_pairs(resources)
    edges = [edge for edge in scored_pairs(resources, found.pairs) if edge.signals.words]
    return Scored(edges, np.array([[edge.features[name] for name in FEATURES] for edge in edges]), known)


def fit(features: NDArray[np.float64], truth: NDArray[np.float64]) -> NDArray[np.float64]:
    """The bias and weights of a logistic regression with a ridge on the weights, by Newton's method."""
    rows = np.column_stack([np.ones(len(features)), features])
    ridge = np.diag([0.0] + [RIDGE] * features.shape[1])
    weights = np.zeros(rows.shape[1])
    for _ in range(50):
        chance = 1 / (1 + np.exp(-rows @ weights))
        slope = rows.T @ (truth - chance) - ridge @ weights
        weights = weights + np.linalg.solve((rows * (chance * (1 - chance))[:, None]).T @ rows + ridge, slope)
    return weights


def predicted(weights: NDArray[np.float64], features: NDArray[np.float64]) -> NDArray[np.float64]:
    """The log-odds of pairs."""
    score: NDArray[np.float64] = np.column_stack([np.ones(len(features)), features]) @ weights
    return score


def left_out(these: Scored) -> NDArray[np.float64]:
    """The log-odds of each pair by weights that were fitted without the tenth of its older memory."""
    tenth = np.array([zlib.crc32(edge.older.encode()) % FOLDS for edge in these.edges])
    result = np.zeros(len(these.edges))
    for number in range(FOLDS):
        inside = tenth == number
        weights = fit(these.features[~inside], these.truth[~inside])
        result[inside] = predicted(weights, these.features[inside])
    return result


def row(name: str, score: NDArray[np.float64], these: Scored) -> str:
    """A row of the table: precision and recall at CUTOFFS."""
    order = sorted(range(len(score)), key=lambda i: (-score[i], these.edges[i].newer, these.edges[i].older))
    hits = np.cumsum(these.truth[order])
    cells = [f"{hits[k - 1] / k:.2f} / {hits[k - 1] / len(these.known):.2f}" for k in CUTOFFS if k <= len(hits)]
    return f"| {name} | " + " | ".join(cells) + " |"


def present_weights() -> NDArray[np.float64]:
    """The bias and weights that ship."""
    return np.array([BIAS, *(WEIGHTS[name] for name in FEATURES)])


def sample_scored(folder: Path) -> Scored:
    """The sample's pairs, its supersedes edges removed."""
    with closing(open_resources(Settings(store=folder / "sample"))) as resources:
        known = set[Pair]()
        for name in ("memories", "relations"):
            parsed = formats.read(SAMPLE / f"{name}.jsonl")
            known |= {(one.source_id, one.target_id) for one in parsed.relations if one.kind == SUPERSEDES}
            kept = tuple(one for one in parsed.relations if one.kind != SUPERSEDES)
            resources.store.add(ParsedInput(parsed.source, parsed.format, parsed.memories, kept))
        resources.refresh()
        return scored(resources, known)


def conversation_scored(folder: Path, path: Path) -> tuple[Scored, dict[Pair, str], dict[Pair, bool]]:
    """The conversation's pairs, and how each annotated pair was drawn and judged."""
    with ANNOTATED.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    verdicts = {(line["newer"], line["older"]): line["supersedes"] == "yes" for line in rows}
    drawn = {(line["newer"], line["older"]): line["drawn"] for line in rows}
    with closing(open_resources(Settings(store=folder / "conversation"))) as resources:
        resources.store.add(formats.read(path))
        resources.refresh()
        return scored(resources, {pair for pair, yes in verdicts.items() if yes}), drawn, verdicts


def _report(folder: Path, path: Path) -> None:
    sample = sample_scored(folder)
    fitted = fit(sample.features, sample.truth)
    print(
        f"fitted on the sample: bias {fitted[0]:.2f}, "
        + ", ".join(f"{n} {w:.2f}" for n, w in zip(FEATURES, fitted[1:], strict=True))
    )
    print(
        f"sample: {int(sample.truth.sum())} of {len(sample.known)} known edges among {len(sample.edges)} candidate pairs with a sign"
    )
    print("| precision / recall at | " + " | ".join(map(str, CUTOFFS)) + " |")
    print("|---" * (len(CUTOFFS) + 1) + "|")
    print(row("sample, left out", left_out(sample), sample))
    print(row("sample, shipped weights", predicted(present_weights(), sample.features), sample))
    print(row("sample, cosine alone", sample.features[:, 0], sample))
    if not path.is_file():
        print(f"no conversation at {path}: name one with --conversation")
        return
    talk, drawn, verdicts = conversation_scored(folder, path)
    labelled = [i for i, edge in enumerate(talk.edges) if (edge.newer, edge.older) in verdicts]
    by_talk = fit(talk.features[labelled], talk.truth[labelled])
    print(row("sample, fitted on the conversation's pairs", predicted(by_talk, sample.features), sample))
    print(
        f"conversation: {int(talk.truth.sum())} of {len(talk.known)} known edges among {len(talk.edges)} candidate pairs with a sign"
    )
    print(row("conversation, shipped weights", predicted(present_weights(), talk.features), talk))
    print(row("conversation, cosine alone", talk.features[:, 0], talk))
    best = [pair for pair, how in drawn.items() if how == "top"]
    print(f"of the {len(best)} best proposals when annotated, {sum(verdicts[pair] for pair in best)} supersede")


def _speed(folder: Path, size: int) -> None:
    """Time and memory on synthetic memories: random unit vectors in groups, texts of the sample's with other numbers."""
    texts = [memory.content for memory in formats.read(SAMPLE / "memories.jsonl").memories]
    chance, start = random.Random(7), datetime(2026, 1, 1, tzinfo=UTC)
    memories = [
        Memory(
            f"m{i:07}",
            f"{chance.choice(texts)[:300]} {chance.randrange(10_000)}",
            created_at=start + timedelta(minutes=i),
        )
        for i in range(size)
    ]
    with closing(open_resources(Settings(store=folder / "large"))) as resources:
        resources.embedder = _Grouped()
        for begin in range(0, size, 20_000):
            resources.store.add(ParsedInput("large", "t", memories=tuple(memories[begin : begin + 20_000])))
        del memories
        resources.refresh()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.process_time()
        ids = resources.store.memories.ids()
        for _ in resources.indexes.vectors.neighbours(ids, NEIGHBOURS):
            pass
        searched = time.process_time() - began
        began = time.process_time()
        found = proposed_edges(resources, progress=silent)
        whole = time.process_time() - began
        more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(
        f"{size:,} memories: {found.compared:,} pairs in {whole:.1f} s, {whole / searched:.2f} of the neighbour search "
        f"({searched:.1f} s); {more:.0f} MiB more at the peak"
    )


class _Grouped:
    """Unit vectors of 384 values near one of 2,000 directions, drawn by the text."""

    model_id, dimension, line = "grouped-384", 384, "grouped"

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """The vector of a query."""
        return np.asarray(self.encode([text])[0], np.float32)

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> NDArray[np.float32]:
        """(texts, 384) unit vectors."""
        seeds = [zlib.crc32(text.encode()) for text in texts]
        noise = np.random.default_rng(zlib.crc32("".join(texts).encode())).normal(size=(len(texts), 384))
        centres = np.random.default_rng(1).normal(size=(2_000, 384))
        rows = centres[[seed % 2_000 for seed in seeds]] + noise
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--conversation", type=Path, default=SAMPLE.parents[1] / "shared" / "data" / "locomo" / "41.json"
    )
    parser.add_argument("--memories", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if chosen.memories:
            _speed(Path(folder), chosen.memories)
        else:
            _report(Path(folder), chosen.conversation)


if __name__ == "__main__":
    main()
