"""Tuning without judgments: pseudo-judgments from the order of a reranker, and the agreement of each list with that order.

grades     of the candidates of a query that the reranker read, the one with the highest score has grade 3, the next 2, the next 1, the
           others 0

               grade(c) = max(0, 3 - #{c' : score(c') > score(c)})

           so that equal scores have equal grades, and the scale of a model does not matter. A query is left out if the reranker read three
           candidates or fewer, or gave all of them the same score.
ranking    the fused ranking is measured. With the reranker every config would be measured by a model's agreement with itself, and its order
           says nothing about age, project or duplicates; for the same reason only the parameters of lists, variants and fusion can be
           tuned so.
agreement  nDCG of a list alone by these grades, with its bootstrap interval over queries. Its overlap with the others is shown, not used.

The grades contain the mistakes of a model, and a memory that no list returned has none. So a result is never called tuned, and is
compared with judgments if there are any.

Source: relevance judgments without people, Soboroff, Nicholas & Cahan, Ranking retrieval systems without relevance judgments, 2001;
a reranker as teacher of a first stage, Hofstätter et al., Improving efficient neural ranking models with cross-architecture knowledge
distillation, 2020.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.grades import Grades
from cems_workbench.evaluation.metrics import Measure
from cems_workbench.evaluation.statistics import bootstrap, means
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.list_sources import LIST_SOURCES, SOURCES, Source
from cems_workbench.pipeline.stages import FUSION, RERANK, STAGES
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.tuning.space import Axis, replaced

TOP_GRADE = 3
"""The highest grade, and the number of ranks of the reranker's order with a grade above 0."""
AGAINST_RERANKER = " against the reranker’s order"
"""Suffix of a measure whose grades are a reranker's."""
EMBEDDER_RERANKER = "late_interaction"
"""The reranker that reads with the store's embedder. It agrees with the vector list, so its order is no reference."""
TUNABLE_SECTIONS = ("lists.", "variants.", "fusion.")
"""Path prefixes of the parameters that can be tuned on the order of a reranker."""
COMPARED_HITS = 10
"""First hits of a list whose overlap with the other lists, and with what the reranker read, is measured."""


def reference_reranker(config: PipelineConfig, evidences: Iterable[Evidence]) -> str | None:
    """The reranker whose order replaces judgments, by its key in `model_scores`; None if the evidence has no scores for
    it. The config's own if it has one, else the one with the most scores. Never the one that reads with the embedder of
    the vector list."""
    scored = Counter[str]()
    for evidence in evidences:
        scored.update(
            {key: sum(score.good for score in scores.values()) for key, scores in evidence.model_scores.items()}
        )
    own = model_key(config.rerank)
    if has_reference_reranker(config):
        return own if scored[own] else None
    left_out = {EMBEDDER_RERANKER, *([own] if config.rerank.backend == EMBEDDER_RERANKER else [])}
    others = [key for key, count in scored.items() if count and key not in left_out]
    best = sorted(others, key=lambda key: (-scored[key], key))
    return best[0] if best else None


def has_reference_reranker(config: PipelineConfig) -> bool:
    """Whether the config has a reranker whose order may replace judgments."""
    return not RERANK.is_off(config) and config.rerank.backend != EMBEDDER_RERANKER


def reranker_grades(evidences: Mapping[str, Evidence], reranker: str) -> Grades:
    """The grades of the reranker's order by qid and memory id; queries without usable scores are absent."""
    grades: Grades = {}
    for qid, evidence in evidences.items():
        read = evidence.model_scores.get(reranker, {})
        raw = {key: score.raw for key, score in read.items() if score.raw is not None and score.good}
        scores = np.sort(np.array(list(raw.values()), dtype=np.float64))
        if len(scores) > TOP_GRADE and scores[0] < scores[-1]:
            above = {key: len(scores) - int(np.searchsorted(scores, value, side="right")) for key, value in raw.items()}
            grades[qid] = {key: TOP_GRADE - count for key, count in above.items() if count < TOP_GRADE}
    return grades


def before_reranker(config: PipelineConfig) -> PipelineConfig:
    """The config up to its fusion: every later stage is switched off."""
    later = STAGES[STAGES.index(FUSION) + 1 :]
    return replaced(
        config, {path: value for stage in later for switch in stage.switches for path, value in switch.off.items()}
    )


def require_tunable_unlabelled(axes: Sequence[Axis]) -> None:
    """Raises InputError for a parameter that cannot be tuned without judgments."""
    for axis in axes:
        if not axis.path.startswith(TUNABLE_SECTIONS):
            why = (
                "the reranker would be measured by agreeing with itself"
                if axis.path.startswith("rerank.")
                else "the reranker's order says nothing about it"
            )
            allowed = ", ".join(f"{start}*" for start in TUNABLE_SECTIONS)
            raise InputError(f"--space {axis.path}: cannot be tuned without labels: {why}; these can: {allowed}")


@dataclass(frozen=True, slots=True)
class ListTrust:
    """Figures of a list that need no judgments; NaN if no query has a value."""

    source: Source
    queries: int
    """Number of queries with a hit."""
    agreement: float
    """Mean of the measure of the list alone, by the reranker's grades, with its 95 % interval."""
    low: float
    high: float
    read: float
    """Share of its first hits that the reranker read."""
    shared: float
    """Share of its first hits that are among the first of another list."""


def candidate_lists(config: PipelineConfig) -> list[Source]:
    """The enabled lists of a config that add candidates."""
    return [one.name for one in LIST_SOURCES if one.finds and config.get(f"lists.{one.name}.enabled")]


def with_one_list(config: PipelineConfig, source: Source) -> PipelineConfig:
    """The config up to its fusion, with one list enabled."""
    only = {f"lists.{name}.enabled": name == source for name in SOURCES}
    return replaced(before_reranker(config), only | {f"lists.{source}.weight": 1.0})


def list_trust(
    batch: LabelledBatch, config: PipelineConfig, reranker: str, measure: Measure, seed: int = 0
) -> list[ListTrust]:
    """The figures of each list that adds candidates under a config; `batch` has the grades of `reranker_grades`."""
    sources = candidate_lists(config)
    rankings = {source: batch.rankings(with_one_list(config, source)) for source in sources}
    firsts = {source: [ids[:COMPARED_HITS] for ids in batch.result_ids(found)] for source, found in rankings.items()}
    read = [
        {key for key, score in evidence.model_scores.get(reranker, {}).items() if score.good}
        for evidence in batch.evidences
    ]
    trusts = []
    for source, first in firsts.items():
        others = [
            set().union(*(firsts[other][q] for other in sources if other != source)) for q in range(len(batch.queries))
        ]
        values = measure.values(rankings[source].graded)[:, None]
        low, high = bootstrap(values, seed)[:, 0]
        trusts.append(
            ListTrust(
                source=source,
                queries=sum(bool(ids) for ids in first),
                agreement=float(means(values)[0]),
                low=float(low),
                high=float(high),
                read=_share(first, read),
                shared=_share(first, others) if len(sources) > 1 else float("nan"),
            )
        )
    return trusts


def _share(first: Sequence[Sequence[str]], among: Sequence[set[str]]) -> float:
    """Mean share of the first hits that are in the other set, over the queries with a hit."""
    shares = [sum(key in there for key in ids) / len(ids) for ids, there in zip(first, among, strict=True) if ids]
    return float(np.mean(shares)) if shares else float("nan")
