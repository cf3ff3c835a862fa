r"""Tokenizer: text to search terms, the same for memories and queries; and the words of a query that a lexical engine gets.

Text is NFKC-normalised and split into chunks: runs of word characters, joined by the punctuation inside identifiers
(`. / \ : - @`). A plain word gives its lower-cased stem, or nothing if it is a stopword. Anything else is an identifier
and gives itself, lower-cased and unstemmed, and its parts:

    getUserById           getuserbyid, get, user, id
    src/api/main.py       src/api/main.py, src, api, main, py
    v1.2.3                v1.2.3, 1.2.3
    python3.11            python3.11, python, 3.11
    ORA-00942             ora-00942, ora, 00942
    DATABASE_URL          database_url, databas, url
    Caroline's            carolin

so both the identifier and its words match. Runs of Chinese and Japanese characters, which have no spaces, give character bigrams.

English stopwords are articles, prepositions, pronouns, auxiliaries and their negations, and question words; words that carry meaning
in code or preferences ("not", "no", "most", "only", "same", "off", "up") are not.

Other languages use the Snowball stemmer of that name and the stopwords of bm25s, if any; accented letters split identifiers like others.
`cjk` gives unigrams and bigrams of Chinese, Japanese and Korean (as Lucene's CJKBigramFilter with outputUnigrams), and no stems.
`none` has neither stems nor stopwords. An `Analysis` replaces the stems or the stopwords of a language.

A lexical engine gets of a query:

    signs outside ASCII out -> split at white space -> short and stop words out -> repeats out -> the first `max_words`

Each step is off by default. The stop words are read from the user's files (`stop_lists.py`).

Source: docs/internals/specification.md, "lists".
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from typing import Any, Literal

from cems_workbench.records import CJK, ENGLISH, NO_LANGUAGE, STOPWORD_LANGUAGES

_WORDS = """
    a an the this that these those
    i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers
    herself it its itself they them their theirs themselves
    am is are was were be been being do does did doing done have has had having will would shall should can could may
    might must ought
    and or but nor so if then than because as until while of at by for with about against between into through during
    to from in out on over under again further once there here
    when where why how what which who whom whose
    isn't aren't wasn't weren't don't doesn't didn't haven't hasn't hadn't won't wouldn't shan't shouldn't can't
    couldn't mightn't mustn't i'm i've i'd i'll we're we've we'd we'll you're you've you'd you'll he's he'd he'll
    she's she'd she'll it's it'd it'll they're they've they'd they'll that's there's here's what's who's where's
    when's how's let's
    dont doesnt didnt isnt arent wasnt cant wont im ive
"""

STOPWORDS = frozenset(_WORDS.split())
"""English stopwords."""

VERSION = "1"
"""Raise with every change of the terms: lexical indexes of another version are stale."""


def version(language: str) -> str:
    """The version of a language's terms: an index of another version is stale."""
    return VERSION if language == ENGLISH else f"{VERSION} {language}"


@cache
def stop_words(language: str) -> frozenset[str]:
    """The lower-cased stopwords of a language; empty without a list."""
    if language in (ENGLISH, CJK):
        return STOPWORDS
    if language not in STOPWORD_LANGUAGES:
        return frozenset()
    return frozenset(map(normalised, _bm25s_stopwords()[f"STOPWORDS_{language.upper()}"]))


@cache
def _bm25s_stopwords() -> dict[str, Any]:
    """The lists of bm25s by name, without its package, which imports numba and scipy."""
    package = find_spec("bm25s")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("bm25s is not installed")
    return run_path(str(Path(package.submodule_search_locations[0]) / "stopwords.py"))


@dataclass(frozen=True, slots=True)
class Analysis:
    """How text becomes terms; `stop_words` are lower-cased, None is the language's own."""

    language: str = ENGLISH
    stems: bool = True
    stop_words: frozenset[str] | None = None


Language = str | Analysis
"""A language with its stems and stopwords, or an analysis that departs from them."""

MAX_TERM_CHARS = 100
MAX_IDENTIFIER_CHARS = 256
MAX_CACHED_CHUNKS = 400_000

_CHUNK = re.compile(r"\w+(?:(?::\\|[./\\:@'\u2019\-])\w+)*(?:\+\+(?!\w)|#(?!\w))?")
_SUFFIX = re.compile(r"['\u2019](?:s|t|re|ve|ll|d|m)$", re.IGNORECASE)
_VERSION = re.compile(r"v?(\d+(?:\.\d+)+)$")
_SEGMENT = re.compile(r"[^\W\d_]+(?=\d+\.\d)|\d+(?:\.\d+)+|[^\W_]+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+(?:\.\d+)*|[^\x00-\x7f]+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]+")
_CJK_AND_KOREAN = re.compile(
    r"[\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\U00020000-\U0003134f]+"
)


class _Terms(dict[str, tuple[str, ...]]):
    """Chunk → its terms, a cache that is cleared when full."""

    def __init__(self, analysis: Analysis) -> None:
        super().__init__()
        self._language = language = analysis.language
        self._stems = analysis.stems and language not in (CJK, NO_LANGUAGE)
        self._stop_words = stop_words(language) if analysis.stop_words is None else analysis.stop_words
        self._part = _PART if language == ENGLISH else _part_with_accents()
        self._unspaced = _CJK_AND_KOREAN if language == CJK else _CJK
        self._stemmer_lock = threading.Lock()
        self._stem_word: Callable[[str], str] | None = None

    def __missing__(self, chunk: str) -> tuple[str, ...]:
        terms = tuple(self._analyse(chunk))
        # The cache is limited by entries, so long chunks stay out of it.
        if len(chunk) <= MAX_TERM_CHARS:
            if len(self) >= MAX_CACHED_CHUNKS:
                self.clear()
            self[chunk] = terms
        return terms

    def _analyse(self, chunk: str) -> Iterable[str]:
        word = _SUFFIX.sub("", chunk)
        lowered = self._lower(word)
        if lowered in self._stop_words or self._lower(chunk.replace("\u2019", "'")) in self._stop_words:
            return ()
        if (
            lowered.isalpha()
            and (word[1:].islower() or word.isupper() or len(word) == 1)
            and not self._unspaced.search(word)
        ):
            return (self._stem(lowered),) if len(word) <= MAX_TERM_CHARS else ()
        version = _VERSION.fullmatch(lowered)
        if version:
            return dict.fromkeys((lowered, version.group(1)))
        sentence = self._language == CJK and self._unspaced.search(word)
        whole = [lowered] if len(lowered) <= MAX_TERM_CHARS and not sentence else []
        if lowered.isalpha() and whole:
            # `iPhones` must also match the plain word `iphones`, which is stemmed.
            whole.append(self._stem(lowered))
        return dict.fromkeys([*whole, *self._parts(word)])

    def _parts(self, identifier: str) -> Iterable[str]:
        """The segments of an identifier and their parts, words stemmed; no single letters."""
        for segment in _SEGMENT.findall(identifier):
            pieces = [segment, *self._part.findall(segment)] if len(identifier) <= MAX_IDENTIFIER_CHARS else [segment]
            for piece in pieces:
                term = self._lower(piece)
                if self._unspaced.search(term):
                    yield from self._characters(term)
                elif 1 < len(term) <= MAX_TERM_CHARS and term not in self._stop_words:
                    yield self._stem(term) if term.isalpha() else term

    def _characters(self, text: str) -> Iterable[str]:
        """Character bigrams of each unspaced run (a run of one gives itself); in `cjk` also unigrams."""
        for run in self._unspaced.findall(text):
            yield from (run[start : start + 2] for start in range(max(1, len(run) - 1)))
            if self._language == CJK and len(run) > 1:
                yield from run

    def _lower(self, text: str) -> str:
        # Python lowers the dotted capital I to two characters.
        return (text.replace("\u0130", "i") if self._language == "turkish" else text).lower()

    def _stem(self, word: str) -> str:
        if not self._stems:
            return word
        # A PyStemmer object is not thread-safe.
        with self._stemmer_lock:
            if self._stem_word is None:
                import Stemmer

                self._stem_word = Stemmer.Stemmer(self._language).stemWord
            return self._stem_word(word)


@lru_cache(maxsize=8)
def _terms(language: Language) -> _Terms:
    return _Terms(Analysis(language) if isinstance(language, str) else language)


@cache
def _part_with_accents() -> re.Pattern[str]:
    """`_PART` for the upper- and lower-case letters of every alphabet."""
    letters = [chr(code) for code in range(0x2000) if chr(code).isalpha()]
    upper = "".join(letter for letter in letters if letter.isupper())
    lower = "".join(letter for letter in letters if letter.islower())
    return re.compile(rf"[{upper}]+(?![{lower}])|[{upper}]?[{lower}]+|\d+(?:\.\d+)*|[^\W\d_]+")


def normalised(text: str) -> str:
    """The text in Unicode normal form NFKC."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def chunks(text: str) -> list[str]:
    """The words and identifiers of a text, after NFKC normalisation."""
    return _CHUNK.findall(normalised(text))


def terms_of(chunk: str, language: Language = ENGLISH) -> tuple[str, ...]:
    return _terms(language)[chunk]


def tokenize(text: str, language: Language = ENGLISH) -> list[str]:
    """The search terms of a text, in order, with repetitions."""
    terms = _terms(language)
    return [term for chunk in chunks(text) for term in terms[chunk]]


Outside = Literal["kept", "blanked", "removed"]
"""What happens to the signs that are neither ASCII letters nor digits: nothing, a blank for each, or they vanish."""


def query_words(
    text: str,
    *,
    outside: Outside = "kept",
    also: str = "",
    stop_words: Collection[str] = frozenset(),
    min_characters: int = 1,
    distinct: bool = False,
    max_words: int | None = None,
) -> list[str]:
    """The words of a query in their order, in the case they were typed in. `also` are further signs that `outside`
    leaves alone. `stop_words` are lower-cased; they and repeats are found by the lower-cased word."""
    if outside != "kept":
        signs = re.compile(f"[^A-Za-z0-9\\s{re.escape(also)}]")
        text = signs.sub(" " if outside == "blanked" else "", text)
    words = [word for word in text.split() if len(word) >= min_characters and word.lower() not in stop_words]
    if distinct:
        first: dict[str, str] = {}
        for word in words:
            first.setdefault(word.lower(), word)
        words = list(first.values())
    return words if max_words is None else words[:max_words]
