"""How a parameter's value becomes the value of a variable, and back, where the two are not simply the same.

    share         vector weight / (vector + lexical weight); back, the sum of the present weights is kept
    llm           does an LLM expand the query: expansion.backend is llm
    cems_backend  qwen (the plan: Ollama) | llamacpp_server | llm | disabled
    llama_server  is there a reranker: rerank.backend is not none; the memory agent's is a llama.cpp server
    band          the retrieval share of ranks 1-3, 4-10 and past 10

`encode` raises `Inexpressible` with the reason; `decode` raises ValueError with what is allowed. What a value of the target
cannot tell apart is kept as it is in the present config.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cems_workbench.config.export_names import ExportName
from cems_workbench.config.fields import FieldSpec, bounds_text
from cems_workbench.config.model import PipelineConfig
from cems_workbench.config.ranking import Band

VECTOR, LEXICAL = "lists.vector.weight", "lists.lexical.weight"
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


def _encode_share(spec: FieldSpec, export: ExportName, config: PipelineConfig) -> Plain:
    total = config.lists.vector.weight + config.lists.lexical.weight
    if total == 0:
        raise Inexpressible("both weights are 0, which has no ratio")
    return config.lists.vector.weight / total


def _decode_share(spec: FieldSpec, export: ExportName, text: str, present: PipelineConfig) -> dict[str, Any]:
    share = _number(text, whole=False)
    if not 0 <= share <= 1:
        raise ValueError("0 to 1")
    total = present.lists.vector.weight + present.lists.lexical.weight or 2.0
    if math.isclose(present.lists.vector.weight, share * total, rel_tol=1e-12, abs_tol=1e-12):
        return {}
    return {VECTOR: min(share * total, 100.0), LEXICAL: min((1 - share) * total, 100.0)}


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
    "share": _encode_share, "llm": _encode_llm, "cems_backend": _encode_cems_backend,
    "llama_server": _encode_llama_server, "band": _encode_band,
}  # fmt: skip
_DECODERS: dict[str, Callable[[FieldSpec, ExportName, str, PipelineConfig], dict[str, Any]]] = {
    "share": _decode_share, "llm": _decode_llm, "cems_backend": _decode_cems_backend,
    "llama_server": _decode_llama_server, "band": _decode_band,
}  # fmt: skip


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
