"""The forms of a query that are searched: itself, its expansions, its sub-questions, a hypothetical memory.

    expansion     by hand, dictionary, feedback or LLM             at most max_expansions
    decomposed    the sub-questions of a compound query (LLM)      at most max_decomposed
    hyde          a memory that would answer it (LLM)

Without an LLM, feedback takes the place of its expansion; sub-questions and hypothesis are left out. Both are said. A strong signal,
and on request a conversational query, save everything but what was typed by hand.

Source: CEMS retrieval guide (query synthesis, HyDE); ACE; PIPELINE.md, "expansion".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cems_workbench.config import PipelineConfig
from cems_workbench.config.understanding import ExpansionConfig
from cems_workbench.models import prompts
from cems_workbench.pipeline.asking import NONE, Asker
from cems_workbench.pipeline.evidence import Variant
from cems_workbench.pipeline.expanding import FEEDBACK_DOCUMENTS, expansions, read_dictionary
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.query import detect
from cems_workbench.records import Memory
from cems_workbench.store import Filter

PROFILE = 5
"""Memories of what the user likes that a preference query's expansion is shown."""


@dataclass
class Variants:
    """The variants of one query, the query itself first, and what has to be said about them."""

    found: list[Variant]
    said: list[str] = field(default_factory=list)

    def add(self, texts: Sequence[str], kind: Any, most: int | None = None) -> None:
        """Take texts that are not there yet, in order; more than `most` are cut, which is said."""
        there = {variant.text.casefold() for variant in self.found}
        fresh = [
            text for text in dict.fromkeys(text.strip() for text in texts) if text and text.casefold() not in there
        ]
        if most is not None and len(fresh) > most:
            self.said.append(f"{len(fresh)} {kind} variants were found; the first {most} are used")
        self.found += [Variant(text, kind) for text in fresh[:most]]


def make_variants(
    query: str,
    typed: Sequence[str],
    config: PipelineConfig,
    resources: Resources,
    where: Filter,
    llm: Asker | None,
    skipped: str | None,
) -> Variants:
    """The variants of a query; `skipped` says why none is made but those typed by hand."""
    made = Variants([Variant(query)])
    section = config.expansion
    if section.backend == "manual":
        texts, said = expansions(query, section, typed, {}, [])
        made.said += said
        made.add([variant.text for variant in texts], "expansion")
    if section.backend in ("none", "manual") and not section.hyde and not section.decompose:
        return made
    if skipped is not None:
        made.said.append(skipped)
        return made
    _expand(made, query, config, resources, where, llm)
    if section.decompose and section.max_decomposed > 0:
        question = prompts.decomposition(query, section.max_decomposed)
        parts = _asked(made, llm, question, "no sub-questions are searched")
        made.add(parts or [], "decomposed", section.max_decomposed)
    if section.hyde:
        kind = _kind(query, config)
        question_of_memory = prompts.hypothesis(query, kind, _profile(query, kind, config, resources, where))
        note = _asked(made, llm, question_of_memory, "no hypothetical memory is searched")
        made.add([note] if note else [], "hyde")
    return made


def _expand(
    made: Variants, query: str, config: PipelineConfig, resources: Resources, where: Filter, llm: Asker | None
) -> None:
    section = config.expansion
    if section.backend in ("none", "manual"):
        return
    if section.backend == "llm":
        kind = _kind(query, config)
        question = prompts.expansion(query, kind, _profile(query, kind, config, resources, where))
        terms = _asked(made, llm, question, "feedback takes its place")
        if terms is not None:
            made.add(terms, "expansion", section.max_expansions)
            return
        section = section.model_copy(update={"backend": "feedback"})
    made_of, said = expansions(query, section, (), *_material(query, section, resources, where))
    made.said += said
    made.add([variant.text for variant in made_of], "expansion")


def _material(
    query: str, section: ExpansionConfig, resources: Resources, where: Filter
) -> tuple[Mapping[str, str], list[tuple[Memory, float]]]:
    """The dictionary, or the first lexical hits, whichever the backend works with."""
    if section.backend == "dictionary":
        return read_dictionary(resources.dictionary_path), []
    found = resources.indexes.lexical.search(query, FEEDBACK_DOCUMENTS, where)
    memories = resources.store.memories([memory_id for memory_id, _ in found])
    return {}, [(memories[memory_id], score) for memory_id, score in found if memory_id in memories]


def _asked(made: Variants, llm: Asker | None, question: prompts.Question[Any], instead: str) -> Any:
    if llm is None:
        made.said.append(f"{NONE}: {instead}")
        return None
    return llm.or_none(question, instead, made.said.append)


def _kind(query: str, config: PipelineConfig) -> prompts.Kind:
    """preference before temporal before general, by the detectors."""
    signals = {match.detector for match in detect(query, config.query.detectors)}
    return "preference" if "preference" in signals else "temporal" if "temporal" in signals else "general"


def _profile(query: str, kind: str, config: PipelineConfig, resources: Resources, where: Filter) -> list[str]:
    """For a preference query with `profile_context`: the memories nearest to what the user says they like."""
    if kind != "preference" or not config.expansion.profile_context:
        return []
    hits = resources.indexes.vectors.search(
        resources.embedder.encode_query(f"I like, use and prefer: {query}"), PROFILE, where
    )
    memories = resources.store.memories([memory_id for memory_id, _ in hits])
    return [memories[memory_id].content for memory_id, _ in hits if memory_id in memories]
