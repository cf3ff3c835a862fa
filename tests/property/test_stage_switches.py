"""One truth of what is off: what a stage's record says, the stage does, and every screen shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from strategies import configs, evidences

from cems_workbench.analysis.why.path import stage_words
from cems_workbench.config import PipelineConfig, preset, preset_names, with_values
from cems_workbench.evaluation.evaluate import without_each_stage
from cems_workbench.pipeline import Evidence, read_bundle, replay
from cems_workbench.pipeline.replay import run, single_table
from cems_workbench.pipeline.stages import CANDIDATE_STAGES, LISTS, STAGES, stages_in_order
from cems_workbench.pipeline.stages.stage import AnyStage, Switch
from cems_workbench.ui.inspect.results import strip_html
from tests.thoroughly import EXAMPLES
from workbench_inspect.component_effects import parts

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden"
BUNDLES = sorted(GOLDEN.glob("*/bundle.json")) if GOLDEN.is_dir() else []
SWITCHES = [(stage, switch) for stage in STAGES for switch in stage.switches]
WHOLE = [stage for stage in STAGES if stage.switch is not None]


def switched_off(config: PipelineConfig, switch: Switch) -> PipelineConfig:
    return with_values(config, dict(switch.off))


def assert_passes_everything(stage: AnyStage, evidence: Evidence, config: PipelineConfig) -> None:
    done = run(single_table(evidence), config).of(stage)
    assert done.after.alive.tolist() == done.entered.tolist() == done.before.alive.tolist(), stage.name
    order = done.before.order(0)
    assert done.after.order(0).tolist() == order.tolist(), stage.name
    assert done.after.score[0, order].tolist() == done.before.score[0, order].tolist(), stage.name
    for row in replay(evidence, config).stage(stage).rows:
        assert (row.rank_in, row.score_in, row.kept, row.reason) == (row.rank_out, row.score, True, None), stage.name


@pytest.mark.parametrize("stage", WHOLE, ids=lambda stage: stage.name)
@settings(max_examples=2 * EXAMPLES)
@given(evidences(), configs())
def test_a_stage_that_is_switched_off_passes_everything_as_it_came(stage, evidence, config):
    assert stage.switch is not None
    off = switched_off(config, stage.switch)
    assert stage.is_off(off)
    assert_passes_everything(stage, evidence, off)


@given(evidences(), configs())
def test_every_stage_that_says_it_is_off_passes_everything_as_it_came(evidence, config):
    for stage in STAGES:
        if stage.is_off(config):
            assert_passes_everything(stage, evidence, config)


@settings(max_examples=2 * EXAMPLES)
@given(evidences(), configs(query__raw=True) | configs(fusion__method="combsum") | configs())
def test_switching_off_what_says_it_is_off_changes_no_row(evidence: Evidence, config: PipelineConfig) -> None:
    """Also where it is off for another reason than its own values: raw mode, or a method without bonuses."""
    before = replay(evidence, config)
    for _, switch in SWITCHES:
        off = switched_off(config, switch)
        if switch.is_off(config) and off != config:
            after = replay(evidence, off)
            for stage in CANDIDATE_STAGES:
                assert before.stage(stage).rows == after.stage(stage).rows, (switch.name, stage.name)


@pytest.mark.skipif(not BUNDLES, reason="the shared golden cases are not beside the checkout")
@pytest.mark.parametrize("name", preset_names())
def test_on_the_golden_bundles_whatever_is_off_passes_everything_and_all_screens_say_so(name: str) -> None:
    chosen = preset(name).config
    off = {stage.name for stage in STAGES if stage.is_off(chosen)}
    switches = {switch.name: stage for stage, switch in SWITCHES if stage in CANDIDATE_STAGES}
    tried = {one.name.removeprefix(f"{chosen.name} without ") for one in without_each_stage(chosen)}
    on = {switch.name for stage, switch in SWITCHES if stage in CANDIDATE_STAGES and not switch.is_off(chosen)}
    lists = {switch.name for switch in LISTS.switches}
    assert tried <= on and on - tried <= lists, "only what would leave no list may be missing from the ablation"
    assert not {switches[one].name for one in tried if switches[one].switch and one == switches[one].switch.name} & off
    for path in BUNDLES:
        evidence = read_bundle(path)
        trace = replay(evidence, chosen)
        strip = strip_html(trace).split('<div class="wb-cell')[1:]
        assert {
            stage.name for stage, cell in zip(stages_in_order(chosen), strip, strict=True) if cell.startswith(" wb-off")
        } == off
        weighed = parts(trace)
        assert not {part.stage for part in weighed} & off
        assert {part.name for part in weighed if not part.lists} <= {
            switch.words for stage, switch in SWITCHES if switch.name in on and stage is not LISTS
        }
        for stage in CANDIDATE_STAGES:
            if stage.name in off:
                assert_passes_everything(stage, evidence, chosen)
                for row in trace.stage(stage).rows:
                    assert stage_words(trace, stage, row.memory_id) == "off"
