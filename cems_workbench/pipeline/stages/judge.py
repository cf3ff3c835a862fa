"""judge: a relevance judgment beside each result, which never changes the ranking.

A result is relevant above `threshold`; `bands` are the lower ends of highly relevant, relevant and weak (ACE reads
ms-marco logits as > -8, -8..-10, -10..-12, below).

Source: ACE, cross-encoder relevance threshold; PIPELINE.md, "judge".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cems_workbench.config.ranking import JudgeConfig
from cems_workbench.pipeline.table import CandidateTable, ModelTable, Standing, StageArrays, pass_through

BANDS = ("highly relevant", "relevant", "weak", "irrelevant")


def apply_judge(table: CandidateTable, results: Standing, config: JudgeConfig, ranked_by: str | None) -> StageArrays:
    """Attach judgments to the results. `ranked_by` is the reranker's model, to warn of a judge that judges itself."""
    name, model = judge_model(table, config)
    if model is None:
        return pass_through("judge", results, fields=lambda q: {"backend": config.backend, "model": None})

    def band(q: int, c: int) -> str | None:
        raw = model.raw[q, c]
        return None if np.isnan(raw) else BANDS[sum(raw <= low for low in config.bands)]

    def relevant(q: int, c: int) -> bool | None:
        return None if np.isnan(model.raw[q, c]) else bool(model.raw[q, c] > config.threshold)

    def warnings(q: int) -> list[str]:
        circular = [f"the judge {name} also ranked: its judgments agree with the ranking by construction"]
        return circular if name == ranked_by else []

    columns: dict[str, Any] = {
        "raw": lambda q, c: None if np.isnan(model.raw[q, c]) else float(model.raw[q, c]),
        "band": band,
        "relevant": relevant,
        "error": lambda q, c: model.errors[q].get(c),
    }
    fields = {"backend": config.backend, "model": name, "threshold": config.threshold}
    return pass_through("judge", results, columns=columns, warnings=warnings, fields=lambda q: dict(fields))


def judge_model(table: CandidateTable, config: JudgeConfig) -> tuple[str | None, ModelTable | None]:
    """The judge's scores in the evidence: the configured model or backend; `auto` takes the one that is there."""
    if config.backend == "none" or not table.judges:
        return None, None
    name = config.model or (next(iter(table.judges)) if config.backend == "auto" else config.backend)
    return name, table.judges.get(name)
