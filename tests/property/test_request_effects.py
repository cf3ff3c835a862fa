"""What pages and command line say of project and day is what replay does with them, under random configs and every preset."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import NOW, configs, evidences

from cems_workbench.api.single_query import Answer
from cems_workbench.config import preset, preset_names
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.effects import (
    LATER,
    as_of_effect,
    later_words,
    project_effect,
    results_written_later,
    several_effects,
)
from cems_workbench.pipeline.replay import Trace
from cems_workbench.pipeline.stages import ADJUST
from cems_workbench.ui.inspect.results import results_html
from tests.thoroughly import EXAMPLES

PRESETS = [preset(name).config for name in preset_names()]
PROJECTS = st.sampled_from([None, "org/a", "org/ab", "other"])


def ranking(trace: Trace) -> list[tuple[str, float | None, int | None, float | None, int | None, bool]]:
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
        assert ranking(replay(before, config)) == ranking(replay(replace(before, project=second), config))
    if as_of_effect(config).ignored:
        moved = replace(before, as_of=NOW + timedelta(days=days))
        assert ranking(replay(before, config)) == ranking(replay(moved, config))


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
