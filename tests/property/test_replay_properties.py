"""What holds for every evidence under every config."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import configs, evidences

from cems_workbench.config import PipelineConfig, dump_config, with_values
from cems_workbench.pipeline import Evidence, Trace, bundle_from, evidence_from, replay
from cems_workbench.pipeline.replay import run, single_table, to_table
from cems_workbench.pipeline.stages import STAGES, THRESHOLD

RANKED_FROM = 4
"""Index of fusion, the first stage that ranks."""


def survivors(trace: Trace, stage: str) -> set[str]:
    return {row.memory_id for row in trace.stage(stage).rows if row.kept}


def results(trace: Trace) -> list[str]:
    return [row.memory_id for row in trace.results]


@given(evidences(), configs())
def test_every_fusion_row_accounts_for_its_raw_score(evidence: Evidence, config: PipelineConfig) -> None:
    fusion = replay(evidence, config).stage("fusion")
    for row in fusion.rows:
        terms = row.contributions
        if not row.kept:
            continue
        if fusion.fields.combine == "max":
            inside = max(term.base for term in terms)
            assert {term.bonus for term in terms} == {0.0}
        else:
            inside = math.fsum(term.base + term.bonus for term in terms)
        bonuses = row.best_rank_bonus + row.importance_bonus + row.importance_floor
        account = row.boost_factor * (inside + bonuses) / fusion.fields.divisor
        account = account if fusion.fields.cap is None else min(account, fusion.fields.cap)
        assert row.raw == pytest.approx(account, rel=1e-12, abs=1e-12)


@given(evidences(), configs(fusion__method="combmax"))
def test_combmax_takes_the_largest_base(evidence: Evidence, config: PipelineConfig) -> None:
    fusion = replay(evidence, config).stage("fusion")
    for row in fusion.rows:
        if row.kept and not fusion.fields.bypassed:
            largest = max(term.base for term in row.contributions)
            raw = row.boost_factor * (largest + row.importance_floor) / fusion.fields.divisor
            raw = raw if fusion.fields.cap is None else min(raw, fusion.fields.cap)
            assert row.raw == pytest.approx(raw, rel=1e-12)


@given(evidences(), configs(fusion__single_list="fuse"))
def test_the_fused_score_is_the_blend_of_normalised_and_best_list_score(evidence, config):
    blend = config.fusion.score_blend
    for row in replay(evidence, config).stage("fusion").rows:
        if row.kept:
            assert row.score == pytest.approx((1 - blend) * row.normalized + blend * row.best_list_score, rel=1e-12)


@given(evidences(), configs())
def test_whoever_enters_a_stage_leaves_it_or_has_a_reason(evidence: Evidence, config: PipelineConfig) -> None:
    stages = replay(evidence, config).stages[2:]
    gathered = {hit.memory_id for ranked in evidence.lists for hit in ranked.hits}
    assert set(stages[0].by_id) == gathered
    for stage in stages:
        assert len(stage.by_id) == len(stage.rows)
        for row in stage.rows:
            assert row.kept or row.reason, (stage.name, row)
            assert not (row.kept and row.reason), (stage.name, row)
            assert row.kept or row.rank_out is None, (stage.name, row)
    for earlier, later in pairwise(stages):
        fetched = {row.memory_id for row in later.rows if row.rank_in is None and later.name == "supersession"}
        assert not fetched or config.supersession.mode == "follow"
        assert {row.memory_id for row in earlier.rows if row.kept} == set(later.by_id) - fetched, later.name


@given(evidences(), configs())
def test_the_kept_are_ranked_from_1_without_gaps_and_in_row_order(evidence: Evidence, config: PipelineConfig) -> None:
    stages = replay(evidence, config).stages[RANKED_FROM:]
    for stage in stages:
        ranks = [row.rank_out for row in stage.rows if row.kept]
        assert ranks == list(range(1, len(ranks) + 1)), stage.name
    for earlier, later in pairwise(stages):
        for row in later.rows:
            if later.name == "supersession" and row.rank_in is None:
                continue  # a successor that was fetched
            assert row.rank_in == earlier.by_id[row.memory_id].rank_out
            assert row.score_in == earlier.by_id[row.memory_id].score


@given(evidences(), configs())
def test_scores_never_rise_along_the_ranking(evidence: Evidence, config: PipelineConfig) -> None:
    """After each stage that ranks by score; mmr stands in the order of selection."""
    trace = replay(evidence, config)
    for name in ("fusion", "filter", "rerank", "adjust", "supersession", "gap", "dedup"):
        scores = [row.score for row in trace.stage(name).rows if row.kept]
        assert all(a >= b for a, b in pairwise(scores)), (name, scores)


@given(evidences(), configs())
def test_replay_is_deterministic_and_changes_nothing(evidence: Evidence, config: PipelineConfig) -> None:
    before, settings, identity = json.dumps(bundle_from(evidence)), dump_config(config), hash(config)
    first = replay(evidence, config)
    text = json.dumps(first.to_json())
    assert replay(evidence, config).same_as(first)
    assert replay(replace(evidence), config).same_as(first)  # encoded anew
    assert json.dumps(first.to_json()) == text
    assert json.dumps(bundle_from(evidence)) == before
    assert (dump_config(config), hash(config)) == (settings, identity)


@given(evidences(), configs())
def test_a_bundle_written_and_read_back_replays_to_the_same_trace(evidence: Evidence, config: PipelineConfig) -> None:
    text = json.dumps(bundle_from(evidence), allow_nan=False)
    again = evidence_from(json.loads(text))
    assert replay(again, config).same_as(replay(evidence, config))
    assert json.dumps(bundle_from(again), allow_nan=False) == text


@given(evidences(), configs())
def test_the_json_of_a_trace_has_no_nan(evidence: Evidence, config: PipelineConfig) -> None:
    json.dumps(replay(evidence, config).to_json(), allow_nan=False)


@given(evidences(), configs(), st.randoms(use_true_random=False))
def test_the_order_of_equal_hits_and_of_the_memories_does_not_matter(evidence, config, random):
    """Ties are broken by memory id, whatever order the input has."""
    shuffle = random.shuffle  # type: ignore[attr-defined]
    lists = []
    for ranked in evidence.lists:
        hits = list(ranked.hits)
        shuffle(hits)
        lists.append(replace(ranked, hits=tuple(sorted(hits, key=lambda hit: -hit.score))))
    keys = list(evidence.memories)
    shuffle(keys)
    shuffled = replace(
        evidence,
        lists=tuple(lists),
        memories={key: evidence.memories[key] for key in keys},
        model_scores={
            model: {key: scores[key] for key in keys if key in scores}
            for model, scores in evidence.model_scores.items()
        },
    )
    assert replay(shuffled, config).same_as(replay(evidence, config))


@given(evidences(), configs(), st.sampled_from(["vector", "lexical", "recency", "access", "relations"]))
def test_a_list_of_weight_zero_has_base_zero_everywhere(evidence, config, source):
    config = with_values(config, {f"lists.{source}.weight": 0.0, "fusion.single_list": "fuse"})
    for row in replay(evidence, config).stage("fusion").rows:
        for term in row.contributions:
            assert term.base == 0.0 or term.list.split(":")[0] != source


@given(evidences(), configs(threshold__mode="fixed"), st.floats(0, 1), st.floats(0, 1))
def test_raising_a_fixed_threshold_never_adds_candidates(evidence, config, one, other):
    low, high = sorted((one, other))
    loose, strict = (replay(evidence, with_values(config, {"threshold.fixed": value})) for value in (low, high))
    assert survivors(strict, "threshold") <= survivors(loose, "threshold")


@given(evidences(), configs(threshold__mode="adaptive"))
def test_adaptive_thresholds_fall_and_end_with_the_minimum_unless_enough_were_found(evidence, config):
    found = replay(evidence, config).stage(THRESHOLD).fields.search
    assert found is not None
    visited, counts = found.visited, found.counts
    bounds = config.threshold.adaptive
    target = math.inf if config.assembly.limit is None else int(config.assembly.limit * bounds.target_ratio)
    assert all(a > b for a, b in pairwise(visited))
    assert all(a <= b for a, b in pairwise(counts))
    assert len(visited) == len(counts)
    assert all(count < target for count in counts[:-1])
    if counts[-1] < target:
        assert visited[-1] == bounds.min if bounds.steps == "exact" else visited[-1] >= min(bounds.min, bounds.max)
        assert found.final == visited[counts.index(max(counts))]
    else:
        assert found.final == visited[-1]
    assert found.unique == counts[visited.index(found.final)]


@given(evidences(), configs())
def test_results_stay_within_limit_and_budget(evidence: Evidence, config: PipelineConfig) -> None:
    trace = replay(evidence, config)
    found = results(trace)
    assert len(set(found)) == len(found)
    assert config.assembly.limit is None or len(found) <= config.assembly.limit
    assert config.assembly.max_tokens is None or trace.tokens_used <= config.assembly.max_tokens
    assert trace.tokens_used == sum(max(1, math.ceil(len(evidence.memories[key].content) / 4)) for key in found)
    assert not set(trace.skipped_for_budget) & set(found)


@given(evidences(), configs())
def test_what_was_not_reranked_has_no_unit_score_and_failures_are_flagged(evidence, config):
    for row in replay(evidence, config).stage("rerank").rows:
        if row.outcome == "off":  # no reranker
            continue
        scored = evidence.model_scores.get(config.rerank.model or config.rerank.backend, {}).get(row.memory_id)
        failed = row.outcome == "failed"
        assert row.flagged == failed
        assert failed == (scored is not None and not scored.good and row.outcome != "tail" and row.outcome != "skipped")
        assert (row.unit is not None) == (row.outcome == "scored" or (failed and config.rerank.on_error == "neutral"))
        assert row.unit is None or 0 <= row.unit <= 1
        assert (row.raw is not None) == (row.outcome == "scored")


@given(evidences(), configs(), st.sets(st.integers(0, 3)))
def test_a_variant_switched_off_contributes_nothing(evidence: Evidence, config: PipelineConfig, off: set[int]) -> None:
    without = replace(evidence, lists=tuple(ranked for ranked in evidence.lists if ranked.variant not in off))
    left, right = replay(evidence, config, switched_off=off), replay(without, config)
    assert [(row.memory_id, row.score) for row in left.results] == [(row.memory_id, row.score) for row in right.results]


@given(st.lists(evidences(), min_size=1, max_size=4), configs())
def test_a_batch_gives_every_query_what_it_gets_alone(batch: list[Evidence], config: PipelineConfig) -> None:
    together = run(to_table(batch), config)
    for q, evidence in enumerate(batch):
        alone = run(single_table(evidence), config)
        for stage in STAGES:
            many, one = together.of(stage), alone.of(stage)
            order = one.after.order(0)
            assert many.after.order(q).tolist() == order.tolist(), stage.name
            assert many.after.score[q, order] == pytest.approx(
                one.after.score[0, order], rel=1e-12, abs=1e-12, nan_ok=True
            )
            assert many.fields(q) == one.fields(0)
            assert many.warnings(q) == one.warnings(0)
            assert many.needs(q) == one.needs(0)
