"""An exported `.env` in the two programs that read it: python-dotenv, and pydantic-settings with the names and types of CEMS."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from dotenv import dotenv_values
from hypothesis import given

from cems_workbench.config import export_config, field_spec
from tests.property.strategies import configs
from tests.unit.config.test_export_forms import CEMSConfig


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
        assert field_spec(spec_path).exports[0].name == f"CEMS_{name.upper()}"
        if stated[name] is not None:
            assert getattr(read, name) == config.get(spec_path)
