"""Glossary: descriptions of stages, lists and factors, used by all tooltips."""

from __future__ import annotations

from cems_workbench.config.sections.adjusting import AssemblyConfig
from cems_workbench.pipeline.list_sources import LIST_SOURCES
from cems_workbench.pipeline.stages import BY_NAME, adjust
from cems_workbench.pipeline.wording import list_index, ordinal

SOURCES: dict[str, str] = {source.name: source.description for source in LIST_SOURCES}

FUSIONS_HELP = (
    "The source's own fused answer beside our ranking after fusion, before it is reranked or adjusted. Of equal scores an engine decides "
    "the order as it pleases: where that alone explains another place, it counts as a tie, not as a difference."
)

RAW: dict[str, str] = {source.name: source.raw for source in LIST_SOURCES}

LOST_HELP = "The stage that lost it from the first {k}, lists where no list has it within them; empty: it is within them, or in no list"
"""Help of "lost at" (`analysis.ranks.loss`)."""

FACTORS = {name: factor.description for name, factor in adjust.FACTORS.items()}


def about(name: str) -> str:
    """Description of a stage or a list; the number in a list's name is that of the query variant searched."""
    if name in BY_NAME:
        return BY_NAME[name].description
    source, _, variant = name.partition(":")
    index = list_index(name)
    if index is not None:
        return f"{SOURCES[source]} This list: memories reached by a {ordinal(index)} relation, which count again."
    searched = "" if not variant else " 0: the query itself." if variant == "0" else f" {variant}: variant {variant}."
    return SOURCES.get(source, "") + searched


def token_count_text(config: AssemblyConfig) -> str:
    """How tokens are counted, and for which text."""
    counter = "counted as ceil(characters / 4)" if config.token_counter == "chars4" else "counted with cl100k"
    text = "the content" if config.text == "memory" else "the text with the best score: a chunk, or the whole"
    return f"Tokens are {counter}, for {text}."
