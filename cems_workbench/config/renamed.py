"""Configs with old names: the parameters and values of `cems_workbench.renamed`, applied to nested values and dotted paths.

Present names are what code, config files and pages use; `config.original_names` has the way back.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from cems_workbench.renamed import PARAMETER_VALUES, PARAMETERS, report


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
