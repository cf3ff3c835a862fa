"""Support: how far a memory's text says what a claim says, with the words that both have.

    weight(w)   = idf of the rarest of its terms that the store has; * VALUE if w is a value (number, amount, date, version, name)
    overlap     = max over windows of WINDOW words of the memory of: sum of weight over the claim's words in the window
                  / sum of weight over all words of the claim
    lacking     = sum of weight over the claim's values that the memory has nowhere / sum of weight over all words of the claim
    base        = (COSINE * max(0, cosine) + (1 - COSINE) * overlap) * (1 - LACKING * lacking)                         0..1
    score       = base without a reranker; else (1 - RERANKER) * base + RERANKER * (raw - lowest) / (highest - lowest)

Words are compared by their search terms, and values by what they mean: "sixty" is 60, "1,340" is 1340, "2026-11-01" is in November.
Negations are one word ("not" is "never"). A word of no memory weighs UNKNOWN of what a word of one would, as a paraphrase is no
contradiction; a value weighs fully. The title of a memory belongs to each of its windows. lowest and highest are of the claim's candidates.

Source: our own; idf as in BM25 (analysis/text_evidence.py), values as in analysis/supersession_signals.py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cems_workbench.analysis.supersession_signals import MONTHS, profile_of
from cems_workbench.analysis.text_evidence import idf, matches
from cems_workbench.records import ENGLISH, Memory
from cems_workbench.store.search.lexical.lexical_index import LexicalIndex
from cems_workbench.store.search.lexical.tokenizer import Language, tokenize

VALUE, UNKNOWN = 2.0, 0.5
WINDOW = 25
COSINE, LACKING, RERANKER = 0.6, 0.5, 0.5
"""Chosen on the answers of benchmarks/bench_blame.py, which barely depend on them."""
NEGATED = frozenset({"¬"})
"""What a negation is compared by."""

_SIGNS = re.compile(r"[€$£¥%]")
_ISO = re.compile(r"(\d{4})-(\d{2})(?:-(\d{2}))?")
_MONTH_NAMES = list(dict.fromkeys(MONTHS.values()))

Span = tuple[int, int]
"""Characters of a text, end exclusive."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text that is compared: its characters, what it is compared by, and whether it is a value."""

    start: int
    end: int
    keys: frozenset[str]
    value: bool


@dataclass(frozen=True, slots=True)
class Overlap:
    """What a claim and a memory have in common: `share` is the overlap, the spans are the words in the best window.

    `lacking`: values of the claim that the whole memory does not have, and their share of the claim's weight.
    """

    share: float
    claim: tuple[Span, ...]
    title: tuple[Span, ...]
    content: tuple[Span, ...]
    lacking: tuple[str, ...]
    lacking_share: float


def words_of(text: str, language: str = ENGLISH, analysis: Language | None = None) -> list[Word]:
    """The words of a text without stop words, in order."""
    terms = language if analysis is None else analysis
    profile = profile_of(Memory("", text), language)
    values = [(value.span.start, value.span.end, _value_keys(value.text, terms)) for value in profile.values]
    found: list[Word] = []
    at = 0
    for piece in matches(text, set(tokenize(text, terms)), terms):
        while at < len(values) and values[at][1] <= piece.start:
            start, end, keys = values[at]
            found += (
                [] if found and found[-1].end > start else [Word(start, end, keys, True)]
            )  # a number word is a stop word
            at += 1
        if at < len(values) and values[at][0] < piece.end:
            start, end, keys = values[at]
            if found and found[-1].end > start:  # "1,340" is two pieces and one value
                found[-1] = Word(found[-1].start, max(end, piece.end), found[-1].keys, True)
            else:
                found.append(Word(min(start, piece.start), max(end, piece.end), keys, True))
        else:
            found.append(Word(piece.start, piece.end, frozenset(piece.terms), False))
    negated = [Word(mark.span.start, mark.span.end, NEGATED, False) for mark in profile.negations]
    there = {word.start for word in negated}
    return sorted([*negated, *(word for word in found if word.start not in there)], key=lambda word: word.start)


def _value_keys(text: str, language: Language) -> frozenset[str]:
    """What a value is compared by: a number without sign and comma, a date by its parts."""
    bare = _SIGNS.sub("", text).lower()
    terms = tokenize(bare, language)
    # Parts of an identifier are no evidence of it: "01" of "DNS-01".
    keys = {bare, *terms} if len(terms) == 1 else {bare}
    if (date := _ISO.match(bare)) and 1 <= int(date[2]) <= 12:
        keys.update(tokenize(_MONTH_NAMES[int(date[2]) - 1], language))
    return frozenset(keys)


class ClaimWords:
    """The words of a claim with their weights in a store."""

    def __init__(self, text: str, index: LexicalIndex, language: str = ENGLISH) -> None:
        self._text, self._language, self._analysis = text, language, index.language
        self.words = words_of(text, language, index.language)
        self.weights = [_weight(word, index) for word in self.words]

    def overlap(self, memory: Memory) -> Overlap:
        """The words of the claim in a memory."""
        title = words_of(memory.title or "", self._language, self._analysis)
        content = words_of(memory.content, self._language, self._analysis)
        in_title = [self._met(word) for word in title]
        in_content = [self._met(word) for word in content]
        always = frozenset[int]().union(*in_title)
        start, end, met = self._best_window(content, in_content, always)
        whole = always.union(*in_content)
        total = sum(self.weights)
        lacking = [i for i, word in enumerate(self.words) if word.value and i not in whole]
        return Overlap(
            sum(self.weights[i] for i in met) / total if total else 0.0,
            tuple((self.words[i].start, self.words[i].end) for i in sorted(met)),
            tuple((word.start, word.end) for word, here in zip(title, in_title, strict=True) if here),
            tuple(
                (word.start, word.end)
                for word, here in zip(content[start:end], in_content[start:end], strict=True)
                if here
            ),
            tuple(self._text[self.words[i].start : self.words[i].end] for i in lacking),
            sum(self.weights[i] for i in lacking) / total if total else 0.0,
        )

    def _met(self, word: Word) -> frozenset[int]:
        """The claim's words that a word of a memory is."""
        return frozenset(i for i, own in enumerate(self.words) if own.keys & word.keys)

    def _best_window(
        self, words: Sequence[Word], met: Sequence[frozenset[int]], always: frozenset[int]
    ) -> tuple[int, int, frozenset[int]]:
        """First and last word of the window with the largest weight, the earliest of several, and the claim's words in it."""
        inside: Counter[int] = Counter()
        best = (0, min(WINDOW, len(words)), always)
        most = -1.0
        for end in range(1, len(words) + 1):
            inside.update(met[end - 1])
            if end > WINDOW:
                inside.subtract(met[end - WINDOW - 1])
            if end < min(WINDOW, len(words)) or (not met[end - 1] and most >= 0):
                continue
            here = always.union(i for i, count in inside.items() if count > 0)
            weight = sum(self.weights[i] for i in here)
            if weight > most:
                most, best = weight, (max(0, end - WINDOW), end, here)
        return best


def _weight(word: Word, index: LexicalIndex) -> float:
    frequencies = [index.document_frequency(key) for key in word.keys]
    if word.keys == NEGATED:
        return idf(sum(index.document_frequency(term) for term in ("not", "no")), index.document_count)
    known = [df for df in frequencies if df]
    rare = idf(min(known) if known else 0, index.document_count)
    return rare * (VALUE if word.value else 1.0 if known else UNKNOWN)


def base_score(cosine: float | None, overlap: Overlap) -> float:
    """Cosine and overlap as one number, 0..1."""
    return (COSINE * max(0.0, cosine or 0.0) + (1 - COSINE) * overlap.share) * (1 - LACKING * overlap.lacking_share)


def with_reranker(base: Mapping[str, float], raw: Mapping[str, float | None]) -> dict[str, float]:
    """The scores by memory id with a reranker's raw scores of the claim's candidates; one that it could not read keeps its base."""
    read = [score for score in raw.values() if score is not None]
    if not read or max(read) == min(read):
        return dict(base)
    low, high = min(read), max(read)

    def mixed(memory_id: str) -> float:
        score = raw.get(memory_id)
        if score is None:
            return base[memory_id]
        return (1 - RERANKER) * base[memory_id] + RERANKER * (score - low) / (high - low)

    return {memory_id: mixed(memory_id) for memory_id in base}


SHOWN_CHARS, MARGIN = 600, 120


def marked_pieces(
    text: str, spans: Sequence[Span], most: int = SHOWN_CHARS, margin: int = MARGIN
) -> list[tuple[str, bool]]:
    """At most about `most` characters of a text around the spans, in pieces: (piece, whether it is one of the spans)."""
    first, last = (spans[0][0], spans[-1][1]) if spans else (0, 0)
    start = 0 if len(text) <= most or first <= margin else first - margin
    end = (
        len(text) if len(text) - start <= most else max(min(last + margin, start + most), start + min(most, 2 * margin))
    )
    pieces, at = [("…", False)] if start else [], start
    for one, other in spans:
        if other <= end:
            pieces += [(text[at:one], False), (text[one:other], True)]
            at = other
    pieces += [(text[at:end], False), ("…" if end < len(text) else "", False)]
    return [piece for piece in pieces if piece[0]]
