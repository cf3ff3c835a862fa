"""The language in which a store's lexical search works: its stemmer, its stopwords, its way of cutting words.

It is chosen at import or, for a store that has no memories yet, told from the texts of the first import: by the share of Chinese,
Japanese and Korean characters, else by the language of which most words are stopwords. A store without either is English, as every
store was before there was a choice. The lexical index is built anew from the memories when the language changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cems_workbench.errors import InputError, nearest
from cems_workbench.records import CJK, ENGLISH, LANGUAGES
from cems_workbench.store import memories
from cems_workbench.store.database import Database
from cems_workbench.store.meta import bump_content_version, read_meta, write_meta

if TYPE_CHECKING:
    import duckdb

AUTO = "auto"
_LANGUAGE, _REASON = "language", "language_reason"

DETECTED = (
    ENGLISH,
    "danish",
    "dutch",
    "french",
    "german",
    "italian",
    "norwegian",
    "portuguese",
    "russian",
    "spanish",
    "swedish",
    "turkish",
)
"""Besides Chinese, Japanese and Korean: the languages that have a list of stopwords."""
MIN_WORDS, MIN_STOPWORD_SHARE, MIN_LEAD = 100, 0.15, 1.5
"""Words of running text that are needed, the share of them that the language's stopwords must reach, and by which factor it must be
above that of every other language. Shares of the best and the second language of the tests' sets: German 0.39 and 0.13, Spanish 0.48
and 0.25, the sample data 0.37 (English) and 0.07; of the German and Spanish sets mixed 0.26 and 0.18, which is left unclear."""
MAX_CHARS = 200_000
MIN_CJK_SHARE = 0.3
"""Of the letters; a Japanese text of half English names still reaches it."""

_WORD = re.compile(r"(?<![\w./\\:@\-])[^\W\d_]+(?:['\u2019][^\W\d_]+)?(?![\w/\\:@]|\.\w)")
_CJK_LETTER = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]")


@dataclass(frozen=True, slots=True)
class Choice:
    """A language, and where it comes from, in words."""

    language: str
    reason: str

    def __str__(self) -> str:
        """The same in words: "german, told from the texts: …"."""
        return f"{self.language}, {self.reason}"


class Language:
    """The language of an open store; methods may be called from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def current(self) -> str:
        """The language that lexical search works in."""
        with self._database.reading() as cursor:
            return language(cursor)

    @property
    def given(self) -> bool:
        """Whether it was chosen or told; the first memories tell it where it was not."""
        with self._database.reading() as cursor:
            return read_meta(cursor, _LANGUAGE) is not None

    def choice(self) -> Choice:
        """The language, and why it is that one."""
        with self._database.reading() as cursor:
            return Choice(
                language(cursor), read_meta(cursor, _REASON) or "as every store is that was not given another"
            )

    def choose(self, name: str) -> bool:
        """Work in this language from now on; False when it is the one already. Raises InputError for one that is not known.

        `auto` changes nothing in a store with memories; a store without any tells it from those that come next. The lexical index is
        built anew when it is next brought up to date.
        """
        if name == AUTO:
            return False
        chosen = known_language(name)
        with self._database.transaction() as cursor:
            before = language(cursor)
            record(cursor, Choice(chosen, "as chosen"))
            if before != chosen and memories.count(cursor):
                bump_content_version(cursor)
        return before != chosen


def known_language(name: str) -> str:
    """The language of that name; raises InputError with the nearest one when there is none."""
    if name in LANGUAGES:
        return name
    near = nearest(name, (AUTO, *LANGUAGES))
    raise InputError(
        f"language: {name!r} is not one of {', '.join((AUTO, *LANGUAGES))}"
        + (f"; did you mean {near}?" if near else "")
    )


def language(cursor: duckdb.DuckDBPyConnection) -> str:
    """The language that lexical search works in."""
    return known_language(read_meta(cursor, _LANGUAGE) or ENGLISH)


def record(cursor: duckdb.DuckDBPyConnection, choice: Choice) -> None:
    """Keep a language with its reason; the caller's is the transaction."""
    write_meta(cursor, _LANGUAGE, choice.language)
    write_meta(cursor, _REASON, choice.reason)


def detect_once(cursor: duckdb.DuckDBPyConnection, texts: Iterable[str]) -> None:
    """Tell the language of a store that has no memories yet, and no language, from those that it is about to get."""
    if read_meta(cursor, _LANGUAGE) is None and not memories.count(cursor):
        record(cursor, detect(texts))


def detect(texts: Iterable[str]) -> Choice:
    """The language of texts, in their order and `READ_CHARACTERS` of them; English, with the reason, where none is clear."""
    from cems_workbench.store.search.lexical.tokenizer import normalised, stop_words

    words: list[str] = []
    letters = unspaced = read = 0
    for text in texts:
        piece = normalised(text[: MAX_CHARS - read])
        read += len(piece)
        letters += sum(map(str.isalpha, piece))
        unspaced += len(_CJK_LETTER.findall(piece))
        words += [word.lower().replace("\u2019", "'") for word in _WORD.findall(piece)]
        if read >= MAX_CHARS:
            break
    if unspaced >= MIN_WORDS and unspaced >= MIN_CJK_SHARE * letters:
        return Choice(
            CJK, f"told from the texts: {unspaced / letters:.0%} of the letters are Chinese, Japanese or Korean"
        )
    if len(words) < MIN_WORDS:
        return Choice(
            ENGLISH, f"as the first import had too little text to tell ({len(words)} words, {MIN_WORDS} needed)"
        )
    shares = {name: sum(word in stop_words(name) for word in words) / len(words) for name in DETECTED}
    best, second = sorted(DETECTED, key=lambda name: -shares[name])[:2]
    said = f"{shares[best]:.0%} of the words are stopwords of {best}, {shares[second]:.0%} of {second}"
    if shares[best] < MIN_STOPWORD_SHARE or shares[best] < MIN_LEAD * shares[second]:
        return Choice(ENGLISH, f"as the texts of the first import leave it unclear: {said}")
    return Choice(best, f"told from the texts: {said}")
