"""What the names on the page mean: the stages, the lists, and the factors. Every tooltip on one of them is from here."""

from __future__ import annotations

from cems_workbench.config.sections.adjusting import AssemblyConfig
from cems_workbench.pipeline.list_sources import LIST_SOURCES
from cems_workbench.pipeline.stages import BY_NAME, adjust
from cems_workbench.pipeline.stages.lists import turn_of
from cems_workbench.pipeline.stages.stage import ordinal

SOURCES: dict[str, str] = {source.name: source.description for source in LIST_SOURCES}

RAW: dict[str, str] = {source.name: source.raw for source in LIST_SOURCES}

LOST = "The stage after which it never again stands within the first {k}; empty: it ends within them, or no list has it"
"""What "lost at" says, of `analysis.ranks.loss`."""

FACTORS = {name: factor.description for name, factor in adjust.FACTORS.items()}


def about(name: str) -> str:
    """What a stage or a list is; the number after a list's name is that of the query variant it searched."""
    if name in BY_NAME:
        return BY_NAME[name].description
    source, _, variant = name.partition(":")
    turn = turn_of(name)
    if turn is not None:
        return f"{SOURCES[source]} This list: those that a {ordinal(turn)} relation leads to, which count once more."
    searched = "" if not variant else " 0: the query as it is." if variant == "0" else f" {variant}: variant {variant}."
    return SOURCES.get(source, "") + searched


def counted_words(config: AssemblyConfig) -> str:
    """How tokens are counted, and of which text."""
    counter = "counted as ceil(characters / 4)" if config.token_counter == "chars4" else "those of cl100k"
    text = "the contents" if config.text == "memory" else "the text by which each scored best: its chunk, or the whole"
    return f"Tokens are {counter}, of {text}."
