"""Config catalogue: every config that can be chosen by a name, and what the name stands for.

    as set in Inspect      the sliders of the session that asks, handed in
    cems                   a shipped preset
    mine.yaml (file)       a config of a file, handed in
    better blend (history 3)   a config of the store's history, which may hold an evidence card
    my try (kept 2)        the config of an experiment

A config goes under the name that it was chosen by: tables, reports and cards show that name. On the command line a config is named by
the name of a preset or the path of a file; `config_named` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cems_workbench.config import PipelineConfig, load_import, parse_config, preset, preset_names
from cems_workbench.config.forms.reading import Imported
from cems_workbench.errors import InputError, WorkbenchError

if TYPE_CHECKING:
    from cems_workbench.store import Store

PRESENT_NAME = "as set in Inspect"


@dataclass(frozen=True)
class Catalogue:
    """Configs by name, in the order in which they are offered, and one line for each that cannot be read."""

    configs: Mapping[str, PipelineConfig]
    problems: tuple[str, ...] = ()

    def under_its_name(self, name: str) -> PipelineConfig:
        """The config of a name, called so, unless it is the one that is set in Inspect. Raises KeyError."""
        config = self.configs[name]
        return config if name == PRESENT_NAME else named(name, config)


def catalogue(
    store: Store, present: PipelineConfig | None = None, files: Mapping[str, PipelineConfig] | None = None
) -> Catalogue:
    """Every config that can be chosen: the present one, the presets, those of files, the history, the latest first, experiments.

    A config of the history that this version cannot read is absent: the History of the Tune page says why.
    """
    configs = {PRESENT_NAME: present} if present is not None else {}
    configs |= {name: preset(name).config for name in preset_names()}
    configs |= files or {}
    for record in store.configs.history():
        try:
            configs[history_name(record.name, record.id)] = parse_config(record.config_yaml, record.name)
        except WorkbenchError:
            continue
    problems = []
    for experiment in store.configs.experiments():
        name = experiment_name(experiment.name, experiment.id)
        try:
            configs[name] = parse_config(experiment.config_yaml, name)
        except WorkbenchError as error:
            problems.append(f"{name} cannot be read: {error}")
    return Catalogue(configs, tuple(problems))


def history_name(name: str, number: int) -> str:
    """What a config of the history is chosen by: names may repeat, numbers do not."""
    return f"{name} (history {number})"


def experiment_name(name: str, number: int) -> str:
    """What the config of an experiment is chosen by."""
    return f"{name} (kept {number})"


def file_name(path: str) -> str:
    """What a config of a file is chosen by."""
    return f"{path} (file)"


def named(name: str, config: PipelineConfig) -> PipelineConfig:
    """The config under another name; nothing else changes."""
    return config.model_copy(update={"name": name})


def config_named(preset_name: str | None, file: Path | None, default: str) -> Imported:
    """The config of a preset or of a file, with what the file could not say; the preset `default` when neither is named.

    A file that is not there may be the name of a preset. Raises InputError when both are named, or nothing is found.
    """
    if preset_name is not None and file is not None:
        raise InputError("name a --preset or a --config, not both")
    if file is not None and not file.exists():
        if str(file) in preset_names():
            preset_name, file = str(file), None
        elif not file.suffix:
            raise InputError(f"{file}: neither a config file nor a preset; presets: {', '.join(preset_names())}")
    if file is not None:
        return load_import(file)
    return Imported(preset(preset_name or default).config, "yaml")


def with_unique_names(configs: Sequence[PipelineConfig]) -> list[PipelineConfig]:
    """The configs, each with a name of its own: the second `cems` is `cems (2)`."""
    distinct: list[PipelineConfig] = []
    for config in configs:
        taken = {other.name for other in distinct}
        name, copy = config.name, 2
        while name in taken:
            name, copy = f"{config.name} ({copy})", copy + 1
        distinct.append(named(name, config))
    return distinct
