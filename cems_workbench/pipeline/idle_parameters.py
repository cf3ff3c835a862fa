"""Which parameters change nothing of a ranking because of what others are set to, and why; pages say it beside each control.

What is named here changes nothing that replay does: not the order, not a score, not a dropped memory.
"""

from __future__ import annotations

from cems_workbench.config import PipelineConfig, field_specs
from cems_workbench.pipeline.list_sources import SOURCES
from cems_workbench.pipeline.stages import RERANK

_BY_RANKS = ("fusion.k", "fusion.top_rank_bonus.", "fusion.importance_bonus_ranks")
_OF_THE_BLEND = (
    "rerank.score_window",
    "rerank.raw_scale",
    "rerank.combine",
    "rerank.bands",
    "rerank.retrieval_score",
    "rerank.below_depth",
)


def idle_parameters(config: PipelineConfig) -> dict[str, str]:
    """Path to reason, of the parameters that are idle under `config`."""
    reasons = _reasons(config)
    idle: dict[str, str] = {}
    for spec in field_specs():
        for path, reason in reasons.items():
            if spec.path == path or (path.endswith(".") and spec.path.startswith(path)):
                idle.setdefault(spec.path, reason)
    return idle


def _reasons(config: PipelineConfig) -> dict[str, str]:
    """Path, or the beginning of several up to its point, to reason."""
    found: dict[str, str] = {}
    for name in SOURCES:
        if not getattr(config.lists, name).enabled:
            found |= {
                f"lists.{name}.weight": "No effect: this list is off",
                f"lists.{name}.ties": "No effect: this list is off",
            }
    if config.fusion.method != "rrf":
        found |= dict.fromkeys(_BY_RANKS, f"No effect under {config.fusion.method}")
    if not config.fusion.score_blend:
        found["fusion.blend_with"] = "No effect: the score blend is 0"
    if config.threshold.mode != "adaptive":
        found["threshold.adaptive."] = f"No effect: the threshold is {_named(config.threshold.mode)}"
    if config.threshold.mode != "fixed":
        found["threshold.fixed"] = f"No effect: the threshold is {_named(config.threshold.mode)}"
    if RERANK.is_off(config):
        found |= dict.fromkeys(_OF_THE_BLEND, "No effect: nothing is reranked")
    elif config.rerank.combine != "position_bands":
        found["rerank.bands"] = "No effect: the reranker's score replaces the other"
    if config.adjust.time_decay.mode == "none":
        found |= {
            f"adjust.time_decay.{name}": "No effect: time decay is off"
            for name in ("half_life_days", "whole_days", "tiers")
        }
    if not config.adjust.project.enabled:
        found |= {
            f"adjust.project.{name}": "No effect: project factors are off"
            for name in ("same", "different", "untagged", "match")
        }
    if not config.adjust.feedback.enabled:
        found |= {
            f"adjust.feedback.{name}": "No effect: feedback is not used" for name in ("base", "span", "min_signals")
        }
    if not config.dedup.enabled:
        found["dedup.similarity"] = "No effect: duplicates are kept"
    return found


def _named(mode: str) -> str:
    return "off" if mode == "none" else mode
