"""Targets, the systems that a config runs in (`targets.json`), and configs in the words of their settings (`targets.csv`): `.env` of CEMS,
the memory agent, ACE and Hindsight, Python for mem0, constants of engram, arguments of others as lines NAME = VALUE.

Each is written with what it has a name for; every parameter that no name carries is listed in comments, those first in which the config
differs from what the system does anyway. Values of a `.env` are quoted so that a plain dotenv parser, pydantic-settings and a shell read
the same. Reading lays what a file sets over the present config: a missing name leaves its parameter, one that is unknown, unreadable or out
of range is a warning that names it, and nothing is executed. Values of variables that are no parameters are never shown: a `.env` holds
keys. Where a value there is not simply the parameter's, its codec says how one becomes the other:

    llm             does an LLM expand the query: expansion.backend is llm
    llama_server    is there a reranker: rerank.backend is not none; the memory agent's is a llama.cpp server
    threshold       threshold.fixed, where it cuts the vector list alone; mem0_threshold: it cannot be switched off
    mem0_rerank     is there a reranker: rerank.backend is cross_encoder, which is mem0's sentence_transformer
    mem0_store      lists.vector.scale by the store that hands it over: cosine by qdrant, inverse_l2 by chroma
    bonus_constant  1 + fusion.importance_bonus_ranks, which is added to K
    row_order       lists.fts5.cut: score is ORDER BY bm25(episodes_fts), row is none

Of several values that the target cannot distinguish, the present config's stays.

A target does what one of its presets says (`base`: the one that comes nearest to the config), with what its settings change. What a preset
leaves to an installation, such as a list of stop words, is what the target has wherever the config names that place.

Source: docs/reference/formats.md and targets.md; mem0ai 2.2.1, `Memory.from_config` and `Memory.search`; engram at 10a2fe6,
recollection-writer.ts.
"""

from __future__ import annotations

import ast
import csv
import json
import pprint
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from cems_workbench.builtin import preset_names
from cems_workbench.config.fields import FieldSpec, bounds_text, packaged, short_value
from cems_workbench.config.forms.yaml_form import TABLES, commented, plain_value, preset, with_values
from cems_workbench.config.model import PipelineConfig, field_spec, field_specs
from cems_workbench.errors import InputError, nearest, one_line, suggestion
from cems_workbench.platform.parsing import env_bindings, python_assigned
from cems_workbench.settings import SavedTarget

Target = str
"""The form of a target's settings."""


@dataclass(frozen=True, slots=True)
class System:
    """A target, a row of targets.json.

    `presets` are its programs, the plain one first; `kinds` the layouts of sources that it writes; `filter` what its own search always
    filters by; `retires` the schemes of sources in which a script retires its superseded memories; `texts` its chunk rule, and whether a
    title is embedded with the content, where that is known; `needs` what a preset of it leaves to an installation: by parameter FILE#NAME
    in a checkout or package; `digest` the first digits of that FILE's SHA-256 at `version`.
    """

    name: str
    title: str
    form: Target
    version: str
    presets: tuple[str, ...]
    kinds: tuple[str, ...]
    filter: str
    set_in: str
    retires: tuple[str, ...] = ()
    texts: Mapping[str, Any] = field(default_factory=dict)
    needs: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    prefix: str = ""
    head: str = ""

    @property
    def by_user(self) -> bool:
        """Whether its search always filters by a user."""
        return "user" in self.filter

    @property
    def about(self) -> str:
        """What its settings are, and what its search always filters by."""
        filtered = f" Its search always filters by: {self.filter}." if self.filter else ""
        return f"Settings are {self.set_in}, at {self.version}.{filtered}"


def _system(name: str, about: Mapping[str, Any]) -> System:
    values: Any = {key: tuple(value) if isinstance(value, list) else value for key, value in about.items()}
    return System(name, **values)


SYSTEMS = {name: _system(name, about) for name, about in packaged("config/forms/targets.json").items()}
BY_FORM: dict[str, System] = {system.form: system for system in SYSTEMS.values()}
TARGET_TITLES = {target: system.title for target, system in BY_FORM.items()}
ENV_PREFIXES: dict[str, Target] = {system.prefix: system.form for system in SYSTEMS.values() if system.prefix}
"""The targets that read environment variables, by how their names begin."""
LISTED: tuple[Target, ...] = tuple(one.form for one in SYSTEMS.values() if not one.prefix and one.form != "mem0")
"""The targets whose settings are lines NAME = VALUE."""
CHECKOUT = "CHECKOUT"
"""The folder of an installation that is not known."""


OWN = "own"
"""The target of a config that runs in a custom program, which can have every parameter."""


def system_named(name: str) -> System | None:
    """The target of a name; None of `OWN`. Raises InputError, with the known ones and the nearest."""
    if name not in (known := (*SYSTEMS, OWN)):
        raise InputError(
            f"target {one_line(name, 40)}: unknown{suggestion(name, known, '.')} Known: {', '.join(known)}"
        )
    return SYSTEMS.get(name)


def preset_behind(config: PipelineConfig) -> str | None:
    """The preset that a config was made from, by its name ("mem0_keyword-tuned", "mem0 (kept 2)"); None of another name."""
    found = [
        name
        for name in preset_names()
        if config.name.startswith(name) and not re.match(r"\w", config.name[len(name) :])
    ]
    return max(found, key=len, default=None)


def system_behind(config: PipelineConfig) -> System | None:
    """The target that a config's preset is a program of; None of a config of the workbench's own, or of a plan."""
    return system_of(preset_behind(config))


def system_of(name: str | None) -> System | None:
    """The target that a preset is a program of."""
    return next((system for system in SYSTEMS.values() if name in system.presets), None)


def preset_groups(runs: SavedTarget | None) -> dict[str, list[str]]:
    """The presets by title of their group: those of the store's target, if it has one, then systems as they run, plans, and our own."""
    system = None if runs is None else SYSTEMS.get(runs.target)
    title = "" if system is None else f"{system.title}, where this store’s memories are used"
    groups: dict[str, list[str]] = {title: [], "As they run": [], "Plans": [], "Ours": []}
    for name in preset_names():
        groups[title if system is not None and name in system.presets else preset(name).kind].append(name)
    return {group: names for group, names in groups.items() if names}


def base(target: Target, config: PipelineConfig) -> PipelineConfig:
    """What the target does when nothing is set, of its programs the one nearest to the config, by what no setting changes."""
    system = BY_FORM[target]
    own = {spec.path for spec, _ in exported(target)} | {*system.needs}
    fixed = [spec.path for spec in field_specs() if spec.path not in own]
    programs = [preset(name).config for name in system.presets]
    nearest_one = min(programs, key=lambda one: sum(one.get(path) != config.get(path) for path in fixed))
    has = {path: config.get(path) for path in system.needs}
    there = {
        path: has[path] if is_there(system, path, has[path]) else f"{CHECKOUT}/{system.needs[path]}" for path in has
    }
    used = {path: value for path, value in there.items() if nearest_one.get(f"{path.rpartition('.')[0]}.enabled")}
    return with_values(nearest_one, used) if used else nearest_one


def completed(config: PipelineConfig, runs: SavedTarget | None) -> PipelineConfig:
    """The config with what is known of the installation that a store's target is, where it is as its preset leaves it."""
    system = None if runs is None else SYSTEMS.get(runs.target)
    name = None if system is None else preset_behind(config)
    if runs is None or system is None or name is None or name not in system.presets:
        return config
    usual = preset(name).config
    values = {path: value for path, value in runs.values.items() if config.get(path) == usual.get(path)}
    return with_values(config, values) if values else config


def is_there(system: System, path: str, value: Any) -> bool:
    """Whether a parameter names the place in an installation that the target reads."""
    return isinstance(value, str) and fnmatchcase(f"/{value.removeprefix('beside:')}", f"*/{system.needs[path]}")


def unplaced(config: PipelineConfig) -> dict[str, str]:
    """The parameters that a target reads from its installation, whose folder is not known: path, and FILE#NAME in it."""
    values = {spec.path: config.get(spec.path) for spec in field_specs() if spec.type is str}
    mark = f"{CHECKOUT}/"
    return {
        path: value.removeprefix(mark)
        for path, value in values.items()
        if isinstance(value, str) and value.startswith(mark)
    }


RECOLLECTION = "processor/recollection-writer.ts"
"""The file of engram's source that ranks what a prompt gets."""


@dataclass(frozen=True, slots=True)
class ExportName:
    """One setting of a target, a row of targets.csv: a variable, an argument, a key of a configuration, of engram a file and constant.

    `low`..`high` are the values the target can use where that is less than the parameter allows (CEMS checks no range, so the
    export does); `null` is the value that comes nearest to null there, None when nothing does; `where` file and line of the
    target's source.
    """

    name: str
    codec: str
    low: float | None
    high: float | None
    null: float | None
    where: str


Plain = bool | int | float | str
NAMED: dict[str, tuple[dict[str, Plain], str]] = TABLES["codecs"]
"""By codec the target's value for each of the parameter's that it has, and why it has no other; empty: it has none of that name."""
TRUE, FALSE = ("true", "1", "yes", "on", "t", "y"), ("false", "0", "no", "off", "f", "n")


class Inexpressible(Exception):
    """The target has no value for what the config says; `str` is the reason."""


class Nearest(Inexpressible):
    """The target has no such value, and `value` comes nearest."""

    def __init__(self, value: Plain, reason: str) -> None:
        super().__init__(reason)
        self.value = value


def encode(spec: FieldSpec, export: ExportName, config: PipelineConfig) -> Plain:
    """The value of the variable `export` for this config. Raises Inexpressible."""
    return _ENCODERS.get(export.codec, _encode_value)(spec, export, config)


def decode(spec: FieldSpec, export: ExportName, text: str, present: PipelineConfig) -> dict[str, Any]:
    """The changes to `present` that a variable's text asks for, by path. Raises ValueError with what is allowed."""
    return _DECODERS.get(export.codec, _decode_value)(spec, export, text, present)


def _encode_value(spec: FieldSpec, export: ExportName, config: PipelineConfig) -> Plain:
    value: Plain | None = config.get(spec.path)
    if value is None:
        if export.null is None:
            raise Inexpressible(f"null ({spec.null}) has no value there")
        value = export.null
    if isinstance(value, (int, float)) and not _within(export, value):
        raise Inexpressible(f"outside what it can use, {bounds_text(export.low, export.high)}")
    return value


def _decode_value(spec: FieldSpec, export: ExportName, text: str, present: PipelineConfig) -> dict[str, Any]:
    value: Plain
    if spec.type is bool:
        value = _truth(text)
    elif spec.type is str:
        value = text
    else:
        value = _number(text, whole=spec.type is int)
        if not _within(export, value):
            raise ValueError(bounds_text(export.low, export.high))
        if present.get(spec.path) is None and value == export.null:
            return {}
    return {spec.path: value}


def _encode_named(spec: FieldSpec, export: ExportName, config: PipelineConfig) -> Plain:
    names, reason = NAMED[export.codec]
    value = config.get(spec.path)
    if value not in names:
        raise Inexpressible(reason or f"it has no {value}")
    return names[value]


def _decode_named(spec: FieldSpec, export: ExportName, text: str, present: PipelineConfig) -> dict[str, Any]:
    names, _ = NAMED[export.codec]
    if True in names.values():
        said: Plain = _truth(text)
    elif text in names.values():
        said = text
    else:
        raise ValueError(" | ".join(map(str, names.values())))
    return {spec.path: next(ours for ours, theirs in names.items() if theirs == said)}


def _encode_threshold(spec: FieldSpec, export: ExportName, config: PipelineConfig) -> Plain:
    threshold = config.threshold
    if threshold.mode == "none" and export.codec == "mem0_threshold":
        raise Nearest(0.0, "it always has one, and 0 comes nearest to none")
    if threshold.mode == "none":
        raise Inexpressible("left out, as nothing is cut without it")
    if threshold.mode == "adaptive" or threshold.applies_to != ("vector",):
        raise Inexpressible("it has one fixed threshold, on the vector list alone")
    return _encode_value(spec, export, config)


def _decode_threshold(spec: FieldSpec, export: ExportName, text: str, present: PipelineConfig) -> dict[str, Any]:
    value = _decode_value(spec, export, text, present)
    return value | {"threshold.mode": "fixed", "threshold.applies_to": ["vector"]}


_ENCODERS: dict[str, Callable[[FieldSpec, ExportName, PipelineConfig], Plain]] = {
    **dict.fromkeys(("mem0_threshold", "threshold"), _encode_threshold),
    "bonus_constant": lambda spec, export, config: 1 + config.fusion.importance_bonus_ranks,
    **dict.fromkeys(NAMED, _encode_named),
}
_DECODERS: dict[str, Callable[[FieldSpec, ExportName, str, PipelineConfig], dict[str, Any]]] = {
    **dict.fromkeys(("mem0_threshold", "threshold"), _decode_threshold),
    "bonus_constant": lambda spec, export, text, present: {spec.path: int(_number(text, whole=True)) - 1},
    **dict.fromkeys(NAMED, _decode_named),
}


def _within(export: ExportName, value: float) -> bool:
    return (export.low is None or value >= export.low) and (export.high is None or value <= export.high)


def _truth(text: str) -> bool:
    word = text.strip().lower()
    if word in TRUE or word in FALSE:
        return word in TRUE
    raise ValueError("true | false")


def _number(text: str, *, whole: bool) -> float | int:
    try:
        return int(text) if whole else float(text)
    except ValueError:
        raise ValueError("a whole number" if whole else "a number") from None


@dataclass
class Sheet:
    """The written values by export name, and what is left over."""

    values: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    """Path of a parameter that has an export name, and why its value is not in it."""


@cache
def exported(target: Target) -> tuple[tuple[FieldSpec, ExportName], ...]:
    """Every parameter that has a name in the target, with that name."""
    with Path(__file__).with_name("targets.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if SYSTEMS[row["target"]].form == target]
    found = []
    for row in rows:
        low, high, null = (json.loads(row[name] or "null") for name in ("low", "high", "null"))
        export = ExportName(row["name"], row["codec"], low, high, null, row["where"])
        found.append((field_spec(row["parameter"]), export))
    return tuple(found)


def _by_name(*targets: Target) -> dict[str, tuple[FieldSpec, ExportName]]:
    return {export.name: (spec, export) for target in targets for spec, export in exported(target)}


def filled(config: PipelineConfig, target: Target, write: Callable[[Plain], str]) -> Sheet:
    """Everything that the target can express, each value by `write`, which raises Inexpressible for one that cannot be written."""
    sheet = Sheet()
    for spec, export in exported(target):
        try:
            text = write(encode(spec, export, config))
        except Nearest as near:
            text = write(near.value)
            sheet.reasons[spec.path] = f"{export.name}: {near}"
        except Inexpressible as reason:
            sheet.reasons[spec.path] = f"{export.name}: {reason}"
            continue
        sheet.values[export.name] = text
        if config.get(spec.path) is None:
            sheet.reasons[spec.path] = f"{export.name}={text} comes nearest"
    return sheet


PROGRAM = "is there as here (preset "
"""What comes before the name of the target's program in an export."""


def program_named(target: Target, text: str) -> str:
    """The preset that an export says the target does, else its plain one."""
    named = re.search(rf"{re.escape(PROGRAM)}(\w+)\)", text)
    presets = BY_FORM[target].presets
    return named[1] if named is not None and named[1] in presets else presets[0]


def leftover(config: PipelineConfig, target: Target, sheet: Sheet, kind: str) -> str:
    """Every parameter that no export name carries whole, with its value and, where it differs, what the target has
    instead. Nothing is dropped in silence. `kind` is what the target calls its names: variable, argument, constant."""
    carried = {spec.path for spec, _ in exported(target)} - set(sheet.reasons)
    usual = base(target, config)
    rest = [spec for spec in field_specs() if spec.path not in carried]
    differs = [
        spec
        for spec in rest
        if "nearest" in sheet.reasons.get(spec.path, "") or config.get(spec.path) != usual.get(spec.path)
    ]
    same = [spec for spec in rest if spec not in differs]
    title = TARGET_TITLES[target]
    lines = [f"What {title} cannot express of this config; it may rank differently there:"]
    lines += [f"  {_line(config, spec, usual, sheet.reasons.get(spec.path))}" for spec in differs] or ["  nothing"]
    lines += ["", f"What no {kind} of {title} sets and {PROGRAM}{usual.name}):"]
    lines += [f"  {_line(config, spec, None, None)}" for spec in same]
    return "\n".join(lines)


def cannot(runs: SavedTarget | None, config: PipelineConfig, *changes: Mapping[str, Any]) -> str:
    """What a store's target cannot run of changes to a config: "mem0 cannot: supersession.mode = follow", the first three. Empty if a
    setting of it carries each value, or one of its programs has it; and without a target."""
    system = None if runs is None else SYSTEMS.get(runs.target)
    if system is None:
        return ""
    found: dict[str, None] = {}
    for values in changes:
        changed = with_values(config, values)
        reasons = filled(changed, system.form, str).reasons
        carried = {spec.path for spec, _ in exported(system.form)} - reasons.keys()
        for path in values:
            if path == "query.author" and system.by_user:  # it filters by the user of each call
                continue
            if path not in carried and all(
                changed.get(path) != preset(name).config.get(path) for name in system.presets
            ):
                found[f"{path} = {short_value(changed.get(path))}"] = None
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return f"{system.title} cannot: {', '.join([*found][:3])}{more}" if found else ""


def _line(config: PipelineConfig, spec: FieldSpec, usual: PipelineConfig | None, reason: str | None) -> str:
    """ "fusion.k = 17   (there 60)": the value here, why it cannot be there, and what is there if nothing was written."""
    here = _sheet_written(config, spec)
    text = f"{spec.path} = {here}" + (f"   ({reason})" if reason else "")
    if usual is None or (reason is not None and "nearest" in reason):
        return text
    there = _sheet_written(usual, spec)
    return text if there == here else f"{text}   (there {there})"


def _sheet_written(config: PipelineConfig, spec: FieldSpec) -> str:
    return json.dumps(plain_value(config, spec.path), ensure_ascii=False)


@dataclass
class Reading:
    """What became of a file of a target."""

    config: PipelineConfig
    warnings: list[str] = field(default_factory=list)


def lay_over(reading: Reading, pair: tuple[FieldSpec, ExportName], value: str, where: str) -> None:
    """Take the value of an export name over into the config that is being read; one that is not allowed becomes a warning."""
    spec, export = pair
    try:
        changes = decode(spec, export, value, reading.config)
        reading.config = with_values(reading.config, changes, source=where) if changes else reading.config
    except (ValueError, InputError) as error:
        allowed = spec.range_text if isinstance(error, InputError) else error
        reading.warnings.append(
            f"{where}: {value[:40]!r} is not allowed; allowed: {allowed}; {spec.path} stays as it is"
        )


_MEANING = "CEMS_HYBRID_VECTOR_WEIGHT is the share inside CEMS's vector list, which is lists.hybrid here"
_BARE = re.compile(r"[A-Za-z0-9_./:@%+,-]+")
_NO_QUOTES_AGREE = "no quoting of this text is read alike by every reader of .env files"


def export_env(config: PipelineConfig, target: Target, header: str = "") -> str:
    """The `.env` text. `header` (name, evidence card) comes first, as comments."""
    sheet = filled(config, target, quoted)
    title = TARGET_TITLES[target]
    meaning = f"\n{_MEANING}" if target == "env" else ""
    parts = [
        commented(header),
        commented(f"Read by {title}{meaning}") + _assignments(sheet.values),
    ]
    parts.append(commented(leftover(config, target, sheet, "variable")))
    return "\n".join(part for part in parts if part)


def quoted(value: Plain) -> str:
    """A value as every reader of .env files reads it. Raises Inexpressible."""
    if not isinstance(value, str):
        return str(value).lower() if isinstance(value, bool) else repr(value)
    if _BARE.fullmatch(value):
        return value
    if value.isprintable() and "\\" not in value and "${" not in value:
        if "'" not in value:
            return f"'{value}'"
        if not set('"$`!') & set(value):
            return f'"{value}"'
    raise Inexpressible(_NO_QUOTES_AGREE)


def _assignments(values: dict[str, str]) -> str:
    return "".join(f"{name}={text}\n" for name, text in values.items())


WORKBENCH_PREFIX = "CEMS_WORKBENCH_"
SERVER_VARIABLES = {
    "CEMS_OLLAMA_URL": f"{WORKBENCH_PREFIX}OLLAMA_URL",
    "RERANKER_BASE_URL": f"{WORKBENCH_PREFIX}LLAMA_SERVER_URL",
}
"""Where a server stands is a setting of the app, not a parameter of the pipeline."""


def targets_of(text: str, source: str = ".env") -> set[Target]:
    """Whose variables a `.env` text has. Raises InputError when it cannot be read at all."""
    names = [binding.key for binding in env_bindings(text, source) if binding.key]
    return {target for prefix, target in ENV_PREFIXES.items() for name in names if _is_ours(name, prefix)}


def read_env(text: str, present: PipelineConfig, source: str = ".env") -> Reading:
    """Lay a `.env` over `present`. Raises InputError when no variable of a target is in it."""
    variables, warnings = _variables(text, source)
    known = _by_name(*ENV_PREFIXES.values())
    if not any(_is_ours(name, prefix) for name in variables for prefix in ENV_PREFIXES):
        titles = [TARGET_TITLES[target] for target in ENV_PREFIXES.values()]
        raise InputError(f"{source}: no variable of {', '.join(titles[:-1])} or {titles[-1]} is set in it")
    reading = Reading(present, warnings)
    for name, (line, value) in variables.items():
        where = f"{source}: line {line}: {one_line(name, 80)}"
        if name in known:
            lay_over(reading, known[name], value, where)
        elif warning := _unknown(name, known):
            reading.warnings.append(f"{where}: {warning}")
    return reading


def _variables(text: str, source: str) -> tuple[dict[str, tuple[int, str]], list[str]]:
    variables: dict[str, tuple[int, str]] = {}
    warnings = []
    for binding in env_bindings(text, source):
        # The parser counts the blank lines before a variable as part of it.
        before = re.match(r"\s*", binding.original.string)
        line = binding.original.line + (before[0].count("\n") if before else 0)
        if binding.error:
            warnings.append(f"{source}: line {line}: not readable, and left out")
        elif binding.key and binding.value is not None:
            if binding.key in variables:
                warnings.append(f"{source}: line {line}: {one_line(binding.key, 80)} is set again; the last one counts")
            variables[binding.key] = (line, binding.value)
    return variables, warnings


def _is_ours(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and not name.startswith(WORKBENCH_PREFIX)


def _unknown(name: str, known: Iterable[str]) -> str | None:
    if name in SERVER_VARIABLES:
        return f"where a server stands is a setting of this app: {SERVER_VARIABLES[name]}"
    if not any(_is_ours(name, prefix) for prefix in ENV_PREFIXES):
        return None
    return _no_parameter(name, known)


def _no_parameter(name: str, known: Iterable[str]) -> str:
    close = nearest(name, known)
    return f"no parameter of the pipeline{f'; the nearest known one is {close}' if close else ''}; left out"


CONSTRUCTOR, SEARCH = "config", "search"
"""The names of the two dictionaries, with which the export names begin."""
SNIPPET_MARK = "from mem0 import Memory"
"""A line of every export: what a file is recognised by."""
RERANKER = "sentence_transformer"
"""mem0's name of a cross-encoder that runs locally."""
NOT_A_SETTING = (
    "Whether words count is no setting of mem0: it depends on what is installed (fastembed and spaCy with\nen_core_web_sm) and on the "
    "vector store."
)


def dump_mem0(config: PipelineConfig, header: str = "") -> str:
    """Python that opens mem0 and searches it. `header` (name, evidence card) comes first, as comments."""
    sheet = filled(config, "mem0", repr)
    parts = _nested({name: ast.literal_eval(text) for name, text in sheet.values.items()})
    constructor, search = parts.get(CONSTRUCTOR, {}), parts.get(SEARCH, {})
    if search.get("rerank"):
        constructor["reranker"] = {"provider": RERANKER} | constructor.get("reranker", {})
    snippet = (
        f"{SNIPPET_MARK}\n\n{CONSTRUCTOR} = {_literal(constructor)}\n{SEARCH} = {_literal(search)}\n\n"
        f'memory = Memory.from_config({CONSTRUCTOR})\nanswer = memory.search("…", filters={{"user_id": "…"}}, **{SEARCH})\n'
    )
    rest = leftover(config, "mem0", sheet, "argument")
    return "\n".join([commented(header), snippet, commented(f"{NOT_A_SETTING}\n\n{rest}")])


def read_mem0(text: str, present: PipelineConfig, source: str = "mem0.py") -> Reading:
    """Lay the dictionaries of a snippet over `present`. Raises InputError when it has none."""
    reading = Reading(present)
    known = _by_name("mem0")
    for section in (CONSTRUCTOR, SEARCH):
        values = python_assigned(text, source, section)
        if not isinstance(values, Mapping):
            raise InputError(f"{source}: {section}: expected a dictionary")
        for name, value in _leaves(values, f"{section}."):
            where = f"{source}: {one_line(name, 80)}"
            if name in known:
                lay_over(reading, known[name], str(value), where)
            elif section == SEARCH:
                reading.warnings.append(f"{where}: {_no_parameter(name, known)}")
            elif name == f"{CONSTRUCTOR}.reranker.provider" and value != RERANKER:
                reading.warnings.append(
                    f"{where}: {one_line(str(value), 40)} is no reranker of the workbench; left out"
                )
    return reading


def _nested(values: Mapping[str, Plain]) -> dict[str, dict[str, Any]]:
    tree: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        *parents, leaf = name.split(".")
        target: dict[str, Any] = tree
        for parent in parents:
            target = target.setdefault(parent, {})
        target[leaf] = value
    return tree


def _leaves(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _literal(value: Mapping[str, Any]) -> str:
    return pprint.pformat(dict(value), width=110, sort_dicts=False)


_LINE = re.compile(r"^([^#\n]+?) = (.+?)(?:\s+# .*)?$", re.MULTILINE)


def dump_listed(config: PipelineConfig, target: Target, header: str = "") -> str:
    """The settings of a target, a line each. `header` (name, evidence card) comes first, as comments."""
    sheet, system, there = filled(config, target, _targets_written), BY_FORM[target], base(target, config)
    usual = filled(there, target, _targets_written).values
    lines = [
        f"{name} = {text}" + (f"   # {usual[name]} at {system.version}" if usual.get(name, text) != text else "")
        for name, text in sheet.values.items()
    ]
    about = system.head or f"{system.set_in}: NAME = VALUE"
    rest = leftover(config, target, sheet, "setting")
    return "\n".join([commented(f"{header}\n{about}"), "\n".join(lines) + "\n", commented(rest)])


def read_listed(text: str, target: Target, present: PipelineConfig, source: str = "settings.txt") -> Reading:
    """Lay the settings over `present`. Raises InputError when there is none."""
    reading, known = Reading(present), _by_name(target)
    if listed_in(text) != target:
        raise InputError(f"{source}: no setting of {TARGET_TITLES[target]} is set in it")
    for name, value in _LINE.findall(text):
        if name in known:
            lay_over(reading, known[name], value.strip('"'), f"{source}: {name}")
        else:
            reading.warnings.append(f"{source}: {name[:80]}: no parameter of the pipeline; left out")
    return reading


def listed_in(text: str) -> Target | None:
    """The target whose settings a text has as lines."""
    names = {name for name, _ in _LINE.findall(text)}
    return next((target for target in LISTED if names & _by_name(target).keys()), None)


def _targets_written(value: Plain) -> str:
    return value if isinstance(value, str) else json.dumps(value)
