"""What a target can express of a config: its export names with their values, and every parameter that is left over.

How a parameter's value becomes the value of an export name, and back, where the two are not simply the same.

    llm             does an LLM expand the query: expansion.backend is llm
    cems_backend    qwen (the plan: Ollama) | llamacpp_server | llm | disabled
    llama_server    is there a reranker: rerank.backend is not none; the memory agent's is a llama.cpp server
    band            the retrieval share of ranks 1-3, 4-10 and past 10
    mem0_threshold  threshold.fixed, where it cuts the vector list alone; mem0 cannot switch it off
    mem0_rerank     is there a reranker: rerank.backend is cross_encoder, which is mem0's sentence_transformer
    mem0_store      lists.vector.scale by the store that hands it over: cosine by qdrant, inverse_l2 by chroma
    bonus_constant  1 + fusion.importance_bonus_ranks, which is added to K
    row_order       lists.fts5.cut: score is ORDER BY bm25(episodes_fts), row is none

`encode` raises `Inexpressible` with the reason, or `Nearest`, which has a value as well; `decode` raises ValueError with what is allowed.
Of several values that the target cannot distinguish, the present config's stays.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cems_workbench.config.fields import TARGET_PRESETS, TARGET_TITLES, ExportName, FieldSpec, Target, bounds_text
from cems_workbench.config.forms.yaml_form import nested, with_values
from cems_workbench.config.model import PipelineConfig, field_specs
from cems_workbench.config.presets import preset
from cems_workbench.config.sections.ranking import Band
from cems_workbench.errors import InputError

Plain = bool | int | float | str
BAND_ENDS = (3, 10, None)
NAMED: dict[str, tuple[dict[str, Plain], str]] = {
    "llm": ({"none": False, "llm": True}, "it expands with an LLM or not at all"),
    "cems_backend": (
        {"ollama": "qwen", "llama_server": "llamacpp_server", "llm": "llm", "none": "disabled"},
        "its rerankers are qwen, llamacpp_server, llm, disabled",
    ),
    "llama_server": ({"none": False, "llama_server": True}, "its reranker is a llama.cpp server"),
    "mem0_rerank": (
        {"none": False, "cross_encoder": True},
        "of the rerankers here its only one is cross_encoder, as sentence_transformer",
    ),
    "mem0_store": ({"cosine": "qdrant", "inverse_l2": "chroma"}, ""),
    "row_order": ({"score": "bm25(episodes_fts)", "row": "none"}, ""),
}
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


def _encode_mem0_threshold(spec: FieldSpec, export: ExportName, config: PipelineConfig) -> Plain:
    threshold = config.threshold
    if threshold.mode == "none":
        raise Nearest(0.0, "it always has one, and 0 comes nearest to none")
    if threshold.mode == "adaptive" or threshold.applies_to != ("vector",):
        raise Inexpressible("it has one fixed threshold, on the vector list alone")
    return _encode_value(spec, export, config)


def _decode_mem0_threshold(spec: FieldSpec, export: ExportName, text: str, present: PipelineConfig) -> dict[str, Any]:
    value = _decode_value(spec, export, text, present)
    return value | {"threshold.mode": "fixed", "threshold.applies_to": ["vector"]}


def _encode_bonus_constant(spec: FieldSpec, export: ExportName, config: PipelineConfig) -> Plain:
    return 1 + config.fusion.importance_bonus_ranks


def _decode_bonus_constant(spec: FieldSpec, export: ExportName, text: str, present: PipelineConfig) -> dict[str, Any]:
    return {spec.path: int(_number(text, whole=True)) - 1}


_ENCODERS: dict[str, Callable[[FieldSpec, ExportName, PipelineConfig], Plain]] = {
    "band": _encode_band,
    "mem0_threshold": _encode_mem0_threshold,
    "bonus_constant": _encode_bonus_constant,
    **dict.fromkeys(NAMED, _encode_named),
}
_DECODERS: dict[str, Callable[[FieldSpec, ExportName, str, PipelineConfig], dict[str, Any]]] = {
    "band": _decode_band,
    "mem0_threshold": _decode_mem0_threshold,
    "bonus_constant": _decode_bonus_constant,
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

    read: dict[str, str] = field(default_factory=dict)
    planned: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    """Path of a parameter that has an export name, and why its value is not in it."""


def exported(target: Target) -> list[tuple[FieldSpec, ExportName]]:
    """Every parameter that has a name in the target, with that name, in the order of docs/internals/specification.md."""
    return [(spec, export) for spec in field_specs() for export in spec.exports if export.target == target]


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
        (sheet.read if export.read else sheet.planned)[export.name] = text
        if config.get(spec.path) is None:
            sheet.reasons[spec.path] = f"{export.name}={text} comes nearest"
    return sheet


def leftover(config: PipelineConfig, target: Target, sheet: Sheet, kind: str) -> str:
    """Every parameter that no export name carries whole, with its value and, where it differs, what the target has instead.

    Nothing is dropped in silence. `kind` is what the target calls its names: variable, argument, constant.
    """
    carried = {spec.path for spec, _ in exported(target)} - set(sheet.reasons)
    usual = preset(TARGET_PRESETS[target]).config
    rest = [spec for spec in field_specs() if spec.path not in carried]
    differs = [spec for spec in rest if spec.path in sheet.reasons or config.get(spec.path) != usual.get(spec.path)]
    same = [spec for spec in rest if spec not in differs]
    title = TARGET_TITLES[target]
    lines = [f"What {title} cannot express of this config; it may rank differently there:"]
    lines += [f"  {_line(config, spec, usual, sheet.reasons.get(spec.path))}" for spec in differs] or ["  nothing"]
    lines += ["", f"What no {kind} of {title} sets and is there as here (preset {TARGET_PRESETS[target]}):"]
    lines += [f"  {_line(config, spec, None, None)}" for spec in same]
    return "\n".join(lines)


def _line(config: PipelineConfig, spec: FieldSpec, usual: PipelineConfig | None, reason: str | None) -> str:
    """ "fusion.k = 17   (there 60)": the value here, why it cannot be there, and what is there if nothing was written."""
    here = _written(config, spec)
    text = f"{spec.path} = {here}" + (f"   ({reason})" if reason else "")
    if usual is None or (reason is not None and "nearest" in reason):
        return text
    there = _written(usual, spec)
    return text if there == here else f"{text}   (there {there})"


def _written(config: PipelineConfig, spec: FieldSpec) -> str:
    value: Any = nested(config)
    for key in spec.path.split("."):
        value = value[key]
    return json.dumps(value, ensure_ascii=False)


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
