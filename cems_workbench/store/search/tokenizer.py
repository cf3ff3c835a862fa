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

Each step is off by default. The stop words are read from the user's files (`stop_list`): a plain list, or the source file of the system
that is reproduced.

Source: docs/internals/specification.md, "lists".
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from typing import Any, Literal

from cems_workbench.errors import InputError, nearest
from cems_workbench.platform.parsing import json_values, read_text
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


MAX_LIST_BYTES = 4_000_000
"""Bytes of a file that stop words are read from."""
HASH_COMMENTS = frozenset({".py", ".pyi", ".rb", ".sh", ".pl", ".r"})
SLASH_COMMENTS = frozenset(
    {".ts", ".tsx", ".js", ".jsx", ".mjs", ".cjs", ".mts", ".cts", ".go", ".rs", ".java", ".kt", ".scala", ".swift"}
    | {".c", ".h", ".cc", ".cpp", ".hpp", ".cs", ".php", ".dart"}
)


BESIDE = "beside:"
"""Before a path that is looked for, such as `node_modules/PACKAGE/FILE.js#NAME`: a list of an installation that may stand anywhere."""


class NotInstalledError(InputError):
    """A list of stop words that is read from an installation was not found."""


def stop_list(name: str | None, beside: Path | None = None) -> frozenset[str]:
    """The lower-cased stop words of a file, empty for None.

    A file of source code gives the quoted words of the only list or set that is assigned to a name, or of `FILE#NAME`; JSON gives its
    list, or the one under NAME. Any other file gives its words, separated by white space, without the lines that begin with `#`. In a path
    `*` stands for any characters of a name, in NAME too, which then gives the words of all its lists. After `beside:` a path is looked for
    in the folders above the working folder and `beside`, in those next to them, and where Node.js installs packages for all users.
    Raises InputError if there is no such file, list or word, NotInstalledError where `beside:` finds no file.
    """
    if name is None:
        return frozenset()
    path, _, variable = name.partition("#")
    file = Path(path).expanduser()
    if path.startswith(BESIDE):
        path = path.removeprefix(BESIDE)
        found = _first_beside(path, beside, Path.cwd())
        if found is None:
            raise NotInstalledError(
                f"no {path} beside the store, the working folder or Node.js; name it as FOLDER/{path}"
            )
        file = found
    if "*" in file.name:
        file = min(file.parent.glob(file.name), default=file)
    try:
        changed = file.stat().st_mtime_ns
    except OSError:
        changed = 0  # read_text says what is wrong
    return _read_list(file, variable, changed)


@lru_cache(maxsize=32)
def _first_beside(path: str, beside: Path | None, working: Path) -> Path | None:
    return next(files_beside(path, [] if beside is None else [beside]), None)


def files_beside(path: str, beside: Iterable[Path] = ()) -> Iterator[Path]:
    """Files of a path below the folders `beside`, the working folder and those above them, and one level lower; then where Node.js, or
    Python, has packages."""
    places = [place for folder in (*beside, Path.cwd()) for place in (folder.resolve(), *folder.resolve().parents)]
    places += [Path(folder).parent for folder in os.environ.get("NODE_PATH", "").split(os.pathsep) if folder]
    places += [Path.home(), *(Path(node).resolve().parents[1] / "lib" for node in (shutil.which("node"),) if node)]
    spec = find_spec(path.partition("/")[0]) if path.endswith(".py") else None
    places += [Path(folder).parent for folder in (spec.submodule_search_locations or ())] if spec else []
    for place in dict.fromkeys(places):
        for pattern in (path, f"*/{path}"):
            with suppress(OSError):
                yield from sorted(file for file in place.glob(pattern) if file.is_file())


@lru_cache(maxsize=32)
def _read_list(file: Path, variable: str, changed: int) -> frozenset[str]:
    text = read_text(file, "stop words", MAX_LIST_BYTES)
    suffix = file.suffix.lower()
    if suffix == ".json":
        found = _json_lists(json_values(text, str(file), MAX_LIST_BYTES))
    elif suffix in HASH_COMMENTS | SLASH_COMMENTS:
        found = [row for row in _collections(text, suffix in HASH_COMMENTS) if row[0]]
    else:
        if variable:
            raise InputError(f"stop words: {file} is a plain list of words; #{variable} fits files of source code")
        lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
        words = {word.lower() for line in lines for word in line.split()}
        if not words:
            raise InputError(f"stop words: {file} has no words")
        return frozenset(words)
    names = ", ".join(sorted({called for called, _ in found if called})[:8])
    if variable:
        matching = [words for called, words in found if fnmatchcase(called, variable)]
        if not matching:
            near = nearest(variable, {called for called, _ in found})
            hint = f"; did you mean {near}?" if near else f"; it has {names}" if names else ""
            raise InputError(f"stop words: {file} assigns no list of quoted words to {variable}{hint}")
        return frozenset().union(*matching) if "*" in variable else matching[0]
    if not found:
        raise InputError(f"stop words: {file} has no list of quoted words")
    if len(found) > 1:
        raise InputError(f"stop words: {file} has {len(found)} lists of quoted words; add #NAME, such as {names}")
    return found[0][1]


def _json_lists(values: Any) -> list[tuple[str, frozenset[str]]]:
    """(key or "", words) of a list of texts, or of those under the keys of an object."""
    lists = values.items() if isinstance(values, dict) else [("", values)]
    return [
        (key, frozenset(map(str.lower, words)))
        for key, words in lists
        if isinstance(words, list) and words and all(isinstance(word, str) for word in words)
    ]


_ASSIGNED = re.compile(r"([A-Za-z_$][\w$]*)\s*(?::[^=;{}()]*)?=(?![=>])[^=;\"'`{}]*$")
"""The name before an opening bracket, across a type and wrappers such as `new Set(`."""
_STRING = re.compile(r"'''(?s:.*?)'''|\"\"\"(?s:.*?)\"\"\"|`[^`]*`|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"")
_HASH, _SLASH = re.compile(r"#[^\n]*"), re.compile(r"//[^\n]*|/\*(?s:.*?)\*/")
_OPENING, _CLOSING = "[{(", "]})"
_SPLIT = re.compile(r"\s*\.\s*split\s*\(")


def _collections(text: str, hash_comments: bool) -> Iterator[tuple[str, frozenset[str]]]:
    """(variable or "", words) of every bracket with nothing but quoted words in it, and of every quoted text that is split into words."""
    comment = _HASH if hash_comments else _SLASH
    opened: list[tuple[int, list[str], bool]] = []  # where the bracket is, its words, whether it holds anything else
    at = 0
    while at < len(text):
        sign = text[at]
        if skipped := comment.match(text, at):
            at = skipped.end()
            continue
        if sign in "'\"`" and (quoted := _STRING.match(text, at)):
            edge = 3 if quoted.group().startswith(("'''", '"""')) else 1
            inside = quoted.group()[edge:-edge]
            if _SPLIT.match(text, quoted.end()):
                if words := frozenset(inside.lower().split()):
                    yield _name_before(text, at), words
            elif opened:
                opened[-1][1].append(re.sub(r"\\(.)", r"\1", inside).lower())
            at = quoted.end()
            continue
        if sign in _OPENING:
            opened.append((at, [], False))
        elif sign in _CLOSING and opened:
            start, words_here, other = opened.pop()
            listed = frozenset(word for word in words_here if word)
            if len(words_here) > 1 and not other and listed:
                yield _name_before(text, start), listed
            if opened:
                opened[-1] = (opened[-1][0], opened[-1][1], True)
        elif not sign.isspace() and sign != "," and opened:
            opened[-1] = (opened[-1][0], opened[-1][1], True)
        at += 1


def _name_before(text: str, at: int) -> str:
    found = _ASSIGNED.search(text[max(0, at - 300) : at])
    return found[1] if found else ""
