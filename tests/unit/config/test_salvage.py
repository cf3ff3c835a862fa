"""A config of another version is read as far as it can be, and what is left out is named."""

from __future__ import annotations

import json

import pytest

from cems_workbench.config import PipelineConfig, nested, preset, preset_names, with_values
from cems_workbench.config.forms.files import salvaged


def test_a_config_of_this_version_is_read_whole(subtests: pytest.Subtests) -> None:
    for name in preset_names():
        with subtests.test(name=name):
            config = preset(name).config
            assert salvaged(json.loads(json.dumps(nested(config)))) == (config, ())


def test_unknown_keys_are_left_out_and_named_and_missing_ones_have_the_default() -> None:
    values = nested(with_values(PipelineConfig(), {"fusion.k": 30, "gap.ratio": 0.25}))
    values["fusion"]["magic"] = 1
    values["hyperspace"] = {"enabled": True}
    del values["dedup"]
    config, left_out = salvaged(values)
    assert config == with_values(PipelineConfig(), {"fusion.k": 30, "gap.ratio": 0.25})
    assert left_out == ("fusion.magic", "hyperspace")


def test_a_value_that_is_not_allowed_is_left_out_and_the_others_stay() -> None:
    values = nested(with_values(PipelineConfig(), {"gap.ratio": 0.25, "adjust.time_decay.tiers": {"b": 3.0, "a": 2.0}}))
    values["fusion"]["method"] = "no_such_method"
    values["rerank"] = "none"
    config, left_out = salvaged(values)
    assert config == with_values(PipelineConfig(), {"gap.ratio": 0.25, "adjust.time_decay.tiers": {"b": 3.0, "a": 2.0}})
    assert set(left_out) == {"fusion.method", "rerank"}
