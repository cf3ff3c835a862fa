"""Idle parameters: those without effect because of the values of others, with the reason, which pages show at each control.

Changing an idle parameter changes no order, no score and no dropped memory of a replay.
"""

from __future__ import annotations

from collections.abc import Collection

from cems_workbench.config import PipelineConfig, field_specs
from cems_workbench.pipeline.fusion_methods import fusion_method, own_parameters
from cems_workbench.pipeline.list_sources import SOURCES
from cems_workbench.pipeline.stages import RERANK
from cems_workbench.pipeline.stages.lists import shown_only

NO_EFFECT = "No effect"
"""What every reason begins with."""
ORDERS = {"id": "id", "newest": "date"}
"""What orders equal scores, by `fusion.tie_break`, where no list does."""
_BLEND_PARAMETERS = (
    "rerank.position",
    "rerank.score_window",
    "rerank.raw_scale",
    "rerank.combine",
    "rerank.bands",
    "rerank.retrieval_score",
    "rerank.below_depth",
    "rerank.expected_misses",
)


def idle_parameters(config: PipelineConfig) -> dict[str, str]:
    """The reason by path, of the parameters that are idle under `config`."""
    reasons = _reasons(config)
    idle: dict[str, str] = {}
    for spec in field_specs():
        for path, reason in reasons.items():
            if spec.path == path or (path.endswith(".") and spec.path.startswith(path)):
                idle.setdefault(spec.path, reason)
    return idle


def folded_words(reasons: Collection[str]) -> str:
    """ "8 without effect under combsum" of parameters with these reasons; without the reason if they have several."""
    kinds = set(reasons)
    why = kinds.pop().removeprefix(NO_EFFECT) if len(kinds) == 1 else ""
    return f"{len(reasons)} without effect{why}"


def _reasons(config: PipelineConfig) -> dict[str, str]:
    """The reason by path, or by the common beginning of several paths, with its dot."""
    found: dict[str, str] = {}
    for name in SOURCES:
        if not getattr(config.lists, name).enabled:
            found |= {
                f"lists.{name}.weight": "No effect: this list is off",
                f"lists.{name}.ties": "No effect: this list is off",
                f"lists.{name}.normalization": "No effect: this list is off",
            }
        elif shown_only(config.lists, name):
            found |= dict.fromkeys((f"lists.{name}.ties", f"lists.{name}.normalization"), "No effect: its weight is 0")
    if config.expansion.backend == "none":
        found["variants.search"] = "No effect: the query is not expanded"
    elif config.variants.search == "replaced":
        found["variants.expansion_weight"] = "No effect: an expansion replaces the query"
    used = {getattr(getattr(config.lists, name), "normalization", "none") for name in SOURCES}
    if "logistic" not in used:
        found["lists.logistic.bands"] = "No effect: no list has the logistic normalisation"
    if "minmax" not in used:
        found["lists.equal_scores"] = "No effect: no list has the minmax normalisation"
    if config.lists.recency.normalization != "exponential":
        found.setdefault("lists.recency.half_life_days", "No effect: dates are not normalised")
    method = fusion_method(config.fusion)
    for path in own_parameters():
        if not method.uses(path):
            found |= dict.fromkeys((path, f"{path}."), f"No effect under {method.name}")
    blended = not RERANK.is_off(config) and config.rerank.combine == "position_bands"
    if blended and config.rerank.retrieval_score in ("rrf", "normalized_rrf"):
        found.pop("fusion.k", None)  # the retrieval score of the blend reads it, whatever the method
    if config.fusion.tie_break != "first_seen":
        found["fusion.seen_first"] = f"No effect: equal scores are ordered by {ORDERS[config.fusion.tie_break]}"
    if config.assembly.strategy == "greedy":
        found |= {
            f"assembly.mmr_{name}": "No effect: results are chosen by score"
            for name in ("lambda", "similarity", "procedure", "relevance", "min_value")
        }
    if not config.fusion.score_blend:
        found["fusion.blend_with"] = "No effect: the score blend is 0"
    if config.threshold.mode != "adaptive":
        found["threshold.adaptive."] = f"No effect: the threshold is {_mode(config.threshold.mode)}"
    if config.threshold.mode != "fixed":
        found["threshold.fixed"] = f"No effect: the threshold is {_mode(config.threshold.mode)}"
    if RERANK.is_off(config):
        found |= dict.fromkeys(_BLEND_PARAMETERS, "No effect: nothing is reranked")
    elif config.rerank.combine != "position_bands":
        found["rerank.bands"] = "No effect: the reranker's score replaces the other"
    if RERANK.is_off(config) or config.rerank.expected_misses is None:
        found["rerank.read_step"] = (
            "No effect: nothing is reranked" if RERANK.is_off(config) else "No effect: everything is read"
        )
    if config.adjust.time_decay.mode == "none":
        found |= {
            f"adjust.time_decay.{name}": "No effect: time decay is off"
            for name in ("half_life_days", "whole_days", "tiers", "floor", "future", "alpha")
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
    if config.adjust.count.of == "none":
        found["adjust.count.alpha"] = "No effect: nothing is counted"
    if not config.dedup.enabled:
        found["dedup.similarity"] = "No effect: duplicates are kept"
    return found


def _mode(mode: str) -> str:
    return "off" if mode == "none" else mode
