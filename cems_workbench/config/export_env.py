"""A config as the `.env` file of CEMS or of the memory agent.

Three parts: the variables that the target reads, those that its plan names and it does not read today, and, as comments, every
parameter that no variable carries, those first in which the config differs from what the target does anyway. Values are quoted
so that a plain dotenv parser, pydantic-settings and a shell read the same; what cannot be quoted so is listed instead.

Source: DESIGN.md, "Formats" (.env for CEMS, .env for the memory agent).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from cems_workbench.config.comments import commented
from cems_workbench.config.env_codecs import Inexpressible, Plain, encode
from cems_workbench.config.export_names import TARGET_PRESETS, TARGET_TITLES, ExportName, Target
from cems_workbench.config.fields import FieldSpec
from cems_workbench.config.model import PipelineConfig, field_specs
from cems_workbench.config.presets import preset
from cems_workbench.config.yaml_io import nested

_BARE = re.compile(r"[A-Za-z0-9_./:@%+,-]+")
_NO_QUOTES_AGREE = "no quoting of this text is read alike by every reader of .env files"


@dataclass
class _Sheet:
    """The variables and what is left over, while it is being filled."""

    read: dict[str, str] = field(default_factory=dict)
    planned: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    """Path of a parameter that has a variable, and why its value is not in it."""


def export_env(config: PipelineConfig, target: Target, header: str = "") -> str:
    """The `.env` text. `header` (name, evidence card) stands in front as comments."""
    sheet = _Sheet()
    for spec, export in exported(target):
        _fill(sheet, spec, export, config)
    title = TARGET_TITLES[target]
    parts = [commented(header), commented(f"Read by {title}") + _assignments(sheet.read)]
    if sheet.planned:
        parts.append(commented(f"Not read by current {title}: named in its plan") + _assignments(sheet.planned))
    parts.append(commented(_leftover(config, target, sheet)))
    return "\n".join(part for part in parts if part)


def exported(target: Target) -> list[tuple[FieldSpec, ExportName]]:
    """Every parameter that has a variable in the target, with that variable, in the order of PIPELINE.md."""
    return [(spec, export) for spec in field_specs() for export in spec.exports if export.target == target]


def _fill(sheet: _Sheet, spec: FieldSpec, export: ExportName, config: PipelineConfig) -> None:
    try:
        text = quoted(encode(spec, export, config))
    except Inexpressible as reason:
        sheet.reasons[spec.path] = f"{export.name}: {reason}"
        return
    (sheet.read if export.read else sheet.planned)[export.name] = text
    if config.get(spec.path) is None:
        sheet.reasons[spec.path] = f"{export.name}={text} comes nearest"
    elif export.codec == "share":
        sheet.reasons[spec.path] = f"{export.name} has the ratio only, not the weights"


def quoted(value: Plain) -> str:
    """A value as every reader of .env files reads it. Raises Inexpressible."""
    if not isinstance(value, str):
        return str(value).lower() if isinstance(value, bool) else repr(value)
    if _BARE.fullmatch(value):
        return value
    if value.isprintable() and "\\" not in value and "${" not in value:
        if "'" not in value:
            return f"'{value}'"
        if not set('"$`!') & set(value):
            return f'"{value}"'
    raise Inexpressible(_NO_QUOTES_AGREE)


def _assignments(values: dict[str, str]) -> str:
    return "".join(f"{name}={text}\n" for name, text in values.items())


def _leftover(config: PipelineConfig, target: Target, sheet: _Sheet) -> str:
    """Every parameter that no variable carries whole, with its value: nothing is dropped in silence."""
    carried = {spec.path for spec, _ in exported(target)} - set(sheet.reasons)
    usual = preset(TARGET_PRESETS[target]).config
    rest = [spec for spec in field_specs() if spec.path not in carried]
    differs = [spec for spec in rest if spec.path in sheet.reasons or config.get(spec.path) != usual.get(spec.path)]
    same = [spec for spec in rest if spec not in differs]
    title = TARGET_TITLES[target]
    lines = [f"What {title} cannot express of this config; it may rank differently there:"]
    lines += [f"  {_line(config, spec, sheet.reasons.get(spec.path))}" for spec in differs] or ["  nothing"]
    lines += ["", f"What no variable of {title} sets and is there as here (preset {TARGET_PRESETS[target]}):"]
    lines += [f"  {_line(config, spec, None)}" for spec in same]
    return "\n".join(lines)


def _line(config: PipelineConfig, spec: FieldSpec, reason: str | None) -> str:
    value: object = nested(config)
    for key in spec.path.split("."):
        assert isinstance(value, dict)
        value = value[key]
    text = f"{spec.path} = {json.dumps(value, ensure_ascii=False)}"
    return f"{text}   ({reason})" if reason else text
