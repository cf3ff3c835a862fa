"""What the rerankers are measured and calibrated on: a data set's judged queries, each with its first candidates of the hybrid.

The candidates are the first `DEPTH` of reciprocal rank fusion (k = 60) of the vector and the lexical list, 100 deep, weights 1.
`training.calibrate` fits a judge's threshold on them, `benchmarks.bench_rerank` measures rankings of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cems_workbench import formats
from cems_workbench.config import preset, with_values
from cems_workbench.jobs.factory import open_resources
from cems_workbench.models.protocol import PairScorer
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.scoring import questions_of
from cems_workbench.pipeline.stages import FUSION
from cems_workbench.records import Query
from cems_workbench.settings import Settings

DEPTH = 40
HYBRID = {
    "query.mode": "hybrid",
    "query.typo_correction.enabled": False,
    "expansion.backend": "none",
    "lists.vector.depth": 100,
    "lists.lexical.depth": 100,
    "lists.vector.weight": 1.0,
    "lists.lexical.weight": 1.0,
    "variants.original_weight": 1.0,
    "threshold.mode": "none",
    "fusion.method": "rrf",
    "fusion.k": 60,
    "fusion.top_rank_bonus.rank1": 0.0,
    "fusion.top_rank_bonus.rank2_3": 0.0,
    "fusion.normalize": "none",
    "filter.min_score": None,
    "rerank.backend": "none",
    "judge.backend": "none",
}


@dataclass(frozen=True)
class Candidates:
    """A query, the ids, texts and fused scores of its candidates, best first, and the relevant ids with their grades.

    `questions` are those that the candidates follow in their sessions, empty where none does.
    """

    query: Query
    ids: tuple[str, ...]
    texts: tuple[str, ...]
    fused: np.ndarray
    relevant: dict[str, int]
    questions: tuple[str, ...]


def candidates(
    resources: Resources, queries: Sequence[Query], relevant: dict[str, dict[str, int]]
) -> Iterator[Candidates]:
    """The first `DEPTH` of the hybrid for each query."""
    config = with_values(preset("qmd").config, HYBRID)
    for query in queries:
        evidence = gather(Request(query.query, query.project, query.as_of), config, resources)
        rows = replay(evidence, config).stage(FUSION).kept[:DEPTH]
        ids = tuple(row.memory_id for row in rows)
        texts = tuple(evidence.memories[memory_id].content for memory_id in ids)
        questions = questions_of((evidence.memories[memory_id] for memory_id in ids), resources)
        asked = tuple(questions.get(memory_id, "") for memory_id in ids)
        yield Candidates(query, ids, texts, np.array([row.score for row in rows]), relevant[query.qid], asked)


def open_data_set(path: Path, folder: Path) -> tuple[Resources, list[Query], dict[str, dict[str, int]]]:
    """The data imported into a store below `folder`, its judged queries, and the relevant memories of each."""
    resources = open_resources(Settings(store=folder / path.stem))
    queries: list[Query] = []
    relevant: dict[str, dict[str, int]] = {}
    for parsed in formats.read_path(path):
        resources.store.add(parsed)
        queries += parsed.queries
        for judgment in parsed.judgments:
            if judgment.grade > 0:
                relevant.setdefault(judgment.qid, {})[judgment.memory_id] = judgment.grade
    return resources, [query for query in queries if query.qid in relevant], relevant


def raw_scores(model: PairScorer, query: str, texts: Sequence[str]) -> np.ndarray:
    """The raw scores, the lowest of the others where a pair failed."""
    scores = [score.raw for score in model.score(query, texts)]
    lowest = min((score for score in scores if score is not None), default=0.0)
    return np.array([lowest if score is None else score for score in scores])
