"""How far a memory's text says what an agent said: the agent's text in claims, and the words of each in a memory.

By rules a claim ends at a line break, a sentence end (not after an abbreviation or an initial), a semicolon, or a comma before "and",
"but", "so", "while" or "whereas" if both sides have at least CLAUSE_WORDS words. Questions, and pieces with fewer than MIN_TERMS search
terms ("Sure!", "Here you are:"), state nothing and are left out. With a language model the claims are those that it writes, with what a
pronoun stands for; one whose terms are mostly not in the text is dropped. If the model fails, the rules apply, and the notes say so.

    weight(w)   = idf of the rarest of its terms that the store has; * VALUE if w is a value (number, amount, date, version, name)
    share       = max over windows of WINDOW words of the memory of: sum of weight over the claim's words in the window
                  / sum of weight over all words of the claim
    lacking     = the claim's values that are not in that window, as a share of the same sum
    score       = (COSINE * max(0, cosine) + (1 - COSINE) * share) * (1 - LACKING * lacking)                           0..1

    supports      share >= SURE, no value is lacking and nothing is against it
    no            a value is lacking that is no number word, or share < SURE and cosine < FAR, or share < MAYBE and cosine < NEAR
    cannot tell   otherwise

Against it are, in the sentences of the window:

    subject    the claim's first word, which it is about, is not there, or what "you" did somebody else did
    apart      its first two words are in no clause together, or more than APART of its neighbours are not
    counts     a count of the claim has another number there ("95 minutes", "131 minutes")
    negated    a term that both have is negated ("not", "no", "never" within NEGATION_WORDS before it, "nothing" after it too) wherever
               the one has it and nowhere where the other has it, and no term is negated in both
    done       the claim says that something was done ("has signed", "was sold"), and the passage has the word in no such form
    planned    the claim has a word of plans ("wants", "will") and the passage has none; or the passage alone has one, and the claim says
               that something was done

Words are compared by their search terms, and values by what they mean: "sixty" is 60, "1,340" is 1340, "2026-11-01" is in November.
Negations are one word ("not" is "never"). A word of no memory weighs UNKNOWN of what a word of one would, as a paraphrase is no
contradiction; a value weighs fully. The title of a memory belongs to each of its windows. A question says nothing, and a name that is
only addressed ("Thanks, Mel!") is not in the text. The word lists are English; in another language there are neither negations nor plans.

Source: our own; idf as in BM25 (analysis/text_evidence.py), values as in analysis/supersession_signals.py. The thresholds were set by
benchmarks/bench_support.py, which measures them on pairs that did not set them. A cross-encoder, synonyms by embedding and the cosine of
the passage were tried: at the same precision none found more.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from cems_workbench.analysis.supersession_signals import (
    MONTHS,
    NEGATION_WORDS,
    NUMBER_WORDS,
    Profile,
    profile_of,
    word_lists,
)
from cems_workbench.analysis.text_evidence import idf, matches
from cems_workbench.errors import InputError, counted
from cems_workbench.models import prompts
from cems_workbench.records import ENGLISH, Memory
from cems_workbench.store.search.lexical_index import LexicalIndex
from cems_workbench.store.search.tokenizer import Language, tokenize

if TYPE_CHECKING:
    from cems_workbench.pipeline.understanding import Asker


MAX_CLAIMS = 20
"""Claims that are checked; the notes say how many more there are."""
MAX_CLAIM_CHARS = 1_000
MAX_MODEL_CHARS = 8_000
"""A longer text is split by rules: a model's reply would be cut off."""
MIN_TERMS = 2
CLAUSE_WORDS = 4
MIN_SHARED = 0.5
"""The share of a model's claim that must be in the text, in search terms."""

_ABBREVIATION = re.compile(
    r"(?:\b(?:dr|mr|mrs|ms|prof|st|no|nr|vs|approx|e\.g|i\.e|etc|cf|p|pp|fig|jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|nov|dec)|\b[A-Z]|\b\d{1,2})\.$",
    re.IGNORECASE,
)
_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s|$)|[。！？]+|;(?=\s)|\n+")
_CLAUSE = re.compile(r",\s+(?:and|but|so|while|whereas)\s+")
_EDGE = re.compile(r"^(?:[\s\"'“”‘’*_>#|]|[-–•‣]\s|\(?\d{1,3}[.)]\s)+|[\s\"'“”‘’*_|;]+$")


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement; text[start:end] of what was pasted is this text, or both are None if a language model wrote it."""

    text: str
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims in order, how the text was split ("rules", or the model's label), and notes on what was left out."""

    claims: tuple[Claim, ...]
    split_by: str
    notes: tuple[str, ...] = ()


def split_claims(text: str, language: Language = ENGLISH, llm: Asker | None = None) -> Claims:
    """The claims of a text, at most MAX_CLAIMS. Raises InputError if it is empty, one word, or only a question."""
    if not text.strip():
        raise InputError("the text is empty: paste what the agent said, one sentence or more")
    if len(text.split()) == 1 and len(tokenize(text, language)) < MIN_TERMS:
        raise InputError(f"{text.strip()[:60]!r} is one word: paste what the agent said, one sentence or more")
    notes: list[str] = []
    claims = None if llm is None else _by_model(text, language, llm, notes)
    split_by = "rules" if llm is None or claims is None else llm.chat.label
    claims = _by_rules(text, language, notes) if claims is None else claims
    if not claims:
        raise InputError("the text states nothing: paste the answer, not only a question or a greeting")
    if len(claims) > MAX_CLAIMS:
        notes.append(f"the first {MAX_CLAIMS} of {len(claims):,} claims are checked; paste the rest separately")
    claims = claims[:MAX_CLAIMS]
    for i, claim in enumerate(claims):
        if len(claim.text) > MAX_CLAIM_CHARS:
            end = None if claim.start is None else claim.start + MAX_CLAIM_CHARS
            claims[i] = Claim(claim.text[:MAX_CLAIM_CHARS], claim.start, end)
            cut = f"of a claim the first {MAX_CLAIM_CHARS:,} characters are read"
            notes += [] if cut in notes else [cut]
    return Claims(tuple(claims), split_by, tuple(notes))


def _by_rules(text: str, language: Language, notes: list[str]) -> list[Claim]:
    pieces = [claim for claim in _pieces(text) if claim.text]
    claims = [claim for claim in pieces if _states(claim.text, language)]
    if not claims and len(pieces) == 1 and not pieces[0].text.endswith("?"):
        claims = pieces  # a single short statement, such as "It is blue.", is what was meant
    left_out = len(pieces) - len(claims)
    if left_out and claims:
        notes.append(f"left out, as they state nothing (a question, a greeting): {left_out} of {len(pieces)} pieces")
    return claims


def _states(text: str, language: Language) -> bool:
    return not text.rstrip(")").endswith(("?", ":")) and len(tokenize(text, language)) >= MIN_TERMS


def _pieces(text: str) -> Iterable[Claim]:
    """The sentences and clauses of a text, without their edges; some may be empty."""
    start = 0
    for match in _END.finditer(text):
        if match[0] == "." and _ABBREVIATION.search(text, max(start, match.start() - 8), match.end()):
            continue
        yield from _clauses_in(text, start, match.end())
        start = match.end()
    yield from _clauses_in(text, start, len(text))


def _clauses_in(text: str, start: int, end: int) -> Iterable[Claim]:
    for match in _CLAUSE.finditer(text, start, end):
        if min(len(text[start : match.start()].split()), len(text[match.end() : end].split())) >= CLAUSE_WORDS:
            yield _trimmed(text, start, match.start())
            start = match.end()
    yield _trimmed(text, start, end)


def _trimmed(text: str, start: int, end: int) -> Claim:
    inside = text[start:end]
    if (edge := _EDGE.match(inside)) and edge.start() == 0:
        start, inside = start + edge.end(), inside[edge.end() :]
    inside = _EDGE.sub("", inside)
    return Claim(inside, start, start + len(inside))


def _by_model(text: str, language: Language, llm: Asker, notes: list[str]) -> list[Claim] | None:
    """The model's claims that the text holds; None, with a note, if it failed or invented them."""
    instead = "split by rules instead"
    if len(text) > MAX_MODEL_CHARS:
        notes.append(f"the text is longer than {MAX_MODEL_CHARS:,} characters, so it is {instead}")
        return None
    written = llm.or_none(prompts.claims(text, MAX_CLAIMS), instead, notes.append)
    if written is None:
        return None
    there = set(tokenize(text, language))
    terms = {line: tokenize(line, language) for line in written}
    claims = [one for one in written if sum(t in there for t in terms[one]) >= max(MIN_SHARED * len(terms[one]), 1)]
    if len(claims) < len(written):
        notes.append(f"left out: {counted(len(written) - len(claims), 'claims')} by {llm.chat.label} not in the text")
    if not claims:
        notes.append(f"{llm.chat.label} named no claim of the text; {instead}")
        return None
    starts = [(line, text.find(line)) for line in claims]
    return [Claim(line, at, at + len(line)) if at >= 0 else Claim(line) for line, at in starts]


BEHIND = frozenset({"nothing", "nobody", "none", "no"})
"""Negations that negate the word before them too: "they paid nothing"."""
DONE = frozenset({"has", "have", "had", "was", "were"})
_PLANNED = """
    want wants wanna hope hopes hoping plan plans planning gonna will won't i'll we'll he'll she'll they'll intend intends soon considering
    thinking dream goal try trying waits
"""
PLANNED = frozenset(_PLANNED.split())
_DUE = re.compile(r"\b(?:have|has|had) to\b|\bmust\b|\bshould\b")
_PARTICIPLE = re.compile(r"(?:ed|en|wn)$")


def _negated_apart(claim: Profile, passage: Profile) -> Iterable[str]:
    ours, theirs = _negated(claim), _negated(passage)
    negations = {term for mark in claim.negations for term, places in claim.places.items() if mark.place in places}
    shared = sorted((ours.keys() & theirs.keys()) - negations, key=lambda term: claim.places[term])
    if any(True in ours[term] and True in theirs[term] for term in shared):
        return
    for term in shared:
        if not ours[term] & theirs[term]:
            yield f"“{claim.written[claim.places[term][0]]}” is negated in one of the two"
            return


def _negated(text: Profile) -> dict[str, set[bool]]:
    """Of each term whether it is negated where it is."""
    return {term: {_negates(text, place) for place in places} for term, places in text.places.items()}


def _negates(text: Profile, place: int) -> bool:
    """Whether a negation of the same field is near enough to a word."""
    return any(
        mark.span.field == text.spans[place].field
        and (0 < place - mark.place <= NEGATION_WORDS or (mark.place - place == 1 and mark.words in BEHIND))
        for mark in text.negations
    )


def _not_done(claim: Profile, passage: Profile) -> Iterable[str]:
    plans = PLANNED.intersection(claim.written)
    done = bool(DONE.intersection(claim.written)) and not _DUE.search(" ".join(claim.written))
    there = [word for word in passage.written if word in PLANNED]
    due = _DUE.search(" ".join(passage.written))
    if plans and not there:
        yield f"“{min(plans)}” is not there: planned or done"
    elif done and not plans and (due or there):
        yield f"only planned there: “{there[0] if there else due and due[0]}”"
    terms = {place: term for term, places in claim.places.items() for place in places}
    for place, word in enumerate(claim.written):
        if place not in terms or not _PARTICIPLE.search(word):
            continue
        forms = [passage.written[other] for other in passage.places.get(terms[place], ())]
        said = DONE.intersection(claim.written[max(0, place - 3) : place]) if not forms else word.endswith("ed") or done
        if said and not any(_PARTICIPLE.search(form) for form in forms):
            yield f"not said there as done: “{word}”"
            return


VALUE, UNKNOWN = 2.0, 0.5
WINDOW, APART = 25, 0.2
MAX_NAME = 40
COSINE, LACKING = 0.6, 0.5
"""Chosen on the answers of benchmarks/bench_blame.py, which barely depend on them."""
SURE, MAYBE = 0.9, 0.5
NEAR, FAR = 0.5, 0.4
NEGATED = frozenset({"¬"})
"""What a negation is compared by."""

_SIGNS = re.compile(r"[€$£¥%]")
_SIGN_WORDS = dict(euro="€", euros="€", dollar="$", dollars="$", pound="£", pounds="£", yen="¥", percent="%")
"""What a sign says: "430 euros" is €430."""
_SIGN = re.compile(rf"\s?(?:[€$£¥%]|\b(?:{'|'.join(_SIGN_WORDS)})\b)", re.IGNORECASE)
_ADDRESSED = re.compile(
    r"\b(?i:hey|hi|hello|thanks|thank you|wow|oh|woah|whoa|congrats|yeah|yep|cool|sure|great|awesome),? [A-Z]\w+(?=[,!?.])"
    r"|(?<=, )[A-Z]\w+(?=[!?])"
)
_BEGINNING = re.compile(r"(?P<you>your?\s+)?(?:(?:the|an?|every|each|all)\s+)?", re.IGNORECASE)
_ANOTHER = re.compile(r"(?:\b(?i:he|she|they|his|her|their)|\b(?!I\b)[A-Z][\w'’]*) $")
_LABEL = re.compile(r"[A-Z]\w*(?: [A-Z]\w*)?: ")
"""Who says it: "Mel: I ran" is about Mel."""
_CLAUSE_END = re.compile(r"[.!?;:](?=\s|$)|\n|,\s|\s[(—–-]\s?|\s(?:and|but|when|because|since|until|while|whereas)\s")
_SENTENCE_END = re.compile(r"[.!?;](?=\s|$)|\n")
_ISO = re.compile(r"(\d{4})-(\d{2})(?:-(\d{2}))?")
_MONTH_NAMES = list(dict.fromkeys(MONTHS.values()))

Verdict = Literal["supports", "cannot tell", "no"]
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
    """What a claim and a memory have in common: `share` and the spans are of the words in the best window. `lacking`:
    values of the claim that are not there, and their share of the claim's weight; `against`: what else keeps it from
    supporting the claim, in words."""

    share: float
    claim: tuple[Span, ...]
    title: tuple[Span, ...]
    content: tuple[Span, ...]
    lacking: tuple[str, ...]
    lacking_share: float
    against: tuple[str, ...] = ()


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
            if not found or found[-1].end <= start:  # a number word is a stop word
                found.append(Word(start, end, keys, True))
            at += 1
        if at < len(values) and values[at][0] < piece.end:
            start, end, keys = values[at]
            if found and found[-1].end > start:  # "1,340" is two pieces and one value
                found[-1] = Word(found[-1].start, max(end, piece.end), found[-1].keys, True)
            else:
                found.append(Word(min(start, piece.start), max(end, piece.end), keys, True))
        else:
            found.append(Word(piece.start, piece.end, frozenset(piece.terms), False))
    last = found[-1].end if found else 0  # behind the last word that is searched, "May" is a stop word
    found += [Word(start, end, keys, True) for start, end, keys in values[at:] if last <= start]
    negated = [Word(mark.span.start, mark.span.end, NEGATED, False) for mark in profile.negations]
    there = {word.start for word in negated}
    return sorted([*negated, *(word for word in found if word.start not in there)], key=lambda word: word.start)


def statements(text: str) -> str:
    """The text with blanks for its questions and for names that are addressed, so that positions stay."""
    pieces, at = [], 0
    for end in [*(found.end() for found in _SENTENCE_END.finditer(text)), len(text)]:
        pieces.append(" " * (end - at) if text[at:end].endswith("?") else text[at:end])
        at = end
    return _ADDRESSED.sub(lambda found: " " * len(found[0]), "".join(pieces))


def _sentences(text: str, words: Sequence[Word]) -> Span:
    if not words:
        return 0, 0
    ends = [found.end() for found in _SENTENCE_END.finditer(text)]
    return (
        max((end for end in ends if end <= words[0].start), default=0),
        min((end for end in ends if end >= words[-1].end), default=len(text)),
    )


def _clause_numbers(text: str, words: Sequence[Word]) -> list[int]:
    ends = [found.end() for found in _CLAUSE_END.finditer(text)]
    return [bisect(ends, word.start) for word in words]


def _another(text: str, before: int) -> str | None:
    """Who else is right before a place: "Elias", "his"."""
    found = _ANOTHER.search(text, max(0, before - MAX_NAME), before)
    return found[0].strip() if found else None


def _counts(text: str, words: Sequence[Word]) -> list[tuple[Word, Word, str]]:
    """Numbers with the word that follows at once or their sign, and both as written: "131 minutes", "24 August", "5 %"."""
    found = []
    for value, unit in itertools.zip_longest(words, words[1:]):
        if not (value.value and _is_number(text[value.start : value.end].strip("€$£¥%"))):
            continue
        if unit is not None and text[value.end : unit.start] in (" ", "-"):
            found.append((value, unit, text[value.start : unit.end]))
        if sign := _SIGN.search(text[value.start : value.end]) or _SIGN.match(text, value.end):
            end = max(value.end, sign.end() if sign.string is text else 0)
            meant = _SIGN_WORDS.get(sign[0].strip().lower(), sign[0].strip())
            found.append((value, Word(value.start, end, frozenset({meant}), False), text[value.start : end]))
    return found


def _is_number(text: str) -> bool:
    return text[-1:].isdigit() or text.lower() in NUMBER_WORDS


def _value_keys(text: str, language: Language) -> frozenset[str]:
    """What a value is compared by: a number without sign and comma, a date by its parts."""
    bare = re.sub(r"^0(?=\d:)", "", _SIGNS.sub("", text).lower())
    terms = tokenize(bare, language)
    # Parts of an identifier are no evidence of it: "01" of "DNS-01".
    keys = {bare, *terms} if len(terms) == 1 else {bare}
    if (date := _ISO.match(bare)) and 1 <= int(date[2]) <= 12:
        keys.update(tokenize(_MONTH_NAMES[int(date[2]) - 1], language))
    return frozenset(keys)


class _Read(NamedTuple):
    """A memory as it is compared: what it states, its words, and of each word which of the claim's it is."""

    title: list[Word]
    in_title: list[frozenset[int]]
    stated: str
    content: list[Word]
    in_content: list[frozenset[int]]


class ClaimWords:
    """The words of a claim with their weights in a store."""

    def __init__(self, text: str, index: LexicalIndex, language: str = ENGLISH) -> None:
        self._text, self._language, self._analysis = text, language, index.language
        self._profile = profile_of(Memory("", text), language)
        self.words = [
            replace(word, value=word.value or self._is_name(word))
            for word in words_of(text, language, index.language)
            if text[word.start : word.end].lower() not in _SIGN_WORDS
        ]
        self.weights = [_weight(word, index) for word in self.words]

    def overlap(self, memory: Memory) -> Overlap:
        """The words of the claim in a memory."""
        stated = statements(memory.content)
        title = words_of(memory.title or "", self._language, self._analysis)
        content = words_of(stated, self._language, self._analysis)
        read = _Read(title, [self._met(word) for word in title], stated, content, [self._met(word) for word in content])
        label = _LABEL.match(stated)
        labelled = label.end() if label else 0
        said_by = [here for word, here in zip(content, read.in_content, strict=True) if word.end <= labelled]
        always = frozenset[int]().union(*read.in_title, *said_by)
        start, end, met = self._best_window(content, read.in_content, always)
        common = [word for word, here in zip(content[start:end], read.in_content[start:end], strict=True) if here]
        first, last = _sentences(stated, common)
        counts = [
            *_counts(memory.title or "", title),
            *_counts(stated, [word for word in content if first <= word.start < last]),
        ]
        total = sum(self.weights)
        lacking = [i for i, word in enumerate(self.words) if word.value and i not in met]
        passage = profile_of(Memory("", stated[first:last].strip(), title=memory.title), self._language)
        return Overlap(
            sum(self.weights[i] for i in met) / total if total else 0.0,
            tuple((self.words[i].start, self.words[i].end) for i in sorted(met)),
            tuple((word.start, word.end) for word, here in zip(title, read.in_title, strict=True) if here),
            tuple((word.start, word.end) for word in common),
            tuple(self._written(i) for i in lacking),
            sum(self.weights[i] for i in lacking) / total if total else 0.0,
            (
                *self._other_subject(read, always, met),
                *self._parted(read, always, met),
                *self._of_a_parallel(read, always, met),
                *self._other_counts(counts),
                *_negated_apart(self._profile, passage),
                *_not_done(self._profile, passage),
            ),
        )

    def _written(self, i: int) -> str:
        return self._text[self.words[i].start : self.words[i].end]

    def _is_name(self, word: Word) -> bool:
        """A capital within a claim, which is one sentence."""
        return word_lists(self._language) and word.start > 0 and self._text[word.start].isupper()

    def _other_subject(self, read: _Read, always: frozenset[int], met: frozenset[int]) -> Iterable[str]:
        """The claim's first word is not in the memory, or somebody else did what "you" did."""
        begun = _BEGINNING.match(self._text)
        first = next((i for i, word in enumerate(self.words) if begun and word.start >= begun.end()), None)
        if begun is None or first is None or (self.words[first].start > begun.end() and not begun["you"]):
            return
        there = [n for n, here in enumerate(read.in_content) if first in here]
        if begun["you"]:
            others = [other for n in there if (other := _another(read.stated, read.content[n].start))]
            if there and len(others) == len(there) and first not in always:
                yield f"there it is {others[0]}"
            return
        if first not in met and not self.words[first].value:
            yield f"“{self._written(first)}” is not in the passage"

    def _parted(self, read: _Read, always: frozenset[int], met: frozenset[int]) -> Iterable[str]:
        """Neighbours in a clause of the claim that no clause of the memory has both: the first two, or more than APART of all."""
        own = _clause_numbers(self._text, self.words)
        theirs: dict[int, set[int]] = {}
        for clause, here in zip(_clause_numbers(read.stated, read.content), read.in_content, strict=True):
            for i in here:
                theirs.setdefault(i, set()).add(clause)
        pairs = [*itertools.pairwise(i for i in sorted(met) if self.words[i].keys != NEGATED)]
        parted = [(i, k) for i, k in pairs if own[i] == own[k] and not always & {i, k} and not theirs[i] & theirs[k]]
        if parted and (parted[0] == pairs[0] or len(parted) > APART * len(pairs)):
            yield f"“{self._written(parted[0][0])}” and “{self._written(parted[0][1])}” are apart there"

    def _of_a_parallel(self, read: _Read, always: frozenset[int], met: frozenset[int]) -> Iterable[str]:
        """What the claim says of its first word, the memory says of another: "A is kept here; B is kept there" is not "B is kept here"."""
        ends = [found.end() for found in _SENTENCE_END.finditer(read.stated)]
        theirs: dict[int, set[int]] = {i: set() for i in met - always if self.words[i].keys != NEGATED}
        for word, here in zip(read.content, read.in_content, strict=True):
            for i in here & theirs.keys():
                theirs[i].add(bisect(ends, word.start))
        if not theirs or min(met) not in theirs:
            return
        of_first = theirs.pop(min(met))
        far = sorted(i for i, there in theirs.items() if not there & of_first)
        elsewhere = set[int]().union(*(theirs[i] for i in far))
        if 2 * len(far) >= len(theirs) and any(there & of_first and there & elsewhere for there in theirs.values()):
            yield f"“{self._written(min(met))}” and “{self._written(far[0])}” are apart there"

    def _other_counts(self, counts: Sequence[tuple[Word, Word, str]]) -> Iterable[str]:
        """Counts and days of the passage, where the claim has another number of the same, or the day in another month."""
        for number, things, _ in _counts(self._text, self.words):
            there = [
                (value.keys & number.keys and unit.keys & things.keys, words)
                for value, unit, words in counts
                if unit.keys & things.keys or (things.value and unit.value and value.keys & number.keys)
            ]
            if there and not any(same for same, _ in there):
                yield f"there it is {there[0][1]}"

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


def judged(overlap: Overlap, cosine: float | None) -> tuple[Verdict, str]:
    """Whether a memory supports a claim, and why not, in words."""
    near, share = cosine or 0.0, overlap.share
    said = [f"not in the passage: {', '.join(overlap.lacking)}"] if overlap.lacking else []
    said += overlap.against or ([f"{share:.0%} of the claim's words"] if share < SURE else [])
    lacks = any(value.lower() not in NUMBER_WORDS for value in overlap.lacking)  # "two weeks" may be 14 days
    if lacks or (share < SURE and near < FAR) or (share < MAYBE and near < NEAR):
        return "no", "; ".join(said)
    return ("cannot tell" if said else "supports"), "; ".join(said)


SHOWN_CHARS, MARGIN = 600, 120


def marked_pieces(
    text: str, spans: Sequence[Span], most: int = SHOWN_CHARS, margin: int = MARGIN
) -> list[tuple[str, bool]]:
    """At most about `most` characters of a text around the spans, in pieces: (piece, whether it is one of the spans)."""
    first, last = (spans[0][0], spans[-1][1]) if spans else (0, 0)
    start = 0 if len(text) <= most or first <= margin else first - margin
    end = len(text)
    if end - start > most:
        end = max(min(last + margin, start + most), start + min(most, 2 * margin))
    pieces, at = [("…", False)] if start else [], start
    for one, other in spans:
        if other <= end:
            pieces += [(text[at:one], False), (text[one:other], True)]
            at = other
    pieces += [(text[at:end], False), ("…" if end < len(text) else "", False)]
    return [piece for piece in pieces if piece[0]]
