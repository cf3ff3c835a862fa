"""What a config asks for and this version cannot do is named, never dropped in silence."""

from __future__ import annotations

from typing import Any

import pytest

from cems_workbench.config import PipelineConfig, field_specs, preset, preset_names, with_values
from cems_workbench.pipeline.availability import CHOICES, NOT_YET, available, choices, refusals


def refused(**changes: Any) -> dict[str, list[str]]:
    values = {path.replace("__", "."): value for path, value in changes.items()}
    return refusals(with_values(PipelineConfig(), values))


def test_the_defaults_ask_for_nothing_that_is_missing() -> None:
    assert refusals(PipelineConfig()) == {}


def test_a_parameter_nothing_acts_on_is_named_in_its_stage() -> None:
    line = "query.typo_correction.enabled is not available in this version and was left out"
    assert refused(query__typo_correction__enabled=True) == {"query": [line]}


@pytest.mark.parametrize("path", sorted(CHOICES))
def test_a_value_that_does_not_work_is_named_with_those_that_do(path: str) -> None:
    spec = next(spec for spec in field_specs() if spec.path == path)
    assert set(CHOICES[path]) <= set(spec.choices)
    for value in spec.choices:
        lines = refusals(with_values(PipelineConfig(), {path: value})).get(spec.section, [])
        if value in CHOICES[path]:
            assert lines == []
        else:
            known = ", ".join(CHOICES[path])
            assert lines == [f"{path} {value} is not available in this version and was left out; available: {known}"]


def test_each_stage_has_a_line_for_everything_it_was_asked() -> None:
    found = refused(expansion__hyde=True, expansion__backend="llm", query__typo_correction__enabled=True)
    assert list(found) == ["query", "expansion"]
    assert [line.split(" ")[0] for line in found["expansion"]] == ["expansion.backend", "expansion.hyde"]


def test_every_name_stands_for_a_parameter() -> None:
    """Built things have to be taken off the list, and a renamed parameter must not slip off it."""
    paths = {spec.path for spec in field_specs()}
    for name in NOT_YET:
        assert any(path == name or path.startswith(f"{name}.") for path in paths), name


def test_a_name_covers_its_group_and_not_its_neighbours() -> None:
    assert not available("query.typo_correction.enabled")
    assert available("query.typo_correction_of_another_name")
    assert available("fusion.k")


def test_choices_without_an_entry_are_as_declared() -> None:
    assert choices("fusion.method", ("rrf", "score_sum")) == ("rrf", "score_sum")
    assert "llm" not in choices("expansion.backend", ("none", "llm"))


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_is_refused_only_what_is_on_the_lists(name: str) -> None:
    for lines in refusals(preset(name).config).values():
        for line in lines:
            path = line.split(" ")[0]
            assert path in CHOICES or not available(path)
