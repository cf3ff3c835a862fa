"""What a stage did to one memory, in words: from its row in the trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline import Trace

FACTORS = {"priority": "priority", "time_decay": "time decay", "pinned": "the pin", "project": "the project factor",
           "feedback": "feedback"}  # fmt: skip


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, ..."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def stage_words(trace: Trace, stage: str, memory_id: str) -> str:
    """One short clause; the reason where the stage dropped the memory."""
    row = trace.stage(stage).by_id[memory_id]
    if not row["kept"]:
        return str(row["reason"])
    if stage == "lists":
        return list_words(trace, memory_id)
    if is_off(trace.config, stage):
        return "off"
    if stage == "fusion":
        given = ", ".join(f"{term['list']} {term['base'] + term['bonus']:.4f}" for term in row["contributions"])
        return f"{ordinal(row['rank_out'])} of {trace.stage(stage).candidates_out}: {given}"
    if stage == "rerank":
        return f"{rerank_words(row)}, {ordinal(row['rank_out'])}"
    if stage == "adjust":
        return f"{factor_words(row)}, {ordinal(row['rank_out'])}"
    if stage == "assembly":
        return f"{trace.stage(stage).fields['strategy']}, {ordinal(row['rank_out'])} of the results"
    return "kept"


def rerank_words(row: dict[str, Any]) -> str:
    """What the reranker made of it: its unit score, a failure and what stands for it, or nothing."""
    if row["unit"] is None:
        return "the reranker left it unscored"
    if row["flagged"]:
        return f"scoring it failed, which counts as {row['unit']:.3f}"
    return f"the reranker gave it {row['unit']:.3f}"


def is_off(config: PipelineConfig, stage: str) -> bool:
    """Does the config leave this stage out?"""
    return {
        "threshold": config.threshold.mode == "none",
        "rerank": config.rerank.backend == "none",
        "gap": config.gap.ratio == 0,
        "dedup": not config.dedup.enabled,
    }.get(stage, False)


def list_words(trace: Trace, memory_id: str, absent: Mapping[str, str] | None = None) -> str:
    """ "22nd in vector:0 (0.41), not in lexical:0": the memory's place in each list that takes part.

    `absent` says, by list, why the memory is not in it.
    """
    row = trace.stage("lists").by_id.get(memory_id)
    inside = {entry["list"]: entry for entry in row["lists"] if entry["kept"]} if row else {}
    why = dict(absent or {})
    parts = []
    for listed in trace.stage("lists").fields["lists"]:
        name = listed["name"]
        reason = why.pop(name, None)
        if not listed["active"]:
            continue
        if name in inside:
            parts.append(f"{ordinal(inside[name]['rank'])} in {name} ({inside[name]['raw']:.4g})")
        else:
            parts.append(f"not in {name}" + (f": {reason}" if reason else ""))
    parts += [f"{name}: {reason}" for name, reason in why.items()]  # lists that were not searched
    return ", ".join(parts) or "no list takes part"


def factor_words(row: dict[str, Any]) -> str:
    """ "× 0.36: time decay over 151 days 0.28, project 1.30": the factors that are not 1."""
    product = 1.0
    named = []
    for name, factor in row["factors"].items():
        product *= factor
        if factor != 1:
            named.append(f"{FACTORS[name]}{_over(name, row)} {factor:.2f}")
    return f"× {product:.2f}" + (f": {', '.join(named)}" if named else "")


def largest_cut(row: dict[str, Any]) -> str | None:
    """ "time decay over 151 days multiplied it by 0.28": the smallest factor below 1, None when there is none."""
    name = min(row["factors"], key=lambda key: row["factors"][key], default=None)
    if name is None or row["factors"][name] >= 1:
        return None
    return f"{FACTORS[name]}{_over(name, row)} multiplied it by {row['factors'][name]:.2f}"


def _over(name: str, row: dict[str, Any]) -> str:
    if name != "time_decay" or row["age_days"] is None:
        return ""
    days = max(0, round(row["age_days"]))
    return f" over {days} day{'' if days == 1 else 's'}"
