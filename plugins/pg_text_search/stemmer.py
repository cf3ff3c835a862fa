"""The English Snowball stemmer ("Porter 2") in the version that PostgreSQL carries, 18 included.

Snowball 3 changed English: "universities" became "universiti", "geologist" "geolog", "organized" "organiz", "international"
"internat". PyStemmer follows Snowball, so of 69,000 distinct words of our data sets it stems 108 otherwise than PostgreSQL. This is the
algorithm as it stood before, from its description (https://snowballstem.org/algorithms/english/stemmer.html). What it says about
apostrophes is left out: no token of the parser has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

MAX_WORD_BYTES = 1_000
"""Longer words are not stemmed."""

IRREGULAR = {
    "skis": "ski",
    "skies": "sky",
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "idly": "idl",
    "gently": "gentl",
    "ugly": "ugli",
    "early": "earli",
    "only": "onli",
    "singly": "singl",
    **{word: word for word in ("sky", "news", "howe", "atlas", "cosmos", "bias", "andes")},
}
KEPT_SINGULARS = frozenset(["inning", "outing", "canning", "herring", "earring", "proceed", "exceed", "succeed"])
"""Words that stay once the plural is off."""

DOUBLES = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")

# Suffix → replacement; only the longest matching suffix is considered.
_LI = {
    "tional": "tion",
    "enci": "ence",
    "anci": "ance",
    "abli": "able",
    "entli": "ent",
    "izer": "ize",
    "ization": "ize",
}
_LI |= {"ational": "ate", "ation": "ate", "ator": "ate", "alism": "al", "aliti": "al", "alli": "al", "fulness": "ful"}
_LI |= {"ousli": "ous", "ousness": "ous", "iveness": "ive", "iviti": "ive", "biliti": "ble", "bli": "ble", "ogi": "og"}
_LI |= {"fulli": "ful", "lessli": "less", "li": ""}
_ICATE = {
    "tional": "tion",
    "ational": "ate",
    "alize": "al",
    "icate": "ic",
    "iciti": "ic",
    "ical": "ic",
    "ful": "",
    "ness": "",
}
_ICATE |= {"ative": ""}
_AL = [
    "al",
    "ance",
    "ence",
    "er",
    "ic",
    "able",
    "ible",
    "ant",
    "ement",
    "ment",
    "ent",
    "ism",
    "ate",
    "iti",
    "ous",
    "ive",
    "ize",
    "ion",
]


def _longest_of(suffixes: Iterable[str]) -> re.Pattern[str]:
    return re.compile(f"(?:{'|'.join(sorted(suffixes, key=len, reverse=True))})$")


STEP_2, STEP_3, STEP_4 = _longest_of(_LI), _longest_of(_ICATE), _longest_of(_AL)

CONSONANT_Y = re.compile("(?<![^aeiouy])y|^y")
REGION_AT_PREFIX = re.compile("gener|commun|arsen")
REGION = re.compile("[aeiouy][^aeiouy]")
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
    word = _mark_consonant_y(word)
    first, second = _regions(word)
    word = _without_plural(word)
    if word not in KEPT_SINGULARS:
        word = _without_ed_and_ing(word, first, whole_doubles)
        if len(word) > 2 and word[-1] in "yY" and word[-2] not in "aeiouy":
            word = word[:-1] + "i"
        word = _shorter_suffix(word, first)
        word = _without_suffix(word, first, second)
        word = _without_last_letter(word, first, second)
    return word.replace("Y", "y")


def _mark_consonant_y(word: str) -> str:
    """Y for each y that begins the word or follows a vowel."""
    if "y" not in word:
        return word
    letters = list(word)
    for place, letter in enumerate(letters):
        if letter == "y" and (place == 0 or letters[place - 1] in "aeiouy"):
            letters[place] = "Y"
    return "".join(letters)


def _regions(word: str) -> tuple[int, int]:
    """Where R1 and R2 begin: each after the first consonant that follows a vowel, R2 within R1."""
    prefix = REGION_AT_PREFIX.match(word)
    found = prefix or REGION.search(word)
    if found is None:
        return len(word), len(word)
    again = REGION.search(word, found.end())
    return found.end(), again.end() if again else len(word)


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
