"""What one step learns from: a question with one window of text that answers it and several that do not.

Negatives come, in this order of use, from the same passage, from what BM25 and the embedder find for the question elsewhere, and
from a conversation's small talk. A group may have no answer at all. Every choice is drawn from (seed, epoch, question), so a
run that is resumed draws what an unbroken one would have drawn.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from training import speakers
from training.passages import DIALOGUES, PAPERS, Corpus, Question

POOL = 512
"""Groups that are drawn together and sorted by length, so that a step's texts are about equally long."""
MIX = {"dialogue": 0.35, "paper": 0.25, "page": 0.4}
"""Shares of the questions about dialogues, papers, and everything else; what is not there has none."""
SIZE = 8
LENGTHS = (70, 130, 220, 220, 350)
"""Characters a window aims at; turns of a conversation are mostly 40 to 300."""
LONG = 700
SPEAKER_NAMED = 0.75
"""How often the one who answers is the one the question names; people ask about each other too."""
SMALL_TALK = (0.6, 0.25)
"""How likely a first and a second turn of small talk are among the texts."""
OWN_MEMORY = 0.2
"""How often "the reviewer" becomes "I": a question to the asker's memory."""
RENAMED = 0.8
"""How often the people of a dialogue get other names, so that no name is learned."""
ABSTRACTS = (400, 700, 1000)
"""Characters of an abstract."""
SHARES = {"long": 0.08, "no_answer": 0.07, "statement": 0.07, "cloze": 0.03}


@dataclass(frozen=True, slots=True)
class Group:
    """A query, its texts, and which of them answers it (the first, or none)."""

    query: str
    texts: tuple[str, ...]
    answered: bool


class Groups:
    """Draws groups from a corpus. `found` has for each question the passages that retrieval finds for it, best first."""

    def __init__(self, corpus: Corpus, found: np.ndarray, seed: int) -> None:
        self._corpus, self._found, self._seed = corpus, found, seed
        self._own = {}
        for number, question in enumerate(corpus.questions):
            places = np.flatnonzero(found[number] == question.passage)
            self._own[number] = int(places[0]) if len(places) else found.shape[1]

    def __len__(self) -> int:
        return len(self._corpus.questions)

    def by_kind(self) -> dict[str, list[int]]:
        """The numbers of the questions about dialogues, papers, and other pages; kinds without any are left out."""
        kinds: dict[str, list[int]] = {}
        for number, question in enumerate(self._corpus.questions):
            source = self._corpus.passages[question.passage].source
            kind = "dialogue" if source in DIALOGUES else "paper" if source in PAPERS else "page"
            kinds.setdefault(kind, []).append(number)
        return kinds

    def draw(self, epoch: int, number: int) -> Group:
        """The group of question `number` in `epoch`."""
        chance = random.Random(f"{self._seed}/{epoch}/{number}")
        question = self._corpus.questions[number]
        source = self._corpus.passages[question.passage].source
        if source in DIALOGUES:
            return self._turns(question, number, chance)
        if source in PAPERS:
            return self._paper(question, number, chance)
        kind = chance.choices((*SHARES, "plain"), (*SHARES.values(), 1 - sum(SHARES.values())))[0]
        if kind == "statement" and source in ("amazon", "reddit"):
            made = self._statement(question, number, chance)
            if made is not None:
                return made
        if kind == "cloze":
            return self._cloze(question, number, chance)
        if kind == "long" or (source == "clapnq" and chance.random() < 0.3):
            return self._long(question, number, chance)
        return self._windows(question, number, chance, answered=bool(question.answering) and kind != "no_answer")

    def _windows(self, question: Question, number: int, chance: random.Random, *, answered: bool) -> Group:
        """Short windows, most of them as somebody's turn of a conversation."""
        passage = self._corpus.passages[question.passage]
        aim = chance.choice(LENGTHS)
        at = chance.choice(question.answering) if question.answering else None
        right = window(passage.sentences, at, aim, chance) if at is not None else None
        same = [
            text
            for index in chance.sample(range(len(passage.sentences)), len(passage.sentences))
            if index not in question.answering
            and (text := window(passage.sentences, index, chance.choice(LENGTHS), chance, avoid=question.answering))
        ]
        wrong = [text for text in dict.fromkeys(same) if not holds(text, question.answers) and text != right][:3]
        personal = speakers.names_a_person(question.text)
        if personal and chance.random() < OWN_MEMORY:
            wrong += self._elsewhere(question, number, SIZE - len(wrong), chance)
            return own_memory(question.text, right if answered else None, wrong, chance)
        as_turns = chance.random() < (0.85 if personal else 0.5 if passage.source in ("amazon", "reddit") else 0.25)
        small_talk = sum(chance.random() < share for share in SMALL_TALK) if as_turns else 0
        wrong += self._elsewhere(question, number, SIZE - len(wrong) - small_talk, chance)
        if not as_turns:
            return group(question.text, right if answered else None, wrong)
        name, other = chance.sample(speakers.NAMES, 2)
        query = speakers.naming(question.text, name)
        if not personal and chance.random() < 0.3:
            query = f"{query.rstrip('?. ')} according to {name}?"
        by = name if chance.random() < SPEAKER_NAMED else other
        turns = [said_by_either(text, name, other, chance) for text in wrong]
        talk = [
            chance.choice((speakers.asked_back, speakers.reaction))(query, name, other, chance)
            for _ in range(small_talk)
        ]
        first = speakers.said(right, by, name if by == other else other, chance) if right and answered else None
        return group(query, first, talk + turns)

    def _statement(self, question: Question, number: int, chance: random.Random) -> Group | None:
        """A question made of a first-person statement of the passage, which answers it."""
        passage = self._corpus.passages[question.passage]
        name, other = chance.sample(speakers.NAMES, 2)
        for index in chance.sample(range(len(passage.sentences)), len(passage.sentences)):
            query = speakers.question_from(passage.sentences[index], name, chance)
            if query is None:
                continue
            right = window(passage.sentences, index, chance.choice(LENGTHS), chance) or ""
            rest = [window(passage.sentences, i, 130, chance, avoid=(index,)) for i in range(len(passage.sentences))]
            wrong = [text for text in rest if text and text not in right][:3]
            wrong += self._elsewhere(question, number, SIZE - 2 - len(wrong), chance)
            turns = [said_by_either(text, name, other, chance) for text in wrong]
            talk = chance.choice((speakers.asked_back, speakers.reaction))(query, name, other, chance)
            return group(query, speakers.said(right, name, other, chance), [talk, *turns])
        return None

    def _long(self, question: Question, number: int, chance: random.Random) -> Group:
        """Whole passages, as documents are."""
        passages = self._corpus.passages
        found = self._others(question, number)
        others = [
            text
            for p in chance.sample(found[:20], min(20, len(found)))
            if not holds(text := " ".join(passages[p].sentences)[:LONG], question.answers)
        ]
        own = passages[question.passage].sentences
        right = window(own, question.answering[0], LONG, chance) if question.answering else None
        return group(question.text, right, others, size=4)

    def _cloze(self, question: Question, number: int, chance: random.Random) -> Group:
        """A sentence as the query, and the rest of its passage as what supports it: a claim and its document."""
        sentences = self._corpus.passages[question.passage].sentences
        at = chance.randrange(len(sentences))
        rest = " ".join(sentences[:at] + sentences[at + 1 :])[:LONG]
        found = self._others(question, number)
        others = [" ".join(self._corpus.passages[p].sentences)[:LONG] for p in chance.sample(found, 6)]
        return group(sentences[at][:300], rest or sentences[at], others, size=4)

    def _turns(self, question: Question, number: int, chance: random.Random) -> Group:
        """A question about a dialogue, the turn that answers it, and others: most of the same dialogue and of like words."""
        passage = self._corpus.passages[question.passage]
        right = passage.sentences[
            question.answering[0] if passage.source == "qmsum" else chance.choice(question.answering)
        ]
        others = [text for i, text in enumerate(passage.sentences) if i not in question.answering]
        others = [text for text in others if not holds(text, question.answers)]
        near = by_overlap(question.text, others, chance)
        wrong = [*chance.sample(near[:8], min(4, len(near[:8]))), *chance.sample(near[8:], min(1, len(near[8:])))]
        known = [person for person in passage.people if person[:1].isalpha()]
        elsewhere = [p for p in self._others(question, number) if self._corpus.passages[p].source in DIALOGUES]
        for p in chance.sample(elsewhere[:8], min(SIZE - 1 - len(wrong), len(elsewhere[:8]))):
            best = by_overlap(question.text, self._corpus.passages[p].sentences, chance)[0].partition(": ")[2]
            if not holds(best, question.answers):
                wrong.append(f"{chance.choice(known)}: {best}" if known else best)
        made = group(question.text, right, wrong)
        if chance.random() >= RENAMED:
            return made
        names = dict(zip(known, chance.sample(speakers.NAMES, len(known)), strict=True))
        texts = tuple(dict.fromkeys(speakers.renamed(text, names) for text in made.texts))
        return Group(speakers.renamed(made.query, names), texts, made.answered)

    def _paper(self, question: Question, number: int, chance: random.Random) -> Group:
        """A claim, the abstract it is about, and abstracts that retrieval finds for it; all have titles or none."""
        passages = self._corpus.passages
        aim, titled = chance.choice(ABSTRACTS), 0 in question.answering
        found = [p for p in self._others(question, number) if passages[p].source in PAPERS][:20]
        others = [passages[p].sentences[0 if titled else 1 :] for p in chance.sample(found, min(4, len(found)))]
        own = [passages[question.passage].sentences[i] for i in question.answering]
        return group(question.text, cut(own, aim), [cut(sentences, aim) for sentences in others], size=5)

    def _others(self, question: Question, number: int) -> list[int]:
        return [int(p) for p in self._found[number] if p != question.passage]

    def _elsewhere(self, question: Question, number: int, count: int, chance: random.Random) -> list[str]:
        """Windows of other passages that retrieval finds for the question.

        A question that retrieval does not bring back to its own passage ("What did the reviewer buy?") asks for anything,
        so its negatives are drawn from further down, where fewer of them answer it too.
        """
        found = self._others(question, number)
        pool = found[:25] if self._own[number] < 5 else found[-25:]
        wanted = set(question.text.lower().split())
        texts: list[str] = []
        for p in chance.sample(pool, len(pool)):
            if len(texts) >= count:
                break
            sentences = self._corpus.passages[p].sentences
            overlap = [len(wanted & set(sentence.lower().split())) + chance.random() for sentence in sentences]
            text = window(sentences, int(np.argmax(overlap)), chance.choice(LENGTHS), chance)
            if text and not holds(text, question.answers):
                texts.append(text)
        return texts


def group(query: str, right: str | None, wrong: Sequence[str], size: int = SIZE) -> Group:
    """At most `size` texts, the answer first where there is one."""
    texts = [right, *wrong] if right else list(wrong)
    return Group(query, tuple(dict.fromkeys(texts))[:size], right is not None)


def steps(groups: Groups, size: int, seed: int) -> Iterator[list[Group]]:
    """Batches of groups without end, of like length within a batch: questions of each kind in the shares of `MIX`.

    Of each kind every question comes once before one comes again, in a seeded order.
    """
    by_kind = groups.by_kind()
    share = [MIX[kind] for kind in by_kind]
    chance = random.Random(f"{seed}/mix")
    drawn = {kind: in_turn(numbers, f"{seed}/{kind}") for kind, numbers in by_kind.items()}
    while True:
        kinds = chance.choices(tuple(by_kind), share, k=POOL)
        pool = [groups.draw(*next(drawn[kind])) for kind in kinds]
        pool.sort(key=lambda group: max(map(len, group.texts)) + len(group.query))
        batches = [pool[i : i + size] for i in range(0, POOL, size)]
        chance.shuffle(batches)
        yield from batches


def in_turn(numbers: list[int], seed: str) -> Iterator[tuple[int, int]]:
    """(epoch, number) without end, the numbers of every epoch in another order."""
    for epoch in itertools.count():
        order = list(numbers)
        random.Random(f"{seed}/{epoch}").shuffle(order)
        yield from ((epoch, number) for number in order)


def window(sentences: Sequence[str], at: int, aim: int, chance: random.Random, avoid: Sequence[int] = ()) -> str | None:
    """Sentences around `at` up to about `aim` characters, none of `avoid`, grown to random sides."""
    if not sentences or at in avoid:
        return None
    first = last = at
    while True:
        sides = [side for side in (first - 1, last + 1) if 0 <= side < len(sentences) and side not in avoid]
        fits = [side for side in sides if len(" ".join(sentences[min(first, side) : max(last, side) + 1])) <= aim]
        if not fits:
            return " ".join(sentences[first : last + 1])
        side = chance.choice(fits)
        first, last = min(first, side), max(last, side)


def by_overlap(query: str, texts: Sequence[str], chance: random.Random) -> list[str]:
    """The texts, those first that share most words with the query; equal ones in drawn order."""
    wanted = set(words(query))
    return sorted(texts, key=lambda text: (-len(wanted & set(words(text))), chance.random()))


def words(text: str) -> list[str]:
    """Words of three letters and more, in lower case."""
    return re.findall(r"[a-z]{3,}", text.lower())


def cut(sentences: Sequence[str], aim: int) -> str:
    """The sentences as one text of at most `aim` characters."""
    return " ".join(sentences)[:aim].rstrip()


def own_memory(question: str, right: str | None, wrong: Sequence[str], chance: random.Random) -> Group:
    """The question as its own author asks it, of what "user" and "assistant" said, or of plain notes."""
    plain = chance.random() < 0.4
    other = [text if plain else f"{chance.choice(('user', 'assistant'))}: {text}" for text in wrong]
    first = (
        None if right is None else right if plain else f"{'user' if chance.random() < 0.8 else 'assistant'}: {right}"
    )
    return group(speakers.in_first_person(question), first, other)


def said_by_either(text: str, name: str, other: str, chance: random.Random) -> str:
    """The text as a turn of one of the two, drawn."""
    by, to = chance.sample((name, other), 2)
    return speakers.said(text, by, to, chance)


def holds(text: str, answers: Sequence[str]) -> bool:
    """Whether the text contains one of the answers; answers of under three characters are not looked for."""
    lowered = text.lower()
    return any(answer in lowered for answer in answers if len(answer) > 2)
