"""Export, then import: what comes back, for every valid config."""

from __future__ import annotations

import io
from typing import Any

import pytest
from dotenv import dotenv_values
from hypothesis import given
from hypothesis import strategies as st
from strategies import configs

from cems_workbench.config import (
    Form,
    PipelineConfig,
    difference,
    export_config,
    field_specs,
    import_config,
    with_values,
)
from cems_workbench.config.fields import TARGET_TITLES, Target
from cems_workbench.config.forms.sheet import Inexpressible, encode, exported
from cems_workbench.config.forms.targets import quoted


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
