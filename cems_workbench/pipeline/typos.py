"""Typo correction: an unknown query word is replaced by the most similar word of the store.

    similarity(a, b) = 1 - distance(a, b) / max(length of a, length of b)          corrected when >= similarity_threshold

The distance is optimal string alignment: Levenshtein's insertions, deletions and substitutions, and two letters that
changed places, each costing 1 ("pyhton" is one step from "python", not two). A pair that was learned comes before the
store's words and needs no similarity. Among the store's words the most similar wins, then the one in most memories,
then the first in the alphabet. A word is left alone when

- the store, the stopwords, the detectors' signals or the technical terms have it, or the store has another form of it: one of the same
  stem, and in another language than English one that differs in its last two letters alone, or is
  a part of the other;
- it is shorter than `MIN_WORD_LETTERS` letters, has a digit, an apostrophe or a hyphen, or stands inside code;
- it is in capitals, or of a script without capitals, where words often have no spaces between them.

Source: ACE retrieval precision (typo correction); Boytsov 2011 (optimal string alignment); docs/internals/specification.md, "query".

The lexicon of technical terms: the shipped one, and a project's own words over it.

The shipped file documents its content. A project dictionary is a file of the same form, whose words are added.

Source: docs/internals/specification.md, "query" (domain signal).

Typo correction within a search: correct, learn what was corrected, and let the LLM look at it afterwards.

A correction that is searched with is accepted; with `auto_learn` it is learned then. With `validate` and an LLM each newly learned
pair is checked in the background, and permanently forgotten if the answer is no.

Source: ACE retrieval precision (auto-learning typo correction with background validation); docs/internals/specification.md, "query".
"""

from __future__ import annotations

import math
import re
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

from cems_workbench.config.sections.understanding import TypoCorrection
from cems_workbench.errors import InputError, WorkbenchError
from cems_workbench.models import prompts
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import query as conversational
from cems_workbench.pipeline.stages.query import SIGNALS
from cems_workbench.pipeline.understanding import Asker
from cems_workbench.records import ENGLISH
from cems_workbench.store import LearnedPair, Vocabulary
from cems_workbench.store.search.lexical.tokenizer import STOPWORDS, normalised, stop_words, terms_of


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
    """The query with its typos corrected; unchanged if `config.enabled` is off or there are none.

    `learned` may hold refused pairs: they are never made. `lexicon` has the technical terms; None means the shipped ones.
    Correcting the result again changes nothing.
    """
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
