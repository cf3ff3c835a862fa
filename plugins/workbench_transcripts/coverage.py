"""Whether a memory holds what a turn of a conversation says.

Compared is the *point* of the turn: the sentences that share most with the question and its answer, the whole turn without a question.
Greetings and questions are left out, and so is who speaks.

    share(m)    sum of idf(t) over the terms of the point that m has / sum of idf(t) over all of them                      0..1
    key(m)      the same over the terms of the answer that the point has, None where it has none of them
    other       a value of the point (number, amount, date, name, "last week") that m lacks, while m has another of its kind
    negated     a term that both have is negated in one of them alone
    cosine      of the embedded texts

    about       the share of its terms that the question or the answer has                                                0..1

    says otherwise   share >= SAME and a value is another or one is negated; or share and about >= MOST, key < KEY and a value is another
    covers           key >= KEY, or m has that share of the answer, and about >= MOST, and share >= SAME, or less with a higher cosine;
                     without words of the answer in the turn: share >= SURE, or share >= MOST and cosine >= NEAR
    left out         key < KEY, and share >= ABOUT or cosine >= NEAR: it is about the point, without the answer
    cannot tell      share >= ABOUT, or less with cosine >= NEAR; or another speaker says so in other words
    no               otherwise

A question about a time has no words of its answer in most turns ("yesterday"): there the key is a time of the memory, of the same day.

Source: our own. The thresholds were set by benchmarks/bench_ways.py on three conversations of LoCoMo, and measured on two others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from cems_workbench.analysis.supersession_signals import (
    NEGATION_WORDS,
    NUMBER_WORDS,
    Profile,
    Value,
    profile_of,
    word_lists,
)
from cems_workbench.records import ENGLISH, Memory
from cems_workbench.store.search.tokenizer import Language, tokenize

SAME, MOST, ABOUT, HALF_ABOUT, KEY, NEAR, ALIKE, SURE = 0.7, 0.5, 0.3, 0.2, 0.75, 0.7, 0.6, 0.85
FEW, RARE, TELLING = 5, 2.0, 12.0
"""Terms that a point has at least if its turn has them; the idf from which a word of the answer counts, and from which a whole answer
can mean nothing else."""
_WHEN = re.compile(r"\s*(?:when|how long|what (?:day|date|month|year|time)|which (?:day|month|year))\b", re.IGNORECASE)

Coverage = Literal["covers", "says otherwise", "left out", "cannot tell", "no"]
COVERAGES: tuple[Coverage, ...] = ("covers", "says otherwise", "left out", "cannot tell", "no")
"""From the best to none."""
_LABEL = re.compile(r"^\s*\[?(?:[A-Z][\w .'’-]{0,40}|user|assistant)\]?: ")
_SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?]+|\n|$)")
_END = re.compile(r"[.!?;\n]")
_AGO = "days|weeks|months|years|weekends|nights"
_SPAN = "day|week|month|year|weekend|night|morning|evening|summer|winter|spring|autumn|fall|[a-z]{3,6}day|fri|sat|sun|mon|tues?|wed|thurs?"
_RELATIVE = re.compile(
    rf"\b(?:yesterday|today|tonight|tomorrow|(?:last|next|this|past) (?:{_SPAN})|(?:\w+ )?(?:{_AGO}) ago|in (?:a|\w+) (?:{_AGO}))\b",
    re.IGNORECASE,
)
"""Times that are told by the day of the conversation."""
Idf = Callable[[str], float]


class Pair(NamedTuple):
    """What a turn and a memory have in common."""

    coverage: Coverage
    share: float
    key: float | None
    cosine: float
    reason: str
    whole: float = 0.0
    """The same share over all that the turn says."""


_THOUSANDS, _K = re.compile(r"(?<=\d),(?=\d{3}\b)"), re.compile(r"(?<![\w.])([$€£¥]?\d+)k\b", re.IGNORECASE)
_CLOCK = re.compile(r"\b(\d{1,2})(?::(\d\d))? ?([ap])\.?m\b\.?", re.IGNORECASE)
_SPELT = re.compile(rf"\b(?:{'|'.join(word for word in NUMBER_WORDS if len(word) > 2)})\b", re.IGNORECASE)
_UNITS = re.compile(r"\b(\d+) ?(h|m|min|hrs?)(?=\d|\b)")
_UNIT_WORDS = {"h": "hours", "hr": "hours", "hrs": "hours", "m": "minutes", "min": "minutes"}


def normal(text: str) -> str:
    """The text with numbers and times in one form: "5,000" is 5000, "two" is 2, "3 pm" 15:00, "3h50m" 3 hours 50 minutes."""
    text = _K.sub(r"\g<1>000", _THOUSANDS.sub("", text))
    text = _CLOCK.sub(lambda one: f"{int(one[1]) % 12 + 12 * (one[3] in 'pP')}:{one[2] or '00'}", text)
    text = _UNITS.sub(lambda one: f"{one[1]} {_UNIT_WORDS[one[2]]} ", text)
    return _SPELT.sub(lambda one: NUMBER_WORDS[one[0].lower()], text)


def said(text: str) -> str:
    """A turn without its speaker and its questions."""
    text = normal(_LABEL.sub("", text))
    return " ".join(piece.strip() for piece in _SENTENCE.findall(text) if not piece.rstrip().endswith("?")) or text


@dataclass(frozen=True)
class Point:
    """What a turn says about a question: its text, terms with their weights, values, and the terms of the answer among them."""

    text: str
    weights: dict[str, float]
    values: dict[str, str]
    """What is compared of each value, with its kind."""
    key: frozenset[str]
    profile: Profile
    when: bool = False
    """Whether the question is about a time."""
    asked: frozenset[str] = frozenset()
    """Its terms that the question or the answer has."""
    said_at: datetime | None = None
    author: str | None = None
    whole: Mapping[str, float] = field(default_factory=dict)
    """The terms of all that the turn says."""
    gold: Mapping[str, float] = field(default_factory=dict)
    """The terms of the answer."""

    def of(self, terms: Iterable[str]) -> float:
        """The weight of those of its terms."""
        return sum(self.weights[term] for term in self.weights.keys() & terms)

    @property
    def total(self) -> float:
        """The weight of all of its terms."""
        return sum(self.weights.values()) or 1.0


def point_of(
    turn: Memory, question: str, answer: str, idf: Idf, language: str = ENGLISH, analysis: Language = ENGLISH
) -> Point:
    """What a turn says about a question with this answer; both may be empty."""
    text, said_at = said(turn.content), turn.created_at
    question, answer = normal(question), normal(answer)
    whole = {term: idf(term) for term in tokenize(text, analysis)}
    gold = {term: idf(term) for term in tokenize(answer, analysis)}
    asked = {*tokenize(question, analysis), *tokenize(answer, analysis)}
    pieces = [(piece.strip(), {*tokenize(piece, analysis)}) for piece in _SENTENCE.findall(text)]
    ranked = sorted((piece for piece in pieces if piece[1]), key=lambda piece: -sum(map(idf, piece[1] & asked)))
    chosen: set[str] = set()
    here: set[str] = set()
    for piece, terms in ranked:
        if len(here) >= FEW and not (terms - here) & asked:
            break
        chosen.add(piece)
        here |= terms
    text = " ".join(piece for piece, _ in pieces if piece in chosen) or text
    weights = {term: idf(term) for term in tokenize(text, analysis)}
    profile = profile_of(Memory("", text), language)
    key = frozenset(term for term in {*tokenize(answer, analysis)} & weights.keys() if weights[term] >= RARE)
    return Point(
        text,
        weights,
        values_of(profile, text, language),
        key,
        profile,
        bool(_WHEN.match(question)),
        frozenset(weights.keys() & asked),
        said_at,
        turn.author,
        whole,
        gold,
    )


def values_of(profile: Profile, text: str, language: str) -> dict[str, str]:
    """The values of a text that are compared, each with its kind."""
    found = {_plain(value): _kind(value) for value in profile.values if not re.match(r"\w+['’]", value.text)}
    if word_lists(language):
        found |= {match[0].lower(): "date" for match in _RELATIVE.finditer(text)}
    return found


def _plain(value: Value) -> str:
    return value.text.lower()


def _kind(value: Value) -> str:
    return "number" if value.kind in ("amount", "share") else value.kind


def compared(
    point: Point,
    memory: Memory,
    cosine: float,
    speakers: frozenset[str],
    language: str = ENGLISH,
    analysis: Language = ENGLISH,
) -> Pair:
    """How far a memory covers a point; `speakers` are names, in lower case, that say nothing."""
    content = f"{memory.title}. {memory.content}" if memory.title else memory.content
    text = normal(_LABEL.sub("", content))
    terms = {*tokenize(text, analysis)}
    share = point.of(terms) / point.total
    whole = share_of(point.whole, terms)
    key = point.of(point.key & terms) / point.of(point.key) if point.key else None
    profile = profile_of(Memory("", text), language)
    theirs = values_of(profile, text, language)
    lacking = [
        one
        for one in point.values
        if one not in theirs and one not in speakers and not {*tokenize(one, analysis)} & terms
    ] + [
        one
        for one, kind in point.values.items()
        if kind == "date" and one not in theirs and {*tokenize(one, analysis)} & terms
    ]
    extra = {one: kind for one, kind in theirs.items() if one not in point.values and one not in speakers}
    other = next(((one, two) for one in lacking for two, kind in extra.items() if kind == point.values[one]), None)
    negated = _negated_in_one(point, profile, text)
    times = [one for one, kind in point.values.items() if kind == "date"] if point.when and not point.key else []
    if times:
        key = float(any(kind == "date" for kind in theirs.values()))
        relative = all(_RELATIVE.search(one) for one in times)
        days = abs((memory.created_at - point.said_at).days) if memory.created_at and point.said_at else 0
        if relative and days > 1 and share < SURE:
            key = 0.0
    if (share >= SAME and (other or negated)) or (times and share >= MOST and other and other[0] in times):
        reason = f"“{other[0]}” there, “{other[1]}” here" if other else f"“{negated}” is negated in one of the two"
        return Pair("says otherwise", share, key, cosine, reason, whole)
    about = point.of(point.asked & terms) / point.of(point.asked) if point.asked else 1.0
    if key is None:
        covers = share >= SURE or (share >= MOST and cosine >= NEAR)
    else:
        answered = key >= KEY or (not times and share_of(point.gold, terms) >= KEY)
        near = share >= SAME or (share >= ABOUT and cosine >= NEAR) or (share >= MOST and cosine >= ALIKE)
        covers = answered and max(about, share) >= MOST and near
        covers |= not times and share >= ABOUT and sum(point.gold.values()) >= TELLING and point.gold.keys() <= terms
    label = _LABEL.match(content)
    if covers and share < SAME and label and point.author and label[0].strip(" []:").lower() != point.author.lower():
        return Pair("cannot tell", share, key, cosine, f"{label[0].strip()} says so, not {point.author}", whole)
    if covers:
        return Pair("covers", share, key, cosine, f"{share:.0%} of its words", whole)
    if key is not None and key < KEY and other and min(share, about) >= MOST:
        return Pair("says otherwise", share, key, cosine, f"“{other[0]}” there, “{other[1]}” here", whole)
    if key is not None and key < KEY and about >= HALF_ABOUT and (share >= ABOUT or cosine >= NEAR):
        return Pair("left out", share, key, cosine, "the answer's words are not in it", whole)
    if share >= ABOUT or (share >= HALF_ABOUT and cosine >= NEAR):
        return Pair("cannot tell", share, key, cosine, f"{share:.0%} of its words, cosine {cosine:.2f}", whole)
    return Pair("no", share, key, cosine, f"{share:.0%} of its words, cosine {cosine:.2f}", whole)


def share_of(weights: Mapping[str, float], terms: Iterable[str]) -> float:
    """The share of the weight that these terms have."""
    return sum(weights[term] for term in weights.keys() & terms) / (sum(weights.values()) or 1.0)


def _negated_in_one(point: Point, memory: Profile, content: str) -> str:
    """The first term that both texts have and one of them alone negates."""
    ours, theirs = _negated(point.profile, point.text), _negated(memory, content)
    written, places = point.profile.written, point.profile.places
    shared = sorted(places.keys() & memory.places.keys(), key=lambda term: places[term])
    return next((written[places[term][0]] for term in shared if (term in ours) != (term in theirs)), "")


def _negated(profile: Profile, text: str) -> frozenset[str]:
    """The terms that a negation before them in their sentence negates."""
    return frozenset(
        term
        for term, places in profile.places.items()
        for place in places
        for mark in profile.negations
        if 0 < place - mark.place <= NEGATION_WORDS
        and not _END.search(text[mark.span.end : profile.spans[place].start])
    )
