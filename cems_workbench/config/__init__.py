"""The pipeline's configuration: model, YAML, presets."""

from typing import TYPE_CHECKING

from cems_workbench.builtin import preset_names
from cems_workbench.platform.start_up import lazy_names

if TYPE_CHECKING:
    from cems_workbench.config.evidence_card import EvidenceCard, Measured, card_path, read_card
    from cems_workbench.config.fields import COST_HELP, FieldSpec
    from cems_workbench.config.forms.files import (
        FORM_TITLES,
        FORMS,
        Form,
        Imported,
        export_config,
        file_name,
        import_config,
        load_config,
        load_import,
        read_back,
    )
    from cems_workbench.config.forms.yaml_form import (
        DEFAULT,
        Preset,
        assigned,
        assigned_value,
        config_from,
        config_hash,
        difference,
        dump_config,
        nested,
        parse_assignment,
        parse_config,
        portable_yaml,
        preset,
        with_values,
    )
    from cems_workbench.config.model import (
        PipelineConfig,
        asks_source,
        depth_notes,
        field_spec,
        field_specs,
        list_depths,
    )
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "evidence_card": "EvidenceCard Measured card_path read_card",
            "fields": "COST_HELP FieldSpec",
            "forms.files": "FORM_TITLES FORMS Form Imported export_config file_name import_config load_config load_import read_back",
            "forms.yaml_form": "DEFAULT Preset assigned assigned_value config_from config_hash difference dump_config "
            "nested parse_assignment parse_config portable_yaml preset with_values",
            "model": "PipelineConfig asks_source depth_notes field_spec field_specs list_depths",
        },
    )
