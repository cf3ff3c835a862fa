"""The words of Lucene's StandardAnalyzer without stop words: word breaks of Unicode (UAX #29), lower case, no stems.

    Refund window: 14.5 days   refund, window, 14.5, days
    don't foo_bar a.b.c        don't, foo_bar, a.b.c
    hbr-4417 user@host.org     hbr, 4417, user, host.org

Runs without a letter, a digit or an emoji are no words. Han and Hiragana give a word a character; Thai, Lao, Khmer and Burmese, which
Unicode leaves to a dictionary, a word a run. A word past 255 characters is cut into several.

Source: Unicode Standard Annex #29, word boundaries; Lucene 9.9, StandardTokenizer and LowerCaseFilter.

Lucene's BM25 over properties, with fuzzy clauses, from an index in memory.

    score = sum over properties p and words t of  weight - weight / (1 + n / (k1 * (1 - b + b * length / mean length)))
    weight = boost * ln(1 + (N - df + 0.5) / (df + 0.5))

n counts t in p of a text, df the texts with t in p, N the texts that have p. There is no factor (k1 + 1). A length goes
through one byte (`length_byte`), so lengths past 39 are rounded down to three bits; the arithmetic is in single precision, and the
sum over clauses in double.

A fuzzy clause is in effect at most 50 words of a property, each within so many edits (a transposition is one), first those with the
largest boost 1 - edits / shorter length, then by code point. All of them have the largest df among them and the boost as weight; a word
whose boost is 0 is found and scores nothing. A word that several clauses of a query reach counts once, with the sum of their boosts. Which
of their df it then has depends in Lucene on a hash seed that every start of the JVM draws: here its weight is the mean over them.

Source: Lucene 9.9, BM25Similarity, SmallFloat, FuzzyQuery, TopTermsBlendedFreqScoringRewrite and BooleanQuery; Robertson & Zaragoza, The
Probabilistic Relevance Framework, 2009.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cems_workbench.errors import InputError
from cems_workbench.progress import Progress, silent

MAX_CHARACTERS = 255
"""Of a word; the rest of a longer one begins the next."""


@cache
def _pattern() -> Any:
    # Brought by tiktoken; only its properties of characters know the classes of the word breaks. Loaded for the first text.
    import regex

    extend = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*"
    letter = rf"[\p{{WB=ALetter}}\p{{WB=Hebrew_Letter}}]{extend}"
    hebrew = rf"\p{{WB=Hebrew_Letter}}{extend}"
    digit = rf"\p{{WB=Numeric}}{extend}"
    inside_letters = rf"[\p{{WB=MidLetter}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}]{extend}"
    inside_digits = rf"[\p{{WB=MidNum}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}]{extend}"
    joiner = rf"\p{{WB=ExtendNumLet}}{extend}"
    letters = rf'{letter}(?:{letter}|{inside_letters}{letter}|(?<=\p{{WB=Hebrew_Letter}})"{extend}{hebrew})*'
    letters = rf"{letters}(?:(?<=\p{{WB=Hebrew_Letter}})'{extend})?"
    digits = rf"{digit}(?:{digit}|{inside_digits}{digit})*"
    katakana = rf"(?:\p{{WB=Katakana}}{extend})+"
    part = rf"(?:(?:{letters}|{digits})+|{katakana})"
    flag = rf"\p{{RI}}{extend}\p{{RI}}{extend}"
    keycap = r"[#*0-9]\uFE0F?\u20E3"
    picture = r"[\p{Emoji_Presentation}\p{ExtPict}--\p{RI}]"
    emoji = rf"{flag}|{keycap}|{picture}{extend}(?:(?<=\u200D){picture}{extend})*"
    one = rf"[\p{{Han}}\p{{Hiragana}}]{extend}"
    return regex.compile(
        rf"(?:{joiner})*{part}(?:(?:{joiner})+{part})*(?:{joiner})*|(?:\p{{LB=SA}}{extend})+|{one}|{emoji}", regex.V1
    )


def lower(text: str) -> str:
    """Lower case character by character, one for one."""
    if text.isascii():
        return text.lower()
    return "".join(small if len(small := letter.lower()) == 1 else small[0] for letter in text)


def standard_words(text: str) -> list[str]:
    """The words of a text, in order, with repetitions."""
    words = []
    for word in _pattern().findall(text):
        if len(word) <= MAX_CHARACTERS:
            words.append(lower(word))
        else:
            words += [lower(word[at : at + MAX_CHARACTERS]) for at in range(0, len(word), MAX_CHARACTERS)]
    return words


MAX_EXPANSIONS = 50
"""Words of one property that a fuzzy clause stands for."""
MAX_CLAUSES = 1_024
"""More clauses after fuzzy ones are expanded are an error of the server."""

Equal = Literal["insertion", "heap"]
"""The order of equal scores: of insertion, as Lucene collects them; or as Neo4j's heap gives them up."""

Floats32 = NDArray[np.float32]


class LuceneQueryError(InputError):
    """A query that Lucene refuses."""


@dataclass(frozen=True, slots=True)
class Clause:
    """A word of a query; `edits` None: the word itself, cut into words as texts are; otherwise all words within so many edits of it."""

    word: str
    edits: int | None = None
    excluded: bool = False

    def __str__(self) -> str:
        """As the query parser reads it; two edits, its default, are not written."""
        suffix = "" if self.edits is None else "~" if self.edits == 2 else f"~{self.edits}"
        return f"{'-' if self.excluded else ''}{self.word}{suffix}"


def lucene_query(words: Iterable[str], edits: int = 0) -> str:
    """`w OR w~` of each word, joined by blanks, as the memory agent writes it; without edits `w`."""
    suffix = {0: "", 2: "~"}.get(edits, f"~{edits}")
    return " ".join(f"{word} OR {word}{suffix}" if edits else word for word in words)


def read_query(text: str) -> list[Clause]:
    """The clauses of a query of words, `OR`, `~` and `-`. Raises LuceneQueryError for what the parser refuses or this one does not read."""
    clauses: list[Clause] = []
    for written in text.split():
        if written in ("OR", "||"):
            continue
        word = written.removeprefix("-")
        if not word or word.startswith("-"):
            raise LuceneQueryError(
                f"Lucene reads no query in {text!r}: {written!r} begins with two minus signs or is one"
            )
        word, fuzzy, edits = word.partition("~")
        if any(sign in word for sign in '+!(){}[]^":*?\\/') or word in ("AND", "NOT") or not edits.isascii():
            raise LuceneQueryError(f"{written!r} in a Lucene query: only words, OR, ~ and - are read")
        if fuzzy and edits not in ("", "0", "1", "2"):
            raise LuceneQueryError(f"{written!r} in a Lucene query: at most two edits")
        # A bare ~ is two edits; ~0 is the word itself, not cut.
        clauses.append(Clause(word, int(edits or 2) if fuzzy else None, written.startswith("-")))
    return clauses


@dataclass(frozen=True, slots=True)
class LuceneRow:
    """A text of the index in its properties; None is a property that the row lacks."""

    memory_id: str
    chunk: int | None
    properties: tuple[str | None, ...]


class _Property:
    """The inverted index of one property."""

    def __init__(self, rows: int, words_of_rows: Iterable[tuple[int, Counter[str]]]) -> None:
        numbers: dict[str, int] = {}
        terms, documents, counts = array("i"), array("i"), array("i")
        lengths = np.zeros(rows, np.int64)
        for row, words in words_of_rows:
            lengths[row] = words.total()
            for word, count in words.items():
                terms.append(numbers.setdefault(word, len(numbers)))
                documents.append(row)
                counts.append(count)
        by_term = np.argsort(np.frombuffer(terms, np.int32), kind="stable")
        self.numbers = numbers
        self.words = list(numbers)
        self._documents = np.frombuffer(documents, np.int32)[by_term]
        self._counts = np.frombuffer(counts, np.int32)[by_term].astype(np.float32)
        sizes = np.bincount(np.frombuffer(terms, np.int32), minlength=len(numbers))
        self._starts = np.concatenate(([0], np.cumsum(sizes)))
        self.rows_with = int(np.count_nonzero(lengths))
        self.mean_length = np.float32(lengths.sum() / self.rows_with) if self.rows_with else np.float32(1)
        self._lengths = np.array([LENGTHS[length_byte(int(length))] for length in lengths], np.float32)

    def postings(self, word: str) -> tuple[NDArray[np.int32], Floats32]:
        """The rows that have a word, and how often."""
        number = self.numbers.get(word)
        span = slice(0, 0) if number is None else slice(self._starts[number], self._starts[number + 1])
        return self._documents[span], self._counts[span]

    def frequency(self, word: str) -> int:
        """In how many rows a word stands."""
        number = self.numbers.get(word)
        return 0 if number is None else int(self._starts[number + 1] - self._starts[number])

    def inverse_norms(self, k1: float, b: float) -> Floats32:
        """1 / (k1 * (1 - b + b * length / mean length)) of each row, in single precision."""
        one, slope = np.float32(1), np.float32(b)
        norms: Floats32 = one / (np.float32(k1) * ((one - slope) + slope * self._lengths / self.mean_length))
        return norms

    def idf(self, frequency: int) -> np.float32:
        """ln(1 + (N - df + 0.5) / (df + 0.5))."""
        return np.float32(np.log(1 + (self.rows_with - frequency + 0.5) / (frequency + 0.5)))


class LuceneIndex:
    """The rows in their order, which is Lucene's order of documents. Immutable; searches may run at the same time."""

    def __init__(self, rows: Sequence[LuceneRow], progress: Progress = silent) -> None:
        """Index all properties of the rows, of which each has as many."""
        self._rows = rows
        self._properties: list[_Property] = []
        counted: dict[str, Counter[str]] = {}

        def words(number: int) -> Iterable[tuple[int, Counter[str]]]:
            for place, row in enumerate(rows):
                if place % 1_000 == 0:
                    progress("indexing words", place, len(rows))
                text = row.properties[number]
                if text is not None:
                    # Names and repeated properties come again and again.
                    if len(text) > 100:
                        yield place, Counter(standard_words(text))
                    else:
                        if text not in counted:
                            counted[text] = Counter(standard_words(text))
                        yield place, counted[text]

        for number in range(len(rows[0].properties) if rows else 0):
            self._properties.append(_Property(len(rows), words(number)))

    def scores(
        self,
        clauses: Sequence[Clause],
        k1: float = 1.2,
        b: float = 0.75,
        max_clauses: int | None = MAX_CLAUSES,
        boosts: Sequence[float] | None = None,
    ) -> tuple[Floats32, NDArray[np.bool_]]:
        """(R) the score of each row, and which rows match; `boosts` are those of the properties, 1 if None. Raises
        LuceneQueryError past `max_clauses` clauses."""
        of_property = [1.0] * len(self._properties) if boosts is None else boosts
        total = np.zeros(len(self._rows), np.float64)
        found = np.zeros(len(self._rows), bool)
        expanded: list[_Expanded] = []
        for clause in clauses:
            reached = [word for place, held in enumerate(self._properties) for word in _expand(place, held, clause)]
            if clause.excluded:
                continue
            expanded += reached
            if max_clauses is not None and len(expanded) > max_clauses:
                raise LuceneQueryError(
                    f"more than {max_clauses} clauses when the fuzzy words are expanded, which Lucene refuses"
                )
        for place, word, boost, idf in _merged(expanded, self._properties):
            held = self._properties[place]
            rows, counts = held.postings(word)
            found[rows] = True
            if boost > 0:
                weight = boost * np.float32(of_property[place]) * idf
                total[rows] += weight - weight / (np.float32(1) + counts * held.inverse_norms(k1, b)[rows])
        for clause in clauses:
            if clause.excluded:
                for place, held in enumerate(self._properties):
                    for each in _expand(place, held, clause):
                        found[held.postings(each.word)[0]] = False
        return total.astype(np.float32), found

    def search(
        self,
        clauses: Sequence[Clause],
        limit: int | None,
        k1: float = 1.2,
        b: float = 0.75,
        max_clauses: int | None = MAX_CLAUSES,
        equal: Equal = "insertion",
        boosts: Sequence[float] | None = None,
    ) -> tuple[list[tuple[int, float]], int]:
        """(place of the row, score) of the best rows, best first, and how many match. Raises as `scores` does."""
        scores, found = self.scores(clauses, k1, b, max_clauses, boosts)
        matching = np.flatnonzero(found)
        order = best_first(scores[matching], len(matching) if limit is None else limit, equal)
        best = matching[order]
        return list(zip(best.tolist(), scores[best].tolist(), strict=True)), len(matching)

    def row(self, place: int) -> LuceneRow:
        """The row at a place."""
        return self._rows[place]


@dataclass(frozen=True, slots=True)
class _Expanded:
    """One word of one property that a clause stands for."""

    place: int
    word: str
    boost: np.float32
    frequency: int
    """The df that its weight is made of."""


def _expand(place: int, held: _Property, clause: Clause) -> list[_Expanded]:
    if clause.edits is None:
        return [_Expanded(place, word, np.float32(1), held.frequency(word)) for word in standard_words(clause.word)]
    near = fuzzy_words(lower(clause.word), held.words, clause.edits)
    largest = max((held.frequency(word) for word, _ in near), default=0)
    return [_Expanded(place, word, boost, largest) for word, boost in near]


def fuzzy_words(
    word: str, words: Sequence[str], edits: int, most: int = MAX_EXPANSIONS
) -> list[tuple[str, np.float32]]:
    """(word, boost) of the first `most` of `words` within `edits`, by boost, then code point; returned by code point."""
    from rapidfuzz.distance import OSA
    from rapidfuzz.process import extract_iter

    found = []
    for near, distance, _ in extract_iter(word, words, scorer=OSA.distance, score_cutoff=edits):
        shorter = min(len(near), len(word))
        boost = np.float32(1) - np.float32(distance) / np.float32(shorter) if shorter else np.float32(0)
        found.append((near, max(boost, np.float32(0))))
    found.sort(key=lambda pair: (-pair[1], pair[0]))
    return sorted(found[:most])


def _merged(
    expanded: Iterable[_Expanded], properties: Sequence[_Property]
) -> Iterable[tuple[int, str, np.float32, np.float32]]:
    """(property, word, summed boost, IDF), each word of a property once."""
    boosts: dict[tuple[int, str], float] = {}
    frequencies: dict[tuple[int, str], dict[float, int]] = {}
    for each in expanded:
        key = each.place, each.word
        boosts[key] = boosts.get(key, 0.0) + float(each.boost)
        if each.boost > 0:
            # Of clauses with the same boost the first one stays.
            frequencies.setdefault(key, {}).setdefault(float(each.boost), each.frequency)
    for key, boost in boosts.items():
        place, word = key
        idfs = [properties[place].idf(frequency) for frequency in frequencies.get(key, {}).values()]
        yield place, word, np.float32(boost), np.float32(sum(idfs) / np.float32(len(idfs))) if idfs else np.float32(0)


def best_first(scores: Floats32, limit: int, equal: Equal) -> NDArray[np.intp]:
    """Places of the `limit` largest scores in descending order; equal ones by place, or as a binary heap leaves them.
    The heap, largest on top, takes the scores one by one: a new one rises from the end past smaller ones. To remove the
    top the last one takes its place and sinks below larger ones."""
    order = np.argsort(-scores, kind="stable")
    if equal == "insertion" or len(np.unique(head := scores[order[: limit + 1]])) == len(head):
        return order[:limit]
    # From here on plain numbers: a heap is slow in arrays.
    score = scores.tolist()
    heap: list[int] = []
    for place in range(len(score)):
        at = len(heap)
        heap.append(place)
        while at and score[place] > score[heap[(at - 1) // 2]]:
            heap[at] = heap[(at - 1) // 2]
            at = (at - 1) // 2
        heap[at] = place
    taken: list[int] = []
    while heap and len(taken) < limit:
        taken.append(heap[0])
        last = heap.pop()
        if heap:
            _sink(heap, last, score)
    return np.array(taken, np.intp)


def _sink(heap: list[int], place: int, score: Sequence[float]) -> None:
    at = 0
    while (child := 2 * at + 1) < len(heap):
        if child + 1 < len(heap) and score[heap[child + 1]] > score[heap[child]]:
            child += 1
        if score[heap[child]] <= score[place]:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = place


def length_byte(length: int) -> int:
    """The byte for a length: exact below 40, then with a mantissa of three bits after the leading one."""
    if length < FREE_VALUES:
        return length
    return FREE_VALUES + _to_four_bits(length - FREE_VALUES)


def _to_four_bits(value: int) -> int:
    bits = value.bit_length()
    if bits < 4:
        return value
    shift = bits - 4
    return (value >> shift & 0x07) | (shift + 1) << 3


def _from_four_bits(code: int) -> int:
    bits, shift = code & 0x07, (code >> 3) - 1
    return bits if shift < 0 else (bits | 0x08) << shift


FREE_VALUES = 255 - _to_four_bits(2**31 - 1)
"""Bytes that a length up to 2^31 - 1 leaves over; the first lengths are exact with them."""
LENGTHS: list[int] = [
    code if code < FREE_VALUES else FREE_VALUES + _from_four_bits(code - FREE_VALUES) for code in range(256)
]
"""The length that each byte stands for."""
