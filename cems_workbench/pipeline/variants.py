"""The forms of a query that are searched: itself, its expansions, its sub-questions, a hypothetical memory.

    expansion     by hand, dictionary, feedback or LLM             at most max_expansions
    decomposed    the sub-questions of a compound query (LLM)      at most max_decomposed
    hyde          a memory that would answer it (LLM)

Without an LLM, its expansion falls back to feedback, without sub-questions and hypothesis; both with a warning. A strong signal,
and, if configured, a conversational query, skip all variants but those typed by hand.

Source: CEMS retrieval guide (query synthesis, HyDE); ACE; docs/internals/specification.md, "expansion".

Query variants: typed by hand, from the dictionary, or by pseudo-relevance feedback.

`manual` uses what the user typed. `dictionary` replaces a word of the query by its entry (ACE: "wired" became "architecture
system integration layer connected storage", which pulled a vague question towards architecture notes). `feedback` is
RM3: the first lexical hits vote for words,

    p(w | R) = sum_d p(w | d) * score(d) / sum score,        p(w | d) = count of w in d / length of d

and the best words that the query lacks are added to it. It needs no LLM. At most `max_expansions` variants are used.

Source: ACE (`_QUERY_EXPANSIONS`); Abdul-Jaleel et al. 2004 (RM3); docs/internals/specification.md, "expansion".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cems_workbench.config import PipelineConfig
from cems_workbench.config.sections.understanding import ExpansionConfig
from cems_workbench.errors import InputError
from cems_workbench.models import prompts
from cems_workbench.pipeline.evidence import Variant
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.query import detect
from cems_workbench.pipeline.understanding import NO_LLM, Asker
from cems_workbench.platform.atomic_write import write_text
from cems_workbench.platform.parsing import read_text, yaml_values
from cems_workbench.records import DEFAULT_TEXT_RULE, ENGLISH, Memory, TextRule
from cems_workbench.store import Filter
from cems_workbench.store.search.lexical.tokenizer import tokenize
from cems_workbench.store.text_rule import searched_text

SHIPPED: Mapping[str, str] = {"wired": "architecture system integration layer connected storage"}
"""ACE's own entry, kept as an example of a harmful one."""

FEEDBACK_DOCUMENTS = 10
FEEDBACK_WORDS = 8
_WORD = re.compile(r"[^\W_][\w.\-/]*[^\W_]|[^\W_]")


def expansions(
    query: str,
    config: ExpansionConfig,
    typed: Sequence[str],
    dictionary: Mapping[str, str],
    hits: Sequence[tuple[Memory, float]],
    language: str = ENGLISH,
    text_rule: TextRule = DEFAULT_TEXT_RULE,
) -> tuple[list[Variant], list[str]]:
    """The variants to search in addition to the query, and their warnings.

    `hits` are the first lexical hits with their scores, for `feedback`.
    """
    if config.backend == "manual":
        texts = [text.strip() for text in typed if text.strip()]
        if not config.repeats:
            texts = [text for text in dict.fromkeys(texts) if text != query]
        empty = "expansion is manual, and nothing was typed"
    elif config.backend == "dictionary":
        texts = replaced(query, dictionary)
        empty = "no word of the query is in the expansion dictionary"
    elif config.backend == "feedback":
        words = feedback_words(query, hits, language, text_rule)
        texts = [f"{query} {' '.join(words)}"] if words else []
        empty = "feedback found no further word: the query has too few lexical hits"
    else:
        return [], []
    said = [] if texts else [empty]
    if len(texts) > config.max_expansions:
        said.append(f"{len(texts)} expansions were found; the first {config.max_expansions} are used")
    return [Variant(text, "expansion") for text in texts[: config.max_expansions]], said


def replaced(query: str, dictionary: Mapping[str, str]) -> list[str]:
    """One variant per query word that has an entry, with the word replaced by it, in the order of the words."""
    lowered = {word.lower(): entry for word, entry in dictionary.items()}
    found = []
    for match in _WORD.finditer(query):
        entry = lowered.get(match.group().lower())
        if entry:
            found.append(f"{query[: match.start()]}{entry}{query[match.end() :]}")
    return list(dict.fromkeys(found))


def feedback_words(
    query: str,
    hits: Sequence[tuple[Memory, float]],
    language: str = ENGLISH,
    text_rule: TextRule = DEFAULT_TEXT_RULE,
) -> list[str]:
    """The words with the largest p(w | R) that the query lacks, at most `FEEDBACK_WORDS`, ties by word.

    Words are compared by their stem and shown in the form they have most often; stopwords and bare numbers are left out.
    """
    total = sum(score for _, score in hits)
    if total <= 0:
        return []
    weight: dict[str, float] = {}
    forms: dict[str, Counter[str]] = {}
    for memory, score in hits:
        words = [match.group().lower() for match in _WORD.finditer(searched_text(memory, text_rule))]
        for word in words:
            stems = tokenize(word, language)
            if len(stems) != 1 or word.isdigit() or len(word) < 3:
                continue
            weight[stems[0]] = weight.get(stems[0], 0.0) + score / total / len(words)
            forms.setdefault(stems[0], Counter())[word] += 1
    known = set(tokenize(query, language))
    best = sorted((stem for stem in weight if stem not in known), key=lambda stem: (-weight[stem], stem))
    return [min(forms[stem], key=lambda form: (-forms[stem][form], form)) for stem in best[:FEEDBACK_WORDS]]


MAX_DICTIONARY_CHARS = 1_000_000
"""Characters of the expansion dictionary, some 30,000 entries."""


def read_dictionary(path: Path) -> dict[str, str]:
    """The shipped entries with the user's file over them: a YAML mapping of word to replacement. Raises InputError."""
    if not path.exists():
        return dict(SHIPPED)
    values = yaml_values(read_text(path, "dictionary", MAX_DICTIONARY_CHARS), str(path), MAX_DICTIONARY_CHARS)
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(
        isinstance(key, str) and isinstance(text, str) for key, text in values.items()
    ):
        raise InputError(f"{path}: expected a mapping of word to replacement, both text")
    return {key.strip(): text.strip() for key, text in values.items() if key.strip() and text.strip()}


def write_dictionary(path: Path, entries: Mapping[str, str]) -> None:
    """Replace the user's dictionary atomically by these entries. Raises InputError."""
    write_text(path, yaml.safe_dump(dict(entries), allow_unicode=True, sort_keys=True))


MAX_PROFILE_MEMORIES = 5
"""Number of memories about the user's likes in the prompt of a preference query's expansion."""


@dataclass
class Variants:
    """The variants of one query, the query itself first, and their warnings."""

    found: list[Variant]
    said: list[str] = field(default_factory=list)

    def add(self, texts: Sequence[str], kind: Any, most: int | None = None, repeats: bool = False) -> None:
        """Add texts that are not included yet, or with `repeats` all, in order, at most `most`; cut ones are reported."""
        there = {variant.text.casefold() for variant in self.found}
        stripped = [text.strip() for text in texts if text.strip()]
        fresh = stripped if repeats else [text for text in dict.fromkeys(stripped) if text.casefold() not in there]
        if most is not None and len(fresh) > most:
            self.said.append(f"{len(fresh)} {kind} variants were found; the first {most} are used")
        self.found += [Variant(text, kind) for text in fresh[:most]]

    def instead(self) -> list[Variant] | None:
        """The variants with the last expansion in the place of the query, without the other expansions; None if there is no expansion."""
        expanded = [variant for variant in self.found if variant.kind == "expansion"]
        if not expanded:
            return None
        others = [variant for variant in self.found[1:] if variant.kind != "expansion"]
        # Of the kind of the query, whose weight it has: its lists are the only ones of what was asked.
        return [Variant(expanded[-1].text), *others]


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
    if section.backend == "manual" or (section.backend == "none" and typed):
        by_hand = section.model_copy(update={"backend": "manual"})
        texts, said = expansions(query, by_hand, typed, {}, [])
        made.said += said
        made.add([variant.text for variant in texts], "expansion", repeats=section.repeats)
    if typed and section.backend not in ("none", "manual"):
        made.said.append(f"what was typed is not searched: expansion.backend is {section.backend}")
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
        kind = _kind(query, config, resources)
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
        kind = _kind(query, config, resources)
        question = prompts.expansion(query, kind, _profile(query, kind, config, resources, where))
        terms = _asked(made, llm, question, "feedback is used instead")
        if terms is not None:
            made.add(terms, "expansion", section.max_expansions)
            return
        section = section.model_copy(update={"backend": "feedback"})
    store = resources.store
    made_of, said = expansions(
        query,
        section,
        (),
        *_material(query, config, resources, where),
        store.language.current,
        store.texts.rule,
    )
    made.said += said
    made.add([variant.text for variant in made_of], "expansion")


def _material(
    query: str, config: PipelineConfig, resources: Resources, where: Filter
) -> tuple[Mapping[str, str], list[tuple[Memory, float]]]:
    """The dictionary, or the first lexical hits, as the backend needs."""
    if config.expansion.backend == "dictionary":
        return read_dictionary(resources.dictionary_path), []
    found = resources.lexical(config.lists.lexical).search(query, FEEDBACK_DOCUMENTS, where)
    memories = resources.store.memories.read([memory_id for memory_id, _ in found])
    return {}, [(memories[memory_id], score) for memory_id, score in found if memory_id in memories]


def _asked(made: Variants, llm: Asker | None, question: prompts.Question[Any], instead: str) -> Any:
    if llm is None:
        made.said.append(f"{NO_LLM}: {instead}")
        return None
    return llm.or_none(question, instead, made.said.append)


def _kind(query: str, config: PipelineConfig, resources: Resources) -> prompts.Kind:
    """preference before temporal before general, by the detectors."""
    signals = {match.detector for match in detect(query, config.query.detectors, resources.store.language.current)}
    return "preference" if "preference" in signals else "temporal" if "temporal" in signals else "general"


def _profile(query: str, kind: str, config: PipelineConfig, resources: Resources, where: Filter) -> list[str]:
    """For a preference query with `profile_context`: the memories nearest to what the user says they like."""
    if kind != "preference" or not config.expansion.profile_context:
        return []
    hits = resources.indexes.vectors.search(
        resources.embedder.encode_query(f"I like, use and prefer: {query}"), MAX_PROFILE_MEMORIES, where
    )
    memories = resources.store.memories.read([memory_id for memory_id, _ in hits])
    return [memories[memory_id].content for memory_id, _ in hits if memory_id in memories]
