r"""The words of Lucene's StandardAnalyzer without stop words: word breaks of Unicode (UAX #29), lower case, no stems.

    Refund window: 14.5 days   refund, window, 14.5, days
    don't foo_bar a.b.c        don't, foo_bar, a.b.c
    hbr-4417 user@host.org     hbr, 4417, user, host.org

Runs without a letter, a digit or an emoji are no words. Han and Hiragana give a word a character; Thai, Lao, Khmer and Burmese, which
Unicode leaves to a dictionary, a word a run. A word past 255 characters is cut into several.

Source: Unicode Standard Annex #29, word boundaries; Lucene 9.9, StandardTokenizer and LowerCaseFilter.
"""

from __future__ import annotations

from functools import cache
from typing import Any

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
