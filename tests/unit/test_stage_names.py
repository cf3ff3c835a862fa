"""The stages have one list: whatever names them takes the names from it, and nothing is missing."""

from __future__ import annotations

from pathlib import Path

from cems_workbench.analysis.ranks import RANKED_STAGES, ranked_stages
from cems_workbench.config import PipelineConfig, field_specs, preset, with_values
from cems_workbench.evaluation.evaluate import without_each_stage
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.list_sources import LIST_SOURCES
from cems_workbench.pipeline.stages import CANDIDATE_STAGES, STAGES
from cems_workbench.pipeline.stages.result import StageFields, StageRow
from cems_workbench.ui.inspect.context import RAW, SOURCES, about
from cems_workbench.ui.inspect.controls import GROUPS
from cems_workbench.ui.inspect.results import strip_html

NAMES = [stage.name for stage in STAGES]


def test_every_stage_has_a_file_of_its_name_and_a_record_of_its_own() -> None:
    folder = Path(__file__).resolve().parents[2] / "cems_workbench" / "pipeline" / "stages"
    files = {file.stem for file in folder.glob("*.py")} - {"__init__", "stage", "result", "recorded"}
    assert files == set(NAMES) and len(set(NAMES)) == len(STAGES)
    for stage in STAGES:
        assert issubclass(stage.row, StageRow) and issubclass(stage.fields, StageFields)
        assert stage.title and stage.description.endswith(".")


def test_sidebar_glossary_strip_trace_and_ranks_name_the_same_stages() -> None:
    trace = replay(Evidence("q", {}), preset("cems").config)
    assert [stage.name for stage in trace.stages] == NAMES
    assert [section for section in GROUPS if section in NAMES] == NAMES
    assert [GROUPS[name] for name in NAMES] == [stage.title for stage in STAGES]
    assert all(about(name) == stage.description for name, stage in zip(NAMES, STAGES, strict=True))
    strip = strip_html(trace)
    places = [strip.index(f'<div class="wb-name">{name}</div>') for name in NAMES]
    assert places == sorted(places)
    ranking = [name for name in NAMES if name in RANKED_STAGES]
    assert list(ranked_stages(trace)) == ranking == list(RANKED_STAGES)


def test_strip_trace_and_ranks_follow_the_order_of_the_config() -> None:
    config = with_values(preset("cems").config, {"rerank.position": "returned", "rerank.backend": "cross_encoder"})
    trace = replay(Evidence("q", {}), config)
    names = [stage.name for stage in trace.stages]
    assert names == [
        *NAMES[: NAMES.index("rerank")],
        "adjust",
        "gap",
        "dedup",
        "rerank",
        "supersession",
        "abstain",
        "assembly",
        "judge",
    ]
    strip = strip_html(trace)
    places = [strip.index(f'<div class="wb-name">{name}</div>') for name in names]
    assert places == sorted(places)
    assert list(ranked_stages(trace)) == [name for name in names if name in RANKED_STAGES]


def test_every_parameter_has_its_place_in_the_sidebar() -> None:
    assert {spec.section for spec in field_specs()} - {"version", "name"} <= set(GROUPS)


def test_what_a_switch_reads_is_a_parameter_of_the_config() -> None:
    known = {spec.path for spec in field_specs()}
    for stage in STAGES:
        for switch in stage.switches:
            assert {*switch.off} <= known, (stage.name, switch.name)
            with_values(PipelineConfig(), dict(switch.off))  # every value is allowed


def test_every_switch_that_is_on_is_ablated_once_and_under_its_own_name() -> None:
    everything = with_values(
        preset("cems").config,
        {
            "name": "all",
            "lists.recency.enabled": True,
            "lists.access.enabled": True,
            "lists.relations.enabled": True,
            "threshold.mode": "fixed",
            "fusion.multi_list_boost": 0.1,
            "fusion.importance_bonus_ranks": 5,
            "rerank.backend": "ollama",
            "adjust.feedback.enabled": True,
            "gap.ratio": 0.2,
            "dedup.enabled": True,
        },
    )
    switches = [switch for stage in CANDIDATE_STAGES for switch in stage.switches]
    assert len({switch.name for switch in switches}) == len(switches) >= 22
    on = [switch for switch in switches if not switch.is_off(everything)]
    assert len(on) >= 22  # what was switched on above, and what the preset has on
    assert [one.name for one in without_each_stage(everything)] == [f"all without {switch.name}" for switch in on]


def test_every_list_source_has_a_switch_a_description_and_a_raw_score() -> None:
    for source in LIST_SOURCES:
        assert SOURCES[source.name] == source.description == about(source.name)
        assert RAW[source.name] == source.raw
        assert hasattr(PipelineConfig().lists, source.name)
