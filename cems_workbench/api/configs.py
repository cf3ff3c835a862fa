"""Configs: of a preset or a file, with some of their parameters changed, and written to a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench.api.results import warn
from cems_workbench.errors import InputError

if TYPE_CHECKING:
    from cems_workbench.config import PipelineConfig

    ConfigLike = PipelineConfig | str | Path
    """A config, the name of a shipped preset, or the path of a config file."""


def presets() -> tuple[str, ...]:
    """The names of the shipped presets, each of which `load_config` takes."""
    from cems_workbench.builtin import preset_names

    return preset_names()


def load_config(source: ConfigLike | None = None, changes: Mapping[str, Any] | None = None) -> PipelineConfig:
    """The config of a preset or of a file, with some of its parameters changed.

    Args:
        source: name of a preset, path of a config file (YAML, JSON, TOML, `.env` or Python), or a config; None is the default preset,
            that of `CEMS_WORKBENCH_PRESET` or `workbench`.
        changes: new values by path, such as `{"fusion.k": 30, "rerank.backend": "none"}`.

    Returns:
        A frozen, validated config; `config.get("fusion.k")` reads a parameter, `config.name` its name.

    Raises:
        InputError: nothing is found under that name, or the file, a path or a value is not valid.

    What a file could not say is a `WorkbenchWarning`.
    """
    from cems_workbench.config import PipelineConfig, with_values

    config = source if isinstance(source, PipelineConfig) else _found(source)
    return with_values(config, dict(changes), source="changes") if changes else config


def _found(source: str | Path | None) -> PipelineConfig:
    from cems_workbench.builtin import DEFAULT_PRESET, default_preset
    from cems_workbench.jobs.catalogue import config_named
    from cems_workbench.settings import settings_for

    default, problem = (DEFAULT_PRESET, None) if source is not None else default_preset(settings_for().preset)
    found = config_named(None, None if source is None else Path(source), default)
    for line in (*([problem] if problem else []), *found.warnings):
        warn(line)
    return found.config


def save_config(config: ConfigLike, path: str | Path) -> Path:
    """Write a config with every key stated, in the form that the suffix says: yaml, json, toml, env or py.

    Args:
        config: a config, the name of a preset, or the path of a config file.
        path: the file to write; one that is there is replaced, whole or not at all.

    Returns:
        The path.

    Raises:
        InputError: the suffix is none of these, or the file cannot be written.

    What the form cannot express is listed in its comments, and is a `WorkbenchWarning`.
    """
    from cems_workbench.config.forms.files import SUFFIXES
    from cems_workbench.jobs.exporting import exported
    from cems_workbench.platform.atomic_write import write_text

    out = Path(path)
    form = SUFFIXES.get(out.suffix.lower())
    if form is None:
        raise InputError(f"{out}: expected a suffix of {', '.join(sorted(SUFFIXES))}")
    export = exported(load_config(config), form)
    write_text(out, export.text)
    if export.lost:
        warn(f"{out} cannot say {', '.join(name for name, _, _ in export.lost)}")
    return out
