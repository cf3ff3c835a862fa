"""Lists of stop words in the user's files: plain lists, or the source files of the system that is reproduced, wherever it is installed."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError, nearest
from cems_workbench.platform.parsing import json_values, read_text

MAX_LIST_BYTES = 4_000_000
"""Bytes of a file that stop words are read from."""
HASH_COMMENTS = frozenset({".py", ".pyi", ".rb", ".sh", ".pl", ".r"})
SLASH_COMMENTS = frozenset(
    {".ts", ".tsx", ".js", ".jsx", ".mjs", ".cjs", ".mts", ".cts", ".go", ".rs", ".java", ".kt", ".scala", ".swift"}
    | {".c", ".h", ".cc", ".cpp", ".hpp", ".cs", ".php", ".dart"}
)


BESIDE = "beside:"
"""Before a path that is looked for, such as `node_modules/PACKAGE/FILE.js#NAME`: a list of an installation that may stand anywhere."""


class NotInstalledError(InputError):
    """A list of stop words that is read from an installation was not found."""


def stop_list(name: str | None, beside: Path | None = None) -> frozenset[str]:
    """The lower-cased stop words of a file, empty for None.

    A file of source code gives the quoted words of the only list or set that is assigned to a name, or of `FILE#NAME`; JSON gives its
    list, or the one under NAME. Any other file gives its words, separated by white space, without the lines that begin with `#`. In a path
    `*` stands for any characters of a name, in NAME too, which then gives the words of all its lists. After `beside:` a path is looked for
    in the folders above the working folder and `beside`, in those next to them, and where Node.js installs packages for all users.
    Raises InputError if there is no such file, list or word, NotInstalledError where `beside:` finds no file.
    """
    if name is None:
        return frozenset()
    file = file_of(name, beside)
    try:
        changed = file.stat().st_mtime_ns
    except OSError:
        changed = 0  # read_text says what is wrong
    return _read_list(file, name.partition("#")[2], changed)


def file_of(name: str, beside: Path | None = None) -> Path:
    """The file that a list of stop words is read from, whether it is there or not. Raises NotInstalledError as `stop_list`."""
    path = name.partition("#")[0]
    file = Path(path).expanduser()
    if path.startswith(BESIDE):
        path = path.removeprefix(BESIDE)
        found = _first_beside(path, beside, Path.cwd())
        if found is None:
            raise NotInstalledError(
                f"no {path} beside the store, the working folder or Node.js; name it as FOLDER/{path}"
            )
        file = found
    return min(file.parent.glob(file.name), default=file) if "*" in file.name else file


@lru_cache(maxsize=32)
def _first_beside(path: str, beside: Path | None, working: Path) -> Path | None:
    return next(files_beside(path, [] if beside is None else [beside]), None)


def files_beside(path: str, beside: Iterable[Path] = ()) -> Iterator[Path]:
    """Files of a path below the folders `beside`, the working folder and those above them, and one level lower; then where Node.js, or
    Python, has packages."""
    places = [place for folder in (*beside, Path.cwd()) for place in (folder.resolve(), *folder.resolve().parents)]
    places += [Path(folder).parent for folder in os.environ.get("NODE_PATH", "").split(os.pathsep) if folder]
    places += [Path.home(), *(Path(node).resolve().parents[1] / "lib" for node in (shutil.which("node"),) if node)]
    spec = find_spec(path.partition("/")[0]) if path.endswith(".py") else None
    places += [Path(folder).parent for folder in (spec.submodule_search_locations or ())] if spec else []
    for place in dict.fromkeys(places):
        for pattern in (path, f"*/{path}"):
            with suppress(OSError):
                yield from sorted(file for file in place.glob(pattern) if file.is_file())


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
        matching = [words for called, words in found if fnmatchcase(called, variable)]
        if not matching:
            near = nearest(variable, {called for called, _ in found})
            hint = f"; did you mean {near}?" if near else f"; it has {names}" if names else ""
            raise InputError(f"stop words: {file} assigns no list of quoted words to {variable}{hint}")
        return frozenset().union(*matching) if "*" in variable else matching[0]
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
