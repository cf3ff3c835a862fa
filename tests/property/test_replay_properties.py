"""What holds of every replay: sums, orders, switches, batches, health and effects that are said."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import IDS, NOW, configs, evidences

from cems_workbench.analysis.fusion_shares import VariantContribution, variant_contributions
from cems_workbench.analysis.memory_use import MemoryUseCounter, memory_uses
from cems_workbench.analysis.ranks import branch_of
from cems_workbench.api.single_query import Answer
from cems_workbench.config import PipelineConfig, dump_config, preset, preset_names, with_values
from cems_workbench.config.sections import ThresholdConfig
from cems_workbench.errors import InputError
from cems_workbench.evaluation import batch as batch_module
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.evaluate import evaluate
from cems_workbench.evaluation.metrics import graded, standard_measures
from cems_workbench.models.protocol import CAUSES
from cems_workbench.pipeline import Evidence, ModelScore, Trace, bundle_from, evidence_from, replay
from cems_workbench.pipeline.effects import (
    LATER,
    as_of_effect,
    folded_words,
    idle_parameters,
    later_words,
    project_effect,
    results_written_later,
    several_effects,
)
from cems_workbench.pipeline.replay import run, single_table, to_table
from cems_workbench.pipeline.stages import ADJUST, STAGES, THRESHOLD, stages_in_order
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.pipeline.stages.rerank import account, cause, model_key
from cems_workbench.pipeline.stages.threshold import adaptive_thresholds
from cems_workbench.pipeline.sweep import sweep
from cems_workbench.records import Query
from cems_workbench.ui.inspect.results import results_html
from cems_workbench.ui.inspect.variants import shares_table
from cems_workbench.ui.inspect.views.rerank import notes
from tests.property.test_one_truth import CONFIGS
from tests.thoroughly import EXAMPLES
from tests.unit.evaluation.sets import AS_LISTED, evidence

RANKED_FROM = 4
"""Index of fusion, the first stage that ranks."""


def survivors(trace: Trace, stage: str) -> set[str]:
    return {row.memory_id for row in trace.stage(stage).rows if row.kept}


def results(trace: Trace) -> list[str]:
    return [row.memory_id for row in trace.results]


@given(evidences(), configs(), st.lists(configs(), min_size=2, max_size=4), st.data())
def test_configs_swept_together_stand_where_each_stands_alone(
    evidence: Evidence, config: PipelineConfig, others: list[PipelineConfig], data: st.DataObject
) -> None:
    names = st.sampled_from(sorted(PipelineConfig.model_fields))
    tried = [config] + [config.model_copy(update={(name := data.draw(names)): getattr(one, name)}) for one in others]
    tried = [one for one in tried if stages_in_order(one) == stages_in_order(config)]
    table = single_table(evidence)
    for standing in sweep(table, tried):
        for i, one in enumerate(tried):
            alone, at = run(single_table(replace(evidence)), one).of(standing.stage).after, standing.at[i]
            assert alone.alive[0].tolist() == standing.after.alive[at].tolist(), standing.stage.name
            assert np.array_equal(alone.score[0], standing.after.score[at], equal_nan=True)
            if standing.stage.works_on == "ranking":
                assert alone.rank[0].tolist() == standing.after.rank[at].tolist()


@given(evidences(), configs(), configs(), st.lists(st.sampled_from(sorted(PipelineConfig.model_fields)), min_size=3))
def test_a_run_that_takes_up_a_kept_one_is_a_run_from_the_first_stage_on(
    evidence: Evidence, config: PipelineConfig, other: PipelineConfig, sections: list[str]
) -> None:
    for name in sections:
        one = config.model_copy(update={name: getattr(other, name)})
        assert replay(evidence, one).to_json() == replay(replace(evidence), one).to_json(), name


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
    assert replay(evidence, config).to_json() == first.to_json()
    assert replay(replace(evidence), config).to_json() == first.to_json()  # encoded anew
    assert json.dumps(first.to_json()) == text
    assert json.dumps(bundle_from(evidence)) == before
    assert (dump_config(config), hash(config)) == (settings, identity)


@given(evidences(), configs())
def test_a_bundle_written_and_read_back_replays_to_the_same_trace(evidence: Evidence, config: PipelineConfig) -> None:
    text = json.dumps(bundle_from(evidence), allow_nan=False)
    again = evidence_from(json.loads(text))
    assert replay(again, config).to_json() == replay(evidence, config).to_json()
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
    assert replay(shuffled, config).to_json() == replay(evidence, config).to_json()


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
    for q, found in enumerate(batch):
        alone = run(single_table(found), config)
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


@given(st.lists(evidences(), min_size=1, max_size=5), configs(), st.integers(1, 3))
def test_a_batch_gives_the_results_scores_and_measures_of_single_replays(found, config, block):
    queries = [Query(f"q{i}", one.query or "empty") for i, one in enumerate(found)]
    grades = {f"q{i}": {"m00": i % 4, "m01": 1, "Z": 0, "elsewhere": 2} for i in range(len(found))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_module, "BLOCK_QUERIES", block)
        batch = LabelledBatch(queries, {query.qid: one for query, one in zip(queries, found, strict=True)}, grades)
        rankings = batch.rankings(config)
    alone = [replay(one, config) for one in found]
    expected = [[row.memory_id for row in trace.results] for trace in alone]
    assert batch.result_ids(rankings) == expected
    for q, trace in enumerate(alone):
        scores = [row.score for row in trace.results]
        assert rankings.score[q, : len(scores)].tolist() == pytest.approx(scores, abs=1e-9)
    measures = standard_measures()
    many = evaluate(batch, config, measures).values
    for m, measure in enumerate(measures):
        single = measure.values(graded(expected, [grades[query.qid] for query in queries]))
        assert many[:, m].tolist() == pytest.approx(single.tolist(), abs=1e-9, nan_ok=True)
    unscored = sum(len({need.stage for need in trace.stage_needs}) for trace in alone)
    assert sum(rankings.needs.values()) == unscored


@given(evidences(), configs())
def test_the_shares_of_the_queries_make_the_raw_score(evidence: Evidence, config: PipelineConfig) -> None:
    trace = replay(evidence, config)
    kept, fields = [row for row in trace.stage("fusion").rows if row.kept], trace.stage("fusion").fields
    found = variant_contributions(trace)
    assert [shares.memory_id for shares in found] == [row.memory_id for row in kept]

    def raw(shares: VariantContribution, terms: float) -> float:
        whole = shares.boost * terms / fields.divisor
        return whole if fields.cap is None else min(whole, fields.cap)

    for shares in found:
        gave = shares.by_variant.values()
        if fields.combine == "max":
            terms = [*gave, *([shares.other] if shares.decisive is None else [])]
            assert shares.raw == pytest.approx(raw(shares, max(terms)), abs=1e-9)
            assert shares.decisive is None or shares.by_variant[shares.decisive] == max(gave)
        else:
            assert shares.raw == pytest.approx(raw(shares, sum(gave) + shares.other), abs=1e-9)
            assert shares.decisive is None


@given(evidences(), configs())
def test_the_table_has_a_row_for_every_query_the_raw_scores_and_last_the_scores_that_order(evidence, config):
    trace = replay(evidence, config)
    _, table = shares_table(trace)
    assert [row[0].split()[0] for row in table[: len(evidence.variants)]] == [
        str(i) for i in range(len(evidence.variants))
    ]
    rows = [row for row in trace.stage("fusion").rows if row.kept][:10]
    assert next(row for row in table if row[0].startswith("= raw score"))[2:] == [f"{row.raw:.4f}" for row in rows]
    assert table[-1][2:] == [f"{row.score:.4f}" for row in rows]


SAID = st.sampled_from(["", ": it said finance", ": 500 <b>nan</b>: timeout", ": 30 s"])
FAILURES = st.builds(lambda name, said: ModelScore(None, "text", name + said), st.sampled_from(CAUSES), SAID) | (
    st.sampled_from([ModelScore(float("nan")), ModelScore(float("inf")), ModelScore(None), ModelScore(None, error="")])
)
GOOD = st.builds(ModelScore, st.sampled_from([0.0, 0.5, 7.0, 12.0]) | st.floats(-15, 15, allow_subnormal=False))


@st.composite
def mixed(draw: st.DrawFn) -> tuple[Evidence, PipelineConfig]:
    """Evidence in which every memory has a score, a failure of any cause, or neither, and a config that reranks."""
    evidence, config = draw(evidences()), draw(configs(rerank__backend="ollama"))
    scores: dict[str, ModelScore] = {}
    for memory_id in evidence.memories:
        score = draw(st.none() | GOOD | FAILURES | FAILURES)
        if score is not None:
            scores[memory_id] = score
    return replace(evidence, model_scores={model_key(config.rerank): scores}), config


@given(mixed())
def test_the_health_counts_equal_the_flagged_rows_of_the_trace(case: tuple[Evidence, PipelineConfig]) -> None:
    evidence, config = case
    stage = replay(evidence, config).stage("rerank")
    if stage.fields.health is None:  # too few to rerank
        assert not any(row.flagged for row in stage.rows)
        return
    health = stage.fields.health
    flagged = [row for row in stage.rows if row.flagged]
    outcomes = Counter(row.outcome for row in stage.rows)
    assert health.failed == len(flagged) == outcomes["failed"]
    assert health.causes == dict(Counter(cause(row.error) for row in flagged))
    assert sum(health.causes.values()) == health.failed
    assert health.scored == outcomes["scored"]
    assert health.head == health.scored + health.failed + health.not_scored


@given(mixed())
def test_the_panel_counts_what_the_trace_counts(case: tuple[Evidence, PipelineConfig]) -> None:
    evidence, config = case
    found = replay(evidence, config)
    stage = found.stage("rerank")
    if stage.fields.health is None:
        return
    known = evidence.model_scores[model_key(config.rerank)]
    counted = account(known[row.memory_id] for row in stage.rows if row.outcome in ("scored", "failed"))
    assert (counted.failed, dict(counted.causes)) == (
        stage.fields.health.failed,
        stage.fields.health.causes,
    )
    said = next((line for line in notes(found, counted) if line.startswith("Failed by cause: ")), "")
    for name in ("timeout", "not a number", "not finite"):
        count = sum(cause(row.error) == name for row in stage.rows if row.flagged)
        assert (f"{name} {count}" in said) if count else (name not in said)


BOUNDS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "threshold.mode": st.just("adaptive"),
        "threshold.adaptive.min": st.floats(0, 1, allow_subnormal=False),
        "threshold.adaptive.max": st.floats(0, 1, allow_subnormal=False),
        "threshold.adaptive.step": st.floats(0.01, 0.5),
    }
)


@given(BOUNDS)
def test_the_thresholds_to_try_fall_from_the_maximum_and_the_minimum_is_among_them(bounds: dict[str, Any]) -> None:
    low, high = sorted((bounds["threshold.adaptive.min"], bounds["threshold.adaptive.max"]))
    bounds |= {"threshold.adaptive.min": low, "threshold.adaptive.max": high}
    config: ThresholdConfig = with_values(PipelineConfig(), bounds).threshold
    tried = adaptive_thresholds(config)
    assert all(a > b for a, b in pairwise(tried))
    assert tried[-1] == low
    assert tried[0] == low or abs(tried[0] - high) < 1e-9
    assert all(low <= value <= high + 1e-9 for value in tried)


def test_float_steps_end_where_the_memory_agent_ends() -> None:
    """Measured in the memory agent: 12 passes from 0.95 and 8 from 0.75, and the minimum 0.35 is never tried."""
    steps = {"threshold.adaptive.steps": "float"}
    configs = [with_values(PipelineConfig(), {**steps, "threshold.adaptive.max": most}) for most in (0.95, 0.75)]
    tried = [adaptive_thresholds(config.threshold) for config in configs]
    assert [(len(each), each[-1]) for each in tried] == [(12, 0.39999999999999963), (8, 0.39999999999999986)]
    assert tried[0][:2] == [0.95, 0.8999999999999999]


PRESETS = [preset(name).config for name in preset_names()]


def ranking(trace: Trace) -> list[tuple[str, float | None, int | None, float | None, int | None, bool]]:
    return [
        (row.memory_id, row.score_in, row.rank_in, row.score, row.rank_out, row.kept)
        for stage in trace.stages
        for row in stage.rows
    ]


@settings(max_examples=4 * EXAMPLES)
@given(evidences(), configs() | st.sampled_from(PRESETS), configs() | st.sampled_from(PRESETS))
def test_what_is_said_to_be_idle_changes_no_rank_and_no_score(evidence, config, other):
    evidence = replace(evidence, as_of=NOW)
    try:
        changed = with_values(config, {path: other.get(path) for path in idle_parameters(config)})
    except InputError:
        assume(False)
    assert ranking(replay(evidence, config)) == ranking(replay(evidence, changed))


def test_what_has_an_effect_is_not_said_to_be_idle() -> None:
    idle = {name: idle_parameters(preset(name).config) for name in preset_names()}
    assert "fusion.k" not in idle["cems"]
    assert idle["workbench"]["fusion.k"] == "No effect under combsum"
    assert "adjust.time_decay.half_life_days" not in idle["cems"]
    assert idle["workbench"]["adjust.time_decay.half_life_days"] == "No effect: time decay is off"
    assert not set(idle["workbench"]) & {
        "lists.vector.weight",
        "lists.lexical.weight",
        "rerank.bands",
        "abstain.vector",
    }


def test_k_has_an_effect_where_the_blend_of_the_reranker_reads_it() -> None:
    summed = with_values(preset("cems").config, {"fusion.method": "combsum", "rerank.backend": "cross_encoder"})
    assert "fusion.k" not in idle_parameters(summed)
    assert "fusion.k" in idle_parameters(with_values(summed, {"rerank.retrieval_score": "fused"}))
    assert "fusion.k" in idle_parameters(with_values(summed, {"rerank.combine": "replace"}))


def test_folded_parameters_are_counted_with_the_reason_that_they_share() -> None:
    assert folded_words(["No effect under combsum"] * 8) == "8 without effect under combsum"
    assert folded_words(["No effect: nothing is reranked"]) == "1 without effect: nothing is reranked"
    assert folded_words(["No effect under combsum", "No effect: this list is off"]) == "2 without effect"


PROJECTS = st.sampled_from([None, "org/a", "org/ab", "other"])


def ranked_for(
    trace: Trace,
) -> list[tuple[str, float | None, int | None, float | None, int | None, bool]]:
    """What the stages did with every candidate: its ranks, scores and fate in each."""
    return [
        (row.memory_id, row.score_in, row.rank_in, row.score, row.rank_out, row.kept)
        for stage in trace.stages
        for row in stage.rows
    ]


@settings(max_examples=4 * EXAMPLES)
@given(evidences(), configs() | st.sampled_from(PRESETS), PROJECTS, PROJECTS, st.integers(-900, 900))
def test_what_is_said_to_be_ignored_changes_no_rank_and_no_score(evidence, config, first, second, days):
    before = replace(evidence, project=first, as_of=NOW)
    if project_effect(config).ignored:
        assert ranked_for(replay(before, config)) == ranked_for(replay(replace(before, project=second), config))
    if as_of_effect(config).ignored:
        moved = replace(before, as_of=NOW + timedelta(days=days))
        assert ranked_for(replay(before, config)) == ranked_for(replay(moved, config))


@settings(max_examples=3 * EXAMPLES)
@given(evidences(), configs() | st.sampled_from(PRESETS), PROJECTS)
def test_the_factors_that_are_said_are_those_of_the_trace(evidence, config, project):
    effect = project_effect(config)
    trace = replay(replace(evidence, project=project), config)
    used = {row.factors["project"] for row in trace.stage(ADJUST).rows if "project" in row.factors}
    assert all(f"× {factor:g} " in f"{effect.words} " for factor in used if not effect.ignored)
    assert used <= {1.0} if effect.ignored or not project else True


@settings(max_examples=3 * EXAMPLES)
@given(evidences(), st.integers(0, 900))
def test_page_and_command_name_the_same_results_from_the_future_of_the_query(evidence: Evidence, days: int) -> None:
    config = PRESETS[days % len(PRESETS)]
    trace = replay(replace(evidence, project="org/a", as_of=NOW - timedelta(days=days)), config)
    as_of = trace.evidence.as_of
    for result in trace.results:
        created = trace.evidence.memories[result.memory_id].created_at
        later = created is not None and as_of is not None and created > as_of
        assert (result.memory_id in results_written_later(trace)) == later
        assert (f" {result.memory_id}" in later_words(trace).replace(",", "")) or not later
    assert results_html(trace, {}).count(LATER) == len(results_written_later(trace))
    answer = Answer(trace)
    assert {project_effect(config).words, as_of_effect(config).words} <= {
        note.split(": ", 1)[-1] for note in answer.notes
    }
    said = later_words(trace)
    assert (said in answer.notes) == any(LATER in note for note in answer.notes) == bool(results_written_later(trace))
    assert answer.to_json()["written_later"] == results_written_later(trace)


def test_one_effect_under_several_configs_is_said_once() -> None:
    off, on = preset("recollection").config, preset("cems").config
    assert several_effects({"a": project_effect(off), "b": project_effect(off)}) == project_effect(off).words
    both = several_effects({"a": project_effect(off), "b": project_effect(on)})
    assert both.startswith("a: ignored by the ranking") and "b: × 1.3 in the project" in both


SETS = st.lists(evidences(), min_size=1, max_size=4)
JUDGED = ["nowhere", *IDS]


@settings(max_examples=EXAMPLES)
@given(SETS, CONFIGS, st.integers(1, 4))
def test_every_count_is_that_of_the_traces(found: list[Evidence], config: PipelineConfig, k: int) -> None:
    queries = [Query(f"q{i}", one.query) for i, one in enumerate(found)]
    gathered = {query.qid: one for query, one in zip(queries, found, strict=True)}
    # Each memory is relevant, irrelevant and not judged by turns.
    grades = {
        query.qid: {key: (i + n) % 3 - 1 for n, key in enumerate(JUDGED) if (i + n) % 3}
        for i, query in enumerate(queries)
    }
    uses = memory_uses(queries, gathered, grades, config, 1, k=k, followed=JUDGED)
    portions = MemoryUseCounter(config, 1, k=k, followed=JUDGED)
    for query in queries:
        portions.add([query], gathered, grades)
    again = portions.finished()
    assert (again.uses, again.rows, again.expected) == (uses.uses, uses.rows, uses.expected)
    traces = {qid: replay(one, config) for qid, one in gathered.items()}
    for key in JUDGED:
        use, branches, statuses = uses.of(key), Counter[object](), Counter[str]()
        for qid, trace in traces.items():
            grade = grades[qid].get(key)
            returned = key in [row.memory_id for row in trace.results[:k]]
            if grade == 1 and not returned:
                branches[branch_of(trace, key, k)] += 1
                statuses["lost"] += 1
            elif returned:
                statuses["not judged" if grade is None else "found" if grade else "judged irrelevant"] += 1
        assert use.lost == branches
        assert Counter(row.status for row in uses.rows.get(key, ())) == statuses
        assert use.candidate == sum(key in trace.stage(LISTS).by_id for trace in traces.values())
        assert (use.found, use.irrelevant, use.unjudged) == (
            statuses["found"],
            statuses["judged irrelevant"],
            statuses["not judged"],
        )
        assert use.wanted == statuses["found"] + statuses["lost"]
    assert {use.memory_id for use in uses.orphans(JUDGED)} == {key for key in JUDGED if not uses.of(key).returned}


def test_a_hub_is_returned_for_many_queries_that_judge_it_irrelevant() -> None:
    counter = MemoryUseCounter(AS_LISTED, 1, k=2)
    queries = [Query(f"q{i}", f"query {i}") for i in range(4)]
    grades = {query.qid: {"a": 0, "b": int(i > 0)} for i, query in enumerate(queries)}
    counter.add(queries, {query.qid: evidence(query.query) for query in queries}, grades)
    uses = counter.finished()
    # a to h are candidates: bad k-occurrences 4, 1 and six times 0, mean 5/8, so that two deviations are 3.3 above none
    assert uses.expected == 5 / 8 and [use.memory_id for use in uses.hubs()] == ["a"]
    assert "It is a hub" in uses.sentence("a") and "hub" not in uses.sentence("b")
    assert [use.memory_id for use in uses.orphans()] == list("cdefgh")
