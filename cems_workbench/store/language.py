"""The language of a store's lexical search: its stemmer, stop words and tokenisation.

It is chosen at import, or detected from the texts of a store's first import: by the share of Chinese, Japanese and Korean characters,
otherwise by the language with the highest share of stop words. The default is English. A change of language rebuilds the lexical index.

The text rule of an open store, and its change (`text_rule` has the rules themselves).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from cems_workbench.errors import InputError, did_you_mean
from cems_workbench.records import CJK, ENGLISH, LANGUAGES, STOPWORD_LANGUAGES, Memory, TextRule
from cems_workbench.store import memories
from cems_workbench.store import rows as tables
from cems_workbench.store.database import Database
from cems_workbench.store.search.entries import WHOLE_MEMORY
from cems_workbench.store.text_rule import TEXT_RULE, searched_text, text_rule

if TYPE_CHECKING:
    import duckdb


AUTO = "auto"
_LANGUAGE, _REASON = "language", "language_reason"

DETECTED = (ENGLISH, *STOPWORD_LANGUAGES)
"""The languages with a stop word list, which detection compares; Chinese, Japanese and Korean are detected by their characters."""
MIN_WORDS, MIN_STOPWORD_SHARE, MIN_LEAD = 100, 0.15, 1.5
"""Detection needs this many words, this share of stop words, and a share this many times that of every other language. Shares of the
best and the second language in the tests' sets: German 0.39 and 0.13, Spanish 0.48 and 0.25, the sample data 0.37 (English) and 0.07;
German and Spanish mixed 0.26 and 0.18, which counts as undecided."""
MAX_CHARS = 200_000
MIN_CJK_SHARE = 0.3
"""Share of the letters; a Japanese text with half of its names in English still reaches it."""

_WORD = re.compile(r"(?<![\w./\\:@\-])[^\W\d_]+(?:['\u2019][^\W\d_]+)?(?![\w/\\:@]|\.\w)")
_CJK_LETTER = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]")


@dataclass(frozen=True, slots=True)
class Choice:
    """A language and the reason for it, as a phrase."""

    language: str
    reason: str

    def __str__(self) -> str:
        """One line: "german, detected in the texts: …"."""
        return f"{self.language}, {self.reason}"


class Language:
    """The language of an open store. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def current(self) -> str:
        return self._database.read(language)

    @property
    def given(self) -> bool:
        """Whether it was chosen or detected; otherwise the first memories decide it."""
        return self._database.read(tables.read_meta, _LANGUAGE) is not None

    def choice(self) -> Choice:
        with self._database.reading() as cursor:
            return Choice(language(cursor), tables.read_meta(cursor, _REASON) or "the default")

    def choose(self, name: str) -> bool:
        """Set the language; False if it is already set. Raises InputError for an unknown one. `auto` changes nothing in
        a store with memories; in an empty store the next import decides. The next refresh rebuilds the lexical
        index."""
        if name == AUTO:
            return False
        chosen = known_language(name)
        with self._database.transaction() as cursor:
            before = language(cursor)
            record(cursor, Choice(chosen, "as chosen"))
            if before != chosen and memories.count(cursor):
                tables.bump_content_version(cursor)
        return before != chosen


def known_language(name: str) -> str:
    """The language of that name. Raises InputError, with the nearest name, for an unknown one."""
    if name in LANGUAGES:
        return name
    hint = did_you_mean(name, (AUTO, *LANGUAGES))
    raise InputError(f"language: {name!r} is not one of {', '.join((AUTO, *LANGUAGES))}{hint}")


def language(cursor: duckdb.DuckDBPyConnection) -> str:
    return known_language(tables.read_meta(cursor, _LANGUAGE) or ENGLISH)


def record(cursor: duckdb.DuckDBPyConnection, choice: Choice) -> None:
    """Save a language with its reason, in the caller's transaction."""
    tables.write_meta(cursor, _LANGUAGE, choice.language)
    tables.write_meta(cursor, _REASON, choice.reason)


def detect_once(cursor: duckdb.DuckDBPyConnection, texts: Iterable[str]) -> None:
    """Detect the language of a store without memories and without a language from its first memories."""
    if tables.read_meta(cursor, _LANGUAGE) is None and not memories.count(cursor):
        record(cursor, detect(texts))


def detect(texts: Iterable[str]) -> Choice:
    """The language of the first `MAX_CHARS` characters of texts; English, with the reason, if undecided."""
    from cems_workbench.store.search.tokenizer import normalised, stop_words

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
            CJK, f"detected in the texts: {unspaced / letters:.0%} of the letters are Chinese, Japanese or Korean"
        )
    if len(words) < MIN_WORDS:
        return Choice(
            ENGLISH, f"because the first import had too few words to detect one ({len(words)}, {MIN_WORDS} needed)"
        )
    shares = {name: sum(map(stop_words(name).__contains__, words)) / len(words) for name in DETECTED}
    best, second = sorted(DETECTED, key=lambda name: -shares[name])[:2]
    said = f"{shares[best]:.0%} of the words are stopwords of {best}, {shares[second]:.0%} of {second}"
    if shares[best] < MIN_STOPWORD_SHARE or shares[best] < MIN_LEAD * shares[second]:
        return Choice(ENGLISH, f"because detection in the first import was undecided: {said}")
    return Choice(best, f"detected in the texts: {said}")


BATCH_ROWS = 20_000
"""Memories whose texts are hashed again at a time."""


class TextRules:
    """The text rule of an open store. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def rule(self) -> TextRule:
        """The rule by which the texts of memories are made."""
        return self._database.read(text_rule)

    def of(self, memory: Memory) -> str:
        """The text of a memory that is embedded and searched, if it has no chunks."""
        return searched_text(memory, self.rule)

    def choose(self, rule: TextRule) -> bool:
        """Set the rule; False if it is already set. The next refresh of the indexes cuts again and embeds the texts
        that differ; vectors of a live source stay those of its memories."""
        with self._database.transaction() as cursor:
            if text_rule(cursor) == rule:
                return False
            tables.write_meta(cursor, TEXT_RULE, json.dumps(asdict(rule)))
            if memories.count(cursor):
                _hash_again(cursor, rule)
                tables.bump_content_version(cursor)
        return True


def _hash_again(cursor: duckdb.DuckDBPyConnection, rule: TextRule) -> None:
    """Write `text_sha` of every memory, deleted ones included, as the rule makes its text."""
    version, columns = tables.next_version(cursor), ", ".join(memories.FIELDS)
    (last,) = cursor.execute("SELECT coalesce(max(rowid), -1) FROM memories").fetchall()[0]
    for start in range(0, last + 1, BATCH_ROWS):
        rows = cursor.execute(
            f"SELECT text_sha, {columns} FROM memories WHERE rowid >= ? AND rowid < ?", [start, start + BATCH_ROWS]
        ).fetchall()
        found = [(row[1], row[0], tables.text_sha(searched_text(memories.record(row[1:]), rule))) for row in rows]
        changed = [row for row in found if row[1] != row[2]]
        with tables.staged(cursor, "staged_texts", tables.table_of("id string, was string, is_now string", changed)):
            cursor.execute(
                "UPDATE memories SET text_sha = s.is_now, changed = ? FROM staged_texts AS s WHERE memories.id = s.id",
                [version],
            )
            # Such a vector is what the live system searches, whatever text it made it of.
            cursor.execute(
                "UPDATE source_vectors SET text_sha = s.is_now FROM staged_texts AS s "
                "WHERE source_vectors.memory_id = s.id AND source_vectors.seq = ? AND source_vectors.text_sha = s.was",
                [WHOLE_MEMORY],
            )
