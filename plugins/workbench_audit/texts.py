"""What the text of a memory alone says against it: secrets, and junk (fragments, boilerplate, and what repeats a prompt or a result).

    secret        a known form of key, token or password (patterns.json), or a card number by its check digit
    fragment      no more than one word, or breaks off in the middle of a sentence
    boilerplate   a known phrase of prompts, refusals, heartbeats and error messages; or every sentence stands in COMMON memories or more
    prompt        the words of a stored query
    result        a list, or a labelled line, of which each line has the words of another memory: a recalled result that was stored again

Texts are compared by their words alone, in lower case. Source: the forms of keys are those of gitleaks; the kinds of junk are those that
mem0ai/mem0#4573 counts among 10,134 memories of a month. Words are English; elsewhere forms of keys and repetitions alone count.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cems_workbench.analysis.supersession_signals import word_lists
from cems_workbench.records import CJK, Memory

PATTERNS: Mapping[str, Any] = json.loads(Path(__file__).with_name("patterns.json").read_text("utf-8"))
SECRETS = {name: re.compile(form) for name, form in PATTERNS["secrets"].items()}
_CARD = re.compile(r"(?<![\d.-])(?:\d[ -]?){12,18}\d(?![\d.-])")
_BOILERPLATE = re.compile("|".join(PATTERNS["boilerplate"]), re.IGNORECASE)
_OPEN_END = re.compile(rf"(?:[,;(–-]|\b(?:{'|'.join(PATTERNS['breaks_off'].split())}))\s*$")
_SENTENCE = re.compile(r"[.!?\n]+")
_LABEL = re.compile(
    r"^\s*(?:[-*•]|\d+[.)]|(?:user|assistant|memor(?:y|ies)|facts?|results?|recalled)\s*:)\s*", re.IGNORECASE
)
COMMON = 5
"""Memories of other texts in which a sentence stands that is boilerplate."""
MIN_WORDS = 4
"""Words of such a sentence, at least."""
MAX_LINES = 200
MASK = "•••"


def words_in(text: str) -> str:
    """The words of a text in lower case, with single spaces."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def secrets_in(text: str) -> list[str]:
    """The kinds of secrets that a text holds."""
    found = [name for name, form in SECRETS.items() if form.search(text)]
    return [*found, "card number"] if any(_is_card(match[0]) for match in _CARD.finditer(text)) else found


def masked(text: str) -> str:
    """The text without its secrets, for display."""
    for form in SECRETS.values():
        text = form.sub(MASK, text)
    return _CARD.sub(lambda match: MASK if _is_card(match[0]) else match[0], text)


def _is_card(text: str) -> bool:
    digits = [int(one) for one in text if one.isdigit()][::-1]
    doubled = [digit if place % 2 == 0 else sum(divmod(2 * digit, 10)) for place, digit in enumerate(digits)]
    return sum(doubled) % 10 == 0 and len(set(digits)) > 1


class Texts:
    """The texts of a store, read once: what is junk is known when all were added. Memory is a few numbers a sentence."""

    def __init__(self, queries: Iterable[str], language: str) -> None:
        self._queries = {hash(words_in(query)) for query in queries}
        self._language = language
        self._english = word_lists(language)
        self._first: dict[int, str] = {}
        self._lists: dict[str, list[int]] = {}
        self._sentences: dict[str, list[int]] = {}
        self._counts: Counter[int] = Counter()
        self._read: set[int] = set()
        self.junk: dict[str, str] = {}
        self.secrets: dict[str, list[str]] = {}

    def add(self, memory: Memory) -> None:
        """Read a memory."""
        text = memory.content
        if found := secrets_in(f"{memory.title or ''}\n{text}"):
            self.secrets[memory.id] = found
        words = words_in(text)
        if why := self._alone(text, words):
            self.junk[memory.id] = why
        lines = [line for line in text.splitlines() if words_in(line)]
        if (len(lines) > 1 or any(map(_LABEL.match, lines))) and len(lines) <= MAX_LINES:
            said = [_LABEL.sub("", line) for line in lines if not line.rstrip().endswith(":")]
            self._lists[memory.id] = [hash(words_in(line)) for line in said if words_in(line)]
        else:
            self._first.setdefault(hash(words), memory.id)
        sentences = [words_in(part) for part in _SENTENCE.split(text)]
        if all(len(one.split()) >= MIN_WORDS for one in sentences if one):
            self._sentences[memory.id] = own = [hash(one) for one in dict.fromkeys(sentences) if one]
            if hash(words) not in self._read:
                self._read.add(hash(words))
                self._counts.update(own)

    def _alone(self, text: str, words: str) -> str:
        if hash(words) in self._queries:
            return "has the words of a stored query"
        if not words:
            return "has no words"
        if self._language != CJK and " " not in words:
            return "is a single word"
        if self._english and (match := _BOILERPLATE.search(text)):
            return f"boilerplate: “{match[0].strip()[:60]}”"
        return "breaks off" if self._english and _OPEN_END.search(text) else ""

    def finish(self) -> None:
        """Add what needs all texts."""
        for memory_id, lines in self._lists.items():
            if lines and all(line in self._first for line in lines):
                repeated = "another memory" if len(lines) == 1 else f"{len(lines)} other memories"
                self.junk.setdefault(memory_id, f"repeats {repeated}, as a result does")
        for memory_id, own in self._sentences.items():
            if own and all(self._counts[one] >= COMMON for one in own):
                least = min(self._counts[one] for one in own)
                self.junk.setdefault(memory_id, f"boilerplate: each of its sentences stands in {least:,} texts")
