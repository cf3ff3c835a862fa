"""How well each preset finds what a question's evidence names, and what a query costs: LoCoMo conversations.

    python -m benchmarks.bench_presets [--data ../shared/data/locomo] [--conversations 2] [--queries 40] [--presets qmd,ace]

Every conversation is imported into a separate temporary store, of which every preset gets a copy with nothing cached, so
that no preset profits from the scores of another. Queries are a seeded sample of those with evidence that names a turn.
What is judged is what a preset returns: one that returns three memories cannot fill a top five. The time is of `gather`
and `replay` after a first, uncounted query, with the judge off, which never changes a ranking.

A reranker whose server does not answer is in the table with its failed scores: what it then measures is the fallback.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cems_workbench import formats
from cems_workbench.config import PipelineConfig, preset, preset_names, with_values
from cems_workbench.jobs.factory import open_resources
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.records import Query
from cems_workbench.settings import Settings

DATA = Path("../shared/data/locomo")
WARM_UP = "what did they talk about last week?"
COLUMNS = ("preset", "hit@1", "hit@5", "nDCG@10", "median ms", "results", "reranker that ran", "scores failed")


def hit_at(k: int, ranked: Sequence[str], relevant: Collection[str]) -> float:
    """1.0 when one of the first `k` ids is relevant, else 0.0."""
    return float(any(memory_id in relevant for memory_id in ranked[:k]))


def ndcg_at(k: int, ranked: Sequence[str], relevant: Collection[str]) -> float:
    """nDCG of binary relevance: Σ over relevant ranks r ≤ k of 1/log2(r + 1), by the same of the best possible ranking.

    0.0 when nothing is relevant; an id counts once, at its first rank. Source: Järvelin & Kekäläinen 2002, as in trec_eval.
    """
    first = dict.fromkeys(ranked[:k])
    gained = sum(1 / math.log2(rank + 1) for rank, memory_id in enumerate(first, 1) if memory_id in relevant)
    best = sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(set(relevant))) + 1))
    return gained / best if best else 0.0


@dataclass
class Tally:
    """What was measured of one preset; one entry per query in each list."""

    hit1: list[float] = field(default_factory=list)
    hit5: list[float] = field(default_factory=list)
    ndcg10: list[float] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    rerankers: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    scores: int = 0

    def count(self, ranked: Sequence[str], relevant: Collection[str], evidence: Evidence, seconds: float) -> None:
        """Add one query: its ranking, what is relevant, the evidence it was ranked with and how long that took."""
        self.hit1.append(hit_at(1, ranked, relevant))
        self.hit5.append(hit_at(5, ranked, relevant))
        self.ndcg10.append(ndcg_at(10, ranked, relevant))
        self.milliseconds.append(seconds * 1e3)
        self.results.append(len(ranked))
        self.rerankers[evidence.notes.get("models", {}).get("reranker") or "none"] += 1
        for scores in evidence.model_scores.values():
            self.scores += len(scores)
            self.failed.update(
                (score.error or "not finite").split(":")[0] for score in scores.values() if not score.good
            )

    def row(self, name: str) -> list[str]:
        """One row of the table."""
        failed = sum(self.failed.values())
        causes = ", ".join(cause for cause, _ in self.failed.most_common(2))
        return [
            name,
            *(f"{statistics.fmean(values):.3f}" for values in (self.hit1, self.hit5, self.ndcg10)),
            f"{statistics.median(self.milliseconds):.0f}",
            f"{statistics.median(self.results):g}",
            "; ".join(label for label, _ in self.rerankers.most_common()),
            f"{failed} of {self.scores}" + (f" ({causes})" if failed else "") if self.scores else "–",
        ]


@dataclass(frozen=True)
class Conversation:
    """An imported conversation: its closed store, the sampled queries, and the relevant memories of each by qid."""

    name: str
    store: Path
    queries: tuple[Query, ...]
    relevant: dict[str, set[str]]


def imported(path: Path, folder: Path, count: int, seed: int) -> Conversation:
    """Import one file into a store below `folder`, embed it, and draw `count` of its queries that have evidence."""
    store = folder / path.stem
    relevant: dict[str, set[str]] = {}
    queries: list[Query] = []
    resources = open_resources(Settings(store=store))
    try:
        for parsed in formats.read_path(path):
            resources.store.add(parsed)
            queries += parsed.queries
            for judgment in parsed.judgments:
                if judgment.grade > 0:
                    relevant.setdefault(judgment.qid, set()).add(judgment.memory_id)
        resources.refresh()
    finally:
        resources.close()
    judged = sorted((query for query in queries if query.qid in relevant), key=lambda query: query.qid)
    drawn = random.Random(f"{seed}/{path.stem}").sample(judged, min(count, len(judged)))
    return Conversation(path.stem, store, tuple(drawn), relevant)


def measure(config: PipelineConfig, conversation: Conversation, tally: Tally, folder: Path) -> None:
    """Run the queries of one conversation on a fresh copy of its store."""
    copy = shutil.copytree(conversation.store, folder / "copy")
    resources = open_resources(Settings(store=copy), create=False)
    try:
        replay(gather(Request(WARM_UP), config, resources), config)
        for query in conversation.queries:
            started = time.perf_counter()
            evidence = gather(Request(query.query, query.project, query.as_of), config, resources)
            ranked = [row.memory_id for row in replay(evidence, config).results]
            seconds = time.perf_counter() - started
            tally.count(ranked, conversation.relevant[query.qid], evidence, seconds)
    finally:
        resources.close()
        shutil.rmtree(copy)


def line(row: Sequence[str]) -> str:
    """One line of a Markdown table."""
    return f"| {' | '.join(row)} |"


def main() -> int:
    """Measure and print; 0 also where there is no data."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of LoCoMo conversations, one JSON file each")
    parser.add_argument("--conversations", type=int, default=2)
    parser.add_argument("--queries", type=int, default=40, help="queries drawn of each conversation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--presets", default=",".join(preset_names()), help="names, separated by commas")
    options = parser.parse_args()
    files = sorted(options.data.glob("*.json"))[: options.conversations] if options.data.is_dir() else []
    if not files:
        print(f"skipped: no LoCoMo conversations at {options.data}; name their folder with --data")
        return 0
    configs = {name: with_values(preset(name).config, {"judge.backend": "none"}) for name in options.presets.split(",")}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        conversations = [imported(path, folder, options.queries, options.seed) for path in files]
        asked = sum(len(conversation.queries) for conversation in conversations)
        names = ", ".join(conversation.name for conversation in conversations)
        print(f"{asked} queries of {len(files)} conversations ({names}), seed {options.seed}, {os.cpu_count()} CPU\n")
        print(line(COLUMNS), line(("---", *["---:"] * 5, "---", "---")), sep="\n", flush=True)
        for name, config in configs.items():
            tally = Tally()
            for conversation in conversations:
                measure(config, conversation, tally, folder)
            print(line(tally.row(name)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
