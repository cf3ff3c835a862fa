"""Which candidates a reranker reads (pipeline/reading.py): live, replayed and in a batch the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.jobs.factory import servers
from cems_workbench.models.protocol import PairScore
from cems_workbench.pipeline import ModelScore, replay, scoring
from cems_workbench.pipeline.evidence import Evidence, Hit, RankedList, Variant
from cems_workbench.pipeline.gather import gather_scores
from cems_workbench.pipeline.replay import run, to_table
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.rerank import RERANK
from cems_workbench.records import Memory
from cems_workbench.settings import Settings
from cems_workbench.store import Store

CONFIG = with_values(
    PipelineConfig(),
    {
        "rerank.backend": "cross_encoder",
        "rerank.model": "oracle",
        "rerank.depth": 60,
        "rerank.raw_scale": "minmax",
        "rerank.retrieval_score": "fused",
        "rerank.below_depth": "below",
        "rerank.expected_misses": 0.3,
        "filter.min_score": None,
        "fusion.normalize": "minmax",
        "assembly.limit": 10,
        "abstain.reranker": None,
        "judge.backend": "none",
    },
)


def some_evidence(seed: int, count: int = 50) -> tuple[Evidence, dict[str, float]]:
    """A query over memories in groups of like meaning, and the reranker's scores, which go by group and rank."""
    drawn = np.random.default_rng(seed)
    group = drawn.integers(0, 5, count)
    centres, worth = drawn.normal(size=(5, 16)), drawn.normal(size=5) * 3
    vectors = centres[group] + 0.3 * drawn.normal(size=(count, 16))
    ids = [f"m{n:03d}" for n in range(count)]
    hits = tuple(Hit(key, 0.9 - n / 100, None) for n, key in enumerate(ids))
    raw = worth[group] - np.arange(count) / 15 + 0.2 * drawn.normal(size=count)
    evidence = Evidence(
        query="which",
        memories={key: Memory(key, f"Text {key} of {seed}.") for key in ids},
        variants=(Variant("which"),),
        lists=(RankedList("vector:0", "vector", 0, hits),),
        embeddings=dict(zip(ids, vectors, strict=True)),
    )
    return evidence, dict(zip(ids, raw.tolist(), strict=True))


def scored(evidence: Evidence, raw: dict[str, float]) -> Evidence:
    return replace(evidence, model_scores={"oracle": {key: ModelScore(value) for key, value in raw.items()}})


@dataclass
class Oracle:
    """Knows every score; remembers in how many calls it was asked what."""

    raw: dict[str, float]
    label: str = "oracle"
    scale: None = None
    batch: int = 32
    given: list[list[str]] = field(default_factory=list)

    def cache_model(self, query: str) -> str:
        return f"oracle {id(self)}"

    def score(self, query: str, texts: Sequence[str]) -> list[PairScore]:
        self.given.append(list(texts))
        return [PairScore(self.raw[text.split()[1]]) for text in texts]


def results(evidence: Evidence, config: PipelineConfig = CONFIG) -> list[tuple[str, float | None]]:
    return [(result.memory_id, result.score) for result in replay(evidence, config).results]


def test_live_replayed_and_batched_the_same_candidates_are_read(tmp_path, monkeypatch):
    queries = [some_evidence(seed, 30 + seed * 6) for seed in range(8)]
    read = 0
    with Store.open(tmp_path / "store") as store:
        resources = Resources(store, None, servers(Settings()))  # type: ignore[arg-type]
        live = []
        for evidence, raw in queries:
            oracle = Oracle(raw)

            def asking(backend, request, use, oracle=oracle):
                return oracle, None, use(oracle)

            monkeypatch.setattr(scoring, "score_with", asking)
            found = gather_scores(evidence, CONFIG, resources, only="rerank")
            assert not replay(found, CONFIG).needs
            assert sorted(text for texts in oracle.given for text in texts) == sorted(
                evidence.memories[key].content for key in found.model_scores["oracle"]
            )
            read += sum(map(len, oracle.given))
            live.append(results(found))
    whole = [scored(evidence, raw) for evidence, raw in queries]
    assert [results(evidence) for evidence in whole] == live
    assert 100 < read < 0.75 * sum(len(raw) for _, raw in queries)
    table = to_table(whole)
    after = run(table, CONFIG).of(RERANK).after
    for q, evidence in enumerate(whole):
        alone = replay(evidence, CONFIG).stage(RERANK)
        assert [table.ids[q][c] for c in after.order(q)] == [row.memory_id for row in alone.kept]
    # The first ten are nearly always those of reading everything.
    full = [results(evidence, with_values(CONFIG, {"rerank.expected_misses": None})) for evidence in whole]
    same = [{key for key, _ in some} == {key for key, _ in every} for some, every in zip(live, full, strict=True)]
    assert sum(same) >= 7


def test_a_score_of_what_is_not_worth_reading_does_not_count() -> None:
    evidence, raw = some_evidence(3)
    rows = replay(scored(evidence, raw), CONFIG).stage(RERANK).rows
    unread = [row for row in rows if row.outcome == "not_read"]
    assert unread and all(row.raw is None and row.unit is None and row.kept for row in unread)
    assert max(row.rank_out or 0 for row in rows if row.outcome == "scored") < min(row.rank_out or 0 for row in unread)
    assert RERANK.words(unread[0], replay(scored(evidence, raw), CONFIG).stage(RERANK)).startswith(
        "not read: could not"
    )
    better = raw | {row.memory_id: 100.0 for row in unread}
    assert results(scored(evidence, better)) == results(scored(evidence, raw))


def test_reading_stops_at_the_first_missing_scores_and_asks_for_those() -> None:
    evidence, raw = some_evidence(3)
    first = replay(evidence, CONFIG)
    assert set(first.stage_needs[0].memory_ids) == {f"m{n:03d}" for n in (*range(10), 47, 48, 49)}
    some = {key: raw[key] for key in first.stage_needs[0].memory_ids}
    (need,) = replay(scored(evidence, some), CONFIG).stage_needs
    assert len(need.memory_ids) == 4 and not some.keys() & set(need.memory_ids)


def test_if_the_first_scores_fail_everything_is_asked_for_at_once() -> None:
    evidence, _ = some_evidence(3)
    first = replay(evidence, CONFIG).stage_needs[0].memory_ids
    failed = {key: ModelScore(None, error="refused") for key in first}
    (need,) = replay(replace(evidence, model_scores={"oracle": failed}), CONFIG).stage_needs
    assert {*need.memory_ids, *first} == set(evidence.memories)
