"""What holds for every valid config."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from strategies import configs, values_of

from cems_workbench.config import (
    FieldSpec,
    PipelineConfig,
    difference,
    dump_config,
    export_config,
    field_specs,
    parse_config,
    with_values,
)


@given(configs(), st.text(st.characters(codec="utf-8"), max_size=30))
def test_yaml_round_trip_is_lossless(config: PipelineConfig, header: str) -> None:
    again = parse_config(dump_config(config, header="note: " + header.replace("\x00", "")))
    assert again == config
    assert hash(again) == hash(config)
    assert difference(config, again) == []


@given(configs())
def test_json_round_trip_is_lossless(config: PipelineConfig) -> None:
    assert parse_config(export_config(config, "json")) == config


@given(configs(), configs())
def test_the_difference_of_two_configs_turns_one_into_the_other(old: PipelineConfig, new: PipelineConfig) -> None:
    changes: dict[str, Any] = {path: _plain(path, value) for path, _, value in difference(old, new)}
    assert with_values(old, changes | {"name": new.name}) == new


def _plain(path: str, value: Any) -> Any:
    if path == "rerank.bands":
        return [band.model_dump() for band in value]
    return dict(value) if path == "adjust.time_decay.tiers" else value


@given(st.sampled_from(field_specs()).flatmap(lambda spec: st.tuples(st.just(spec), values_of(spec))))
def test_every_value_within_a_declared_range_is_accepted_and_read_back(case: tuple[FieldSpec, Any]) -> None:
    spec, value = case
    config = with_values(PipelineConfig(), {spec.path: value})
    assert parse_config(dump_config(config)).get(spec.path) == config.get(spec.path)
