"""Synthetic labelled query sets of any size, for the benchmarks and tests of tuning.

Lists are random draws from a pool of each query's own. Labels are planted: relevant is what a planted config ranks first, so that its
optimum is known; or they are shuffled among the candidates, so that nothing can be learned.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.pipeline import Evidence, Hit, RankedList, Variant
from cems_workbench.pipeline.list_sources import Source
from cems_workbench.pipeline.replay import run, to_table
from cems_workbench.pipeline.stages import ASSEMBLY
from cems_workbench.records import Memory, Query

NOW = datetime(2026, 9, 1, tzinfo=UTC)
PLAIN: dict[str, Any] = {
    "query.detectors.enabled": False,
    "filter.min_score": None,
    "adjust.priority": False,
    "adjust.time_decay.mode": "none",
    "adjust.pinned_factor": 1.0,
    "adjust.project.enabled": False,
    "adjust.clamp": False,
    "assembly.strategy": "greedy",
    "assembly.max_tokens": None,
    "judge.backend": "none",
}


def fusion_only(changes: Mapping[str, Any] | None = None) -> PipelineConfig:
    """Preset cems with every stage but fusion passing through."""
    return with_values(preset("cems").config, PLAIN | dict(changes or {}))


def evidences(queries: int, lists: int = 4, hits: int = 50, seed: int = 0) -> list[Evidence]:
    """Evidence of `queries` queries: `lists` lists of `hits` hits each, vector and lexical in turn, a variant for every two.

    A query's lists are draws from six times as many memories as a list has, so that they overlap as real ones do.
    """
    rng = np.random.default_rng(seed)
    pool = [Memory(id=f"m{i:05d}", content=f"memory {i}") for i in range(max(5000, 12 * hits))]
    return [_evidence(f"query {q}", pool, lists, hits, rng) for q in range(queries)]


def _evidence(query: str, pool: list[Memory], lists: int, hits: int, rng: np.random.Generator) -> Evidence:
    own = rng.choice(len(pool), size=6 * hits, replace=False)
    found: list[RankedList] = []
    memories: dict[str, Memory] = {}
    for i in range(lists):
        source: Source = "lexical" if i % 2 else "vector"
        drawn = rng.choice(own, size=hits, replace=False)
        scores = np.sort(rng.uniform(0, 12 if i % 2 else 1, size=hits))[::-1]
        ranked = tuple(Hit(pool[m].id, float(score)) for m, score in zip(drawn.tolist(), scores, strict=True))
        found.append(RankedList(f"{source}:{i // 2}", source, i // 2, ranked))
        memories |= {pool[m].id: pool[m] for m in drawn.tolist()}
    variants = tuple(Variant(f"{query} {v}", "expansion" if v else "original") for v in range((lists + 1) // 2))
    return Evidence(query, memories, variants, tuple(found), NOW)


def planted(
    made: list[Evidence], config: PipelineConfig, relevant: int = 3, noise: float = 0.0, seed: int = 0
) -> LabelledBatch:
    """A batch in which the first `relevant` results of `config` are relevant, a share `noise` of them some others instead."""
    rng = np.random.default_rng(seed)
    table = to_table(made)
    leading = run(table, config).of(ASSEMBLY).after.leading(relevant)
    grades = {}
    for q, row in enumerate(leading.tolist()):
        ids = table.ids[q]
        chosen = [int(rng.integers(len(ids))) if rng.random() < noise else c for c in row if c >= 0]
        grades[f"q{q}"] = {ids[c]: 1 for c in chosen}
    return _batch(made, grades)


def shuffled(made: list[Evidence], relevant: int = 3, seed: int = 0) -> LabelledBatch:
    """A batch in which relevance is dealt at random among the candidates of each query."""
    rng = np.random.default_rng(seed)
    grades = {}
    for q, evidence in enumerate(made):
        ids = evidence.candidate_ids
        grades[f"q{q}"] = {ids[c]: 1 for c in rng.choice(len(ids), size=relevant, replace=False).tolist()}
    return _batch(made, grades)


def _batch(made: list[Evidence], grades: dict[str, dict[str, int]]) -> LabelledBatch:
    queries = [Query(qid=f"q{q}", query=evidence.query) for q, evidence in enumerate(made)]
    return LabelledBatch(queries, {query.qid: one for query, one in zip(queries, made, strict=True)}, grades)
