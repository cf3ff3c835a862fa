"""Reader of config files in every form that `export_config` writes.

YAML, JSON, TOML and Python state a whole config: what they leave out takes the default, an unknown key or a value out of range
is an error, since it may be a mistyped one. The forms of other systems (`.env`, mem0's Python, engram's constants) state a part, laid over
a base: the present config, or else the preset of the system. `salvaged` alone is lenient, for configs that another version of the workbench
kept: what it does not know, or does not allow, is left out and named, and its parameter has the default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench.config.export_names import ENV_PREFIXES, TARGET_PRESETS, Target
from cems_workbench.config.forms.engram_form import has_engram, read_engram
from cems_workbench.config.forms.env_form import read_env, targets_of
from cems_workbench.config.forms.mem0_form import MARK as MEM0_MARK
from cems_workbench.config.forms.mem0_form import read_mem0
from cems_workbench.config.forms.python_form import parse_python
from cems_workbench.config.forms.sheet import Reading
from cems_workbench.config.forms.toml_form import parse_toml
from cems_workbench.config.forms.yaml_form import difference, parse_config, with_values
from cems_workbench.config.model import PipelineConfig, field_specs
from cems_workbench.config.presets import preset
from cems_workbench.errors import InputError
from cems_workbench.platform.parsing import read_text, within_length

if TYPE_CHECKING:
    from cems_workbench.config.forms.writing import Form

SUFFIXES: dict[str, Form] = {
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".toml": "toml",
    ".env": "env",
    ".py": "python",
}
_VARIABLE = re.compile(r"^[ \t]*(export[ \t]+)?(CEMS|RERANKER|ACE)_[A-Z0-9_]+[ \t]*=", re.MULTILINE)
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
        return not self.warnings and self.form not in TARGET_PRESETS


def load_config(path: Path) -> PipelineConfig:
    """Read a config file of any form. Raises InputError with one line naming file, key and allowed values."""
    return load_import(path).config


def load_import(path: Path, present: PipelineConfig | None = None) -> Imported:
    """Read a config file of any form, told by its suffix or else by its text. Raises InputError."""
    return import_config(read_text(path, "config file"), present, source=str(path))


def import_config(text: str, present: PipelineConfig | None = None, source: str = "config") -> Imported:
    """Read a config from text of any form; `source` is its file name, where it has one. Raises InputError.

    `present` is what the result is compared with and what the form of another system is laid over; without one that is the preset of the
    system (`export_names.TARGET_PRESETS`), and nothing is compared.
    """
    form = form_of(within_length(text, source), source)
    warnings: list[str] = []
    if form == "toml":
        config = parse_toml(text, source)
    elif form == "python":
        config = parse_python(text, source)
    elif form in TARGET_PRESETS:
        base = present or preset(TARGET_PRESETS[form]).config.model_copy(update={"name": "imported"})
        reading = _read_target(text, form, base, source)
        config, warnings = reading.config, reading.warnings
    else:
        config = parse_config(text, source)
    return Imported(config, form, difference(present, config) if present else [], warnings)


def read_back(text: str, form: Form, name: str) -> PipelineConfig:
    """The config, under this name, that the target of an export ranks with after reading it.

    The form of another system is laid over what that does anyway, without the variables that it does not read yet. Raises InputError.
    """
    if form in TARGET_PRESETS:
        config = _read_target(text, form, preset(TARGET_PRESETS[form]).config, planned=False).config
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
        targets = targets_of(text, source or ".env")
        return next((target for target in ENV_PREFIXES.values() if target in targets), form)
    return "mem0" if form == "python" and MEM0_MARK in text else form


def _sniffed(text: str) -> Form:
    if text.lstrip().startswith("{"):
        return "json"
    if _PYTHON.search(text) or MEM0_MARK in text:
        return "python"
    if has_engram(text):
        return "engram"
    if _YAML.search(text):
        return "yaml"
    if _VARIABLE.search(text):
        return "env"
    return "toml" if _TOML.search(text) else "yaml"


def _read_target(
    text: str, target: Target, base: PipelineConfig, source: str = "export", *, planned: bool = True
) -> Reading:
    if target == "mem0":
        return read_mem0(text, base, source)
    if target == "engram":
        return read_engram(text, base, source)
    return read_env(text, base, source, planned=planned)


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
