"""Long turns: what `workbench` costs and finds, against an earlier checkout and against its own plain lists.

    python -m benchmarks.bench_long_turns [--against CHECKOUT] [--queries 24] [--timed 12] [--work .workbench/long]

The set is made of the development data (benchmarks/long_turns.py), `--queries` of each conversation and domain. Each checkout imports it
into a separate store, and both are asked in turn for `--timed` queries: processor seconds of a gather whose scores are new. The other
queries are asked of this checkout alone. A query's lists are those of its evidence, without fusion and reranker.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parents[1]
PASSAGES = 0.1
"""Share of the passages of each domain that are turns: enough that their turns are not told apart by their subject alone."""


def answered(folder: Path, store: Path) -> None:
    """Answer each qid on stdin with a line of JSON: processor seconds of the gather, what is returned, and the plain lists."""
    from cems_workbench import formats
    from cems_workbench.config import preset, with_values
    from cems_workbench.pipeline import replay
    from cems_workbench.pipeline.gather import Request, gather
    from cems_workbench.settings import Settings

    # Where an earlier checkout has it.
    place = next(name for name in ("jobs.factory", "runs.opening") if find_spec(f"cems_workbench.{name.split('.')[0]}"))
    config = with_values(preset("workbench").config, {"judge.backend": "none"})
    resources = import_module(f"cems_workbench.{place}").open_resources(Settings(store=store))
    try:
        if not resources.store.memories.count():
            for name in ("memories.jsonl", "queries.jsonl"):
                for parsed in formats.read_path(folder / name):
                    resources.store.add(parsed)
        resources.refresh()
        queries = {query.qid: query for query in resources.store.queries.read()}
        gather(Request("What is it that nobody has asked before?"), config, resources)  # loads the models
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            query = queries[json.loads(line)]
            began = time.process_time()
            evidence = gather(Request(query.query, as_of=query.as_of), config, resources)
            results = [result.memory_id for result in replay(evidence, config).results]
            took = time.process_time() - began
            lists = {
                ranked.source: list(dict.fromkeys(hit.memory_id for hit in ranked.hits)) for ranked in evidence.lists
            }
            read = sum(score.raw is not None for scores in evidence.model_scores.values() for score in scores.values())
            print(json.dumps({"s": took, "results": results, "lists": lists, "read": read}), flush=True)
    finally:
        resources.close()


class Side:
    """A checkout that answers queries."""

    def __init__(self, checkout: Path, folder: Path, store: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout), "HF_HUB_OFFLINE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).resolve()), "--answer", str(folder), "--work", str(store)],
            cwd=checkout,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> Any:
        """What it writes next. Raises SystemExit if it has ended."""
        assert self._process.stdout is not None
        text = self._process.stdout.readline()
        if not text:
            raise SystemExit("a checkout ended before it answered")
        return json.loads(text)

    def ask(self, qid: str) -> Any:
        """Its answer to a query."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(qid) + "\n")
        self._process.stdin.flush()
        return self.line()

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def written(folder: Path, queries: int) -> tuple[dict[str, set[str]], dict[str, str]]:
    """Write the set; by qid the relevant memories, and the group."""
    from benchmarks.long_turns import made
    from benchmarks.report import DATA

    found = made(DATA, queries, queries, PASSAGES)
    folder.mkdir(parents=True, exist_ok=True)
    memories = [
        {
            "id": one.id,
            "content": one.content,
            "session": one.session,
            "created_at": one.created_at.isoformat() if one.created_at else None,
        }
        for one in found.memories
    ]
    asked = [{"qid": one.qid, "query": one.query} for one in found.queries]
    for name, rows in (("memories.jsonl", memories), ("queries.jsonl", asked)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    relevant: dict[str, set[str]] = {}
    for judgment in found.judgments:
        relevant.setdefault(judgment.qid, set()).add(judgment.memory_id)
    lengths = [len(one.content) for one in found.memories]
    print(
        f"{len(lengths)} memories, median {np.median(lengths):.0f} characters; {len(relevant)} queries", file=sys.stderr
    )
    return relevant, found.groups


def measures(ranking: Sequence[str], relevant: set[str]) -> tuple[float, float]:
    """nDCG@10 and hit@5 of one ranking."""
    gains = sum(1 / np.log2(rank + 1) for rank, key in enumerate(ranking[:10], 1) if key in relevant)
    ideal = sum(1 / np.log2(rank + 1) for rank in range(1, min(10, len(relevant)) + 1))
    return float(gains / ideal), float(any(key in relevant for key in ranking[:5]))


def table(answers: Mapping[str, Any], relevant: Mapping[str, set[str]], groups: Mapping[str, str]) -> str:
    """Markdown: nDCG@10 and hit@5 of the preset and of its lists, over all and by group."""
    kinds = ["all", *sorted(set(groups.values()))]
    lines = ["| | " + " | ".join(kinds) + " |", "|---" * (len(kinds) + 1) + "|"]
    for name in ("`workbench`", "vector", "lexical"):
        cells = []
        for kind in kinds:
            asked = [qid for qid in answers if kind in ("all", groups[qid])]
            scores = [
                measures(answers[qid]["lists"].get(name, answers[qid]["results"]), relevant[qid]) for qid in asked
            ]
            ndcg, hit = np.mean(scores, axis=0) if scores else (np.nan, np.nan)
            cells.append(f"{ndcg:.3f}, {hit:.3f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against", type=Path, help="an earlier checkout, with the same packages")
    parser.add_argument("--queries", type=int, default=24, help="of each conversation and domain")
    parser.add_argument("--timed", type=int, default=12, help="queries that both checkouts answer")
    parser.add_argument("--work", type=Path, default=Path(".workbench/long"))
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer is not None:
        answered(options.answer, options.work)
        return
    work = options.work.resolve()
    relevant, groups = written(work / "set", options.queries)
    asked = sorted(relevant)
    random.Random(0).shuffle(asked)
    sides = {"now": HERE} | ({} if options.against is None else {"before": options.against.resolve()})
    running = {name: Side(checkout, work / "set", work / name) for name, checkout in sides.items()}
    for side in running.values():
        side.line()
    answers: dict[str, dict[str, Any]] = {name: {} for name in sides}
    for number, qid in enumerate(asked):
        for name, side in running.items():
            if name == "now" or number < options.timed:
                answers[name][qid] = side.ask(qid)
    for side in running.values():
        side.close()
    print(table(answers["now"], relevant, groups))
    for name, found in answers.items():
        both = [found[qid] for qid in asked[: options.timed]]
        spent = np.array([one["s"] for one in both])
        scores = np.mean(
            [measures(one["results"], relevant[qid]) for qid, one in zip(asked, both, strict=False)], axis=0
        )
        print(
            f"\n{name}: {spent.mean():.2f} s of processor a query (median {np.median(spent):.2f}), "
            f"{np.mean([one['read'] for one in both]):.1f} candidates read, nDCG@10 {scores[0]:.3f}, hit@5 {scores[1]:.3f} "
            f"on {len(both)} queries"
        )


if __name__ == "__main__":
    main()
