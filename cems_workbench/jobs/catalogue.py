"""Config catalogue: every config that can be chosen, by name; saving one in a store's history and restoring it, with a warning if its
evidence is of another store or state.

    as set in Inspect      the session's sliders, passed in
    cems                   a built-in preset
    mine.yaml (file)       a config from a file, passed in
    better blend (history 3)   a config of the store's history, which may have an evidence card
    my try (kept 2)        the config of an experiment

Tables, reports and cards show the name that a config was chosen by. On the command line a config is the name of a preset or the path of a
file; `config_named` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from cems_workbench.config import (
    PipelineConfig,
    dump_config,
    load_import,
    parse_config,
    preset,
    preset_names,
)
from cems_workbench.config.forms.files import Imported, salvaged
from cems_workbench.errors import InputError, WorkbenchError
from cems_workbench.platform.parsing import yaml_values

if TYPE_CHECKING:
    from cems_workbench.config import EvidenceCard
    from cems_workbench.store import ConfigRecord, Store


PRESENT_NAME = "as set in Inspect"


@dataclass(frozen=True)
class Catalogue:
    """Configs by name, in the order in which they are offered, and an error line for each unreadable one."""

    configs: Mapping[str, PipelineConfig]
    problems: tuple[str, ...] = ()

    def under_its_name(self, name: str) -> PipelineConfig:
        """The config of a name, renamed to it, unless it is the one set in Inspect. Raises KeyError."""
        config = self.configs[name]
        return config if name == PRESENT_NAME else named(name, config)


def catalogue(
    store: Store, present: PipelineConfig | None = None, files: Mapping[str, PipelineConfig] | None = None
) -> Catalogue:
    """Every config that can be chosen: the present one, presets, files, the history, the latest first, experiments.

    A config of the history that this version cannot read is absent: History on the Tune page explains why.
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
    """The catalogue name of a config of the history, with its number, because names may repeat."""
    return f"{name} (history {number})"


def experiment_name(name: str, number: int) -> str:
    """The catalogue name of an experiment's config."""
    return f"{name} (kept {number})"


def file_name(path: str) -> str:
    """The catalogue name of a config from a file."""
    return f"{path} (file)"


def named(name: str, config: PipelineConfig) -> PipelineConfig:
    """The config under another name."""
    return config.model_copy(update={"name": name})


def config_named(preset_name: str | None, file: Path | None, default: str) -> Imported:
    """The config of a preset or a file, with the warnings of reading it; the preset `default` if neither is named.

    `file` may also be the name of a preset. Raises InputError if both are named, or for an unknown name.
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
    """The configs with unique names: the second `cems` becomes `cems (2)`."""
    distinct: list[PipelineConfig] = []
    for config in configs:
        taken = {other.name for other in distinct}
        name, copy = config.name, 2
        while name in taken:
            name, copy = f"{config.name} ({copy})", copy + 1
        distinct.append(named(name, config))
    return distinct


@dataclass(frozen=True, slots=True)
class RestoredConfig:
    """A restored config, its card if it has one, and warnings."""

    config: PipelineConfig
    card: EvidenceCard | None
    warnings: tuple[str, ...]


def keep_config(
    store: Store,
    config: PipelineConfig,
    *,
    author: str,
    why: str = "",
    base: str | None = None,
    card: EvidenceCard | None = None,
) -> ConfigRecord:
    """Add a config to the history, under its own name. Raises InputError for an invalid name, author or reason."""
    values = None if card is None else card.model_dump(mode="json")
    return store.configs.add(config.name, dump_config(config), author=author, why=why, base=base, card=values)


def restored_config(record: ConfigRecord, store: Store) -> RestoredConfig:
    """Restore a saved config. Parameters of another version of the workbench that cannot be read become warnings."""
    config, warnings = _config(record)
    card, unreadable = kept_card(record)
    if warnings and card is not None:
        warnings.append("its evidence card is of the whole config: what is here is not what was measured")
    warnings += [warning for warning in (unreadable, evidence_warning(card, store)) if warning]
    return RestoredConfig(config, card, tuple(warnings))


def kept_card(record: ConfigRecord) -> tuple[EvidenceCard | None, str | None]:
    """The evidence card of a saved config, None without one, and a warning if this version cannot read it."""
    from cems_workbench.config import EvidenceCard

    if record.card is None:
        return None, None
    try:
        return EvidenceCard.model_validate(record.card), None
    except ValidationError as error:
        field = ".".join(str(part) for part in error.errors()[0]["loc"])
        return None, f"its evidence card cannot be read by this version ({field or 'not a card'})"


def evidence_warning(card: EvidenceCard | None, store: Store) -> str | None:
    """A warning if the evidence of a config is not of this store in its present state; None otherwise, and without a card."""
    from cems_workbench.config.evidence_card import card_reference

    return None if card is None else card_reference(card).mismatch(store.identity, store.content_version)


def _config(record: ConfigRecord) -> tuple[PipelineConfig, list[str]]:
    try:
        return named(record.name, parse_config(record.config_yaml, f"config {record.id}")), []
    except InputError as refused:
        try:
            values: Any = yaml_values(record.config_yaml, f"config {record.id}")
        except InputError:
            raise refused from None
        if not isinstance(values, Mapping):
            raise
        config, left_out = salvaged({str(key): value for key, value in values.items()})
        words = f"not known, or not allowed, in this version and left out: {', '.join(left_out)}"
        return named(record.name, config), [words]
