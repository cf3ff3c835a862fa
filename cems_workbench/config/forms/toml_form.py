"""Configs as TOML, losslessly. TOML has no null: the paths of null parameters are listed under the key `null`."""

from __future__ import annotations

from typing import Any

from cems_workbench.config.forms.yaml_form import config_from, nested
from cems_workbench.config.model import PipelineConfig
from cems_workbench.errors import InputError, one_line
from cems_workbench.platform.parsing import toml_values

NULL = "null"


def dump_toml(config: PipelineConfig) -> str:
    """The config as TOML with every key stated."""
    import tomli_w

    nulls: list[str] = []
    values = _without_null(nested(config), "", nulls)
    head = {key: values.pop(key) for key in ("version", "name")}
    return tomli_w.dumps({**head, NULL: nulls, **values})


def parse_toml(text: str, source: str = "config") -> PipelineConfig:
    """Read a config from TOML. Raises InputError."""
    values = toml_values(text, source)
    nulls = values.pop(NULL, [])
    if not isinstance(nulls, list) or not all(isinstance(path, str) for path in nulls):
        raise InputError(f"{source}: {NULL}: expected a list of the parameters that are null")
    for path in nulls:
        _set_null(values, path, source)
    return config_from(values, source)


def _without_null(values: dict[str, Any], prefix: str, nulls: list[str]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        if value is None:
            nulls.append(path)
        elif isinstance(value, dict):
            kept[key] = _without_null(value, f"{path}.", nulls)
        elif isinstance(value, list):  # a band without `max_rank` has null there
            kept[key] = [
                {k: v for k, v in item.items() if v is not None} if isinstance(item, dict) else item for item in value
            ]
        else:
            kept[key] = value
    return kept


def _set_null(values: dict[str, Any], path: str, source: str) -> None:
    *parents, leaf = path.split(".")
    target: Any = values
    for parent in parents:
        target = target.setdefault(parent, {}) if isinstance(target, dict) else None
    if not isinstance(target, dict):
        raise InputError(f"{source}: {NULL}: {one_line(path)}: not a parameter")
    if leaf in target:
        raise InputError(f"{source}: {one_line(path)} has a value and is listed under {NULL}")
    target[leaf] = None
