"""A config out of a `.env` file of CEMS or of the memory agent, laid over the config at hand.

A variable that is missing leaves the parameter as it is. One that is unknown, unreadable or out of range is a warning that
names it, and the others count. Values of variables that are not parameters are never shown: a `.env` holds keys.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass, field

from dotenv.parser import parse_stream

from cems_workbench.config.env_codecs import LEXICAL, VECTOR, decode
from cems_workbench.config.export_env import exported
from cems_workbench.config.export_names import TARGET_TITLES, ExportName, Target
from cems_workbench.config.fields import FieldSpec
from cems_workbench.config.model import PipelineConfig
from cems_workbench.config.yaml_io import with_values
from cems_workbench.errors import InputError, nearest

TARGETS: tuple[Target, ...] = ("env", "reranker-env")
PREFIXES: dict[str, Target] = {"CEMS_": "env", "RERANKER_": "reranker-env"}
OWN = "CEMS_WORKBENCH_"
SERVERS = {"CEMS_OLLAMA_URL": f"{OWN}OLLAMA_URL", "RERANKER_BASE_URL": f"{OWN}LLAMA_SERVER_URL"}
"""Where a server stands is a setting of the app, not a parameter of the pipeline."""


@dataclass
class EnvReading:
    """What became of a `.env` file."""

    config: PipelineConfig
    warnings: list[str] = field(default_factory=list)


def targets_of(text: str) -> set[Target]:
    """Whose variables a `.env` text has."""
    names = [binding.key for binding in parse_stream(io.StringIO(text)) if binding.key]
    return {target for prefix, target in PREFIXES.items() for name in names if _is_ours(name, prefix)}


def read_env(text: str, present: PipelineConfig, source: str = ".env") -> EnvReading:
    """Lay a `.env` over `present`. Raises InputError when no variable of either target is in it."""
    variables, warnings = _variables(text, source)
    known = _known()
    if not any(_is_ours(name, prefix) for name in variables for prefix in PREFIXES):
        raise InputError(f"{source}: no variable of {' or '.join(TARGET_TITLES.values())} is set in it")
    reading = EnvReading(present, warnings)
    for name, (line, value) in variables.items():
        where = f"{source}: line {line}: {name}"
        if name in known:
            _apply(reading, known[name], value, where)
        elif warning := _unknown(name, known):
            reading.warnings.append(f"{where}: {warning}")
    if "CEMS_HYBRID_VECTOR_WEIGHT" in variables:
        _say_what_a_ratio_tells(reading, present)
    return reading


def _known() -> dict[str, tuple[FieldSpec, ExportName]]:
    """By variable; a ratio of two parameters stands with the first of them and is decoded once, for both."""
    pairs = [pair for target in TARGETS for pair in exported(target)]
    return {export.name: (spec, export) for spec, export in reversed(pairs)}


def _variables(text: str, source: str) -> tuple[dict[str, tuple[int, str]], list[str]]:
    variables: dict[str, tuple[int, str]] = {}
    warnings = []
    for binding in parse_stream(io.StringIO(text)):
        line = binding.original.line + _blank_lines(binding.original.string)
        if binding.error:
            warnings.append(f"{source}: line {line}: not readable, and left out")
        elif binding.key and binding.value is not None:
            if binding.key in variables:
                warnings.append(f"{source}: line {line}: {binding.key} is set again; the last one counts")
            variables[binding.key] = (line, binding.value)
    return variables, warnings


def _blank_lines(text: str) -> int:
    """The parser counts the blank lines before a variable as part of it."""
    return text[: len(text) - len(text.lstrip())].count("\n")


def _is_ours(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and not name.startswith(OWN)


def _apply(reading: EnvReading, pair: tuple[FieldSpec, ExportName], value: str, where: str) -> None:
    spec, export = pair
    try:
        changes = decode(spec, export, value, reading.config)
        reading.config = with_values(reading.config, changes, source=where) if changes else reading.config
    except (ValueError, InputError) as error:
        allowed = spec.range_text if isinstance(error, InputError) else error
        reading.warnings.append(
            f"{where}: {value[:40]!r} is not allowed; allowed: {allowed}; {spec.path} stays as it is"
        )


def _unknown(name: str, known: Iterable[str]) -> str | None:
    if name in SERVERS:
        return f"where a server stands is a setting of this app: {SERVERS[name]}"
    if not any(_is_ours(name, prefix) for prefix in PREFIXES):
        return None
    close = nearest(name, known)
    hint = f"; the nearest known one is {close}" if close else ""
    return f"no parameter of the pipeline{hint}; left out"


def _say_what_a_ratio_tells(reading: EnvReading, present: PipelineConfig) -> None:
    was = (present.lists.vector.weight, present.lists.lexical.weight)
    now = (reading.config.lists.vector.weight, reading.config.lists.lexical.weight)
    if was != now:
        reading.warnings.append(
            f"CEMS_HYBRID_VECTOR_WEIGHT is a ratio and cannot tell the weights themselves: {VECTOR} {now[0]:g} and "
            f"{LEXICAL} {now[1]:g} keep the present sum {sum(was) or 2:g}"
        )
