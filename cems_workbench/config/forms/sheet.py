"""What a target can express of a config: its export names with their values, and every parameter that is left over."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from cems_workbench.config.export_names import TARGET_PRESETS, TARGET_TITLES, ExportName, Target
from cems_workbench.config.fields import FieldSpec
from cems_workbench.config.forms.codecs import Inexpressible, Nearest, Plain, decode, encode
from cems_workbench.config.forms.yaml_form import nested, with_values
from cems_workbench.config.model import PipelineConfig, field_specs
from cems_workbench.config.presets import preset
from cems_workbench.errors import InputError


@dataclass
class Sheet:
    """The written values by export name, and what is left over."""

    read: dict[str, str] = field(default_factory=dict)
    planned: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    """Path of a parameter that has an export name, and why its value is not in it."""


def exported(target: Target) -> list[tuple[FieldSpec, ExportName]]:
    """Every parameter that has a name in the target, with that name, in the order of docs/internals/specification.md."""
    return [(spec, export) for spec in field_specs() for export in spec.exports if export.target == target]


def filled(config: PipelineConfig, target: Target, write: Callable[[Plain], str]) -> Sheet:
    """Everything that the target can express, each value by `write`, which raises Inexpressible for one that cannot be written."""
    sheet = Sheet()
    for spec, export in exported(target):
        try:
            text = write(encode(spec, export, config))
        except Nearest as near:
            text = write(near.value)
            sheet.reasons[spec.path] = f"{export.name}: {near}"
        except Inexpressible as reason:
            sheet.reasons[spec.path] = f"{export.name}: {reason}"
            continue
        (sheet.read if export.read else sheet.planned)[export.name] = text
        if config.get(spec.path) is None:
            sheet.reasons[spec.path] = f"{export.name}={text} comes nearest"
    return sheet


def leftover(config: PipelineConfig, target: Target, sheet: Sheet, kind: str) -> str:
    """Every parameter that no export name carries whole, with its value and, where it differs, what the target has instead.

    Nothing is dropped in silence. `kind` is what the target calls its names: variable, argument, constant.
    """
    carried = {spec.path for spec, _ in exported(target)} - set(sheet.reasons)
    usual = preset(TARGET_PRESETS[target]).config
    rest = [spec for spec in field_specs() if spec.path not in carried]
    differs = [spec for spec in rest if spec.path in sheet.reasons or config.get(spec.path) != usual.get(spec.path)]
    same = [spec for spec in rest if spec not in differs]
    title = TARGET_TITLES[target]
    lines = [f"What {title} cannot express of this config; it may rank differently there:"]
    lines += [f"  {_line(config, spec, usual, sheet.reasons.get(spec.path))}" for spec in differs] or ["  nothing"]
    lines += ["", f"What no {kind} of {title} sets and is there as here (preset {TARGET_PRESETS[target]}):"]
    lines += [f"  {_line(config, spec, None, None)}" for spec in same]
    return "\n".join(lines)


def _line(config: PipelineConfig, spec: FieldSpec, usual: PipelineConfig | None, reason: str | None) -> str:
    """ "fusion.k = 17   (there 60)": the value here, why it cannot be there, and what is there if nothing was written."""
    here = _written(config, spec)
    text = f"{spec.path} = {here}" + (f"   ({reason})" if reason else "")
    if usual is None or (reason is not None and "nearest" in reason):
        return text
    there = _written(usual, spec)
    return text if there == here else f"{text}   (there {there})"


def _written(config: PipelineConfig, spec: FieldSpec) -> str:
    value: object = nested(config)
    for key in spec.path.split("."):
        assert isinstance(value, dict)
        value = value[key]
    return json.dumps(value, ensure_ascii=False)


@dataclass
class Reading:
    """What became of a file of a target."""

    config: PipelineConfig
    warnings: list[str] = field(default_factory=list)


def lay_over(reading: Reading, pair: tuple[FieldSpec, ExportName], value: str, where: str) -> None:
    """Take the value of an export name over into the config that is being read; one that is not allowed becomes a warning."""
    spec, export = pair
    try:
        changes = decode(spec, export, value, reading.config)
        reading.config = with_values(reading.config, changes, source=where) if changes else reading.config
    except (ValueError, InputError) as error:
        allowed = spec.range_text if isinstance(error, InputError) else error
        reading.warnings.append(
            f"{where}: {value[:40]!r} is not allowed; allowed: {allowed}; {spec.path} stays as it is"
        )
