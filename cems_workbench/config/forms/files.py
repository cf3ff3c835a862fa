"""Configs as files of every form, written and read: YAML, JSON, TOML and Python losslessly, and the forms of other systems (`targets.py`).

The lossless ones state a whole config: what they leave out takes the default, an unknown key or a value out of range is an error, since it
may be a mistyped one. TOML has no null: the paths of null parameters are listed under the key `null`. Python is one call with a literal,
which is parsed and never run. The forms of other systems state a part, laid over the present config, or else the preset of the system.
`salvaged` alone is lenient, for configs that another version kept: what it does not know, or allow, is left out and named.
"""

from __future__ import annotations

import json
import pprint
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench.config.forms import targets, yaml_form
from cems_workbench.config.model import PipelineConfig, field_specs
from cems_workbench.errors import InputError, one_line
from cems_workbench.platform.atomic_write import safe_stem
from cems_workbench.platform.parsing import python_literal, read_text, toml_values, within_length

if TYPE_CHECKING:
    from cems_workbench.config.evidence_card import EvidenceCard


NULL = "null"


def dump_toml(config: PipelineConfig) -> str:
    """The config as TOML with every key stated."""
    import tomli_w

    nulls: list[str] = []
    values = _without_null(yaml_form.nested(config), "", nulls)
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
    return yaml_form.config_from(values, source)


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


CALL = "config_from"
NEEDS = "Needs the package cems-workbench, which does the ranking: this states its settings."
"""The first line of an export as Python."""


def dump_python(config: PipelineConfig) -> str:
    """Python that builds the config; it needs this package and nothing else."""
    # Every break is one between values: repr escapes those within texts.
    literal = pprint.pformat(yaml_form.nested(config), width=110, sort_dicts=False).replace("\n", "\n    ")
    return f"from cems_workbench.config import {CALL}\n\nconfig = {CALL}(\n    {literal}\n)\n"


Form = str
"""A key of `FORMS`."""
FORMS: tuple[Form, ...] = tuple(yaml_form.TABLES["forms"])
FORM_TITLES: dict[str, str] = {form: about["title"] for form, about in yaml_form.TABLES["forms"].items()}


def offered_forms(config: PipelineConfig) -> tuple[Form, ...]:
    """The forms of a config, that of its target first; of a config of no target every form."""
    system = targets.system_behind(config)
    whole = tuple(form for form in FORMS if form not in targets.BY_FORM)
    return (system.form, *whole) if system else FORMS


def export_config(config: PipelineConfig, form: Form, card: EvidenceCard | None = None) -> str:
    """The config as text, headed by the evidence card where the form has comments. YAML states what differs from the preset
    that the config was made from by its name, the other forms every key. YAML, JSON, TOML and Python are read back to the
    same config; the forms of other systems hold what those can express and list the rest in comments. JSON has no comments:
    its card is a second file. Raises InputError on an unknown form."""
    if form not in FORMS:
        raise InputError(f"export to {form!r}: not known; allowed: {', '.join(FORMS)}")
    head = card.text if card else ""
    if form == "yaml":
        return yaml_form.dump_changes(config, targets.preset_behind(config), head)
    if form == "json":
        return json.dumps(yaml_form.nested(config), ensure_ascii=False, indent=2) + "\n"
    if form == "toml":
        return yaml_form.commented(head) + dump_toml(config)
    if form == "python":
        return yaml_form.commented(f"{NEEDS}\n{head}") + dump_python(config)
    system = targets.BY_FORM[form]
    title = f"Config {config.name} of CEMS Workbench for {system.title}, {system.version}"
    if form == "mem0":
        return targets.dump_mem0(config, f"{title}\n{head}")
    dump = targets.dump_listed if form in targets.LISTED else targets.export_env
    return dump(config, form, f"{title}\n{head}")


def file_name(config: PipelineConfig, form: str) -> str:
    """A file name for an export: the config's name and the form's suffix, safe on every system."""
    ending = yaml_form.TABLES["forms"].get(form, {}).get("ending", form)
    return f"{safe_stem(config.name, 'config')}.{ending}"


SUFFIXES: dict[str, Form] = {
    suffix: form for form, about in yaml_form.TABLES["forms"].items() for suffix in about.get("suffixes", ())
}
_VARIABLE = re.compile(rf"^[ \t]*(export[ \t]+)?({'|'.join(targets.ENV_PREFIXES)})[A-Z0-9_]+[ \t]*=", re.MULTILINE)
_TOML = re.compile(r"^[ \t]*(\[\[?[a-z_.]+\]\]?[ \t\r]*(#.*)?$|[a-z_]+[ \t]*=[ \t]*\S)", re.MULTILINE)
_PYTHON = re.compile(r"\bconfig_from\(")
_YAML = re.compile(r"^[ \t]*[a-z_]+:(\s|$)", re.MULTILINE)


@dataclass(frozen=True)
class Imported:
    """A config that was read, its changes to the present one (path, old, new), and what the form could not express."""

    config: PipelineConfig
    form: Form
    changes: list[tuple[str, Any, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Does the file state all of the config, and was all of it read? A form of another system never does: the rest is of the base."""
        return not self.warnings and self.form not in targets.BY_FORM


def form_for(path: Path | None) -> Form:
    """The form of a file to write, by its suffix; YAML for another suffix, and without a file."""
    return SUFFIXES.get(path.suffix.lower(), "yaml") if path else "yaml"


def load_config(path: Path) -> PipelineConfig:
    """Read a config file of any form. Raises InputError with one line naming file, key and allowed values."""
    return load_import(path).config


def load_import(path: Path, present: PipelineConfig | None = None) -> Imported:
    """Read a config file of any form, told by its suffix or else by its text. Raises InputError."""
    return import_config(read_text(path, "config file"), present, source=str(path))


def import_config(text: str, present: PipelineConfig | None = None, source: str = "config") -> Imported:
    """Read a config from text of any form; `source` is its file name, where it has one. Raises InputError. `present` is
    what the result is compared with and what the form of another system is laid over; without one that is the preset of
    the system (the one that an export names), and nothing is compared."""
    form = form_of(within_length(text, source), source)
    warnings: list[str] = []
    if form == "toml":
        config = parse_toml(text, source)
    elif form == "python":
        config = yaml_form.config_from(python_literal(text, source, CALL), source)
    elif form in targets.BY_FORM:
        program = yaml_form.preset(targets.program_named(form, text)).config
        reading = _read_target(text, form, present or program.model_copy(update={"name": "imported"}), source)
        config, warnings = reading.config, reading.warnings
    else:
        config = yaml_form.parse_config(text, source)
    return Imported(config, form, yaml_form.difference(present, config) if present else [], warnings)


def read_back(text: str, form: Form, name: str, exported: PipelineConfig) -> PipelineConfig:
    """The config, under this name, that the target of an export of `exported` ranks with after reading it. The form of
    another system is laid over what that does anyway. Raises InputError."""
    if form in targets.BY_FORM:
        config = _read_target(text, form, targets.base(form, exported)).config
    else:
        config = import_config(
            text, source=f"export{next(suffix for suffix in SUFFIXES if SUFFIXES[suffix] == form)}"
        ).config
    return config.model_copy(update={"name": name})


def form_of(text: str, source: str = "") -> Form:
    """The form of a config text: by the suffix of its file name, or by how it reads; YAML when nothing else fits."""
    name = Path(source).name.lower()
    form = SUFFIXES.get(Path(name).suffix)
    if name.startswith(".env"):
        form = "env"
    if form is None:
        form = _sniffed(text)
    if form == "env":
        set_in_it = targets.targets_of(text, source or ".env")
        return next((target for target in targets.ENV_PREFIXES.values() if target in set_in_it), form)
    return "mem0" if form == "python" and targets.SNIPPET_MARK in text else form


def _sniffed(text: str) -> Form:
    if text.lstrip().startswith("{"):
        return "json"
    if _PYTHON.search(text) or targets.SNIPPET_MARK in text:
        return "python"
    if listed := targets.listed_in(text):
        return listed
    if _YAML.search(text):
        return "yaml"
    if _VARIABLE.search(text):
        return "env"
    return "toml" if _TOML.search(text) else "yaml"


def _read_target(text: str, target: targets.Target, base: PipelineConfig, source: str = "export") -> targets.Reading:
    if target == "mem0":
        return targets.read_mem0(text, base, source)
    if target in targets.LISTED:
        return targets.read_listed(text, target, base, source)
    return targets.read_env(text, base, source)


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
        return yaml_form.with_values(config, stated), tuple(left_out)
    except InputError:
        for path, value in stated.items():
            try:
                config = yaml_form.with_values(config, {path: value})
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
