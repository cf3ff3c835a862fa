"""What a memory is called in sentences for people: its first words. Ids stay in JSON, in what tools read, and where they are asked for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cems_workbench.errors import one_line
from cems_workbench.records import Memory

if TYPE_CHECKING:
    from cems_workbench.results import Table
    from cems_workbench.store import Store

NAME_CHARS = 40
_ID = re.compile(r"(?<!=)\b\w(?:[\w./:#@|-]*\w)?")


def _told(key: str) -> bool:
    """Whether a text in a sentence can only be an id: neither a word nor a figure of the sentence."""
    return not (key.isalpha() or re.fullmatch(r"[\d.]+", key))


def memory_name(memory: Memory, chars: int = NAME_CHARS) -> str:
    """ "“Staying in our flat”": its title, or the beginning of its text."""
    return f"“{one_line(memory.title or memory.content, chars)}”"


def with_names(
    lines: Sequence[str], store: Store, known: Mapping[str, Memory] = MappingProxyType({}), chars: int = NAME_CHARS
) -> list[str]:
    """Lines as `in_words` writes them, of all memories that they name: `known` ones, and others of the store."""
    text = "\n".join(lines)
    if further := {key for key in _ID.findall(text) if key not in known and _told(key)}:
        known = {**known, **store.memories.read(further)}
    return in_words(text, known, chars).split("\n") if lines else []


def in_words(text: str, memories: Mapping[str, Memory], chars: int = NAME_CHARS) -> str:
    """A sentence with the first words of memories instead of their ids; of memories that begin alike the id follows. An id of letters
    alone or of digits alone stays: it may be a word or a figure of the sentence."""
    names = {key: memory_name(memories[key], chars) for key in _ID.findall(text) if key in memories and _told(key)}
    alike = Counter(names.values())

    def named(match: re.Match[str]) -> str:
        name = names.get(match[0])
        return match[0] if name is None else name if alike[name] == 1 else f"{name} ({match[0]})"

    return _ID.sub(named, text)


def table_in_words(
    table: Table, memories: Mapping[str, Memory], queries: Mapping[str, str] = MappingProxyType({})
) -> Table:
    """The shown rows of a table with the first words of memories, and of `queries`, instead of their ids; without the column of ids
    beside that of the contents."""

    def said(name: str, cell: Any) -> Any:
        if not isinstance(cell, str) or name == "content":
            return cell
        if name == "query" and cell in queries:
            return one_line(queries[cell], NAME_CHARS)
        return memory_name(memories[cell]) if name == "memory" and cell in memories else in_words(cell, memories)

    shown = tuple(tuple(map(said, table.columns, row)) for row in table.rows[: table.shown])
    rows = (*shown, *table.rows[len(shown) :])
    beside = ("memory",) if "content" in table.columns else ()
    return replace(table, rows=rows, title=in_words(table.title, memories), unshown=(*table.unshown, *beside))
