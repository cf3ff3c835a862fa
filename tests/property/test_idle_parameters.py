"""A control that is said to have no effect has none, under random configs and every preset."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import NOW, configs, evidences

from cems_workbench.config import preset, preset_names, with_values
from cems_workbench.errors import InputError
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.effects import folded_words, idle_parameters
from cems_workbench.pipeline.replay import Trace
from tests.thoroughly import EXAMPLES

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
