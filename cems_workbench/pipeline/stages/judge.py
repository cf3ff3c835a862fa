"""judge: a relevance judgment of each result, which never changes the ranking.

A result is relevant above `threshold`; `bands` are the lower ends of highly relevant, relevant and weak (ACE reads
ms-marco logits as > -8, -8..-10, -10..-12, below). Values that are null in the config are the judge's defaults, which the evidence stores
with its scores. The sigmoid 1 / (1 + e^-raw) is only displayed.

Source: ACE, cross-encoder relevance threshold; docs/internals/specification.md, "judge"; docs/internals/decisions/0008.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from cems_workbench.config.sections import JudgeConfig
from cems_workbench.pipeline.stages.rerank import RERANK, model_key, to_unit
from cems_workbench.pipeline.stages.result import (
    PartColumn,
    StageArrays,
    StageFields,
    StageRow,
    StageTrace,
    optional_numbers,
    pass_through,
    rows_of,
)
from cems_workbench.pipeline.stages.stage import Stage, StageInput, Switch
from cems_workbench.pipeline.table import CandidateTable, Floats, memoized
from cems_workbench.records import MS_MARCO, JudgeScale

BANDS = ("highly relevant", "relevant", "weak", "irrelevant")


@dataclass(frozen=True, slots=True)
class JudgeRow(StageRow):
    """The judgment of a result: raw score, its sigmoid, band, whether it is relevant; all None without a score."""

    raw: float | None = None
    sigmoid: float | None = None
    band: str | None = None
    relevant: bool | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class JudgeFields(StageFields):
    """The backend, the judge of the scores (None: no scores), and its scale and description, if known."""

    backend: str = "none"
    model: str | None = None
    scale: JudgeScale | None = None
    label: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The fields and those of the scale, as plain values."""
        about: dict[str, Any] = {"backend": self.backend, "model": self.model}
        if self.scale is None:
            return about
        return about | {"threshold": self.scale.threshold, "bands": list(self.scale.bands), "label": self.label}


def apply_judge(given: StageInput) -> StageArrays[JudgeRow, JudgeFields]:
    """Attach judgments to the results; warn of a judge that judges what it ranked itself."""
    table, results, config, rerank = given.table, given.ranking, given.config.judge, given.config.rerank
    ranked_by = None if RERANK.is_off(given.config) else model_key(rerank)
    names = judges_of(table, config)
    if not any(names):
        return pass_through(results, JudgeRow, lambda: JudgeFields(config.backend))

    @cache
    def scale(q: int) -> JudgeScale:
        return scale_of(table.notes[q], names[q], config)

    def raw(q: int) -> Floats:
        name = names[q]
        return np.full(table.shape[1], np.nan) if name is None else table.judges[name].raw[q]

    def sigmoid(q: int) -> Floats:
        return to_unit(raw(q), ~np.isnan(raw(q)), "sigmoid")

    def bands(q: int) -> list[str | None]:
        return [None if np.isnan(one) else BANDS[sum(one <= low for low in scale(q).bands)] for one in raw(q).tolist()]

    def relevant(q: int) -> list[bool | None]:
        return [None if one is None else one > scale(q).threshold for one in optional_numbers(raw(q))]

    def errors(q: int) -> list[str | None]:
        name = names[q]
        found: Mapping[int, str] = {} if name is None else table.judges[name].errors[q]
        return [found.get(c) for c in range(table.shape[1])]

    def same_model(q: int, name: str, label: str) -> list[str]:
        """Value of judgments by a model that also ranked: none, little, or a second look at another text."""
        if ranked_by is None or ranked_by not in table.models:
            return []
        order = results.order(q)
        said, ranked = table.judges[name].raw[q, order], table.models[ranked_by].raw[q, order]
        both = ~np.isnan(said) & ~np.isnan(ranked)
        if not both.any():
            return []
        if not np.allclose(said[both], ranked[both]):
            return [f"the judge {label} is also the reranker, here with another text or query: no independent opinion"]
        if rerank.combine == "replace" and both.all() and bool((np.diff(said) <= 0).all()):
            return [f"the judge {label} also ranked: its judgments agree with the ranking by construction"]
        return [f"the judge {label} also reranked, with the same scores: it adds no second opinion"]

    def warnings(q: int) -> list[str]:
        found = []
        label = label_of(table.notes[q], names[q])
        same = ranked_by is not None and label is not None and label == table.notes[q].get("models", {}).get("reranker")
        if (name := names[q]) and (name == ranked_by or same):
            found += same_model(q, name, label or name)
        scored = results.alive[q] & ~np.isnan(raw(q))
        scores, said = raw(q)[scored], {name for name, there in zip(bands(q), scored, strict=True) if there}
        if len(scores) > 1 and said in ({BANDS[0]}, {BANDS[-1]}):
            found.append(
                f"every result is judged {said.pop()}: the bands may not fit this judge, whose scores here are "
                f"{min(scores):.2f} to {max(scores):.2f}"
            )
        return found

    def fields(q: int) -> JudgeFields:
        if not names[q]:
            return JudgeFields(config.backend)
        return JudgeFields(config.backend, names[q], scale(q), label_of(table.notes[q], names[q]))

    def parts(q: int) -> list[PartColumn]:
        return [PartColumn("raw", None, raw(q)), PartColumn("sigmoid", None, sigmoid(q))] if names[q] else []

    return StageArrays(
        entered=results.alive,
        before=results,
        after=results,
        row=rows_of(
            JudgeRow,
            lambda q: optional_numbers(raw(q)),
            lambda q: optional_numbers(sigmoid(q)),
            bands,
            relevant,
            errors,
        ),
        fields=fields,
        parts=parts,
        warnings=warnings,
    )


def scale_of(notes: Mapping[str, Any], name: str | None, config: JudgeConfig) -> JudgeScale:
    """Threshold and bands of the config; null ones are the judge's defaults, or those of ms-marco without any."""
    own = notes.get("judges", {}).get(name, {})
    threshold, bands = own.get("threshold"), own.get("bands")
    if config.threshold is not None or threshold is None:
        threshold = MS_MARCO.threshold if config.threshold is None else config.threshold
    if config.bands is not None or bands is None:
        bands = MS_MARCO.bands if config.bands is None else config.bands
    return JudgeScale(threshold, tuple(bands))


def label_of(notes: Mapping[str, Any], name: str | None) -> str | None:
    """The judge, in words; None if the evidence does not name it."""
    said = notes.get("judges", {}).get(name, {}).get("label") or notes.get("models", {}).get("judge")
    return said if isinstance(said, str) else None


def judges_of(table: CandidateTable, config: JudgeConfig) -> list[str | None]:
    """(Q) the judge of each query, by `judge_of`."""
    key = (config.backend, config.model)
    return memoized(table.memo, "judges", key, lambda: [judge_of(table, config, q) for q in range(table.shape[0])])


def judge_of(table: CandidateTable, config: JudgeConfig, q: int) -> str | None:
    """The judge of query q's scores: the configured model or backend; with `auto` the one in the evidence."""
    there = [name for name, model in table.judges.items() if (model.state[q] != 0).any()]
    if config.backend == "none" or not there:
        return None
    name = config.model or (there[0] if config.backend == "auto" else config.backend)
    return name if name in there else None


def _words(row: JudgeRow, stage: StageTrace[JudgeRow, JudgeFields]) -> str:
    if row.raw is None:
        return f"not judged: {row.error}" if row.error else "not judged"
    return f"{row.band}, {row.raw:.4g}"


JUDGE = Stage(
    name="judge",
    title="Judge",
    description="Relevance judgments of the results; never changes the ranking.",
    works_on="results",
    reads=("judge", "rerank"),
    apply=apply_judge,
    row=JudgeRow,
    fields=JudgeFields,
    switch=Switch("judge", {"judge.backend": "none"}),
    words=_words,
)
