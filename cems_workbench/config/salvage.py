"""Reading what can be read of a config that another version of the workbench wrote.

A key that is not known, and a value that is not allowed, is left out and named; its parameter has the default. Files are read by
`yaml_io`, which refuses them instead: there a mistyped key is somebody's mistake.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cems_workbench.config.model import PipelineConfig, field_specs
from cems_workbench.config.yaml_io import with_values
from cems_workbench.errors import InputError

NAMES = ("version", "name")


def salvaged(values: Mapping[str, Any]) -> tuple[PipelineConfig, tuple[str, ...]]:
    """The config of nested plain values (`nested`), and the paths that had to be left out."""
    known = {spec.path for spec in field_specs()} | set(NAMES)
    sections = {path.rsplit(".", depth)[0] for path in known for depth in range(1, path.count(".") + 1)}
    leaves = dict(_leaves(values, "", known, sections))
    left_out = [path for path in leaves if path not in known]
    stated = {path: value for path, value in leaves.items() if path in known}
    config = PipelineConfig()
    try:
        return with_values(config, stated), tuple(left_out)
    except InputError:
        for path, value in stated.items():
            try:
                config = with_values(config, {path: value})
            except InputError:
                left_out.append(path)
    return config, tuple(left_out)


def _leaves(values: Mapping[str, Any], prefix: str, known: set[str], sections: set[str]) -> Iterator[tuple[str, Any]]:
    """(path, value) of every parameter, and of every key that is none."""
    for key, value in values.items():
        path = f"{prefix}{key}"
        if path not in known and path in sections and isinstance(value, Mapping):
            yield from _leaves(value, f"{path}.", known, sections)
        else:
            yield path, value
