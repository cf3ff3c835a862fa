"""Configs through every form and back, and read by other readers."""

from __future__ import annotations

import io
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from dotenv import dotenv_values
from hypothesis import given
from hypothesis import strategies as st
from strategies import configs, values_of

from cems_workbench.config import (
    FieldSpec,
    Form,
    PipelineConfig,
    difference,
    dump_config,
    export_config,
    field_specs,
    import_config,
    parse_config,
    with_values,
)
from cems_workbench.config.forms.targets import TARGET_TITLES, Inexpressible, Target, encode, exported, quoted
from tests.unit.config.test_export_forms import CEMSConfig


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


@pytest.mark.parametrize("form", ["yaml", "json", "toml", "python"])
@given(config=configs())
def test_a_whole_form_gives_the_identical_config_back(form: Form, config: PipelineConfig) -> None:
    text = export_config(config, form)
    imported = import_config(text, config, source="config." + {"python": "py"}.get(form, form))
    assert imported.config == config and hash(imported.config) == hash(config)
    assert (imported.form, imported.changes, imported.warnings) == (form, [], [])


@pytest.mark.parametrize("form", ["yaml", "json", "toml", "python", "env", "reranker-env", "mem0", "engram"])
@given(config=configs())
def test_a_form_is_told_by_its_text_alone(form: Form, config: PipelineConfig) -> None:
    text = export_config(config, form)
    if form in TARGET_TITLES:
        assert import_config(text, config, source="upload").form == form
    else:
        assert import_config(text, source="upload").config == config


@pytest.mark.parametrize("target", ["env", "reranker-env", "ace-env"])
@given(config=configs(), present=configs())
def test_every_variable_of_an_env_survives(target: Target, config: PipelineConfig, present: PipelineConfig) -> None:
    """Laid over another config, the file brings every parameter that its target has, and leaves every other."""
    imported = import_config(export_config(config, target), present, source=".env").config
    carried = set()
    for spec, export in exported(target):
        carried.add(spec.path)
        try:
            value = encode(spec, export, config)
            quoted(value)
        except Inexpressible:
            continue
        again = encode(spec, export, imported)
        assert again == value, export.name
    assert {path for path, _, _ in difference(present, imported)} <= carried


@pytest.mark.parametrize("target", ["env", "reranker-env", "ace-env"])
@given(config=configs())
def test_an_env_lists_what_it_does_not_carry(target: Target, config: PipelineConfig) -> None:
    """Each parameter is a variable, which reads back to its value, or a comment with its path and value."""
    text = export_config(config, target)
    listed = {line[1:].split(" = ")[0].strip() for line in text.splitlines() if line.startswith("#   ")}
    reset = with_values(PipelineConfig(), {"name": config.name})
    imported = import_config(text, reset, source=".env").config if "=" in text else reset
    for spec in field_specs():
        assert spec.path in listed or imported.get(spec.path) == config.get(spec.path), spec.path


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_a_text_in_an_env_is_read_as_it_was_or_not_written(text: str) -> None:
    try:
        written = quoted(text)
    except Inexpressible:
        return
    for interpolate in (True, False):
        assert dotenv_values(stream=io.StringIO(f"A={written}\nB=1\n"), interpolate=interpolate) == {
            "A": text,
            "B": "1",
        }


@given(configs(), st.text(st.characters(codec="utf-8"), max_size=30))
def test_no_name_breaks_out_of_a_comment(config: PipelineConfig, name: str) -> None:
    renamed = with_values(config, {"name": f"a\nCEMS_SCORE_GAP_RATIO=9\r\x85{name}"})
    values: dict[str, Any] = dotenv_values(stream=io.StringIO(export_config(renamed, "env")))
    assert float(values["CEMS_SCORE_GAP_RATIO"]) == config.gap.ratio
    assert set(values) <= {export.name for _, export in exported("env")}


def test_every_variable_stands_for_one_parameter() -> None:
    for target in TARGET_TITLES:
        names = [export.name for _, export in exported(target) if export.codec != "band"]
        assert len(set(names)) == len(names)


@given(config=configs())
def test_dotenv_and_pydantic_settings_read_the_same_values_which_are_those_of_the_config(config):
    assert not [name for name in os.environ if name.startswith("CEMS_") and not name.startswith("CEMS_WORKBENCH_")]
    with TemporaryDirectory() as folder:
        path = Path(folder) / ".env"
        path.write_text(export_config(config, "env"), encoding="utf-8")
        plain = dotenv_values(path)
        read = CEMSConfig(_env_file=path)  # type: ignore[call-arg]
    stated = {name: plain.get(f"CEMS_{name}".upper()) for name in CEMSConfig.model_fields}
    for name, text in stated.items():
        value = getattr(read, name)
        if text is None:  # what CEMS cannot use stands in a comment, and its own default holds
            assert value == CEMSConfig.model_fields[name].default, name
        else:
            assert value == (text == "true" if isinstance(value, bool) else type(value)(text)), name
    for name, spec_path in (
        ("score_gap_ratio", "gap.ratio"),
        ("project_boost_factor", "adjust.project.same"),
        ("hybrid_vector_weight", "lists.hybrid.vector_weight"),
    ):
        assert (spec_path, f"CEMS_{name.upper()}") in {(spec.path, export.name) for spec, export in exported("env")}
        if stated[name] is not None:
            assert getattr(read, name) == config.get(spec_path)
