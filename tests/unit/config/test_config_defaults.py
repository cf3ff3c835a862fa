"""Parameters, their defaults and the presets, as the specification and the pages about them say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cems_workbench.config import (
    DEFAULT,
    PipelineConfig,
    difference,
    dump_config,
    export_config,
    field_specs,
    nested,
    parse_config,
    preset,
    preset_names,
    with_values,
)
from cems_workbench.config.forms.yaml_form import present_values
from cems_workbench.config.sections import ADDED_LISTS
from cems_workbench.pipeline.stages import STAGES
from docs.reference_pages.parameters import tables
from docs.reference_pages.presets import document, paragraphs, shown

OPEN_MAPPINGS = {"adjust.time_decay.tiers"}
PRESETS = Path(__file__).resolve().parents[3] / "cems_workbench" / "config" / "presets"
GATHER = re.compile(
    r"query\.|expansion\.|lists\.candidate_set\.|lists\.relations\.(seeds|per_seed)$|lists\.(\w+\.)?first_stage_factor$|"
    r"lists\.lexical\.skip_if_conversational$|"
    r"rerank\.(backend|model|instruction|query|chunk_\w+|oversample_factor|max_concurrent|timeout_s)$|"
    r"judge\.(backend|model|max_chars)$"
)
DEEPEN = {"lists.vector.depth", "lists.lexical.depth", "rerank.depth"}
"""What PIPELINE.md says of its own parameters; one that is younger states its cost itself."""
OF_THE_JUDGE = {"judge.threshold": None, "judge.bands": None, "judge.max_chars": None}
"""Where PIPELINE.md has the numbers of ms-marco: each judge has its own (docs/internals/decisions/0008), and reads what
the reranker reads, not 500 characters."""


def leaves(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Every value by dotted path; mappings with free keys are values."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and path not in OPEN_MAPPINGS:
            found |= leaves(value, f"{path}.")
        else:
            found[path] = value
    return found


@pytest.fixture
def specified(shared: Path) -> dict[str, Any]:
    """The YAML block of PIPELINE.md."""
    text = (shared / "PIPELINE.md").read_text(encoding="utf-8")
    block = re.search(r"```yaml\n(version: 1\n.*?)```", text, re.DOTALL)
    assert block, "PIPELINE.md has no YAML block"
    values: dict[str, Any] = yaml.safe_load(block.group(1))
    return values


@pytest.fixture
def specified_leaves(specified: dict[str, Any]) -> dict[str, Any]:
    """Every parameter of PIPELINE.md by its present path, with its default."""
    return {path: value for path, value in leaves(present_values(specified)).items() if path != "version"}


def test_every_specified_parameter_has_the_specified_default(specified_leaves: dict[str, Any]) -> None:
    ours = leaves(nested(PipelineConfig()))
    assert {path: ours.get(path) for path in specified_leaves} == specified_leaves | OF_THE_JUDGE


def test_the_specification_itself_parses_to_the_defaults(specified: dict[str, Any]) -> None:
    """Which shows that younger parameters leave everything as PIPELINE.md has it, as far as their defaults go."""
    parsed = parse_config(yaml.safe_dump(specified, sort_keys=False))
    assert with_values(parsed, OF_THE_JUDGE) == PipelineConfig()
    assert (parsed.judge.threshold, parsed.judge.bands) == (-10.0, (-8.0, -10.0, -12.0))


def test_the_field_metadata_covers_every_key() -> None:
    assert [spec.path for spec in field_specs()] == [path for path in leaves(nested(PipelineConfig())) if "." in path]


def test_the_order_of_the_keys_is_that_of_the_specification(specified_leaves: dict[str, Any]) -> None:
    assert [path for path in leaves(nested(PipelineConfig())) if path in specified_leaves] == list(specified_leaves)


def test_every_parameter_explains_itself(subtests: pytest.Subtests) -> None:
    for spec in field_specs():
        with subtests.test(path=spec.path):
            assert spec.label.strip() and spec.help.strip()
            assert spec.help.rstrip().endswith((".", ")"))
            assert spec.range_text
            assert spec.label != spec.help


def test_every_number_has_a_range_a_step_and_a_slider_within_it(subtests: pytest.Subtests) -> None:
    for spec in [spec for spec in field_specs() if spec.type in (int, float)]:
        with subtests.test(path=spec.path):
            assert spec.low is not None and spec.high is not None and spec.step is not None
            low, high = spec.soft or (spec.low, spec.high)
            assert spec.low <= low < high <= spec.high
            assert spec.default is None or spec.low <= spec.default <= spec.high
            assert 0 < spec.step <= high - low


def test_specified_parameters_cost_what_the_specification_says(subtests, specified_leaves):
    for spec in field_specs():
        if spec.path in specified_leaves:
            with subtests.test(path=spec.path):
                expected = "deepen" if spec.path in DEEPEN else "gather" if GATHER.match(spec.path) else "replay"
                assert spec.cost == expected


def stated(name: str) -> dict[str, Any]:
    """What a preset's file says."""
    values: dict[str, Any] = yaml.safe_load((PRESETS / f"{name}.yaml").read_text(encoding="utf-8"))
    return values


def test_reference_preset_states_every_key_and_no_other() -> None:
    """The sections of added retrievers come from their modules, and are off."""
    added = tuple(f"lists.{name}." for name in ADDED_LISTS)
    keys = [path for path in leaves(nested(PipelineConfig())) if not path.startswith(added)]
    assert list(leaves(stated(DEFAULT))) == keys


def test_preset_extends_another_and_states_only_what_differs(subtests: pytest.Subtests) -> None:
    for name in preset_names():
        if name != DEFAULT:
            with subtests.test(name=name):
                values = stated(name)
                parent = preset(values.pop("extends")).config
                differs = {path: now for path, _, now in difference(parent, preset(name).config)}
                assert set(leaves(values)) == {"version", "name", *differs}
                assert values["name"] == name
                assert list(leaves(values)) == [
                    path for path in leaves(nested(PipelineConfig())) if path in leaves(values)
                ]


def test_a_preset_names_its_source_and_survives_a_round_trip(subtests: pytest.Subtests) -> None:
    for name in preset_names():
        with subtests.test(name=name):
            shipped = preset(name)
            assert "Source:" in shipped.notes
            assert parse_config(dump_config(shipped.config, header=shipped.notes)) == shipped.config


def test_the_cems_preset_is_the_default_of_every_key() -> None:
    assert preset("cems").config == PipelineConfig()
    assert preset_names()[0] == "cems"


def test_cems_head_has_tiers_of_21_60_and_120_days() -> None:
    tiers = dict(preset("cems_head").config.adjust.time_decay.tiers)
    assert tiers == dict.fromkeys(["preferences", "guidelines", "gate-rules"], 120.0) | dict.fromkeys(
        ["session-summary", "tool-learning", "category-summary", "observation"], 21.0
    )


def test_with_values_leaves_the_original_alone() -> None:
    config = PipelineConfig()
    changed = with_values(config, {"fusion.top_rank_bonus.rank1": 0.1, "lists.vector.depth": None})
    assert difference(config, changed) == [
        ("lists.vector.depth", 150, None),
        ("fusion.top_rank_bonus.rank1", 0.05, 0.1),
    ]
    assert config == PipelineConfig()


def test_a_single_tier_can_be_set_by_its_path() -> None:
    assert with_values(PipelineConfig(), {"adjust.time_decay.tiers.session": 21}).adjust.time_decay.tiers == (
        ("session", 21.0),
    )


SPECIFICATION = Path(__file__).resolve().parents[3] / "docs" / "internals" / "specification.md"


def test_every_parameter_has_a_row_with_its_default_and_range() -> None:
    rows = {line.split("|")[1].strip(): line for line in tables().splitlines() if line.startswith("| `")}
    assert list(rows) == [f"`{spec.path}`" for spec in field_specs()]
    for spec in field_specs():
        assert spec.cost in rows[f"`{spec.path}`"]
        assert spec.help.split("|")[0].strip() in rows[f"`{spec.path}`"]


def test_every_stage_has_a_section_of_its_name() -> None:
    headings = [line[3:] for line in SPECIFICATION.read_text(encoding="utf-8").splitlines() if line.startswith("## ")]
    assert [heading for heading in headings if heading in {stage.name for stage in STAGES}] == [
        stage.name for stage in STAGES
    ]


def test_a_section_has_the_notes_and_every_difference(subtests: pytest.Subtests) -> None:
    for name in preset_names():
        with subtests.test(name=name):
            section = document().split(f"\n## {name}\n")[1].split("\n## ")[0]
            for word in preset(name).notes.split():
                assert word.strip("#") in section
            changes = difference(preset("cems").config, preset(name).config)
            assert section.count("\n| `") == len(changes)
            for path, _, now in changes:
                assert any(
                    line.startswith(f"| `{path}` | ") and f"`{shown(now)}`" in line for line in section.splitlines()
                )


def test_every_preset_has_a_source_and_a_known_mistake() -> None:
    for name in preset_names():
        labels = [line.split(":")[0] for line in paragraphs(preset(name).notes)]
        assert any(label == "Source" for label in labels), name
        assert any(label.startswith("Known mistake") for label in labels), name


def test_what_a_file_leaves_out_is_as_in_the_default_preset() -> None:
    """So the page need not say what cems differs from."""
    assert difference(PipelineConfig(), preset("cems").config) == []


def test_an_exported_config_extends_the_preset_of_its_name_and_is_read_back_equal() -> None:
    changes = {"fusion.k": 30, "adjust.time_decay.tiers": {"1": 1.0, "30": 0.5}, "name": "mem0-tuned"}
    changed = with_values(preset("mem0").config, changes)
    text = export_config(changed, "yaml")
    assert text.splitlines()[:3] == ["version: 2", "extends: mem0", "name: mem0-tuned"] and text.count("\n") < 10
    assert parse_config(text) == changed
    assert "name" not in export_config(with_values(changed, {"name": "mem0"}), "yaml"), "its file names it"
    for whole in (preset("mem0").config, with_values(changed, {"name": "other"})):
        assert parse_config(export_config(whole, "yaml")) == whole and "extends" not in export_config(whole, "yaml")
