"""Effects of a request's project and moment under a config, in words; the only source of these texts for pages and commands.

A part that is reported as ignored changes nothing in replay: no order, no score, no dropped memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from cems_workbench.config import PipelineConfig
from cems_workbench.config.sections.gathering import ADDED_LISTS
from cems_workbench.pipeline.replay import Trace
from cems_workbench.records import Memory

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


def _superseding(config: PipelineConfig) -> str:
    """What it decides about superseded and expired memories, as clauses; empty for nothing."""
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
