"""How a parameter's value becomes the value of a variable, and back, where the two are not simply the same.

    llm           does an LLM expand the query: expansion.backend is llm
    cems_backend  qwen (the plan: Ollama) | llamacpp_server | llm | disabled
    llama_server  is there a reranker: rerank.backend is not none; the memory agent's is a llama.cpp server
    band          the retrieval share of ranks 1-3, 4-10 and past 10

`encode` raises `Inexpressible` with the reason; `decode` raises ValueError with what is allowed. Of several values that the target cannot
distinguish, the present config's stays.

A config as the `.env` file of CEMS or of the memory agent.

Three parts: the variables that the target reads, those that its plan names and it does not read today, and, as comments, every
parameter that no variable carries, those first in which the config differs from what the target does anyway. Values are quoted
so that a plain dotenv parser, pydantic-settings and a shell read the same; what cannot be quoted so is listed instead.

An export of this version has the line `FORMAT_MARK`: earlier ones took CEMS_HYBRID_VECTOR_WEIGHT for the share between the vector and
the lexical list, and CEMS_MAX_CANDIDATES_PER_QUERY and CEMS_ENABLE_LEXICAL_IN_INFERENCE for those of other lists.

Source: docs/reference/formats.md (.env for CEMS, .env for the memory agent); docs/use/cems.md.

Reading lays the variables of a `.env` over the present config.

A missing variable leaves the parameter unchanged. One that is unknown, unreadable or out of range is a warning that
names it, and the others count. Values of variables that are not parameters are never shown: a `.env` holds keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from cems_workbench.config.export_names import TARGET_PRESETS, TARGET_TITLES, ExportName, Target
from cems_workbench.config.fields import FieldSpec, bounds_text
from cems_workbench.config.forms.yaml_form import commented, nested, with_values
from cems_workbench.config.model import PipelineConfig, field_specs
from cems_workbench.config.presets import preset
from cems_workbench.config.sections.ranking import Band
from cems_workbench.errors import InputError, nearest, one_line
from cems_workbench.platform.parsing import env_bindings

FORMAT_MARK = "CEMS_HYBRID_VECTOR_WEIGHT is the share inside CEMS's vector list, which is lists.hybrid here"
"""A line of every export for CEMS that has this meaning; exports of earlier versions lack it."""
_EXPORTED = "# Read by CEMS"
BACKENDS = {"ollama": "qwen", "llama_server": "llamacpp_server", "llm": "llm", "none": "disabled"}
BAND_ENDS = (3, 10, None)
TRUE, FALSE = ("true", "1", "yes", "on", "t", "y"), ("false", "0", "no", "off", "f", "n")

Plain = bool | int | float | str


class Inexpressible(Exception):
    """The target has no value for what the config says; `str` is the reason."""


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


def _encode_llm(spec: FieldSpec, export: ExportName, config: PipelineConfig) -> Plain:
    if config.expansion.backend not in ("none", "llm"):
        raise Inexpressible("it expands with an LLM or not at all")
    return config.expansion.backend == "llm"


def _decode_llm(spec: FieldSpec, export: ExportName, text: str, present: PipelineConfig) -> dict[str, Any]:
    return {spec.path: "llm" if _truth(text) else "none"}


def _encode_cems_backend(spec: FieldSpec, export: ExportName, config: PipelineConfig) -> Plain:
    if config.rerank.backend not in BACKENDS:
        raise Inexpressible(f"its rerankers are {', '.join(BACKENDS.values())}")
    return BACKENDS[config.rerank.backend]


def _decode_cems_backend(spec: FieldSpec, export: ExportName, text: str, present: PipelineConfig) -> dict[str, Any]:
    for ours, theirs in BACKENDS.items():
        if text == theirs:
            return {spec.path: ours}
    raise ValueError(" | ".join(BACKENDS.values()))


def _encode_llama_server(spec: FieldSpec, export: ExportName, config: PipelineConfig) -> Plain:
    if config.rerank.backend not in ("none", "llama_server"):
        raise Inexpressible("its reranker is a llama.cpp server")
    return config.rerank.backend == "llama_server"


def _decode_llama_server(spec: FieldSpec, export: ExportName, text: str, present: PipelineConfig) -> dict[str, Any]:
    return {spec.path: "llama_server" if _truth(text) else "none"}


def _encode_band(spec: FieldSpec, export: ExportName, config: PipelineConfig) -> Plain:
    bands = config.rerank.bands
    if tuple(band.max_rank for band in bands) != BAND_ENDS:
        raise Inexpressible("its bands end at ranks 3 and 10")
    return bands[export.place].retrieval


def _decode_band(spec: FieldSpec, export: ExportName, text: str, present: PipelineConfig) -> dict[str, Any]:
    share = _number(text, whole=False)
    if not 0 <= share <= 1:
        raise ValueError("0 to 1")
    bands = present.rerank.bands
    if tuple(band.max_rank for band in bands) != BAND_ENDS:
        default: tuple[Band, ...] = spec.default
        bands = default
    rows = [band.model_dump() for band in bands]
    rows[export.place]["retrieval"] = share
    return {spec.path: rows}


_ENCODERS: dict[str, Callable[[FieldSpec, ExportName, PipelineConfig], Plain]] = {
    "llm": _encode_llm,
    "cems_backend": _encode_cems_backend,
    "llama_server": _encode_llama_server,
    "band": _encode_band,
}
_DECODERS: dict[str, Callable[[FieldSpec, ExportName, str, PipelineConfig], dict[str, Any]]] = {
    "llm": _decode_llm,
    "cems_backend": _decode_cems_backend,
    "llama_server": _decode_llama_server,
    "band": _decode_band,
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


_BARE = re.compile(r"[A-Za-z0-9_./:@%+,-]+")
_NO_QUOTES_AGREE = "no quoting of this text is read alike by every reader of .env files"


@dataclass
class _Sheet:
    """The variables and what is left over, while it is being filled."""

    read: dict[str, str] = field(default_factory=dict)
    planned: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    """Path of a parameter that has a variable, and why its value is not in it."""


def export_env(config: PipelineConfig, target: Target, header: str = "") -> str:
    """The `.env` text. `header` (name, evidence card) comes first, as comments."""
    sheet = _Sheet()
    for spec, export in exported(target):
        _fill(sheet, spec, export, config)
    title = TARGET_TITLES[target]
    meaning = f"\n{FORMAT_MARK}" if target == "env" else ""
    parts = [commented(header), commented(f"Read by {title}{meaning}") + _assignments(sheet.read)]
    if sheet.planned:
        parts.append(commented(f"Not read by current {title}: named in its plan") + _assignments(sheet.planned))
    parts.append(commented(_leftover(config, target, sheet)))
    return "\n".join(part for part in parts if part)


def exported(target: Target) -> list[tuple[FieldSpec, ExportName]]:
    """Every parameter that has a variable in the target, with that variable, in the order of docs/internals/specification.md."""
    return [(spec, export) for spec in field_specs() for export in spec.exports if export.target == target]


def _fill(sheet: _Sheet, spec: FieldSpec, export: ExportName, config: PipelineConfig) -> None:
    try:
        text = quoted(encode(spec, export, config))
    except Inexpressible as reason:
        sheet.reasons[spec.path] = f"{export.name}: {reason}"
        return
    (sheet.read if export.read else sheet.planned)[export.name] = text
    if config.get(spec.path) is None:
        sheet.reasons[spec.path] = f"{export.name}={text} comes nearest"


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


def _leftover(config: PipelineConfig, target: Target, sheet: _Sheet) -> str:
    """Every parameter that no variable carries whole, with its value: nothing is dropped in silence."""
    carried = {spec.path for spec, _ in exported(target)} - set(sheet.reasons)
    usual = preset(TARGET_PRESETS[target]).config
    rest = [spec for spec in field_specs() if spec.path not in carried]
    differs = [spec for spec in rest if spec.path in sheet.reasons or config.get(spec.path) != usual.get(spec.path)]
    same = [spec for spec in rest if spec not in differs]
    title = TARGET_TITLES[target]
    lines = [f"What {title} cannot express of this config; it may rank differently there:"]
    lines += [f"  {_line(config, spec, sheet.reasons.get(spec.path))}" for spec in differs] or ["  nothing"]
    lines += ["", f"What no variable of {title} sets and is there as here (preset {TARGET_PRESETS[target]}):"]
    lines += [f"  {_line(config, spec, None)}" for spec in same]
    return "\n".join(lines)


def _line(config: PipelineConfig, spec: FieldSpec, reason: str | None) -> str:
    value: object = nested(config)
    for key in spec.path.split("."):
        assert isinstance(value, dict)
        value = value[key]
    text = f"{spec.path} = {json.dumps(value, ensure_ascii=False)}"
    return f"{text}   ({reason})" if reason else text


TARGETS: tuple[Target, ...] = ("env", "reranker-env")
PREFIXES: dict[str, Target] = {"CEMS_": "env", "RERANKER_": "reranker-env"}
WORKBENCH_PREFIX = "CEMS_WORKBENCH_"
SERVER_VARIABLES = {
    "CEMS_OLLAMA_URL": f"{WORKBENCH_PREFIX}OLLAMA_URL",
    "RERANKER_BASE_URL": f"{WORKBENCH_PREFIX}LLAMA_SERVER_URL",
}
"""Where a server stands is a setting of the app, not a parameter of the pipeline."""


@dataclass
class EnvReading:
    """What became of a `.env` file."""

    config: PipelineConfig
    warnings: list[str] = field(default_factory=list)


def targets_of(text: str, source: str = ".env") -> set[Target]:
    """Whose variables a `.env` text has. Raises InputError when it cannot be read at all."""
    names = [binding.key for binding in env_bindings(text, source) if binding.key]
    return {target for prefix, target in PREFIXES.items() for name in names if _is_ours(name, prefix)}


def read_env(text: str, present: PipelineConfig, source: str = ".env", *, planned: bool = True) -> EnvReading:
    """Lay a `.env` over `present`; variables that the target does not read yet are left out unless `planned`.

    Raises InputError when no variable of either target is in it.
    """
    variables, warnings = _variables(text, source)
    known = _known()
    if not any(_is_ours(name, prefix) for name in variables for prefix in PREFIXES):
        raise InputError(f"{source}: no variable of {' or '.join(TARGET_TITLES.values())} is set in it")
    reading = EnvReading(present, warnings)
    for name, (line, value) in variables.items():
        where = f"{source}: line {line}: {one_line(name, 80)}"
        if name in known:
            if planned or known[name][1].read:
                _apply(reading, known[name], value, where)
        elif warning := _unknown(name, known):
            reading.warnings.append(f"{where}: {warning}")
    if _EXPORTED in text and FORMAT_MARK not in text:
        reading.warnings.append(
            f"{source}: an earlier version of the workbench exported this, and took CEMS_HYBRID_VECTOR_WEIGHT for the share between the "
            "vector and the lexical list: CEMS will not rank as that version showed; tune and export again"
        )
    return reading


def _known() -> dict[str, tuple[FieldSpec, ExportName]]:
    return {export.name: (spec, export) for target in TARGETS for spec, export in exported(target)}


def _variables(text: str, source: str) -> tuple[dict[str, tuple[int, str]], list[str]]:
    variables: dict[str, tuple[int, str]] = {}
    warnings = []
    for binding in env_bindings(text, source):
        line = binding.original.line + _blank_lines(binding.original.string)
        if binding.error:
            warnings.append(f"{source}: line {line}: not readable, and left out")
        elif binding.key and binding.value is not None:
            if binding.key in variables:
                warnings.append(f"{source}: line {line}: {one_line(binding.key, 80)} is set again; the last one counts")
            variables[binding.key] = (line, binding.value)
    return variables, warnings


def _blank_lines(text: str) -> int:
    """The parser counts the blank lines before a variable as part of it."""
    return text[: len(text) - len(text.lstrip())].count("\n")


def _is_ours(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and not name.startswith(WORKBENCH_PREFIX)


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
    if name in SERVER_VARIABLES:
        return f"where a server stands is a setting of this app: {SERVER_VARIABLES[name]}"
    if not any(_is_ours(name, prefix) for prefix in PREFIXES):
        return None
    close = nearest(name, known)
    hint = f"; the nearest known one is {close}" if close else ""
    return f"no parameter of the pipeline{hint}; left out"
