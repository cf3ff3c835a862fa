"""Configs under their original names, those of config version 1.

They are what is hashed and what evidence keeps: names of files, score caches and evidence hashes do not change when a parameter is renamed
or added.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

from cems_workbench.config.model import PipelineConfig, field_specs
from cems_workbench.renamed import PARAMETER_VALUES, PARAMETERS

ORIGINAL_VERSION = 1
"""Of a config with the original names."""


def _reversed(table: Mapping[str, str]) -> dict[str, str]:
    """Old name by present one; the oldest, which is the first row, where there are several."""
    return {new: old for old, new in reversed(list(table.items()))}


_ORIGINAL_PATHS = _reversed(PARAMETERS)
_ORIGINAL_VALUES = {path: _reversed(values) for path, values in PARAMETER_VALUES.items()}


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
