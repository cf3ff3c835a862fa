"""The pipeline's configuration: model, YAML, presets."""

from cems_workbench.config.depths import depth_notes, list_depths
from cems_workbench.config.evidence_card import EvidenceCard, Measured, card_path, read_card
from cems_workbench.config.export import FORM_TITLES, FORMS, Form, export_config, file_name
from cems_workbench.config.fields import KIND_HELP, FieldSpec
from cems_workbench.config.import_config import Imported, import_config, load_config, load_import
from cems_workbench.config.model import PipelineConfig, field_spec, field_specs
from cems_workbench.config.presets import DEFAULT, Preset, preset, preset_names
from cems_workbench.config.yaml_io import (
    config_from,
    difference,
    dump_config,
    nested,
    parse_assignment,
    parse_config,
    with_values,
)

__all__ = [
    "DEFAULT",
    "FORMS",
    "FORM_TITLES",
    "KIND_HELP",
    "EvidenceCard",
    "FieldSpec",
    "Form",
    "Imported",
    "Measured",
    "PipelineConfig",
    "Preset",
    "card_path",
    "config_from",
    "depth_notes",
    "difference",
    "dump_config",
    "export_config",
    "field_spec",
    "field_specs",
    "file_name",
    "import_config",
    "list_depths",
    "load_config",
    "load_import",
    "nested",
    "parse_assignment",
    "parse_config",
    "preset",
    "preset_names",
    "read_card",
    "with_values",
]
