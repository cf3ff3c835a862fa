"""How PostgreSQL's default text search parser cuts a text into tokens: words, numbers, hosts, files, tags and the rest.

Written from what `ts_parse` answers (PostgreSQL 18) and from the token types of its documentation, chapter 12.5. The server
tries several readings of a place and takes the first that works out; a reading here is a regular expression, and their order is
the order of the `if`s below. For an ASCII word that is: e-mail, URL, host, file, hyphenated compound, plain word.

Regular expressions see five kinds of characters beyond ASCII: letters, marks that only continue a word, white space, and others. So
a text that is not ASCII is first rewritten character by character to one of each (`CharacterKinds`); tokens are cut from the original.
The kinds are those of a database with a UTF-8 locale; with the locale "C" every character beyond ASCII is a letter.

Known to differ from the server: which kind some marks are of (Khmer signs, Arabic and Hebrew points) when a word begins with one.

Words are stemmed by the English Snowball stemmer ("Porter 2") in the version that PostgreSQL carries, 18 included. Snowball 3 changed
English: "universities" became "universiti", "geologist" "geolog", "organized" "organiz", "international" "internat". PyStemmer follows
Snowball, so of 69,000 distinct words of our data sets it stems 108 otherwise than PostgreSQL. This is the algorithm as it stood before,
from its description (https://snowballstem.org/algorithms/english/stemmer.html). What it says about apostrophes is left out: no token of
the parser has one.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

MAX_WORD_BYTES = 1_000
"""Longer words are not stemmed."""

_ENGLISH: dict[str, Any] = json.loads(Path(__file__).with_name("english.json").read_text("utf-8"))
IRREGULAR: dict[str, str] = _ENGLISH["irregular"]
KEPT_SINGULARS = frozenset(_ENGLISH["kept singulars"])
"""Words that stay once the plural is off."""

DOUBLES = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")


# Suffix → replacement; only the longest matching suffix is considered.
_LI, _ICATE = _ENGLISH["step 2"], _ENGLISH["step 3"]
STEP_2, STEP_3, STEP_4 = (
    re.compile(f"(?:{'|'.join(sorted(_ENGLISH[f'step {number}'], key=len, reverse=True))})$") for number in (2, 3, 4)
)

REGION_AT_PREFIX = re.compile("gener|commun|arsen")
REGION = re.compile("[aeiouy][^aeiouy]")
CONSONANT_Y = re.compile("(^|[aeiouy])y")
"""A y that begins the word or follows a vowel: a consonant."""
VOWEL = re.compile("[aeiouy]")
SHORT_END = re.compile("[^aeiouy][aeiouy][^aeiouywxY]$|^[aeiouy][^aeiouy]$")


@lru_cache(maxsize=200_000)
def stem(word: str, whole_doubles: bool = True) -> str:
    """The stem of a word in lower case.

    `whole_doubles`: "added" becomes "add". Snowball before 2019, which Rust's crates still carry, makes "ad" of it.
    """
    if len(word) <= 2 or len(word.encode()) > MAX_WORD_BYTES:
        return word
    if word in IRREGULAR:
        return IRREGULAR[word]
    word = CONSONANT_Y.sub(r"\1Y", word)
    # R1 and R2 begin after the first consonant that follows a vowel, R2 within R1.
    found = REGION_AT_PREFIX.match(word) or REGION.search(word)
    first = found.end() if found else len(word)
    again = REGION.search(word, first)
    second = again.end() if again else len(word)
    word = _without_plural(word)
    if word not in KEPT_SINGULARS:
        word = _without_ed_and_ing(word, first, whole_doubles)
        if len(word) > 2 and word[-1] in "yY" and word[-2] not in "aeiouy":
            word = word[:-1] + "i"
        word = _shorter_suffix(word, first)
        word = _without_suffix(word, first, second)
        word = _without_last_letter(word, first, second)
    return word.replace("Y", "y")


def _without_plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith("s") and not word.endswith(("us", "ss")) and VOWEL.search(word[:-2]):
        return word[:-1]
    return word


def _without_ed_and_ing(word: str, first: int, whole_doubles: bool) -> str:
    for suffix in ("eedly", "eed"):
        if word.endswith(suffix):
            return word[: -len(suffix)] + "ee" if len(word) - len(suffix) >= first else word
    for suffix in ("ingly", "edly", "ing", "ed"):
        if word.endswith(suffix):
            root = word[: -len(suffix)]
            if not VOWEL.search(root):
                return word
            if root.endswith(("at", "bl", "iz")):
                return root + "e"
            if root.endswith(DOUBLES):
                # add, egg and off stay whole.
                return root if whole_doubles and len(root) == 3 and root[0] in "aeo" else root[:-1]
            # R1 is empty and the last syllable short: hop(ing) was "hope".
            return root + "e" if first >= len(root) and SHORT_END.search(root) else root
    return word


def _shorter_suffix(word: str, first: int) -> str:
    """Step 2: -ational to -ate, -iveness to -ive and so on, in R1."""
    found = STEP_2.search(word)
    if found and found.start() >= first:
        before = word[: found.start()]
        suffix = found[0]
        if (suffix != "ogi" or before.endswith("l")) and (suffix != "li" or before.endswith(tuple("cdeghkmnrt"))):
            word = before + _LI[suffix]
    return word


def _without_suffix(word: str, first: int, second: int) -> str:
    """Step 3 in R1 (-ative in R2): -ical to -ic, -ness off; then step 4 in R2: -able, -ment, -ive off."""
    found = STEP_3.search(word)
    if found and found.start() >= (second if found[0] == "ative" else first):
        word = word[: found.start()] + _ICATE[found[0]]
    found = STEP_4.search(word)
    if found and found.start() >= second and (found[0] != "ion" or word[: found.start()].endswith(("s", "t"))):
        word = word[: found.start()]
    return word


def _without_last_letter(word: str, first: int, second: int) -> str:
    last = len(word) - 1
    if word.endswith("e"):
        before = word[:-1]
        if last >= second or (last >= first and not SHORT_END.search(before)):
            return before
    elif word.endswith("ll") and last >= second:
        return word[:-1]
    return word


Kind = StrEnum(
    "Kind",
    "ASCIIWORD WORD NUMWORD EMAIL URL HOST SFLOAT VERSION HWORD_NUMPART HWORD_PART HWORD_ASCIIPART TAG PROTOCOL NUMHWORD "
    "ASCIIHWORD HWORD URL_PATH FILE FLOAT INT UINT ENTITY",
)
"""The token types of the default parser, by the names of `ts_token_type`; blanks and their like are no tokens here."""

LETTER, MARK, SPACE, OTHER = "é", "\u0301", "\u2003", "¤"
"""One character for each kind beyond ASCII."""
CIRCLED_LETTERS = (range(0x24B6, 0x24EA), range(0x1F130, 0x1F14A), range(0x1F150, 0x1F16A), range(0x1F170, 0x1F18A))
VARIATION_SELECTORS = (range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))
NO_BREAK_SPACES = (0xA0, 0x2007, 0x202F)


def kind_of_character(code: int) -> str:
    """The character that stands for `code` in the rewritten text; ASCII stands for itself."""
    if code < 128:
        return chr(code)
    category, combining = unicodedata.category(chr(code)), unicodedata.combining(chr(code))
    if category[0] == "L" or category in ("Nd", "Nl", "Mc"):
        return LETTER
    if category == "So":
        return LETTER if any(code in circled for circled in CIRCLED_LETTERS) else OTHER
    if category in ("Mn", "Me", "Cf"):
        vowel_sign = category == "Mn" and combining == 0 and not any(code in s for s in VARIATION_SELECTORS)
        return LETTER if vowel_sign else MARK
    return SPACE if category in ("Zs", "Zl", "Zp") and code not in NO_BREAK_SPACES else OTHER


class CharacterKinds(dict[int, str]):
    """A table for str.translate that fills itself as characters are met."""

    def __missing__(self, code: int) -> str:
        self[code] = kind_of_character(code)
        return self[code]


KINDS = CharacterKinds()

# Possessive quantifiers (++, *+) where the server never reconsiders: they keep a long text linear.
_BLANK = rf"[ \t-\r{SPACE}]"
_ANY = rf"[A-Za-z0-9{LETTER}{MARK}]"
_AN = "[A-Za-z0-9]"
_FILE_REST = r"(?:[A-Za-z0-9_\-]|\.(?=[A-Za-z0-9_])|/(?:(?:\.\.?|~)/)*[~.]?[A-Za-z0-9_])*+"
_UP_AT_END = rf"\.\.(?={_BLANK}|/|\Z)"
_FILE_REST += rf"(?:/(?:(?:\.\.?|~)/)*{_UP_AT_END})?"
_FILE_STEP = rf"(?:(?:\.\.?|~)/)*(?:[~.]?[A-Za-z0-9_]{_FILE_REST}|{_UP_AT_END})"
_ATTRIBUTES = rf"""(?:[A-Za-z0-9=_#/:.&?%~\-]|{_BLANK}|"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+')*+"""

_BETWEEN = rf"[^<\-+&/A-Za-z0-9{LETTER}]*+"
BETWEEN = re.compile(_BETWEEN)
"""What the server swallows with the blank that comes before it: also dots and tildes that would begin a file elsewhere."""
PLAIN = re.compile(rf"([A-Za-z]++)(?![0-9.\-_@:/{LETTER}{MARK}])(?:[^<\-+&/.~A-Za-z0-9{LETTER}]{_BETWEEN})?+")
"""An ASCII word after which nothing stands that could make more of it, as most words of most texts are, and what is between
it and the next token."""
WORD = re.compile(f"{_ANY}++")
DIGITS = re.compile("[0-9]++")
LABELS = re.compile(rf"{_AN}++(?:[._\-]{_AN}++)*+")
HOST = re.compile(rf"{_AN}++(?:[._\-]{_AN}++)*\.[A-Za-z]{{2,}}+(?![0-9])(?::[0-9]++)?+")
URL_PATH = re.compile(r"/[!#-;=?-\[\]_a-z~]++")
FILE_AFTER_DOT = re.compile(rf"\.[A-Za-z0-9_]{_FILE_REST}")
FILE_AFTER_SLASH = re.compile(f"/{_FILE_STEP}")
FILE_AT_TILDE = re.compile(f"~(?:[A-Za-z0-9_]{_FILE_REST}|/{_FILE_STEP})")
FILE_AT_DOT = re.compile(rf"\./{_FILE_STEP}|\.\./{_FILE_STEP}|{_UP_AT_END}")
COMPOUND_REST = re.compile(rf"(?:-(?:[A-Za-z{LETTER}]{_ANY}*+|[0-9]++[A-Za-z{LETTER}{MARK}]{_ANY}*+))++")
SCIENTIFIC = re.compile("[0-9]++[eE][+-]?[0-9]++")
DECIMAL = re.compile(r"[0-9]++\.[0-9]++(?:(?P<version>(?:\.[0-9]++)++)|(?P<exponent>[eE][+-]?[0-9]++))?+")
SIGNED = re.compile(r"[+-][0-9]++(?P<fraction>\.[0-9]++)?+(?P<exponent>[eE][+-]?[0-9]++)?+")
VERSION_GOES_ON = re.compile(r"\.[0-9]")
ENTITY = re.compile(rf"&(?:#(?:[xX][0-9A-Fa-f]++|[0-9]++)|[A-Za-z:_][A-Za-z0-9{LETTER}:_.\-]*+);")
_TAG_BEGINS = rf"(?:/(?=[A-Za-z]))?[A-Za-z:_][A-Za-z0-9{LETTER}:_.\-]*+{_BLANK}|![dD]|\?x"
TAG = re.compile(
    rf"<(?:(?P<close>/(?=[A-Za-z]))?(?P<name>[A-Za-z:_][A-Za-z0-9{LETTER}:_.\-]*+)(?:(?P<empty>/)?>|{_BLANK}{_ATTRIBUTES}>)"
    rf"|![dD]{_ATTRIBUTES}>|\?x{_ATTRIBUTES}>)",
    re.DOTALL,
)
LAST_QUOTE = re.compile(rf"<(?:{_TAG_BEGINS}){_ATTRIBUTES}(?:\"(?:[^\"\\]|\\.)*\\.|'(?:[^'\\]|\\.)*\\.)\Z", re.DOTALL)
"""A tag whose quoted attribute is still open where the text ends, with an escaped character: there the server stops reading."""
UNREAD_ELEMENTS = ("script", "style")
"""Nothing but tags is read inside these elements."""

Token = tuple[Kind, str]


def tokens(text: str) -> Iterator[Token]:
    """The tokens of `text` in their order, as `ts_parse('default', text)` gives them, without the blanks.

    Compounds, URLs and their parts overlap: `well-known` is the compound and then both words, `a.org/b` the URL, the
    host and the path.
    """
    kinds = text if text.isascii() else text.translate(KINDS)
    place, end, unread = 0, len(kinds), False
    without_address = 0  # Up to here no address begins: what was tried from an earlier label would have found it.
    while place < end:
        first = kinds[place]
        if first == "<" and kinds.startswith("<!--", place) and (close := kinds.find("-->", place + 4)) > 0:
            yield Kind.TAG, text[place : close + 3]
            place = close + 3
        elif first == "<" and (tag := TAG.match(kinds, place)):
            if (tag["name"] or "").lower() in UNREAD_ELEMENTS and not tag["empty"]:
                unread = not tag["close"]
            yield Kind.TAG, text[place : tag.end()]
            place = tag.end()
        elif first == "<" and kinds[-2:-1] == "\\" and LAST_QUOTE.match(kinds, place):
            return
        elif unread:
            place = kinds.find("<", place + 1)
            if place < 0:
                return
        elif plain := PLAIN.match(kinds, place):
            yield Kind.ASCIIWORD, text[place : plain.end(1)]
            place = plain.end()
        elif "a" <= first <= "z" or "A" <= first <= "Z" or "0" <= first <= "9" or first == LETTER:
            tried = place >= without_address and first != LETTER
            spans = _at_word(kinds, place, tried)
            if tried and spans[0][0] is not Kind.SFLOAT and (labels := LABELS.match(kinds, place)):
                without_address = labels.end()
            for kind, start, stop in spans:
                if kind is not None:
                    yield kind, text[start:stop]
            place = spans[-1][2]
        else:
            sign = _at_sign(kinds, place)
            if sign is None:
                between = BETWEEN.match(kinds, place + 1)
                assert between is not None
                place = between.end()
            else:
                yield sign[0], text[place : sign[1]]
                place = sign[1]


Span = tuple[Kind | None, int, int]
"""A token's kind, start and end; None for a stretch that is passed over."""


def _at_word(kinds: str, start: int, may_be_address: bool) -> list[Span]:
    """The tokens at a letter or digit; parsing continues at the end of the last span."""
    word = WORD.match(kinds, start)
    assert word is not None
    end = word.end()
    after = kinds[end : end + 1]
    digits = DIGITS.match(kinds, start)
    if digits and (scientific := SCIENTIFIC.match(kinds, start)):
        return [(Kind.SFLOAT, start, scientific.end())]
    if may_be_address and (address := _address(kinds, start)):
        return address
    if digits and digits.end() == end:
        return [_number(kinds, start, end, after)]
    has_digit, ascii_only = _has_digit(kinds[start:end]), kinds[start:end].isascii()
    if has_digit or ascii_only:
        if after == "@" and (host := HOST.match(kinds, end + 1)):
            return [(Kind.EMAIL, start, host.end())]
        if after == ":" and not has_digit and kinds.startswith("://", end):
            return [(Kind.PROTOCOL, start, end + 3)]
        file = FILE_AFTER_SLASH.match(kinds, end) or FILE_AFTER_DOT.match(kinds, end)
        if file:
            return [(Kind.FILE, start, file.end())]
    if after == "-" and (rest := COMPOUND_REST.match(kinds, end)):
        return _compound(kinds, start, rest.end())
    return [(Kind.NUMWORD if has_digit else Kind.ASCIIWORD if ascii_only else Kind.WORD, start, end)]


def _address(kinds: str, start: int) -> list[Span] | None:
    """An e-mail address, a host, or a URL with its host and path, at this position; None if there is none."""
    labels = LABELS.match(kinds, start)
    assert labels is not None
    at = labels.end()
    if kinds[at : at + 1] == "@" and (host := HOST.match(kinds, at + 1)):
        return [(Kind.EMAIL, start, host.end())]
    host = HOST.match(kinds, start)
    if host is None:
        return None
    if path := URL_PATH.match(kinds, host.end()):
        parts = [(start, host.end()), (host.end(), path.end())]
        return [(Kind.URL, start, path.end()), (Kind.HOST, *parts[0]), (Kind.URL_PATH, *parts[1])]
    return [(Kind.HOST, start, host.end())]


def _number(kinds: str, start: int, end: int, after: str) -> Span:
    """A number without a sign that ends at `end` unless a fraction or a path follows."""
    if after == "." and (decimal := DECIMAL.match(kinds, start)):
        kind = Kind.VERSION if decimal["version"] else Kind.SFLOAT if decimal["exponent"] else Kind.FLOAT
        return kind, start, decimal.end()
    if file := FILE_AFTER_SLASH.match(kinds, end):
        return Kind.FILE, start, file.end()
    return Kind.UINT, start, end


def _compound(kinds: str, start: int, end: int) -> list[Span]:
    whole = kinds[start:end]
    kind = Kind.NUMHWORD if _has_digit(whole) else Kind.ASCIIHWORD if whole.isascii() else Kind.HWORD
    spans: list[Span] = [(kind, start, end)]
    for part in whole.split("-"):
        kind = Kind.HWORD_NUMPART if _has_digit(part) else Kind.HWORD_ASCIIPART if part.isascii() else Kind.HWORD_PART
        spans.append((kind, start, start + len(part)))
        start += len(part) + 1
    # The hyphen before a number that did not join the compound is no minus.
    if kinds[end : end + 1] == "-" and kinds[end + 1 : end + 2] in (*"0123456789", MARK):
        spans.append((None, end, end + 1))
    return spans


def _at_sign(kinds: str, start: int) -> tuple[Kind, int] | None:
    """What begins with a sign: a signed number, an entity, a file; None when the place is only passed over."""
    match kinds[start]:
        case "+" | "-":
            signed = SIGNED.match(kinds, start)
            if signed is None:
                return None
            if signed["exponent"]:
                return Kind.SFLOAT, signed.end()
            if signed["fraction"] and VERSION_GOES_ON.match(kinds, signed.end()):
                return None  # A version has no sign.
            return Kind.FLOAT if signed["fraction"] else Kind.INT, signed.end()
        case "&":
            entity = ENTITY.match(kinds, start)
            return (Kind.ENTITY, entity.end()) if entity else None
        case "/":
            file = FILE_AFTER_SLASH.match(kinds, start)
        case "~":
            file = FILE_AT_TILDE.match(kinds, start)
        case ".":
            file = FILE_AT_DOT.match(kinds, start)
        case _:
            return None
    return (Kind.FILE, file.end()) if file else None


def _has_digit(piece: str) -> bool:
    return any("0" <= character <= "9" for character in piece)
