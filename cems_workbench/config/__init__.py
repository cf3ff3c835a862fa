"""The pipeline's configuration: model, YAML, presets."""

from cems_workbench.config.depths import depth_notes, list_depths
from cems_workbench.config.export import FORMS, export_config
from cems_workbench.config.fields import KIND_HELP, FieldSpec
from cems_workbench.config.model import PipelineConfig, field_spec, field_specs
from cems_workbench.config.presets import DEFAULT, Preset, preset, preset_names
from cems_workbench.config.yaml_io import (
    config_from,
    difference,
    dump_config,
    load_config,
    nested,
    parse_assignment,
    parse_config,
    with_values,
)

__all__ = [
    "DEFAULT",
    "FORMS",
    "KIND_HELP",
    "FieldSpec",
    "PipelineConfig",
    "Preset",
    "config_from",
    "depth_notes",
    "difference",
    "dump_config",
    "export_config",
    "field_spec",
    "field_specs",
    "list_depths",
    "load_config",
    "nested",
    "parse_assignment",
    "parse_config",
    "preset",
    "preset_names",
    "with_values",
]
