"""Preset files: where they are, and the values of a config that extends one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from cems_workbench.builtin import preset_names
from cems_workbench.errors import InputError, nearest, one_line
from cems_workbench.platform.parsing import shipped_yaml_values

EXTENDS = "extends"
"""The key of a config file that names the preset it starts from."""
WHOLE = ("adjust.time_decay.tiers",)
"""Mappings that are one value: a config has those of its parent, or its own."""


def extended(values: Mapping[str, Any], source: str, children: tuple[str, ...] = ()) -> dict[str, Any]:
    """The values of a config that `extends` a preset, over those of that preset; without the key `extends`.

    `children` are the presets that were read on the way here. Raises InputError for an unknown preset and for a cycle.
    """
    name = known_preset(str(values[EXTENDS]), f"{source}: {EXTENDS}")
    if name in children:
        raise InputError(f"{source}: {EXTENDS}: {' → '.join((*children, name))}: these presets extend each other")
    above = shipped_values(name)
    if EXTENDS in above:
        above = extended(above, f"presets/{name}.yaml", (*children, name))
    return _over(above, {key: value for key, value in values.items() if key != EXTENDS})


def shipped_values(name: str) -> Mapping[str, Any]:
    """The values that a preset's file states."""
    return _parsed(preset_text(name))


@cache  # most presets extend the same few
def _parsed(text: str) -> Mapping[str, Any]:
    values: Mapping[str, Any] = shipped_yaml_values(text)
    return values


def preset_text(name: str) -> str:
    """The file of a preset."""
    return (preset_folder() / f"{name}.yaml").read_text(encoding="utf-8")


def _over(above: Mapping[str, Any], values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    merged = dict(above)
    for key, value in values.items():
        inner, path = merged.get(key), f"{prefix}{key}"
        both = isinstance(value, Mapping) and isinstance(inner, Mapping) and path not in WHOLE
        merged[key] = _over(inner, value, f"{path}.") if both else value  # type: ignore[arg-type]
    return merged


def preset_folder() -> Traversable:
    """The folder of the shipped presets."""
    return resources.files("cems_workbench.config") / "presets"


def known_preset(name: str, where: str) -> str:
    """The name of a preset. Raises InputError, which `where` and the name open, with the known ones and the nearest."""
    known = preset_names()
    if name not in known:
        close = nearest(name, known)
        hint = f"; did you mean {close}?" if close else ""
        raise InputError(f"{where} {one_line(name, 80)}: unknown{hint} Known presets: {', '.join(known)}")
    return name
