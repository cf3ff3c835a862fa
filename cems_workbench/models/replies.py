"""Reading what a language model said, tolerantly: fences, thinking aloud, numbering, bullets, quotes, JSON, prose around it.

Every reader is pure, reads at most `READ_CHARS` characters, and raises ModelError, never anything else, when the reply
cannot be used. An apology ("I'm sorry, ...") is no reply.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from cems_workbench.errors import ModelError
from cems_workbench.models.calling import one_line

READ_CHARS = 20_000
LINE_CHARS = 300
"""A longer line is prose, not a search term or a sub-question."""
TEXT_CHARS = 2_000

_THINKING = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n`]*$", re.MULTILINE)
_APOLOGY = re.compile(
    r"(?:i['’]?m|i am|we are|we['’]re)? ?(?:very |so )?sorry\b|as an ai\b|i cannot help\b", re.IGNORECASE
)
_MARK = re.compile(r"\s*(?:[-*•‣–—+]\s+|\(?\d{1,3}[.):]\s+|\(?[a-hA-H][.)]\s+)")
_LABEL = re.compile(
    r"(?:\*\*|__)?(?:the )?(?:hypothetical |ideal )?(?:memory|answer|passage|document)(?:\*\*|__)?\s*:(?:\*\*|__)?\s*",
    re.IGNORECASE,
)
_WRAPPERS = ('"', "'", "`", "“”", "‘’", "«»", "**", "__", "*")
_OPENING = re.compile(r"[{\[]")
_HEADING = re.compile(r"[^\n]{1,100}:[ \t]*\n+(?=\s*\S)")
_WORD = re.compile(r"[a-z]+", re.IGNORECASE)


def plain(reply: str) -> str:
    """The reply without thinking aloud and code fences, stripped; "" when nothing is left."""
    return _FENCE.sub("", _THINKING.sub("", reply[:READ_CHARS])).strip()


def json_values(text: str) -> Iterator[Any]:
    """Every JSON object or array that stands in the text, outermost only, in order; none for text without any."""
    decoder = json.JSONDecoder()
    at, failures = 0, 0
    while failures < 100 and (found := _OPENING.search(text, at)):
        try:
            value, at = decoder.raw_decode(text, found.start())
            yield value
        except (ValueError, RecursionError):
            at, failures = found.start() + 1, failures + 1


def lines(reply: str, most: int) -> list[str]:
    """The first `most` items of a list, each on one line, without repetitions (case aside).

    A JSON array of texts, or an object that holds one; else the lines that have a bullet or a number; else, where none
    has, every line that is no heading ("Here they are:"). Items longer than `LINE_CHARS` are left out. Raises ModelError
    when no item is left.
    """
    text = usable(reply)
    items = next((found for value in json_values(text) if (found := _texts(value))), None)
    if items is None and not text.startswith(("[", "{")):  # JSON that was cut off is no list of lines
        rows = [row for row in text.splitlines() if row.strip()]
        marked = [row for row in rows if _MARK.match(row)]
        items = [_MARK.sub("", row, count=1) for row in marked] or [
            row for row in rows if not row.rstrip().endswith(":")
        ]
    kept: dict[str, str] = {}
    for item in items or ():
        bare = unwrapped(" ".join(item.split()))
        if any(char.isalnum() for char in bare) and len(bare) <= LINE_CHARS:
            kept.setdefault(bare.casefold(), bare)
    if not kept:
        raise _unusable("a list", reply)
    return list(kept.values())[: max(most, 0)]


def passage(reply: str) -> str:
    """One text of at most `TEXT_CHARS` characters: JSON with a single text in it, or the reply without label and quotes.

    Raises ModelError when it is empty or an apology.
    """
    text = usable(reply)
    found = next((value for value in json_values(text) if text.startswith(("{", "["))), None)
    texts = [value for value in found.values() if isinstance(value, str)] if isinstance(found, dict) else _texts(found)
    text = texts[0] if texts and len(texts) == 1 else text
    text = text[heading.end() :] if (heading := _HEADING.match(text)) else text
    text = unwrapped(_LABEL.sub("", unwrapped(text), count=1) if _LABEL.match(unwrapped(text)) else text)
    text = text[:TEXT_CHARS].strip()
    if not any(char.isalnum() for char in text):
        raise _unusable("a text", reply)
    return text


def fields(reply: str) -> dict[str, Any]:
    """The fields of a JSON object, or of lines "key: value"; keys in lower case with underscores. Raises ModelError."""
    text = usable(reply)
    found: dict[str, Any] | None = next(
        (value for value in json_values(text) if isinstance(value, dict) and value), None
    )
    if found is None:
        pairs = [_MARK.sub("", row, count=1).partition(":") for row in text.splitlines()]
        found = {key: value.strip() for key, colon, value in pairs if colon and value.strip() and len(key) < 40}
    if not found:
        raise _unusable("fields", reply)
    return {re.sub(r"\W+", "_", unwrapped(key.strip()).lower()): value for key, value in found.items()}


def yes_or_no(value: Any) -> bool | None:
    """True, False, or None when a value says neither: booleans, 1 and 0, or a text with exactly one of yes/true, no/false."""
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return bool(value) if value in (0, 1) else None
    if not isinstance(value, str):
        return None
    words: list[str] = [word.lower() for word in _WORD.findall(value[:READ_CHARS])]
    said = {word in ("yes", "true") for word in words if word in ("yes", "no", "true", "false")}
    if words and words[0] in ("yes", "no"):
        return words[0] == "yes"
    return True in said if len(said) == 1 else None


def decision(reply: str) -> bool:
    """The yes or no of a reply: its JSON, its first word, or its only yes or no. Raises ModelError when there is none."""
    text = usable(reply)
    for value in json_values(text):
        inside = list(value.values()) if isinstance(value, dict) else value
        said = {answer for item in inside if (answer := yes_or_no(item)) is not None}
        if len(said) == 1:
            return said.pop()
    answer = yes_or_no(text)
    if answer is None:
        raise _unusable("yes or no", reply)
    return answer


def usable(reply: str) -> str:
    """`plain(reply)`. Raises ModelError when it is empty or an apology."""
    text = plain(reply)
    if not text or _APOLOGY.match(text):
        raise _unusable("an answer", reply)
    return text


def unwrapped(text: str) -> str:
    """The text without the quotes or emphasis it stands in, whatever their nesting, and without a comma after them."""
    while True:
        bare = text.strip()
        if len(bare) > 1 and bare[-1] in ",;" and bare[-2] in "\"'`”’»":
            bare = bare[:-1]
        for mark in _WRAPPERS:
            first, last = (mark[0], mark[-1]) if mark in ("“”", "‘’", "«»") else (mark, mark)
            inside = bare[len(first) : -len(last)]
            if inside and bare.startswith(first) and bare.endswith(last) and first not in inside:
                bare = inside.strip()
                break
        if bare == text:
            return bare
        text = bare


def _texts(value: Any, depth: int = 3) -> list[str] | None:
    """The texts of a JSON list, or of the first list in an object; None when there are none, or only deeper ones."""
    if isinstance(value, dict):
        inner = (_texts(inside, depth - 1) for inside in value.values() if depth)
        return next((found for found in inner if found), None)
    if not isinstance(value, Sequence) or isinstance(value, str):
        return None
    out = []
    for item in value:
        inside = (
            next((text for text in item.values() if isinstance(text, str)), None) if isinstance(item, dict) else item
        )
        if isinstance(inside, str):
            out.append(inside)
    return out or None


def _unusable(wanted: str, reply: str) -> ModelError:
    said = one_line(reply)[:80]
    return ModelError(f"the language model's reply holds no {wanted.removeprefix('a ').removeprefix('an ')}: {said!r}")
