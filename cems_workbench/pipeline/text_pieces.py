"""Pieces of a memory that other systems embed or index instead of its text as searched.

    plain_text  the text as searched without Markdown signs (the memory agent's messages)
    object      the title, or the content of a memory without one
    fact        “author category object.”, with the content as evidence if the object is the title (the memory agent's facts)

Source: docs/internals/specification.md, "lists".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from cems_workbench.records import Memory
from cems_workbench.store import text_rule

_FENCED, _LINK = re.compile(r"```.*?```", re.DOTALL), re.compile(r"\[([^\]]*)\]\([^)]*\)")
_QUOTED = re.compile(r"^\s*>\s?", re.MULTILINE)


def without_markdown(text: str) -> str:
    """The text without fenced code, link targets, the signs ` * _ ~~, and > before a quoted line; blanks collapsed."""
    text = _LINK.sub(r"\1", _QUOTED.sub("", _FENCED.sub(" ", text))).replace("~~", "")
    return " ".join(re.sub(r"[`*_]", "", text).split())


def fact(memory: Memory) -> str:
    """A memory as the memory agent writes a fact."""
    relation = re.sub("[_-]", " ", memory.category or "").lower()
    said = " ".join(word for word in (memory.author, relation, memory.title or memory.content) if word)
    said = said if said.endswith(".") else f"{said}."
    evidence = f"{memory.author}: {memory.content}" if memory.author else memory.content
    return f"{said} Evidence: {evidence}" if memory.title else said


def _stored(read: Callable[[Memory], str]) -> Callable[[Memory, str], str | None]:
    """A piece that a memory has as it is; None for an empty one."""
    return lambda memory, text: read(memory) or None


PIECES: Mapping[str, Callable[[Memory, str], str | None]] = {
    "text": lambda memory, text: text,
    "plain_text": lambda memory, text: without_markdown(text),
    "object": lambda memory, text: memory.title or memory.content,
    "fact": lambda memory, text: fact(memory),
    **{name: _stored(read) for name, read in text_rule.PIECES.items()},
}
"""Each piece by name, made of a memory and its text as searched."""
OF_TEXT = frozenset({"text", "plain_text"})
"""Pieces that a chunk has; the others are of the whole memory."""
