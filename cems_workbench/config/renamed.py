"""Configs with old names: the parameters and values of `cems_workbench.renamed`, applied to nested values and dotted paths.

Present names are what code, config files and pages use. Original names, those of config version 1, are what is hashed and what evidence
keeps: names of files, score caches and evidence hashes do not change when a name does.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

from cems_workbench.renamed import PARAMETER_VALUES, PARAMETERS, report

ORIGINAL_VERSION = 1
"""Of a config with the original names."""


def _reversed(table: Mapping[str, str]) -> dict[str, str]:
    """Old name by present one; the oldest, which is the first row, where there are several."""
    return {new: old for old, new in reversed(list(table.items()))}


_ORIGINAL_PATHS = _reversed(PARAMETERS)
_ORIGINAL_VALUES = {path: _reversed(values) for path, values in PARAMETER_VALUES.items()}


@cache
def present_path(path: str) -> str:
    """The present path of a parameter, a section or a key below one."""
    for old, new in PARAMETERS.items():
        if path == old or path.startswith(f"{old}."):
            return new + path[len(old) :]
    return path


def present_value(path: str, value: Any) -> Any:
    """The present value of the parameter at a present path."""
    return PARAMETER_VALUES.get(path, {}).get(value, value) if isinstance(value, str) else value


def present_assignment(path: str, value: Any, *, quiet: bool = False) -> tuple[str, Any]:
    """Path and value of one assignment under their present names; reported as deprecated unless `quiet`."""
    new_path = present_path(path)
    new_value = present_value(new_path, value)
    if not quiet and (new_path, new_value) != (path, value):
        report(*((path, new_path) if new_path != path else (f"{path}: {value}", str(new_value))))
    return new_path, new_value


def present_values(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The nested values of a config under their present names, in their order; nothing is reported.

    Where both the old and the present name of a parameter are given, the old one stays, as an unknown key.
    """
    present: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        name = present_path(path).rpartition(".")[2]
        if name != key and name in values:
            name = key
        if isinstance(value, Mapping):
            present[name] = present_values(value, f"{path}.")
        else:
            present[name] = present_value(present_path(path), value)
    return present


def present_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Values by dotted path, under their present names."""
    return dict(present_assignment(path, value, quiet=True) for path, value in parameters.items())


def original_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Values by present dotted path, under their original names, without added parameters at their defaults."""
    added = _added_defaults()
    return {
        _original_path(path): _original_value(path, value)
        for path, value in parameters.items()
        if path not in added or _plain(value) != added[path]
    }


@cache
def _added_defaults() -> Mapping[str, Any]:
    """By path the default, as a plain value, of each parameter that version 1 did not have."""
    from cems_workbench.config.model import PipelineConfig, field_specs  # the model reads this module

    default = PipelineConfig()
    return {spec.path: _plain(default.get(spec.path)) for spec in field_specs() if spec.added}


def _plain(value: Any) -> Any:
    """A value as a config file has it: lists for tuples, mappings for sections."""
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value.model_dump() if isinstance(value, BaseModel) else value


def original_values(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The nested values of a config (`nested`) under their original names, in their order, without added parameters at their defaults.

    So neither a new parameter nor an installed retriever changes the digest of a config that does not use it.
    """
    original: dict[str, Any] = {}
    added = _added_defaults()
    for key, value in values.items():
        path = f"{prefix}{key}"
        if path in added and _plain(value) == added[path]:
            continue
        name = _original_path(path).rpartition(".")[2]
        if isinstance(value, Mapping):
            inner = original_values(value, f"{path}.")
            if inner or not value:
                original[name] = inner
        else:
            original[name] = ORIGINAL_VERSION if path == "version" else _original_value(path, value)
    return original


@cache
def _original_path(path: str) -> str:
    for new, old in _ORIGINAL_PATHS.items():
        if path == new or path.startswith(f"{new}."):
            return old + path[len(new) :]
    return path


def _original_value(path: str, value: Any) -> Any:
    return _ORIGINAL_VALUES.get(path, {}).get(value, value) if isinstance(value, str) else value


def old_names(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """(old, present) of the parameters and values in a nested config that have another name now."""
    pairs: list[tuple[str, str]] = []
    for key, value in values.items():
        path = f"{prefix}{key}"
        new = present_path(path)
        if path in PARAMETERS:
            pairs.append((path, new))
        if isinstance(value, Mapping):
            pairs += old_names(value, f"{path}.")
        elif present_value(new, value) != value:
            pairs.append((f"{path}: {value}", f"{new}: {present_value(new, value)}"))
    return pairs
