"""What is made of a query before it is searched: typos corrected, its route, the strong-signal probe, and the variants that are searched.

Typo correction: an unknown query word is replaced by the most similar word of the store, of equals the one in most memories, then by
alphabet; a learned pair comes first and needs no similarity.

    similarity(a, b) = 1 - distance(a, b) / max(length of a, length of b)          corrected when >= similarity_threshold

The distance is optimal string alignment: Levenshtein's, and two letters that changed places cost 1. A word is left alone when

- the store, the stopwords, the detectors' signals or the technical terms have it, or the store has another form of it: one of the same
  stem, and in another language than English one that differs in its last two letters alone, or is a part of the other;
- it is shorter than `MIN_WORD_LETTERS` letters, has a digit, an apostrophe or a hyphen, or stands inside code;
- it is in capitals, or of a script without capitals, where words often have no spaces between them.

A correction that is searched with is learned with `auto_learn`; with `validate` an LLM checks it in the background, and what it refuses is
permanently forgotten.

The route under `auto`: simple and no reasoning -> vector; everything else -> hybrid (CEMS, route_to_strategy). Without an LLM a query of at
most three words without a signal is simple, one of more than twelve words or of several clauses is complex; temporal and aggregation
signals, and words that ask for a reason or a comparison, need reasoning.

Variants are the query itself, its expansions (by hand, dictionary, feedback or LLM), the sub-questions of a compound query and a
hypothetical memory (LLM). Without an LLM its expansion falls back to feedback, the others to none, with a warning. A strong signal, and, if
configured, a conversational query, skip all but those typed by hand. `dictionary` replaces a word of the query by its entry. `feedback` is
RM3: the first lexical hits vote for words, and the best that the query lacks are added,

    p(w | R) = sum_d p(w | d) * score(d) / sum score,        p(w | d) = count of w in d / length of d

A reply of the language model is kept in the store by model, prompt version and the very words that were sent.

Source: ACE retrieval precision (typo correction, `_QUERY_EXPANSIONS`); Boytsov 2011 (optimal string alignment); CEMS retrieval guide
(retrieval.py:1129; query synthesis, HyDE); Abdul-Jaleel et al. 2004 (RM3); docs/internals/specification.md, "query" and "expansion".
"""

from __future__ import annotations

import math
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from cems_workbench.config import PipelineConfig
from cems_workbench.config.sections import ExpansionConfig, QueryConfig, TypoCorrection
from cems_workbench.errors import InputError, ModelError, WorkbenchError
from cems_workbench.models import prompts
from cems_workbench.models.chat import Chat, OllamaChat, OpenAiChat
from cems_workbench.models.ollama import digest
from cems_workbench.models.prompts import Question
from cems_workbench.pipeline.evidence import Request, Variant
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import query as conversational
from cems_workbench.pipeline.stages.expansion import StrongSignal
from cems_workbench.pipeline.stages.query import SIGNALS, QueryFeatures, detect, features, is_conversational
from cems_workbench.platform.atomic_write import write_text
from cems_workbench.platform.parsing import read_text, yaml_values
from cems_workbench.records import DEFAULT_TEXT_RULE, ENGLISH, Memory, TextRule
from cems_workbench.store import Filter, LearnedPair, Vocabulary
from cems_workbench.store.search.tokenizer import STOPWORDS, normalised, stop_words, terms_of, tokenize
from cems_workbench.store.text_rule import searched_text

T = TypeVar("T")

TIMEOUT_S = 60.0
NO_LLM = "no LLM is set (CEMS_WORKBENCH_LLM_MODEL)"


@dataclass
class Asker:
    """One query's conversation with the model: `calls` were answered by it, `cached` by the cache."""

    chat: Chat
    resources: Resources
    calls: int = 0
    cached: int = 0
    problems: list[str] = field(default_factory=list)

    def ask(self, question: Question[T]) -> T:
        """The parsed reply. Raises ModelError if the model is unreachable or its reply unreadable; it is then not called again."""
        key = question.cache_key(self.chat.model_id)
        kept = self.resources.store.replies.read(key)
        if kept is not None:
            self.cached += 1
            return question.read(kept)
        if self.problems:
            raise ModelError(self.problems[0])
        try:
            said = self.chat.ask(question.system, question.user)
        except ModelError as error:
            self.problems.append(str(error))
            raise
        self.calls += 1
        result = question.read(said)
        self.resources.store.replies.write(key, said)
        return result

    def or_none(self, question: Question[T], instead: str, say: Callable[[str], None]) -> T | None:
        """The answer, or None after reporting the reason and the alternative."""
        try:
            return self.ask(question)
        except ModelError as error:
            say(f"{self.chat.label}, asked for the {question.name}: {error}; {instead}")
            return None


def asker(resources: Resources) -> Asker | None:
    """The model of the settings, for one query; None if none is set."""
    if not resources.servers.llm_model:
        return None
    return Asker(chat(resources, resources.servers.llm_model, TIMEOUT_S), resources)


def chat(resources: Resources, model: str, timeout_s: float) -> Chat:
    """A chat model on the server of the settings: the OpenAI-compatible one if it is set, otherwise Ollama."""
    servers, breaker = resources.servers, resources.breaker
    if servers.llm_url:
        return OpenAiChat(servers.llm_url, model, servers.llm_key, timeout_s, breaker=breaker)
    return OllamaChat(servers.ollama_url, model, timeout_s, revision=revision(resources, model), breaker=breaker)


def revision(resources: Resources, model: str) -> str:
    """The digest of an Ollama model, so that cached replies of an earlier pull do not count; empty if the server does not report it."""
    try:
        return digest(resources.servers.ollama_url, model, breaker=resources.breaker)
    except ModelError:
        return ""


MAX_SIMPLE_WORDS = 3
MIN_COMPLEX_WORDS = 12
_CLAUSE = re.compile(r"[;:]|,\s|\b(?:and|or|but|because|while|whereas)\b", re.IGNORECASE)
_REASONING = re.compile(r"\b(?:why|how|compare|compared|versus|vs|difference|which|whether|instead)\b", re.IGNORECASE)

Complexity = Literal["simple", "moderate", "complex"]


@dataclass(frozen=True, slots=True)
class Intent:
    """Complexity, whether reasoning is needed, the route, and why, in words."""

    complexity: Complexity
    reasoning: bool
    route: Literal["vector", "hybrid"]
    reason: str


def understand(
    query: str, config: QueryConfig, llm: Asker | None = None, language: str = ENGLISH
) -> tuple[Intent, list[str]]:
    """The intent of a query, its route under `query.mode`, and warnings; only `auto` calls the LLM."""
    complexity, reasoning = _complexity(query), _reasoning(query, config, language)
    if config.mode != "auto":
        return Intent(complexity, reasoning, config.mode, f"mode is {config.mode}"), []
    said: list[str] = []
    told = llm.or_none(prompts.understanding(query), "the intent comes from the words", said.append) if llm else None
    if told is None:
        only = "" if language == ENGLISH else "' number alone, as those looked for are English"
        return _routed(complexity, reasoning, f"from the words{only}, no LLM was asked"), said
    return _routed(told.complexity, told.reasoning, f"says {llm.chat.label}" if llm else "", told.domains), said


def _routed(complexity: Complexity, reasoning: bool, source: str, domains: Sequence[str] = ()) -> Intent:
    """Simple and no reasoning goes to vector, everything else to hybrid: more than two domains too, as CEMS has it."""
    about = f", {len(domains)} domains" if domains else ""
    reason = f"{complexity}, {'reasoning' if reasoning else 'no reasoning'}{about}; {source}"
    if complexity == "simple" and not reasoning:
        return Intent(complexity, reasoning, "vector", reason)
    return Intent(complexity, reasoning, "hybrid", reason)


def _complexity(query: str) -> Complexity:
    words = len(query.split())
    if words > MIN_COMPLEX_WORDS or len(_CLAUSE.findall(query)) > 1:
        return "complex"
    return "simple" if words <= MAX_SIMPLE_WORDS and not _CLAUSE.search(query) else "moderate"


def _reasoning(query: str, config: QueryConfig, language: str) -> bool:
    if language != ENGLISH:
        return False
    signals = {match.detector for match in detect(query, config.detectors)}
    return bool(signals & {"temporal", "aggregation"}) or bool(_REASONING.search(query))


@cache
def shipped_terms() -> frozenset[str]:
    """The shipped technical terms, in lower case and in the singular; read once."""
    text = (files("cems_workbench.pipeline") / "lexicons" / "technical_terms.txt").read_text(encoding="utf-8")
    return frozenset(words_of(text.splitlines()))


def technical_terms(project_dictionary: Path | None = None) -> frozenset[str]:
    """The shipped terms with those of a project dictionary; a missing file adds nothing. Raises InputError."""
    if project_dictionary is None:
        return shipped_terms()
    try:
        lines = project_dictionary.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return shipped_terms()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{project_dictionary}: not readable as a list of words: {error}") from None
    return shipped_terms().union(words_of(lines))


def words_of(lines: Iterable[str]) -> list[str]:
    """The words of a lexicon's lines in lower case; a line that starts with `#` is a comment."""
    return [word for line in lines if not line.lstrip().startswith("#") for word in line.lower().split()]


MIN_WORD_LETTERS = 4
MAX_ENDING_LETTERS = 2
COMMON_WORDS = (
    STOPWORDS
    | conversational.STOPWORDS
    | {word for signals in SIGNALS.values() for signal in signals for word in signal.split()}
)
"""English words that are right whether or not a memory has them."""

_TOUCHING = r"./\\:@'’\-"
_WORD = re.compile(rf"(?<!\w)(?<!\w[{_TOUCHING}])[^\W\d_]{{{MIN_WORD_LETTERS},}}(?!\w|[{_TOUCHING}]\w)")
_ROUNDING = 1e-9
_CUTOFF_SLACK = 0.01
"""rapidfuzz 3.14 loses a pair that reaches its cutoff exactly (kofka, kafka at 0.8): it is asked for a little more."""

Source = Literal["store", "learned"]


@dataclass(frozen=True, slots=True)
class Correction:
    """One word replaced: characters start..end of the query as typed. `typo` and `correction` are in lower case."""

    typo: str
    correction: str
    similarity: float
    source: Source
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class CorrectedQuery:
    """The query to search with, and what was replaced to get it, by position."""

    query: str
    corrections: tuple[Correction, ...] = ()


def correct(
    query: str,
    vocabulary: Vocabulary,
    learned: Iterable[LearnedPair],
    config: TypoCorrection,
    lexicon: Set[str] | None = None,
    language: str = ENGLISH,
) -> CorrectedQuery:
    """The query with its typos corrected; unchanged if `config.enabled` is off or there are none. `learned` may hold
    refused pairs: they are never made. `lexicon` has the technical terms; None means the shipped ones. Correcting the
    result again changes nothing."""
    if not config.enabled:
        return CorrectedQuery(query)
    speller = _Speller(
        vocabulary, learned, config.similarity_threshold, shipped_terms() if lexicon is None else lexicon, language
    )
    corrections = [
        Correction(word, *better, start, end)
        for word, start, end in _candidates(query, speller.lexicon)
        if (better := speller.better(word)) is not None
    ]
    text = query
    for correction in reversed(corrections):
        replaced = _as_typed(correction.correction, text[correction.start])
        text = text[: correction.start] + replaced + text[correction.end :]
    return CorrectedQuery(text, tuple(corrections))


class _Speller:
    """Corrections of single words for one query, each computed once."""

    def __init__(
        self, vocabulary: Vocabulary, learned: Iterable[LearnedPair], threshold: float, lexicon: Set[str], language: str
    ) -> None:
        pairs = list(learned)
        self._vocabulary = vocabulary
        self._threshold = threshold
        self.lexicon = lexicon
        self._language = language
        self._everyday = COMMON_WORDS | stop_words(language)
        self._learned = {pair.typo: pair.correction for pair in reversed(pairs) if not pair.refused}
        self._refused = {(pair.typo, pair.correction) for pair in pairs if pair.refused}
        self._found: dict[str, tuple[str, float, Source] | None] = {}

    def better(self, word: str) -> tuple[str, float, Source] | None:
        """(correction, similarity, source) of a word in lower case; None if it is not to be changed."""
        if word not in self._found:
            self._found[word] = None if self._knows(word) else self._learned_for(word) or self._most_similar(word)
        return self._found[word]

    def _knows(self, word: str) -> bool:
        return (
            word in self._vocabulary
            or word in self._everyday
            or (self._language != ENGLISH and _without_accents(word) in self._everyday)
            or bool(conversational.technical_term(word, self.lexicon))
        )

    def _learned_for(self, word: str) -> tuple[str, float, Source] | None:
        """A learned correction, if it is still a known word; otherwise it would itself be corrected."""
        meant = self._learned.get(word)
        if meant is None or not self._knows(meant):
            return None
        from rapidfuzz.distance import OSA

        return meant, OSA.normalized_similarity(word, meant), "learned"

    def _most_similar(self, word: str) -> tuple[str, float, Source] | None:
        from rapidfuzz import process
        from rapidfuzz.distance import OSA

        least = max(self._threshold, 2 * _ROUNDING) - _ROUNDING
        # No other length can be similar enough, because the distance is at least the difference in length.
        near = self._vocabulary.of_length(math.ceil(len(word) * least), math.floor(len(word) / least))
        scorer, cutoff = OSA.normalized_similarity, max(least - _CUTOFF_SLACK, 0.0)
        found = process.extract(word, near, scorer=scorer, score_cutoff=cutoff, limit=None)
        found = [match for match in found if match[1] >= least]
        stems = terms_of(word, self._language)
        if stems and any(terms_of(candidate, self._language) == stems for candidate, _, _ in found):
            return None
        if self._language != ENGLISH and any(_related(word, candidate) for candidate, _, _ in found):
            return None
        allowed = [(text, similarity) for text, similarity, _ in found if (word, text) not in self._refused]
        if not allowed:
            return None
        best, similarity = min(allowed, key=lambda item: (-item[1], -self._vocabulary[item[0]], item[0]))
        return best, similarity, "store"


def _without_accents(word: str) -> str:
    """Question words are stopwords with an accent: cuándo, qué."""
    return "".join(letter for letter in unicodedata.normalize("NFD", word) if not unicodedata.combining(letter))


def _related(word: str, other: str) -> bool:
    """Whether they differ only in their last letters, at most `MAX_ENDING_LETTERS`, or one is a part of the other, as in a compound."""
    same = next((at for at, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), min(len(word), len(other)))
    return (
        word in other
        or other in word
        or (same >= MIN_WORD_LETTERS and max(len(word), len(other)) - same <= MAX_ENDING_LETTERS)
    )


def _candidates(query: str, lexicon: Set[str]) -> Iterator[tuple[str, int, int]]:
    """(word in lower case, start, end) of the words that may be typos, by position."""
    code = conversational.code_spans(query, lexicon)
    for found in _WORD.finditer(query):
        word, start, end = found.group(), found.start(), found.end()
        if any(span.start < end and start < span.end for span in code) or word[1:] != word[1:].lower():
            continue
        if all(letter.lower() != letter.upper() for letter in word) and not unicodedata.combining(
            query[end : end + 1] or " "
        ):
            yield normalised(word).lower(), start, end


def _as_typed(word: str, first: str) -> str:
    """The word with a capital when the typo had one, unless its capital is of another length or word."""
    capital = word[:1].upper() + word[1:]
    return capital if first.isupper() and capital.lower() == word and len(capital) == len(word) else word


def corrected(query: str, config: TypoCorrection, resources: Resources, llm: Asker | None) -> CorrectedQuery:
    """The query to search with; corrections are learned if the config says so."""
    if not config.enabled:
        return CorrectedQuery(query)
    before = resources.store.corrections.read()
    lexicon = technical_terms(resources.technical_terms_path)
    spoken = resources.store.language.current
    found = correct(query, resources.store.indexes.vocabulary(), before, config, lexicon, spoken)
    if found.corrections and config.auto_learn:
        pairs = [(correction.typo, correction.correction) for correction in found.corrections]
        known = {(pair.typo, pair.correction) for pair in before}
        learned = resources.store.corrections.learn(pairs, config.max_learned)
        fresh = [pair for pair in learned if pair not in known]
        if fresh and config.validate_ and llm is not None:
            threading.Thread(target=validate, args=(fresh, resources, llm), name="typo-validation", daemon=True).start()
    return found


def validate(pairs: Sequence[tuple[str, str]], resources: Resources, llm: Asker) -> None:
    """Ask the model about each pair; a rejected one is permanently forgotten. A pair stays learned if the request fails."""
    for typo, correction in pairs:
        try:
            if not llm.ask(prompts.correction(typo, correction)):
                resources.store.corrections.refuse(typo, correction)
        except WorkbenchError:
            return


SHIPPED: Mapping[str, str] = {"wired": "architecture system integration layer connected storage"}
"""ACE's own entry, kept as an example of a harmful one."""

FEEDBACK_DOCUMENTS = 10
FEEDBACK_WORDS = 8
_FEEDBACK_WORD = re.compile(r"[^\W_][\w.\-/]*[^\W_]|[^\W_]")


def replaced(query: str, dictionary: Mapping[str, str]) -> list[str]:
    """One variant per query word that has an entry, with the word replaced by it, in the order of the words."""
    lowered = {word.lower(): entry for word, entry in dictionary.items()}
    found = []
    for match in _FEEDBACK_WORD.finditer(query):
        entry = lowered.get(match.group().lower())
        if entry:
            found.append(f"{query[: match.start()]}{entry}{query[match.end() :]}")
    return list(dict.fromkeys(found))


def feedback_words(
    query: str, hits: Sequence[tuple[Memory, float]], language: str = ENGLISH, text_rule: TextRule = DEFAULT_TEXT_RULE
) -> list[str]:
    """The words with the largest p(w | R) that the query lacks, at most `FEEDBACK_WORDS`, ties by word. Words are
    compared by their stem and shown in the form they have most often; stopwords and bare numbers are left out."""
    total = sum(score for _, score in hits)
    if total <= 0:
        return []
    weight: dict[str, float] = {}
    forms: dict[str, Counter[str]] = {}
    for memory, score in hits:
        words = [match.group().lower() for match in _FEEDBACK_WORD.finditer(searched_text(memory, text_rule))]
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

    @property
    def query(self) -> str:
        """The query itself."""
        return self.found[0].text

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


def add_expansions(
    made: Variants,
    config: ExpansionConfig,
    manual: Sequence[str],
    dictionary: Callable[[], Mapping[str, str]],
    hits: Callable[[], Sequence[tuple[Memory, float]]],
    language: str = ENGLISH,
    text_rule: TextRule = DEFAULT_TEXT_RULE,
) -> None:
    """Add the expansions of a query by a backend that needs no model; `hits` are the first lexical ones, with their scores."""
    query, before = made.query, len(made.found)
    if config.backend == "manual":
        texts, empty = list(manual), "expansion is manual, and nothing was typed"
    elif config.backend == "dictionary":
        texts, empty = replaced(query, dictionary()), "no word of the query is in the expansion dictionary"
    elif config.backend == "feedback":
        words = feedback_words(query, hits(), language, text_rule)
        texts = [f"{query} {' '.join(words)}"] if words else []
        empty = "feedback found no further word: the query has too few lexical hits"
    else:
        return
    made.add(texts, "expansion", config.max_expansions, config.backend == "manual" and config.repeats)
    if len(made.found) == before:
        made.said.append(empty)


def add_variants(
    made: Variants,
    manual: Sequence[str],
    config: PipelineConfig,
    resources: Resources,
    where: Filter,
    llm: Asker | None,
    skipped: str | None,
) -> None:
    """Add the variants of a query; `skipped` says why none is made but those typed by hand."""
    query, section = made.query, config.expansion
    if section.backend == "manual" or (section.backend == "none" and manual):
        add_expansions(made, section.model_copy(update={"backend": "manual"}), manual, dict, list)
    if manual and section.backend not in ("none", "manual"):
        made.said.append(f"what was typed is not searched: expansion.backend is {section.backend}")
    if section.backend in ("none", "manual") and not section.hyde and not section.decompose:
        return
    if skipped is not None:
        made.said.append(skipped)
        return
    _expand(made, config, resources, where, llm)
    if section.decompose and section.max_decomposed > 0:
        question = prompts.decomposition(query, section.max_decomposed)
        made.add(
            _asked(made, llm, question, "no sub-questions are searched") or [], "decomposed", section.max_decomposed
        )
    if section.hyde:
        kind = _kind(query, config, resources)
        question_of_memory = prompts.hypothesis(query, kind, _profile(query, kind, config, resources, where))
        note = _asked(made, llm, question_of_memory, "no hypothetical memory is searched")
        made.add([note] if note else [], "hyde")


def _expand(made: Variants, config: PipelineConfig, resources: Resources, where: Filter, llm: Asker | None) -> None:
    query, section = made.query, config.expansion
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

    def hits() -> list[tuple[Memory, float]]:
        found = resources.lexical(config.lists.lexical).search(query, FEEDBACK_DOCUMENTS, where)
        memories = store.memories.read([memory_id for memory_id, _ in found])
        return [(memories[memory_id], score) for memory_id, score in found if memory_id in memories]

    dictionary = partial(read_dictionary, resources.dictionary_path)
    add_expansions(made, section, (), dictionary, hits, store.language.current, store.texts.rule)


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


@dataclass(frozen=True, slots=True)
class UnderstoodQuery:
    """A request as it is searched, with the warnings of the stages query, expansion and lists."""

    correction: CorrectedQuery
    intent: Intent
    shape: QueryFeatures
    signal: StrongSignal
    variants: list[Variant]
    """What is searched, the query first."""
    replaced: bool
    """Whether an expansion is searched instead of the query."""
    conversational: bool
    lexical: bool
    """Whether lexical lists are searched."""
    warnings: dict[str, list[str]]


def understand_request(
    request: Request, config: PipelineConfig, resources: Resources, where: Filter, llm: Asker | None
) -> UnderstoodQuery:
    """What is searched for a request, as `searched` if it has that. Raises as `gather` does."""
    language = resources.store.language.current
    correction = corrected(request.query, config.query.typo_correction, resources, llm)
    query = request.searched or correction.query
    intent, doubts = understand(query, config.query, llm, language)
    shape = features(query, technical_terms(resources.technical_terms_path), language)
    vague = config.query.conversational.enabled and is_conversational(shape, config.query.conversational)
    # The probe is lexical, and made before any expansion.
    signal = strong_signal(resources.lexical(config.lists.lexical).search(query, 2, where), config)
    skipped = None
    if request.searched:
        skipped = "the searched text is given: no expansion was made"
    elif vague and config.expansion.skip_if_conversational:
        skipped = "the query is conversational: no expansion was made"
    elif signal.fires and config.expansion.skip_on_strong_signal.enabled:
        skipped = "the strong-signal probe fired: no expansion was made"
    made = Variants([Variant(query)])
    add_variants(made, request.variants, config, resources, where, llm, skipped)
    instead = None if request.searched or config.variants.search == "beside" else made.instead()
    lexical = intent.route == "hybrid" and not (vague and config.lists.lexical.skip_if_conversational)
    no_lexical = "the query is conversational: no lexical list was searched"
    return UnderstoodQuery(
        correction,
        intent,
        shape,
        signal,
        made.found if instead is None else instead,
        instead is not None,
        vague,
        lexical,
        {
            "query": doubts,
            "expansion": made.said,
            "lists": [no_lexical] if intent.route == "hybrid" and not lexical else [],
        },
    )


def strong_signal(hits: Sequence[tuple[str, float]], config: PipelineConfig) -> StrongSignal:
    """The strong-signal probe: what the first two lexical hits of a query say."""
    settings = config.expansion.skip_on_strong_signal
    raw = [score for _, score in hits] + [0.0, 0.0]
    top, second = (_scaled(value, raw[0], settings.scale) for value in raw[:2])
    return StrongSignal(
        enabled=settings.enabled,
        scale=settings.scale,
        raw_top=raw[0],
        raw_second=raw[1],
        top=top,
        second=second,
        threshold=settings.threshold,
        gap=settings.gap,
        fires=bool(hits) and top >= settings.threshold and top - second >= settings.gap,
        short_of_threshold=max(0.0, settings.threshold - top),
        short_of_gap=max(0.0, settings.gap - (top - second)),
    )


def _scaled(value: float, top: float, scale: str) -> float:
    if scale == "saturating":
        return value / (1 + value)
    if scale == "max":
        return value / top if top > 0 else 0.0
    return value
