"""The words that a lexical engine gets of a query: reduced to ASCII, without stop words, the first so many.

    signs outside ASCII out -> split at white space -> short and stop words out -> repeats out -> the first `max_words`

Each step is off by default. The stop words are read from the user's files (`stop_list`): a plain list, or the source file of the system
that is reproduced.

Source: docs/internals/specification.md, "lists".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from cems_workbench.errors import InputError, nearest
from cems_workbench.platform.parsing import json_values, read_text

Outside = Literal["kept", "blanked", "removed"]
"""What happens to the signs that are neither ASCII letters nor digits: nothing, a blank for each, or they vanish."""


def query_words(
    text: str,
    *,
    outside: Outside = "kept",
    also: str = "",
    stop_words: Collection[str] = frozenset(),
    min_characters: int = 1,
    distinct: bool = False,
    max_words: int | None = None,
) -> list[str]:
    """The words of a query in their order, in the case they were typed in.

    `also` are further signs that `outside` leaves alone. `stop_words` are lower-cased; they and repeats are found by the lower-cased word.
    """
    if outside != "kept":
        signs = re.compile(f"[^A-Za-z0-9\\s{re.escape(also)}]")
        text = signs.sub(" " if outside == "blanked" else "", text)
    words = [word for word in text.split() if len(word) >= min_characters and word.lower() not in stop_words]
    if distinct:
        first: dict[str, str] = {}
        for word in words:
            first.setdefault(word.lower(), word)
        words = list(first.values())
    return words if max_words is None else words[:max_words]


MAX_LIST_BYTES = 4_000_000
"""Bytes of a file that stop words are read from."""
HASH_COMMENTS = frozenset({".py", ".pyi", ".rb", ".sh", ".pl", ".r"})
SLASH_COMMENTS = frozenset(
    {".ts", ".tsx", ".js", ".jsx", ".mjs", ".cjs", ".mts", ".cts", ".go", ".rs", ".java", ".kt", ".scala", ".swift"}
    | {".c", ".h", ".cc", ".cpp", ".hpp", ".cs", ".php", ".dart"}
)


def stop_list(name: str | None) -> frozenset[str]:
    """The lower-cased stop words of a file, empty for None.

    A file of source code gives the quoted words of the only list or set that is assigned to a name, or of `FILE#NAME`; JSON gives its
    list, or the one under NAME. Any other file gives its words, separated by white space, without the lines that begin with `#`.
    Raises InputError if there is no such file, list or word.
    """
    if name is None:
        return frozenset()
    path, _, variable = name.partition("#")
    file = Path(path).expanduser()
    try:
        changed = file.stat().st_mtime_ns
    except OSError:
        changed = 0  # read_text says what is wrong
    return _read_list(file, variable, changed)


@lru_cache(maxsize=32)
def _read_list(file: Path, variable: str, changed: int) -> frozenset[str]:
    text = read_text(file, "stop words", MAX_LIST_BYTES)
    suffix = file.suffix.lower()
    if suffix == ".json":
        found = _json_lists(json_values(text, str(file), MAX_LIST_BYTES))
    elif suffix in HASH_COMMENTS | SLASH_COMMENTS:
        found = [row for row in _collections(text, suffix in HASH_COMMENTS) if row[0]]
    else:
        if variable:
            raise InputError(f"stop words: {file} is a plain list of words; #{variable} fits files of source code")
        lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
        words = {word.lower() for line in lines for word in line.split()}
        if not words:
            raise InputError(f"stop words: {file} has no words")
        return frozenset(words)
    names = ", ".join(sorted({called for called, _ in found if called})[:8])
    if variable:
        matching = [words for called, words in found if called == variable]
        if not matching:
            near = nearest(variable, {called for called, _ in found})
            hint = f"; did you mean {near}?" if near else f"; it has {names}" if names else ""
            raise InputError(f"stop words: {file} assigns no list of quoted words to {variable}{hint}")
        return matching[0]
    if not found:
        raise InputError(f"stop words: {file} has no list of quoted words")
    if len(found) > 1:
        raise InputError(f"stop words: {file} has {len(found)} lists of quoted words; add #NAME, such as {names}")
    return found[0][1]


def _json_lists(values: Any) -> list[tuple[str, frozenset[str]]]:
    """(key or "", words) of a list of texts, or of those under the keys of an object."""
    lists = values.items() if isinstance(values, dict) else [("", values)]
    return [
        (key, frozenset(map(str.lower, words)))
        for key, words in lists
        if isinstance(words, list) and words and all(isinstance(word, str) for word in words)
    ]


_ASSIGNED = re.compile(r"([A-Za-z_$][\w$]*)\s*(?::[^=;{}()]*)?=(?![=>])[^=;\"'`{}]*$")
"""The name before an opening bracket, across a type and wrappers such as `new Set(`."""
_STRING = re.compile(r"'''(?s:.*?)'''|\"\"\"(?s:.*?)\"\"\"|`[^`]*`|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"")
_HASH, _SLASH = re.compile(r"#[^\n]*"), re.compile(r"//[^\n]*|/\*(?s:.*?)\*/")
_OPENING, _CLOSING = "[{(", "]})"
_SPLIT = re.compile(r"\s*\.\s*split\s*\(")


def _collections(text: str, hash_comments: bool) -> Iterator[tuple[str, frozenset[str]]]:
    """(variable or "", words) of every bracket with nothing but quoted words in it, and of every quoted text that is split into words."""
    comment = _HASH if hash_comments else _SLASH
    opened: list[tuple[int, list[str], bool]] = []  # where the bracket is, its words, whether it holds anything else
    at = 0
    while at < len(text):
        sign = text[at]
        if skipped := comment.match(text, at):
            at = skipped.end()
            continue
        if sign in "'\"`" and (quoted := _STRING.match(text, at)):
            edge = 3 if quoted.group().startswith(("'''", '"""')) else 1
            inside = quoted.group()[edge:-edge]
            if _SPLIT.match(text, quoted.end()):
                if words := frozenset(inside.lower().split()):
                    yield _name_before(text, at), words
            elif opened:
                opened[-1][1].append(re.sub(r"\\(.)", r"\1", inside).lower())
            at = quoted.end()
            continue
        if sign in _OPENING:
            opened.append((at, [], False))
        elif sign in _CLOSING and opened:
            start, words_here, other = opened.pop()
            listed = frozenset(word for word in words_here if word)
            if len(words_here) > 1 and not other and listed:
                yield _name_before(text, start), listed
            if opened:
                opened[-1] = (opened[-1][0], opened[-1][1], True)
        elif not sign.isspace() and sign != "," and opened:
            opened[-1] = (opened[-1][0], opened[-1][1], True)
        at += 1


def _name_before(text: str, at: int) -> str:
    found = _ASSIGNED.search(text[max(0, at - 300) : at])
    return found[1] if found else ""
