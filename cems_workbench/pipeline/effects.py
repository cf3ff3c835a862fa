"""Idle parameters: those without effect because of the values of others, with the reason, which pages show at each control.

Changing an idle parameter changes no order, no score and no dropped memory of a replay.

Effects of a request's project and moment under a config, in words; the only source of these texts for pages and commands.

A part that is reported as ignored changes nothing in replay: no order, no score, no dropped memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from cems_workbench.config import PipelineConfig, field_specs
from cems_workbench.config.sections import ADDED_LISTS
from cems_workbench.pipeline.fusion_methods import fusion_method, own_parameters
from cems_workbench.pipeline.list_sources import INSIDE, SOURCES
from cems_workbench.pipeline.replay import Trace
from cems_workbench.pipeline.stages import RERANK
from cems_workbench.pipeline.stages.lists import shown_only
from cems_workbench.records import Memory

NO_EFFECT = "No effect"
"""What every reason begins with."""
ORDERS = {"id": "id", "newest": "date"}
"""What orders equal scores, by `fusion.tie_break`, where no list does."""
_BLEND_PARAMETERS = "position score_window raw_scale combine bands retrieval_score below_depth expected_misses"


def idle_parameters(config: PipelineConfig) -> dict[str, str]:
    """The reason by path, of the parameters that are idle under `config`."""
    reasons = _reasons(config)
    below = {path: reason for path, reason in reasons.items() if path.endswith(".")}
    idle: dict[str, str] = {}
    for spec in field_specs():
        reason = next((said for path, said in below.items() if spec.path.startswith(path)), reasons.get(spec.path))
        if reason is not None and not spec.path.endswith(".enabled"):
            idle[spec.path] = reason
    return idle


def folded_words(reasons: Collection[str]) -> str:
    """ "8 without effect under combsum" of parameters with these reasons; without the reason if they have several."""
    kinds = set(reasons)
    why = kinds.pop().removeprefix(NO_EFFECT) if len(kinds) == 1 else ""
    return f"{len(reasons)} without effect{why}"


def _reasons(config: PipelineConfig) -> dict[str, str]:
    """The reason by path, or by the common beginning of several paths, with its dot."""
    found: dict[str, str] = {}

    def idle(when: bool, why: str, section: str, names: str = "") -> None:
        """Some parameters of a section, or a single one, have no effect."""
        if when:
            found.update({f"{section}.{name}": NO_EFFECT + why for name in names.split()} or {section: NO_EFFECT + why})

    for name in SOURCES:
        off = not getattr(config.lists, name).enabled
        # Off as it is, a list may be inside the hybrid list, and the strong signal is looked for in these two.
        read = name in ("vector", "lexical") or (config.lists.hybrid.enabled and name in INSIDE)
        idle(off, ": this list is off", f"lists.{name}", "weight ties normalization")
        idle(off and not read, ": this list is off", f"lists.{name}.")
        idle(not off and shown_only(config.lists, name), ": its weight is 0", f"lists.{name}", "ties normalization")
    expanded = config.expansion.backend != "none"
    idle(not expanded, ": the query is not expanded", "variants.search")
    replaced = expanded and config.variants.search == "replaced"
    idle(replaced, ": an expansion replaces the query", "variants.expansion_weight")
    used = {getattr(getattr(config.lists, name), "normalization", "none") for name in SOURCES}
    idle("logistic" not in used, ": no list has the logistic normalisation", "lists.logistic.bands")
    idle("minmax" not in used, ": no list has the minmax normalisation", "lists.equal_scores")
    dated = config.lists.recency.normalization == "exponential"
    idle(not dated, ": dates are not normalised", "lists.recency.half_life_days")
    method, reranked = fusion_method(config.fusion), not RERANK.is_off(config)
    for path in own_parameters():
        idle(not method.uses(path), f" under {method.name}", path)
        idle(not method.uses(path), f" under {method.name}", f"{path}.")
    blended = reranked and config.rerank.combine == "position_bands"
    if blended and config.rerank.retrieval_score in ("rrf", "normalized_rrf"):
        found.pop("fusion.k", None)  # the retrieval score of the blend reads it, whatever the method
    ties, threshold = config.fusion.tie_break, config.threshold.mode
    idle(ties != "first_seen", f": equal scores are ordered by {ORDERS.get(ties)}", "fusion.seen_first")
    chosen = "lambda similarity procedure relevance min_value"
    by_score = config.assembly.strategy == "greedy"
    idle(by_score, ": results are chosen by score", "assembly", " ".join(f"mmr_{name}" for name in chosen.split()))
    idle(not config.fusion.score_blend, ": the score blend is 0", "fusion.blend_with")
    said = f": the threshold is {'off' if threshold == 'none' else threshold}"
    idle(threshold != "adaptive", said, "threshold.adaptive.")
    idle(threshold != "fixed", said, "threshold.fixed")
    idle(not reranked, ": nothing is reranked", "rerank", _BLEND_PARAMETERS)
    replaces = reranked and config.rerank.combine != "position_bands"
    idle(replaces, ": the reranker's score replaces the other", "rerank.bands")
    idle(config.rerank.expected_misses is None, ": everything is read", "rerank.read_step")
    idle(not reranked, ": nothing is reranked", "rerank.read_step")
    adjust, decay = config.adjust, "half_life_days whole_days tiers floor future alpha"
    idle(adjust.time_decay.mode == "none", ": time decay is off", "adjust.time_decay", decay)
    idle(not adjust.project.enabled, ": project factors are off", "adjust.project", "same different untagged match")
    idle(not adjust.feedback.enabled, ": feedback is not used", "adjust.feedback", "base span min_signals")
    idle(adjust.count.of == "none", ": nothing is counted", "adjust.count.alpha")
    idle(not config.dedup.enabled, ": duplicates are kept", "dedup.similarity")
    return found


MATCHES: Mapping[str, str] = {
    "exact": "",
    "prefix": ", as is any project that begins with its name",
    "source_ref": ", by the beginning of the source reference",
}
"""What counts as the project, by `adjust.project.match`."""
CLOCKS: Mapping[str, str] = {
    "last_accessed": "the last access",
    "created_at": "the creation",
    "accessed_or_created": "the last access, else the creation",
}
LATER = "written after the as-of date"
"""The mark of a memory that did not exist yet at the moment of the query."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a part of the request; `ignored`: the ranking does not depend on it."""

    words: str
    ignored: bool


def project_effect(config: PipelineConfig, only_project: bool = False) -> Effect:
    """What the query's project does: factors, a filter where `only_project`, both, or nothing."""
    factors = config.adjust.project
    off = not factors.enabled
    if off or factors.same == factors.different == factors.untagged == 1:
        why = "project factors are off" if off else "every project factor is 1"
        given = _handed_on(config)
        if only_project:
            return Effect(f"Filter only: no other project is searched, and {why}{given}", False)
        return Effect(f"Ignored by the ranking: {why}{given}", not given)
    words = f"× {factors.same:g} in the project{MATCHES[factors.match]}"
    if only_project and factors.match != "source_ref":
        return Effect(f"Filter: no other project is searched; × {factors.same:g} for all of them", False)
    words += f", × {factors.different:g} in another, × {factors.untagged:g} in none"
    return Effect(f"Filter: no other project is searched; {words}" if only_project else words, False)


def as_of_effect(config: PipelineConfig) -> Effect:
    """What the moment of the query, "as of", does: ages are counted to it, it decides what is superseded or expired, or nothing."""
    decay = config.adjust.time_decay
    recency = config.lists.recency
    superseding = _superseding(config)
    last = f"; {superseding}" if superseding else ""
    if recency.enabled and recency.normalization == "exponential":
        also = "" if decay.mode == "none" else f"; time decay from {CLOCKS[decay.clock]}"
        return Effect(f"The recency list counts ages to it from the creation{also}{last}", False)
    if decay.mode == "none":
        given = _handed_on(config)
        if superseding:
            return Effect(f"{superseding[0].upper()}{superseding[1:]}{given}", False)
        return Effect(f"Ignored by the ranking: time decay is off{given}", not given)
    return Effect(f"Time decay counts ages to it from {CLOCKS[decay.clock]}{last}", False)


def effect_lines(trace: Trace, as_of_given: bool = True) -> Iterator[str]:
    """What project and moment of the query do under the config, a line each; of a moment that was not given only an effect."""
    evidence, config = trace.evidence, trace.config
    if evidence.project is not None:
        only = bool((evidence.notes.get("query") or {}).get("only_project"))
        yield f"project {evidence.project}: {project_effect(config, only).words}"
    if evidence.as_of is not None and (as_of_given or not as_of_effect(config).ignored):
        yield f"as of {evidence.as_of:%Y-%m-%d}: {as_of_effect(config).words}"


def _superseding(config: PipelineConfig) -> str:
    said = ["memories written later supersede nothing"] if config.supersession.mode != "off" else []
    said += ["expired memories are dropped"] if config.supersession.expired == "drop" else []
    return " and ".join(said)


def _handed_on(config: PipelineConfig) -> str:
    """Retrievers of other packages receive the whole request, so their use of it is unknown."""
    asked = [name for name in ADDED_LISTS if config.get(f"lists.{name}.enabled")]
    return f"; handed to the list {', '.join(asked)}" if asked else ""


def several_effects(effects: Mapping[str, Effect]) -> str:
    """The effects under several configs in a line, by name; an effect shared by all is given once, without names."""
    names: dict[str, list[str]] = {}
    for name, effect in effects.items():
        names.setdefault(effect.words, []).append(name)
    if len(names) == 1:
        return next(iter(names))
    return "; ".join(f"{', '.join(of)}: {words[0].lower()}{words[1:]}" for words, of in names.items())


def written_later(memory: Memory, as_of: datetime | None) -> bool:
    """Whether the memory was created after the moment of the query, so that the query could not have found it."""
    return as_of is not None and memory.created_at is not None and memory.created_at > as_of


def results_written_later(trace: Trace) -> list[str]:
    """The ids of the results that were created after the moment of the query, in their order."""
    memories, as_of = trace.evidence.memories, trace.evidence.as_of
    return [result.memory_id for result in trace.results if written_later(memories[result.memory_id], as_of)]


def later_words(trace: Trace) -> str:
    """ "2 of 10 results were written after the as-of date: m1, m2"; empty if there are none."""
    later = results_written_later(trace)
    if not later:
        return ""
    return f"{len(later)} of {len(trace.results)} results {'were' if len(later) > 1 else 'was'} {LATER}: {', '.join(later)}"
