"""Configs in the forms other programs read."""

from __future__ import annotations

import json

from cems_workbench.config.model import PipelineConfig
from cems_workbench.config.yaml_io import dump_config, nested
from cems_workbench.errors import InputError

FORMS = ("yaml", "json")


def export_config(config: PipelineConfig, form: str) -> str:
    """The config as text with every key stated; both forms are read back by `parse_config`. Raises InputError."""
    if form == "yaml":
        return dump_config(config)
    if form == "json":
        return json.dumps(nested(config), ensure_ascii=False, indent=2) + "\n"
    raise InputError(f"export to {form}: not known; allowed: {', '.join(FORMS)}")
