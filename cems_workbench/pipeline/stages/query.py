"""query: what the words of the query signal, before anything is searched.

detectors        preference, temporal and aggregation words (CEMS's lists). `substring` matching is CEMS's own: it calls "restart
                 elasticsearch" temporal, for the "last" inside. `word` matches whole words only. The matched spans are in the trace.

conversational   whether a query is vague talk, for which lexical search and expansion do harm

    conversational  =  domain signal < max_domain_signal  and  stopword ratio > min_stopword_ratio  and  no code
    domain signal   =  words in the lexicon of technical terms / words           (0 without words)
    stopword ratio  =  words in ACE's stopword list / words                      (0 without words)

Words are separated by spaces, lower-cased, without surrounding punctuation. A query shows code if it has one
of `CODE`; names that only look like code (iPhone, Node.js) do not count. Both bounds are strict.

Gathering routes by these signals and corrects typos; in replay the stage reports them, and assembly asks for aggregations.

Source: CEMS retrieval guide (retrieval.py:65, 90, 119); ACE retrieval precision, `is_conversational`;
docs/internals/specification.md, "query".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from cems_workbench.config.fields import packaged
from cems_workbench.config.sections import Conversational, Detectors
from cems_workbench.pipeline.evidence import LANGUAGE
from cems_workbench.pipeline.stages.result import StageArrays, StageFields, StageRow, field_names, plain_fields
from cems_workbench.pipeline.stages.stage import Stage, StageInput
from cems_workbench.pipeline.table import Bools, CandidateTable, Ranking, memoized, unranked
from cems_workbench.records import ENGLISH

_WORDS = packaged("pipeline/lexicons/query_words.json")
SIGNALS: Mapping[str, Sequence[str]] = _WORDS["guide"]
CEMS_SIGNALS: Mapping[str, Sequence[str]] = _WORDS["cems"]
"""By detector its signals: CEMS 0.9.3's lists; those of the guide are an excerpt of an earlier version."""
STOPWORDS = frozenset[str](_WORDS["stopwords"])
"""ACE's list. It differs from the lexical index's stopwords (store/search/tokenizer.py), which have no "working" and no "wired"."""
WRITTEN_LIKE_CODE = frozenset[str](_WORDS["written_like_code"])
"""Names of things, in lower case, that have a capital inside."""


@dataclass(frozen=True, slots=True)
class PatternMatch:
    """One signal found in the query: characters start..end of it."""

    detector: str
    signal: str
    start: int
    end: int


@lru_cache(maxsize=4096)
def detect(query: str, config: Detectors, language: str = ENGLISH) -> tuple[PatternMatch, ...]:
    """Every signal found in the query, by detector and position; empty when detectors are off, and in any language but English."""
    if not config.enabled or language != ENGLISH:
        return ()
    edge = r"\b" if config.matching == "word" else ""
    plain = query.lower() if query.isascii() else None  # a substring test first, since most signals are absent
    return tuple(
        PatternMatch(detector, signal, found.start(), found.end())
        for detector, signals in (CEMS_SIGNALS if config.words == "cems" else SIGNALS).items()
        for signal in signals
        if plain is None or signal.lower() in plain
        for found in re.finditer(f"{edge}{re.escape(signal)}{edge}", query, re.IGNORECASE)
    )


def is_aggregation(query: str, config: Detectors, language: str = ENGLISH) -> bool:
    """Whether the query asks for several memories."""
    return any(match.detector == "aggregation" for match in detect(query, config, language))


def cuts_a_word(query: str, match: PatternMatch) -> bool:
    """Whether the match starts or ends inside a word, as "last" does in "elasticsearch"?"""
    before = query[match.start - 1 : match.start]
    after = query[match.end : match.end + 1]
    return before.isalnum() or after.isalnum()


_SUFFIXES = (
    "py|pyi|ipynb|js|jsx|ts|tsx|mjs|java|kt|go|rs|c|h|cc|cpp|hpp|cs|rb|php|swift|sh|sql|json|"
    "jsonl|ya?ml|toml|ini|cfg|conf|env|xml|html|css|md|txt|csv|tsv|lock|log|pdf"
)

CODE: dict[str, re.Pattern[str]] = {
    "backticks": re.compile(r"`[^`]+`"),
    "path": re.compile(
        r"(?<!\S)[\"'(]?(?:~|\.{1,2})?/[\w.\-][\w./\-]*|\b\w+://\S+|\b[A-Za-z]:\\\S*|"
        r"(?<![\w./\-])(?![\d/.]+(?![\w/\-]))[\w.\-]+(?:/[\w.\-]+){2,}"
    ),
    "file name": re.compile(rf"(?<!\S)[\"'(]?[\w./\-]*\w\.(?:{_SUFFIXES})\b(?!\.\w)", re.IGNORECASE),
    "underscore": re.compile(r"\b(?:_+[^\W_]|[^\W_]+_)\w*"),
    "camel case": re.compile(r"\b(?!Ma?c[A-Z][a-z]+\b)[^\W\d_]*[a-z][A-Z]\w*"),
    "call": re.compile(r"\b[A-Za-z_]\w*\((?!(?:s|es|ies)\))"),
    "brackets": re.compile(r"\w\[[^\[\]]*\]|[{}]|</?[A-Za-z][^<>]*>"),
    "dotted name": re.compile(r"\b[a-z]\w+(?:\.[a-z]\w+){2,}\b"),
    "operator": re.compile(r"[=!<>]=|=>|\w->\w|::|:=|\+=|&&|\|\|"),
    "option": re.compile(r"(?<!\S)--[a-z][\w\-]*"),
    "variable": re.compile(r"\$[A-Za-z_]\w*"),
    "number in hex": re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE),
    "SQL": re.compile(r"\b(?:SELECT\b.+\bFROM|INSERT INTO|DELETE FROM|CREATE TABLE|ALTER TABLE)\b"),
}
"""Patterns of code in a query. and/or, he/she/they, 24/7, 12/05/2024, file(s), e.g., MacDonald and [note] do not."""

_AROUND = ".,;:!?…\"'`“”‘’«»()[]{}<>*–—-"
_MAYBE_NAME = ("camel case", "file name")


@dataclass(frozen=True, slots=True)
class QueryFeatures:
    """Input of `is_conversational`: the number of words, and the words of each kind, by position in the query."""

    words: int
    stopwords: tuple[PatternMatch, ...] = ()
    terms: tuple[PatternMatch, ...] = ()
    code: tuple[PatternMatch, ...] = ()

    @property
    def stopword_ratio(self) -> float:
        """Share of the words in `STOPWORDS`, 0..1; 0 without words."""
        return len(self.stopwords) / self.words if self.words else 0.0

    @property
    def domain_signal(self) -> float:
        """Share of the words in the lexicon, 0..1; 0 without words."""
        return len(self.terms) / self.words if self.words else 0.0

    @property
    def has_code(self) -> bool:
        """Whether the query shows code."""
        return bool(self.code)


def features(query: str, lexicon: Set[str], language: str = ENGLISH) -> QueryFeatures:
    """The features of a query. `lexicon` has technical terms in lower case and in the singular; ACE's stopwords are
    English ones. A match's `signal` is the stopword, the lexicon's form of the term, or the kind of code; start and end
    are characters."""
    words = list(_words(query))
    own = STOPWORDS if language == ENGLISH else frozenset[str]()
    stopwords = [PatternMatch("stopword", word, start, end) for word, start, end in words if word in own]
    found = [(technical_term(word, lexicon), start, end) for word, start, end in words]
    terms = [PatternMatch("term", term, start, end) for term, start, end in found if term]
    return QueryFeatures(len(words), tuple(stopwords), tuple(terms), code_spans(query, lexicon))


def is_conversational(found: QueryFeatures, config: Conversational) -> bool:
    """Whether the query is conversational. The caller checks whether the detection is on (`config.enabled`)."""
    return all(limits_met(found.domain_signal, found.stopword_ratio, found.has_code, config))


def limits_met(
    domain_signal: float, stopword_ratio: float, has_code: bool, config: Conversational
) -> tuple[bool, bool, bool]:
    """Which of the three conditions hold: few technical terms, many stopwords, no code."""
    return domain_signal < config.max_domain_signal, stopword_ratio > config.min_stopword_ratio, not has_code


def code_spans(query: str, lexicon: Set[str] = frozenset()) -> tuple[PatternMatch, ...]:
    """Where the query shows code, by position; a word of the lexicon (PostgreSQL, Node.js) is a name and not code."""
    spans = [
        PatternMatch("code", kind, found.start(), found.end())
        for kind, pattern in CODE.items()
        for found in pattern.finditer(query)
        if not (kind in _MAYBE_NAME and _is_name(found.group(), lexicon))
        and not (kind == "path" and STOPWORDS.intersection(found.group().lower().split("/")))
    ]
    return tuple(sorted(spans, key=lambda span: (span.start, -span.end, span.signal)))


def technical_term(word: str, lexicon: Set[str]) -> str:
    """The lexicon's form of a word in lower case, itself or its singular; empty when the lexicon has neither."""
    forms = [word, word.removesuffix("'s").removesuffix("’s")]
    if len(word) > 3:
        forms += [word[:-1]] * word.endswith("s") + [word[:-2]] * word.endswith("es")
        forms += [f"{word[:-3]}y"] * word.endswith("ies")
    return next((form for form in forms if form in lexicon), "")


def _words(query: str) -> Iterator[tuple[str, int, int]]:
    """(word, start, end) of the words, in lower case; punctuation alone is no word."""
    for found in re.finditer(r"\S+", query):
        word = found.group().strip(_AROUND)
        if word:
            start = found.start() + found.group().index(word)
            yield word.lower(), start, start + len(word)


def _is_name(text: str, lexicon: Set[str]) -> bool:
    word = text.strip(_AROUND).lower()
    return word in WRITTEN_LIKE_CODE or bool(technical_term(word, lexicon))


@dataclass(frozen=True, slots=True)
class DetectorMatch(PatternMatch):
    """One match of a detector, and whether it starts or ends inside a word."""

    cuts_word: bool


@dataclass(frozen=True, slots=True)
class QueryFields(StageFields):
    """The query, the configured mode, the signals in it, and the notes of gathering (route, corrections, features)."""

    query: str = ""
    mode: str = ""
    matches: tuple[DetectorMatch, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def route(self) -> tuple[str, str] | None:
        """Which lists were searched, and why; None without a note of gathering."""
        found = self.notes.get("route")
        return None if found is None else (str(found), str(self.notes.get("route_reason", "")))

    def to_json(self) -> dict[str, Any]:
        """The fields and the notes, as plain values."""
        return {**plain_fields(self, field_names(QueryFields)[:-1]), **self.notes}


def language_of(table: CandidateTable, q: int) -> str:
    """The language of the store that the evidence of a query was gathered from."""
    return str(table.notes[q].get(LANGUAGE, ENGLISH))


def aggregations(table: CandidateTable, config: Detectors) -> Bools:
    """(Q) which queries ask for several memories at once."""
    if table.single is not None:
        return aggregations(table.single, config).repeat(len(table.queries))
    return memoized(
        table.memo,
        "aggregation",
        config,
        lambda: np.array(
            [is_aggregation(table.queries[q], config, language_of(table, q)) for q in range(table.shape[0])], dtype=bool
        ),
    )


def no_candidates(table: CandidateTable) -> Ranking:
    """The ranking before the search: empty."""
    return memoized(
        table.memo, "nobody", None, lambda: unranked(np.zeros(table.shape, dtype=bool), np.full(table.shape, np.nan))
    )


def report_query(given: StageInput) -> StageArrays[StageRow, QueryFields]:
    """The query's signals; candidates do not exist yet."""
    table, config = given.table, given.config.query
    nobody = no_candidates(table)

    def fields(q: int) -> QueryFields:
        query = table.queries[q]
        matches = tuple(
            DetectorMatch(match.detector, match.signal, match.start, match.end, cuts_a_word(query, match))
            for match in detect(query, config.detectors, language_of(table, q))
        )
        return QueryFields(query, config.mode, matches, table.notes[q].get("query", {}))

    def warnings(q: int) -> list[str]:
        query, language = table.queries[q], language_of(table, q)
        if language != ENGLISH:
            asked = {
                "the detectors": config.detectors.enabled,
                "the conversational test": config.conversational.enabled,
            }
            return [
                f"{name} found nothing: the words are English, the store's language is {language}"
                for name in asked
                if asked[name]
            ]
        return [
            f"{match.detector}: “{match.signal}” was found inside a word (“{_word_around(query, match.start, match.end)}”)"
            for match in detect(query, config.detectors, language_of(table, q))
            if cuts_a_word(query, match)
        ]

    return StageArrays(entered=nobody.alive, before=nobody, after=nobody, fields=fields, warnings=warnings, passed=True)


def _word_around(query: str, start: int, end: int) -> str:
    while start > 0 and query[start - 1].isalnum():
        start -= 1
    while end < len(query) and query[end].isalnum():
        end += 1
    return query[start:end]


QUERY = Stage(
    name="query",
    title="Query",
    description="What the words of the query signal, and how it was routed.",
    works_on="query",
    reads=("query",),
    apply=report_query,
    row=StageRow,
    fields=QueryFields,
)
