"""Signs in two texts that the later one contradicts the earlier one: another value in the same slot, a word of change, a negation.

A *value* is a number, amount, percentage, date, time, version, identifier or name. Its *slot* is the terms near it: SLOT_WORDS words to
either side in its sentence, and the title. Each sign is 0..1:

    slot      of the best pair of values of one kind, the later one new: min(1, sum over t of rarity(t) * nearness(t) / 2) for the terms t
              in both slots, where nearness is 1 within two words in both texts, else 0.5; or of two different titles, over terms of both
    change    1 if a word of change ("no longer", "moved to", "instead") is within CHANGE_WORDS of a shared term, 0.5 if it is elsewhere
    negation  1 if the later text alone negates a shared term ("not", "no", "never" within NEGATION_WORDS before it)
    same      0 up to a share SAME_TERMS of common terms, 1 if one text has no other terms: two wordings of one fact. Names and titles count
              less in the same measure
    length    log2(1 + words of the later text / 16) / 4, at most 1: long texts have all signs by chance
    rarity(t) = log(N / n(t)) / log N for N indexed texts, n(t) of them with t

The word lists are our own, short, and English; in a store of another language only digits and ISO dates count (`word_lists`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from cems_workbench.records import ENGLISH, Memory
from cems_workbench.store.search.tokenizer import terms_of

Field = Literal["title", "content"]
SLOT_WORDS, CHANGE_WORDS, NEGATION_WORDS = 4, 6, 3
"""How many words a slot reaches to either side, a word of change is from a shared term, and a negation is before one."""
SAME_TERMS = 0.6
"""From this share of common terms on, another name is less and less of a sign."""
MAX_WORDS = 2_000
"""Words of a text that are read; the rest has no signs."""
MAX_VALUES = 60
"""Values of a text that are compared."""
COMMON = 0.25
"""A term of less rarity belongs to no slot: it is in more than N^(1 - 0.25) texts."""
CHANGES = (
    "no longer|not any more|any more|anymore|no more|used to|formerly|until now|instead|instead of|rather than|after all|not at all|"
    "is off|is over|is gone|are gone|is out|fell through|called off|put off|given up|gave up|turned out|back to|"
    "postponed|delayed|rescheduled|cancelled|canceled|stopped|stop|stops|quit|closed|removed|deleted|deprecated|abandoned|retired|"
    "sold|broke up|divorced|resigned|"
    "now|from now on|as of|at last|moved to|move to|moves to|moving to|switched|switch to|switching to|changed|change to|changing|"
    "replaced|replaces|replacing|migrated|renamed|updated|upgraded|corrected|correction|"
    "raised|increased|lowered|reduced|extended|shortened|doubled|halved"
)
"""Words of change: something does not hold any more, or something else holds now."""
_NEGATIONS = """
    no not never none nothing nobody without neither nor cannot can't won't don't doesn't didn't isn't aren't wasn't weren't haven't hasn't
    hadn't shouldn't wouldn't couldn't
"""
NEGATIONS = frozenset(_NEGATIONS.split())
_NUMBER_WORDS = """
    two 2 twice 2 double 2 three 3 triple 3 four 4 five 5 six 6 seven 7 eight 8 nine 9 ten 10 eleven 11 twelve 12 dozen 12 fifteen 15
    twenty 20 thirty 30 forty 40 fifty 50 sixty 60 ninety 90 hundred 100 thousand 1000
"""
NUMBER_WORDS = dict(zip(_NUMBER_WORDS.split()[::2], _NUMBER_WORDS.split()[1::2], strict=True))
"""Without "one", which is a pronoun as often."""
_MONTHS = "january february march april may june july august september october november december"
MONTHS = {name: month for month in _MONTHS.split() for name in (month, month[:3])} | {"sept": "september"}
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAYS = {name: day for day in WEEKDAYS for name in (day, f"{day}s")}

_WORD = re.compile(r"[€$£¥]?\w+(?:(?:[./\\:@'\u2019\-=,])\w+)*[%€$£¥]?")
_SENTENCE_END = re.compile(r"[.!?;\n]\s|\n|[.!?]$")
_NUMBER = re.compile(
    r"[€$£¥]?\d{1,3}(?:,\d{3})+(?:\.\d+)?[%€$£¥]?|[€$£¥]?\d+(?:\.\d+)?(?:%|[€$£¥]|[a-z]{1,4})?", re.IGNORECASE
)
_DATE = re.compile(r"\d{4}-\d{2}(?:-\d{2})?(?:T[\d:]+)?")
_TIME = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?")
_VERSION = re.compile(r"v?\d+(?:\.\d+){1,3}(?:[-.]?(?:rc|b|a|beta|alpha)\d*)?", re.IGNORECASE)
_SETTING = re.compile(r"([^\d=]\w*)=([^=]+)")

ValueKind = Literal["number", "amount", "share", "date", "time", "version", "name"]


class Span(NamedTuple):
    """Characters of a memory's title or content, end exclusive."""

    field: Field
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Value:
    """A value and the terms of its slot with their nearness, 0..1; `text` is compared, `span` is shown."""

    kind: ValueKind
    text: str
    span: Span
    slot: Mapping[str, float]


class _Token(NamedTuple):
    lowered: str
    terms: tuple[str, ...]
    span: Span
    sentence: int


class Mark(NamedTuple):
    """A word of change or a negation: its words, where they are, and the number of their first word."""

    words: str
    span: Span
    place: int


@dataclass(frozen=True, slots=True)
class Profile:
    """What is compared of a text: its terms with the numbers of their words, its values, words of change and negations."""

    places: dict[str, tuple[int, ...]]
    spans: tuple[Span, ...]
    written: tuple[str, ...]
    values: tuple[Value, ...]
    changes: tuple[Mark, ...]
    negations: tuple[Mark, ...]
    title_terms: frozenset[str]
    title: Value | None
    """The whole title as a value, None without one."""


@dataclass(frozen=True, slots=True)
class Signals:
    """The signs in a pair of texts, each 0..1, with their words and the spans in the older and in the newer text."""

    slot: float
    change: float
    negation: float
    same: float
    length: float
    words: tuple[str, ...]
    older_spans: tuple[Span, ...]
    newer_spans: tuple[Span, ...]


def word_lists(language: str) -> bool:
    """Whether the word lists apply to a store of this language; otherwise only digits and ISO dates count."""
    return language == ENGLISH


def profile_of(memory: Memory, language: str = ENGLISH) -> Profile:
    """The values and marks of a memory's title and content."""
    english = word_lists(language)
    tokens = [*_tokens("title", memory.title or "", language, 0)]
    title_terms = frozenset(term for token in tokens for term in token.terms)
    tokens += _tokens("content", memory.content, language, 1)
    del tokens[MAX_WORDS:]
    places: dict[str, list[int]] = {}
    for number, token in enumerate(tokens):
        for term in token.terms:
            places.setdefault(term, []).append(number)
    return Profile(
        {term: tuple(numbers) for term, numbers in places.items()},
        tuple(token.span for token in tokens),
        tuple(token.lowered for token in tokens),
        tuple(_values(tokens, title_terms, memory, language)),
        tuple(_marks(tokens, _CHANGES)) if english else (),
        tuple(Mark(token.lowered, token.span, i) for i, token in enumerate(tokens) if token.lowered in NEGATIONS)
        if english
        else (),
        title_terms,
        Value("name", memory.title, Span("title", 0, len(memory.title)), dict.fromkeys(title_terms, 1.0))
        if memory.title
        else None,
    )


def signals_of(older: Profile, newer: Profile, rarity: Callable[[str], float]) -> Signals:
    """The signs that `newer` contradicts `older`; `rarity` gives 0..1 for a term."""
    # Sorted, so that the sums are the same in every process.
    weights = {term: rarity(term) for term in sorted(older.places.keys() & newer.places.keys())}
    shared = {term: weight for term, weight in weights.items() if weight >= COMMON}
    words: list[str] = []
    old_spans: list[Span] = []
    new_spans: list[Span] = []

    every = min(sum(rarity(term) for term in side.places) for side in (older, newer))
    terms = min(1.0, sum(weights.values()) / every) if every else 0.0
    # Two wordings of one fact have other names and titles, and differ in no number.
    otherwise = 1 - max(0.0, terms - SAME_TERMS) / (1 - SAME_TERMS)
    slot, pair = _best_slot(older.values, newer.values, shared, otherwise)
    titles = otherwise * sum(weight for term, weight in shared.items() if term in older.title_terms & newer.title_terms)
    if min(1.0, titles / 2) > slot and newer.title_terms - older.title_terms and older.title and newer.title:
        slot, pair = min(1.0, titles / 2), (older.title, newer.title)
    if pair is not None:
        one, other = pair
        words.append(f"{_shown(one)} → {_shown(other)}")
        old_spans.append(one.span)
        new_spans.append(other.span)
    change, mark, near = _best_mark(newer, shared)
    if mark is not None:
        words.append(f"“{mark.words}”" + (f" near “{newer.written[near[1]]}”" if near else ""))
        new_spans.append(mark.span)
        if near:
            new_spans.append(newer.spans[near[1]])
            old_spans.append(older.spans[older.places[near[0]][0]])
    negated = _negated(older, newer, shared)
    if negated is not None:
        term, where = negated
        place = older.places[term][0]
        words.append(f"“{where.words}” with “{older.written[place]}” in the newer only")
        new_spans.append(where.span)
        old_spans.append(older.spans[place])
    return Signals(
        slot,
        change,
        float(negated is not None),
        1 - otherwise,
        min(1.0, math.log2(1 + len(newer.spans) / 16) / 4),
        tuple(words),
        tuple(dict.fromkeys(old_spans)),
        tuple(dict.fromkeys(new_spans)),
    )


def _shown(value: Value) -> str:
    return value.text if value.kind != "name" else f"“{value.text}”"


def _tokens(field: Field, text: str, language: str, sentence: int) -> Iterable[_Token]:
    at = 0
    for count, match in enumerate(_WORD.finditer(text)):
        if count >= MAX_WORDS:
            return
        if count and _SENTENCE_END.search(text, at, match.start()):
            sentence += 1
        at = match.end()
        lowered, terms = match[0].lower().replace("\u2019", "'"), tuple(terms_of(match[0], language))
        yield _Token(lowered, terms, Span(field, *match.span()), sentence)


def _values(tokens: Sequence[_Token], title: frozenset[str], memory: Memory, language: str) -> Iterable[Value]:
    found = 0
    english = word_lists(language)
    for place, token in enumerate(tokens):
        text = (memory.title or "") if token.span.field == "title" else memory.content
        written = text[token.span.start : token.span.end]
        first = place == 0 or tokens[place - 1].sentence != token.sentence
        setting = _SETTING.fullmatch(written)
        if setting:
            written = setting[2]
        kind = _kind(written, first, english)
        if kind is None:
            continue
        nearby = range(max(0, place - SLOT_WORDS), min(len(tokens), place + SLOT_WORDS + 1))
        slot = dict.fromkeys(title, 0.5)
        for far, other in ((abs(n - place), tokens[n]) for n in nearby):
            if other.sentence == token.sentence and far:
                slot |= {term: max(slot.get(term, 0.0), 1.0 if far <= 2 else 0.5) for term in other.terms}
        slot |= dict.fromkeys(terms_of(setting[1], language), 1.0) if setting else {}
        own = set(terms_of(written, language))
        slot = {term: near for term, near in slot.items() if term not in own}
        yield Value(kind, _normal(written, kind), token.span, slot)
        found += 1
        if found >= MAX_VALUES:
            return


def _kind(written: str, first: bool, english: bool) -> ValueKind | None:
    """The kind of value of one word, None if it is none. `first` of its sentence: a capital says nothing."""
    lowered = written.lower()
    if _DATE.fullmatch(written) or (english and (lowered in _DAYS or (lowered in MONTHS and written[0].isupper()))):
        return "date"
    if _TIME.fullmatch(written):
        return "time"
    if _NUMBER.fullmatch(written) and any(sign in written for sign in "€$£¥%"):
        return "share" if "%" in written else "amount"
    if _NUMBER.fullmatch(written) or (english and lowered in NUMBER_WORDS):
        return "number"
    if _VERSION.fullmatch(written):
        return "version"
    if not written[0].isalpha() or len(written) < 2:
        return None
    mixed = any(letter.isupper() for letter in written[1:]) or any(letter.isdigit() for letter in written)
    return "name" if mixed or (english and written[0].isupper() and not first) else None


def _normal(written: str, kind: ValueKind) -> str:
    """The form in which values are compared: "1,200" is "1200", "Mondays" is "Monday"."""
    lowered = written.lower()
    if kind in ("number", "amount", "share"):
        return NUMBER_WORDS.get(lowered, lowered.replace(",", ""))
    if kind == "date" and (lowered in _DAYS or lowered in MONTHS):
        return (_DAYS.get(lowered) or MONTHS[lowered]).capitalize()
    return re.sub(r"['\u2019]s$", "", written)


def _marks(tokens: Sequence[_Token], phrases: Mapping[str, list[tuple[str, ...]]]) -> Iterable[Mark]:
    place = 0
    while place < len(tokens):
        for words in phrases.get(tokens[place].lowered, ()):
            some = tokens[place : place + len(words)]
            if tuple(token.lowered for token in some) == words and some[0].span.field == some[-1].span.field:
                yield Mark(" ".join(words), Span(some[0].span.field, some[0].span.start, some[-1].span.end), place)
                place += len(words) - 1
                break
        place += 1


_CHANGES: dict[str, list[tuple[str, ...]]] = {}
for _phrase in sorted(CHANGES.split("|"), key=lambda words: (-len(words), words)):
    _CHANGES.setdefault(_phrase.split()[0], []).append(tuple(_phrase.split()))
"""By their first word, longest first."""


def _best_slot(
    older: Sequence[Value], newer: Sequence[Value], shared: dict[str, float], otherwise: float
) -> tuple[float, tuple[Value, Value] | None]:
    """The pair of values of one kind, the later new, whose slots share most; ties by place in the newer text, then in the older."""
    known = {value.text.lower() for value in older}
    best, pair = 0.0, None
    for other in newer:
        if other.text.lower() in known:
            continue
        mine = {term: weight for term, weight in shared.items() if term in other.slot}
        if not mine:
            continue
        for one in older:
            if one.kind != other.kind:
                continue
            terms = ((term, weight) for term, weight in mine.items() if term in one.slot)
            both = min(1.0, sum(weight * min(one.slot[term], other.slot[term]) for term, weight in terms) / 2)
            both *= otherwise if one.kind == "name" else 1.0
            if both > best:
                best, pair = both, (one, other)
    return best, pair


def _best_mark(newer: Profile, shared: Mapping[str, float]) -> tuple[float, Mark | None, tuple[str, int] | None]:
    """The word of change that is nearest to a shared term, with that term and its place: 1 within CHANGE_WORDS, else 0.5."""
    near = [
        ((abs(place - mark.place), -weight, mark.place, term, place), mark)
        for mark in newer.changes
        for term, weight in shared.items()
        for place in newer.places[term]
        # A word of change that is itself the shared term says nothing of it.
        if abs(place - mark.place) <= CHANGE_WORDS and not mark.span.start <= newer.spans[place].start < mark.span.end
    ]
    if near:
        (_, _, _, term, place), mark = min(near)
        return 1.0, mark, (term, place)
    return (0.5, newer.changes[0], None) if newer.changes else (0.0, None, None)


def _negated(older: Profile, newer: Profile, shared: dict[str, float]) -> tuple[str, Mark] | None:
    """The rarest shared term that only the newer text negates, with the negation."""
    here, there = _negated_terms(newer, shared), _negated_terms(older, shared)
    terms = sorted(here.keys() - there.keys(), key=lambda term: (-shared[term], term))
    return (terms[0], here[terms[0]]) if terms else None


def _negated_terms(text: Profile, shared: dict[str, float]) -> dict[str, Mark]:
    found: dict[str, Mark] = {}
    for mark in text.negations:
        for term in shared:
            if any(0 < place - mark.place <= NEGATION_WORDS for place in text.places[term]):
                found.setdefault(term, mark)
    return found
