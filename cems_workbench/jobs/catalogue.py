"""Config catalogue: every config that can be chosen, by name; saving one in a store's history and restoring it, with a warning if its
evidence is of another store or state.

    as set in Inspect      the session's sliders, passed in
    cems                   a built-in preset
    mine.yaml (file)       a config from a file, passed in
    better blend (history 3)   a config of the store's history, which may have an evidence card
    my try (kept 2)        the config of an experiment

Tables, reports and cards show the name that a config was chosen by. On the command line a config is the name of a preset or the path of a
file; `config_named` reads it.

Packaged figures of the sample set, for the first screens of a store that holds it and was not measured yet: `sample_figures.json` has a
comparison of presets and a tuned config as pages save them, with hashes of all that they depend on: memories, relations, queries,
judgments, embedder, presets. `python -m benchmarks.sample_figures` writes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from cems_workbench.config import PipelineConfig, dump_config, load_import, parse_config, preset, preset_names
from cems_workbench.config.forms.files import Imported, salvaged
from cems_workbench.config.forms.targets import completed
from cems_workbench.errors import InputError, WorkbenchError
from cems_workbench.jobs.traced_sets import explained_configs
from cems_workbench.platform.atomic_write import write_text
from cems_workbench.platform.parsing import yaml_values
from cems_workbench.records import DEFAULT_TEXT_RULE, ENGLISH, Memory
from cems_workbench.settings import saved_target

if TYPE_CHECKING:
    from cems_workbench.config import EvidenceCard
    from cems_workbench.pipeline.resources import Resources
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
    """Every config that can be chosen: the present one, presets, files, those that replay explained answers, the history,
    the latest first, experiments. A config of the history that cannot be read is absent: History on the Tune page explains why."""
    configs = {PRESENT_NAME: present} if present is not None else {}
    runs = saved_target(store.path)
    configs |= {name: completed(preset(name).config, runs) for name in preset_names()}
    configs |= {**(files or {}), **explained_configs(store)}
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
    `file` may also be the name of a preset. Raises InputError if both are named, or for an unknown name."""
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


FILE = Path(__file__).with_name("sample_figures.json")


@dataclass(frozen=True, slots=True)
class Measured:
    """All that figures depend on; equal values give equal figures."""

    memories: int
    corpus: str
    """`corpus_digest` of the store."""
    queries: str
    """The digest of the query set."""
    embedder: str
    presets: Mapping[str, str]
    """`config_digest` of each preset, by name."""
    evidence: Mapping[str, str]
    """The content hash of each preset's evidence, by name."""


@dataclass(frozen=True, slots=True)
class SampleFigures:
    """The figures, with the workbench version and the day of the measurement."""

    version: str
    day: date
    measured: Measured
    experiment: ConfigRecord
    """A comparison of presets."""
    tuned: ConfigRecord
    """The result of a search, with its evidence card."""

    @property
    def presets_as_they_are(self) -> bool:
        """Are all presets unchanged since the measurement?"""
        from cems_workbench.tuning.scorer import config_digest

        then = self.measured.presets
        return then == {name: config_digest(preset(name).config) for name in preset_names() if name in then}


def sample_figures(resources: Resources, query_set: str | None = None) -> SampleFigures | None:
    """The packaged figures if they apply to the open store and its query set of this name, or of any name; else None."""
    figures = read_figures()
    store, measured = resources.store, figures.measured
    digests = [known.digest for known in store.query_sets.latest() if query_set is None or known.name == query_set]
    if measured.queries not in digests or measured.embedder != resources.embedder.model_id:
        return None
    if measured.memories != store.memories.count() or measured.corpus != corpus_digest(store):
        return None
    return figures if figures.presets_as_they_are else None


_OF_MEMORY = tuple(each.name for each in fields(Memory))


def corpus_digest(store: Store) -> str:
    """SHA-256, in hex, of the live memories, their relations, their judgments, the rule by which memories are cut
    into chunks, and the language where it is not English."""
    from cems_workbench.formats.memories import relation_row

    memories = store.memories.read()
    rows: list[Any] = [store.chunks.rule]
    rows += [{name: getattr(memories[key], name) for name in _OF_MEMORY} for key in sorted(memories)]
    rows += [str(rule)] if (rule := store.texts.rule) != DEFAULT_TEXT_RULE else []
    rows += [spoken] if (spoken := store.language.current) != ENGLISH else []
    rows += [relation_row(relation) for relation in store.relations.read()]
    rows += [[row.qid, row.memory_id, row.judge, row.kind, row.grade] for row in store.judgments.read()]
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row, ensure_ascii=False, default=datetime.isoformat).encode() + b"\n")
    return digest.hexdigest()


@cache
def read_figures() -> SampleFigures:
    """The packaged file."""
    values = json.loads(FILE.read_text(encoding="utf-8"))
    day, measured = date.fromisoformat(values["day"]), Measured(**values["measured"])
    return SampleFigures(values["version"], day, measured, _record(values["experiment"]), _record(values["tuned"]))


def write_figures(figures: SampleFigures, file: Path = FILE) -> None:
    """Replace the file."""
    text = json.dumps(asdict(figures), ensure_ascii=False, indent=1, default=lambda value: value.isoformat())
    write_text(file, text + "\n")
    read_figures.cache_clear()


def _record(values: Mapping[str, Any]) -> ConfigRecord:
    from cems_workbench.store import ConfigRecord

    return ConfigRecord(**{**values, "saved_at": datetime.fromisoformat(values["saved_at"])})
