"""Configs and presets as YAML: lossless both ways, and errors that name the key, the range and the nearest known key.

Names that a later version of the config renamed are read as the present ones (`present_values`). Version 1 is that of the pipeline's
specification, in which configs outside this project are written. The next rename is a row under the next number, which becomes `VERSION`.

A shipped preset is a file with a comment at the head that names its source and known mistakes. `cems` states every key, the others say
which preset they extend and what differs. One that was tuned has its evidence card next to it: `NAME.card.json`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from cems_workbench.builtin import DEFAULT_PRESET, REFERENCE_PRESET, preset_names
from cems_workbench.config.fields import Section, bounds_text, packaged, specs
from cems_workbench.config.model import VERSION, PipelineConfig, attribute_name, field_spec, field_specs
from cems_workbench.config.sections import ADDED_LISTS
from cems_workbench.errors import InputError, nearest, one_line, short, suggestion
from cems_workbench.platform.parsing import shipped_yaml_values, yaml_values

if TYPE_CHECKING:
    from cems_workbench.config.evidence_card import EvidenceCard


TABLES = packaged("config/forms/forms.json")
"""The forms of configs."""
RENAMED: Mapping[str, Mapping[str, Any]] = TABLES["renamed"]
"""By the version that renamed it, the new path of a parameter, or of a section, by its old one, of which only the last part changes; and
by the new path of a parameter its new values by their old ones."""


def present_values(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The nested values of a config file under the names of `VERSION`, in their order; those of an unknown version as
    they are. Where a parameter is given under both names, the old one stays, as an unknown key."""
    version = values.get("version")
    if not isinstance(version, int) or not 1 <= version < VERSION:
        return values
    for number in range(version + 1, VERSION + 1):
        values = _renamed(values, **RENAMED[str(number)])
    return {**values, "version": VERSION}


def present_path(path: str) -> str:
    """The present path of a parameter that an earlier version called otherwise; any other path as it is."""
    for renamed in RENAMED.values():
        path = renamed["paths"].get(path, path)
    return path


def _renamed(
    given: Mapping[str, Any], paths: Mapping[str, str], values: Mapping[str, Mapping[str, str]], prefix: str = ""
) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for key, value in given.items():
        path = f"{prefix}{key}"
        new = paths.get(path, path)
        name = key if new == path else new.rpartition(".")[2]
        if isinstance(value, Mapping):
            value = _renamed(value, paths, values, f"{path}.")
        elif isinstance(value, str):
            value = values.get(new, {}).get(value, value)
        renamed[key if name in given else name] = value
    return renamed


def commented(text: str) -> str:
    """Every line of `text` behind `# `, unprintable characters as spaces (YAML refuses them even here)."""
    lines = ("".join(c if c.isprintable() else " " for c in line) for line in text.splitlines())
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


EXTENDS = "extends"
"""The key of a config file that names the preset it starts from."""
UNKNOWN_KEY_ERRORS = ("extra_forbidden", "model_type", "missing")
"""Pydantic's errors for an unknown key, a section that is no mapping, and a key that was misspelt; `_unknown` reports these."""
MAX_UNKNOWN_KEYS = 20
"""Most unknown keys that are reported: finding the nearest known key of each takes time."""
TIERS: list[str | int] = ["adjust", "time_decay", "tiers"]


class _Dumper(yaml.SafeDumper):
    """Safe dumper that quotes what is not printable (PyYAML would fold a U+0085 in a name into a space) and writes no alias."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if value.isprintable() else '"')


_Dumper.add_representer(str, _text)


@lru_cache(maxsize=64)  # 10 ms each, and a page reads the same few again and again; a config cannot be changed
def parse_config(text: str, source: str = "config") -> PipelineConfig:
    """Read a config from YAML (or JSON) text; `source` opens every error."""
    values = yaml_values(text, source)
    if values is None:
        raise InputError(f"{source}: the file is empty; a config needs at least `version: {VERSION}`")
    return config_from(values, source)


def config_from(values: Any, source: str = "config") -> PipelineConfig:
    """Validate nested values into a config. Raises InputError. A missing key takes the value of the preset that
    `extends` names, or the default, a missing name that of the preset and the file ("mem0-follow"); an unknown key is an error."""
    if not isinstance(values, Mapping):
        raise InputError(f"{source}: expected a mapping of sections, found {type(values).__name__}")
    values = present_values(values)
    if EXTENDS in values:
        own = {} if "name" in values else _name_of_file(source, str(values[EXTENDS]))
        values = extended(values, source) | own
    try:
        return PipelineConfig.model_validate(values)
    except ValidationError as error:
        problems = list(islice(_unknown(PipelineConfig, values, ""), MAX_UNKNOWN_KEYS + 1))
        told = UNKNOWN_KEY_ERRORS if problems else ()
        problems += [_explain(detail) for detail in error.errors() if detail["type"] not in told]
    count = f"more than {MAX_UNKNOWN_KEYS - 1}" if len(problems) > MAX_UNKNOWN_KEYS else len(problems) - 1
    more = f" (and {count} more: {'; '.join(problems[1:4])})" if problems[1:] else ""
    raise InputError(f"{source}: {problems[0]}{more}")


def _name_of_file(source: str, above: str) -> dict[str, str]:
    """The name of a config that its file does not state, so that it is not taken for the preset that it extends."""
    path = Path(source)
    if not path.suffix:  # no file
        return {}
    return {"name": path.stem if path.stem.startswith(above) else f"{above}-{path.stem}"}


def dump_config(config: PipelineConfig, header: str = "") -> str:
    """The config as YAML with every key stated, in order; `parse_config` of it gives an equal config."""
    return commented(header) + _yaml(nested(config))


def dump_changes(config: PipelineConfig, above: str | None, header: str = "") -> str:
    """The config as YAML with the values in which it differs from the preset `above`, which it `extends`; with every key without one,
    or without a difference. `parse_config` of it gives an equal config, as long as the preset stays."""
    changes = difference(preset(above).config, config) if above else []
    # Without a name it takes that of its file, so that it is not taken for the preset.
    named = {} if config.name == above else {"name": config.name}
    values: dict[str, Any] = {"version": VERSION, EXTENDS: above, **named}
    for path, _, _ in changes:
        *parents, leaf = path.split(".")
        reduce(lambda inner, key: inner.setdefault(key, {}), parents, values)[leaf] = plain_value(config, path)
    short = commented(header) + _yaml(values)
    return short if changes and parse_config(short) == config else dump_config(config, header)


@lru_cache(maxsize=16)  # it takes 10 ms
def portable_yaml(config: PipelineConfig) -> str:
    """The config as YAML of `portable_values`: what is hashed and what evidence keeps."""
    return _yaml(portable_values(config))


def _yaml(values: Mapping[str, Any]) -> str:
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)


def config_hash(config: PipelineConfig) -> str:
    """SHA-256, in hex, of `portable_yaml`: equal for equal configs on any machine."""
    return hashlib.sha256(portable_yaml(config).encode()).hexdigest()


def nested(config: PipelineConfig) -> dict[str, Any]:
    """The config as nested plain values (dict, list, str, number, bool, None)."""
    return config.model_dump(mode="python")


def portable_values(config: PipelineConfig) -> dict[str, Any]:
    """As `nested`, without the lists of installed retrievers that are at their defaults: a machine without those has the same values."""
    values = nested(config)
    for name in ADDED_LISTS:
        if getattr(config.lists, name) == getattr(PipelineConfig().lists, name):
            del values["lists"][name]
    return values


def with_values(config: PipelineConfig, changes: Mapping[str, Any], source: str = "config") -> PipelineConfig:
    """A copy with values at dotted paths replaced, validated as a whole. Raises InputError as `config_from` does."""
    values = nested(config)
    for path, value in changes.items():
        *parents, leaf = path.split(".")
        target: Any = values
        for depth, parent in enumerate(parents):
            target = target.get(parent) if isinstance(target, dict) else None
            if not isinstance(target, dict):
                raise InputError(f"{source}: {_unknown_key('.'.join(parents[: depth + 1]), whole=path)}")
        target[leaf] = value
    return config_from(values, source)


def parse_assignment(text: str) -> tuple[str, Any]:
    """Split `fusion.k=30` into its path and its YAML value. Raises InputError when there is no `=`."""
    path, separator, value = text.partition("=")
    if not separator or not path.strip():
        raise InputError(f"--set {one_line(text, 80)}: expected KEY=VALUE, such as fusion.k=30")
    return path.strip(), yaml_values(value, f"--set {one_line(text, 80)}")


def plain_value(config: PipelineConfig, path: str) -> Any:
    """A parameter's value as `nested` has it."""
    return reduce(lambda values, name: values[name], path.split("."), nested(config))


def assigned(config: PipelineConfig, path: str) -> str:
    """A parameter's value for `--set`, as `parse_assignment` reads it."""
    return assigned_value(plain_value(config, path))


def assigned_value(value: Any) -> str:
    """A value for `--set`: JSON, with the characters escaped that YAML does not allow."""
    if (
        isinstance(value, str)
        and value.isidentifier()
        # YAML would read these words as null or a boolean.
        and value.lower() not in ("null", "true", "false", "yes", "no", "on", "off", "y", "n")
    ):
        return value  # a choice is readable without quotes
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)


def difference(old: PipelineConfig, new: PipelineConfig) -> list[tuple[str, Any, Any]]:
    """The parameters in which two configs differ, as (path, old value, new value), in the order of docs/internals/specification.md."""
    both = ((name, getattr(old, name), getattr(new, name)) for name in PipelineConfig.model_fields)
    sections = {name for name, was, now in both if was is not now and was != now}  # most are shared with the preset
    pairs = ((spec.path, old.get(spec.path), new.get(spec.path)) for spec in field_specs() if spec.section in sections)
    return [(path, was, now) for path, was, now in pairs if was != now]


@cache
def _rows() -> Mapping[str, type[Section]]:
    """By path the section of each row, of the parameters that are lists of sections."""
    return {spec.path: spec.row for spec in field_specs() if spec.row is not None}


def _unknown(model: type[Section], values: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """An error for each unknown key and for each section that is no mapping."""
    for key, value in values.items():
        info = model.model_fields.get(attribute_name(str(key)))
        path = f"{prefix}{key}"
        if info is None or (info.alias is not None and info.alias != key):
            yield _unknown_key(path)
        elif isinstance(info.annotation, type) and issubclass(info.annotation, Section):
            if isinstance(value, Mapping):
                yield from _unknown(info.annotation, value, f"{path}.")
            else:
                yield f"{path}: expected a mapping of its keys, found {short(value)}"
        elif (row := _rows().get(path)) is not None and isinstance(value, (list, tuple)):
            for i, band in enumerate(value):
                if isinstance(band, Mapping):
                    yield from _unknown(row, band, f"{path}.{i}.")


def _unknown_key(path: str, whole: str | None = None) -> str:
    leaves = [spec.path for spec in field_specs()]
    sections = {leaf.rsplit(".", depth)[0] for leaf in leaves for depth in range(1, leaf.count(".") + 1)}
    known = [*leaves, *sorted(sections), "version", "name"]
    parent, _, leaf = path.rpartition(".")
    row = _rows().get(parent.rpartition(".")[0])
    if row is not None:
        known += [f"{parent}.{spec.path}" for spec in specs(row)]
    siblings = {name.rpartition(".")[2]: name for name in known if name.rpartition(".")[0] == parent}
    close = nearest(leaf, siblings)
    match = siblings[close] if close else nearest(whole or path, known)
    hint = f"; the nearest known key is {match}" if match else f"; known here: {', '.join(sorted(siblings))}"
    if present_path(path) != path:
        hint = f"; it is now {present_path(path)}"
    return f"{one_line(whole or path)}: unknown key{hint}"


def _explain(detail: ErrorDetails) -> str:
    location = [part for part in detail["loc"] if isinstance(part, (str, int))]
    if location[:3] == TIERS:
        location = location[:3]  # pydantic counts the pairs; the file has a mapping
    path = ".".join(str(part) for part in location)
    found = short(detail.get("input"))
    allowed = _allowed(location, detail)
    if isinstance(detail.get("input"), bool) and detail["type"] == "string_type":
        return f"{path}: {found} is not text; put it in quotes"
    if allowed:
        return f"{path}: {found} is not allowed; allowed: {allowed}"
    return f"{path}: {found}: {detail['msg'][:1].lower()}{detail['msg'][1:]}"


def _allowed(location: list[str | int], detail: ErrorDetails) -> str | None:
    if location == ["version"]:
        return ", ".join(map(str, range(1, VERSION + 1)))
    row = _rows().get(".".join(str(part) for part in location[:-2]))
    if row is not None:
        return next((spec.range_text for spec in specs(row) if spec.path == location[-1]), None)
    if location == TIERS:
        return "a mapping of category to days, each more than 0, at most 36500"
    with contextlib.suppress(KeyError):
        return field_spec(".".join(str(part) for part in location)).range_text
    context = detail.get("ctx", {})
    if "expected" in context:
        return str(context["expected"])
    low = context.get("ge", context.get("gt"))
    if low is not None or "le" in context:
        return bounds_text(low, context.get("le"), "gt" in context)
    return None


WHOLE = ("adjust.time_decay.tiers",)
"""Mappings that are one value: a config has those of its parent, or its own."""


def extended(values: Mapping[str, Any], source: str, children: tuple[str, ...] = ()) -> dict[str, Any]:
    """The values of a config that `extends` a preset, over those of that preset; without the key `extends`. `children`
    are the presets that were read on the way here. Raises InputError for an unknown preset and for a cycle."""
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
        hint = suggestion(name, known, ".")
        raise InputError(f"{where} {one_line(name, 80)}: unknown{hint} Known presets: {', '.join(known)}")
    return name


DEFAULT = REFERENCE_PRESET


@dataclass(frozen=True, slots=True)
class Preset:
    """A shipped config, and the comment at the head of its file."""

    name: str
    config: PipelineConfig
    notes: str

    @property
    def summary(self) -> str:
        """First line of the notes."""
        return self.notes.splitlines()[0] if self.notes else self.name

    @property
    def kind(self) -> str:
        """What its notes say that it is: our own, a plan, or a system as it runs."""
        if self.name == DEFAULT_PRESET:
            return "Ours"
        return "Plans" if re.search(r"\bplan\b|by its source", self.summary) else "As they run"

    @property
    def card(self) -> EvidenceCard | None:
        """What it was measured on, for one that was tuned; read when it is asked for."""
        path = preset_folder() / f"{self.name}.card.json"
        if not path.is_file():
            return None
        from cems_workbench.config.evidence_card import read_card

        with resources.as_file(path) as file:
            return read_card(file)


@cache
def preset(name: str) -> Preset:
    """Load a preset by name. Raises InputError naming the known ones and the nearest."""
    name = known_preset(name, "preset")
    notes = [line.removeprefix("#").strip() for line in preset_text(name).splitlines() if line.startswith("#")]
    config = config_from(shipped_values(name), source=f"presets/{name}.yaml")
    return Preset(name, config, "\n".join(notes))
