"""Causes: the parameters that made the loss. A change of one of them is tried first, and where it works it is the fix to try first.

    dropped by a rule       the parameters of that rule
    pushed down by factors  those of adjust
    never read              what decides how many candidates the reranker reads
    in no list              the depths that would have held it
    known mistakes          theirs; of results that one document fills, those of dedup and MMR

Parameters that weigh (weights, bands, k) are no cause: every memory is ranked by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cems_workbench.analysis.known_mistakes import CROWDED
from cems_workbench.analysis.stage_mistakes import KnownMistake
from cems_workbench.analysis.why.path import MemoryPath
from cems_workbench.config import field_specs
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.stages import ADJUST, RERANK

READING = frozenset(
    {
        "rerank.depth",
        "rerank.score_window",
        "rerank.expected_misses",
        "rerank.position",
        "rerank.skip_if_few",
        "rerank.below_depth",
        "rerank.brief.total_chars",
    }
)
"""Parameters that decide which candidates the reranker reads, and what becomes of the others."""
DIVERSITY = {
    ("dedup.enabled", True): ("dedup.similarity",),
    ("assembly.strategy", "mmr"): ("assembly.mmr_procedure", "assembly.mmr_similarity", "assembly.mmr_lambda"),
}
"""Switches that keep results apart, and the parameters that act only with them."""
_RULES: Mapping[str, tuple[str, ...]] = {
    "threshold": ("threshold.",),
    "filter": ("filter.",),
    "supersession": ("supersession.",),
    "gap": ("gap.ratio",),
    "dedup": ("dedup.similarity",),
    "abstain": ("abstain.",),
    "assembly": ("assembly.max_tokens", "assembly.min_vector_score", "assembly.mmr_min_value"),
}
"""By stage, how the parameters of the rule begin by which it drops a memory."""


def cause_parameters(trace: Trace, path: MemoryPath, mistakes: Iterable[KnownMistake]) -> frozenset[str]:
    """Paths of the parameters that made the loss; empty if the memory was only outranked."""
    found = {mistake.parameter for mistake in mistakes if mistake.parameter}
    if found & {CROWDED}:
        found |= {own for (switch, _), more in DIVERSITY.items() for own in (switch, *more)}
    if path.status == "in no list":
        found |= {own for place in path.places for values in place.deeper for own in values}
    rules = _RULES.get(path.steps[-1].stage, ()) if path.status == "dropped" else ()
    if path.lost_at == ADJUST.name:
        rules = (*rules, "adjust.")
    found |= {spec.path for spec in field_specs() if spec.path.startswith(rules)}
    row = None if RERANK.is_off(trace.config) else trace.stage(RERANK).by_id.get(path.memory_id)
    if row is not None and row.outcome in ("tail", "not_read", "skipped"):
        found |= READING
    return frozenset(found)
