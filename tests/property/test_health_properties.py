"""The thresholds that may be tried, and the account of a reranker's scores: what they count is what the trace flags."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from strategies import configs, evidences

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.config.sections.ranking import ThresholdConfig
from cems_workbench.models.protocol import CAUSES
from cems_workbench.pipeline import Evidence, ModelScore, replay
from cems_workbench.pipeline.stages.rerank import account, cause, model_key
from cems_workbench.pipeline.stages.threshold import adaptive_thresholds
from cems_workbench.ui.inspect.views.rerank import numbers_html

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
    stage = replay(evidence, config).stage("rerank")
    if stage.fields.health is None:
        return
    known = evidence.model_scores[model_key(config.rerank)]
    counted = account(known[row.memory_id] for row in stage.rows if row.outcome in ("scored", "failed"))
    assert (counted.failed, dict(counted.causes)) == (
        stage.fields.health.failed,
        stage.fields.health.causes,
    )
    shown = numbers_html(stage.fields.health, counted)
    for name in ("timeout", "not a number", "not finite"):
        count = sum(cause(row.error) == name for row in stage.rows if row.flagged)
        label = "timeouts" if name == "timeout" else name
        assert f"<span>{label}</span><b>{count}</b>" in shown


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
