"""Words replaced by others of the same length, the same for the same word, so that what is counted in a text stays the same.

A word is what the diversity of `assembly` compares: a run of [a-z0-9] in the lower-cased text. Its pseudonym is drawn by SHAKE-256
from a secret key and the word, and drawn again until no other word has it and no word of the texts reads so. Letters of other
alphabets become Greek ones; everything else (spaces, punctuation, emoji) stays, and so does the length of the text.

Pseudonyms of four characters and more have no vowel, so that none of them contains a word that the detectors look for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import shake_256
from itertools import count, product

EVERY = "abcdefghijklmnopqrstuvwxyz0123456789"
NO_VOWELS = "bcdfghjklmnpqrstvwxz0123456789"
GREEK = "βγδζθκλμνξπρτφχψ"
TELLING = 4
"""From this length on a word says something; shorter ones are replaced too, but may come to read like another of the texts."""

_DOTTED = "\u0130"  # İ, the one letter whose lower case is two characters: an i, which ends the word, and a dot above
_ASCII = "A-Za-z0-9\u212a"  # the Kelvin sign is a k in lower case
RUN = re.compile(rf"[{_ASCII}]*{_DOTTED}|[{_ASCII}]+|(?:(?![{_ASCII}{_DOTTED}])[^\W_])+")


class Pseudonyms:
    """The pseudonyms of every word in some texts."""

    def __init__(self, key: bytes, texts: Iterable[str]) -> None:
        """`texts` are all that will be asked for; whoever has not the key cannot tell the words."""
        self._key = key
        self._short: dict[int, list[str]] = {}
        dotted: set[str] = set()
        self.words: set[str] = set()
        for text in texts:
            for run in RUN.findall(text):
                self.words.add(_word(run))
                if run.endswith(_DOTTED):
                    dotted.add(_word(run))
        self._taken: set[str] = set()
        self._of = {word: self._drawn(word, "i") for word in sorted(dotted)}
        self._of |= {word: self._drawn(word) for word in sorted(self.words - dotted)}

    def text(self, text: str) -> str:
        """The text with every word replaced; of the same length, with the same words in common with other texts."""
        return RUN.sub(lambda found: self._replaced(found[0]), text)

    def message(self, text: str) -> str:
        """The text with those words replaced that stand in the texts and say something; for lines of this program's own."""
        known = self._of
        return RUN.sub(
            lambda found: known.get(_word(found[0]), found[0]) if len(found[0]) >= TELLING else found[0], text
        )

    def fragment(self, text: str) -> str:
        """A piece of a word, replaced without regard to what else it stands in."""
        return RUN.sub(lambda found: self._letters(found[0], 0, NO_VOWELS if _is_ascii(found[0]) else GREEK), text)

    def _replaced(self, run: str) -> str:
        pseudonym = self._of[_word(run)]
        return pseudonym[:-1] + _DOTTED if run.endswith(_DOTTED) else pseudonym

    def _drawn(self, word: str, last: str = "") -> str:
        """The first candidate that nothing else reads; for a word of one letter perhaps the word itself, when all are taken."""
        for candidate in self._candidates(word, last):
            taken = candidate in self._taken or (len(word) >= TELLING and candidate in self.words)
            if not taken and (candidate != word or len(word) < 2):
                self._taken.add(candidate)
                return candidate
        self._taken.add(word)
        return word

    def _candidates(self, word: str, last: str) -> Iterator[str]:
        length = len(word) - len(last)
        if not _is_ascii(word):
            yield from (self._letters(word, turn, GREEK) for turn in count())
        elif length <= 2:
            yield from (candidate + last for candidate in self._shuffled(length))
        else:
            alphabet = NO_VOWELS if len(word) >= TELLING else EVERY
            yield from (self._letters(word[:length], turn, alphabet) + last for turn in count())

    def _shuffled(self, length: int) -> list[str]:
        """Every string of one or two characters (or none), in an order that the key decides; words take them in turn."""
        if length not in self._short:
            every = ("".join(letters) for letters in product(EVERY, repeat=length))
            self._short[length] = sorted(every, key=lambda candidate: self._digest(candidate, 8))
        return self._short[length]

    def _letters(self, word: str, turn: int, alphabet: str) -> str:
        return "".join(alphabet[byte % len(alphabet)] for byte in self._digest(f"{turn} {word}", len(word)))

    def _digest(self, text: str, length: int) -> bytes:
        return shake_256(self._key + text.encode("utf-8", "surrogatepass")).digest(length)


def _word(run: str) -> str:
    """The word that a run reads as in the lower-cased text. Case is kept apart in other alphabets, where nothing compares it."""
    return run[:-1].lower() + "i" if run.endswith(_DOTTED) else run.lower() if _is_ascii(run) else run


def _is_ascii(run: str) -> bool:
    return run[0].isascii() or run[0] in ("\u212a", _DOTTED)
