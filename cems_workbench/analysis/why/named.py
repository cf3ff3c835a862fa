"""The memory that is meant: by its id, or by a piece of its text.

A text is looked for as written (ignoring case), then without punctuation and white space, then by its words: the best of a lexical search,
if it has most of them and no other has as many. Several that have the text are named, and none is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rapidfuzz import process

from cems_workbench.errors import InputError
from cems_workbench.records import Memory
from cems_workbench.store import Selection, Store

if TYPE_CHECKING:
    from cems_workbench.pipeline.resources import Resources

MAX_NAMED = 4
"""Memories named where several have the text."""
LOOKED_AT = 50
"""Memories of the lexical search whose texts are compared."""
SHARE = 0.6
"""Least share of the words of the text that a memory has which is taken by its words."""
EXCERPT = 60


def stored_memory(named: str, resources: Resources) -> str:
    """The id of the memory of the store that is meant. Raises InputError with the nearest ids, or with those that have the text."""
    store = resources.store
    if store.memories.known([named]):
        return named
    if not _is_text(named):
        require_stored(named, store)
    found = store.memories.find(Selection(text=named.strip(), sort="id", descending=False), MAX_NAMED + 1)
    near = [memory_id for memory_id, _ in resources.indexes.lexical.search(named, LOOKED_AT)]
    return _meant(named, found.memories, list(store.memories.read(near).values()))


def known_memory(named: str, memories: Mapping[str, Memory]) -> str:
    """The same among the memories of an evidence."""
    if named in memories or not _is_text(named):
        require_known(named, memories)
        return named
    every = sorted(memories.values(), key=lambda memory: memory.id)
    return _meant(named, [one for one in every if named.strip().casefold() in one.content.casefold()], every)


def taken(named: str, memory: Memory) -> str:
    """Which memory was taken for a piece of text: "“our notice”: m021, We gave notice …"; empty for an id."""
    return "" if named == memory.id else f"“{_cut(named)}”: {memory.id}, {_cut(memory.content)}"


def require_stored(memory_id: str, store: Store) -> None:
    """Raise InputError naming the nearest ids if the store has no such memory."""
    if not store.memories.known([memory_id]):
        require_known(memory_id, store.memories.ids())


def require_known(memory_id: str, known: Iterable[str]) -> None:
    """Raise InputError naming the nearest ids if there is no such memory."""
    ids = list(known)
    if memory_id in ids:
        return
    close = [match[0] for match in process.extract(memory_id, sorted(ids), limit=3, score_cutoff=50)]
    hint = f"; the nearest are {', '.join(close)}" if close else ""
    raise InputError(f"{memory_id}: no such memory{hint}")


def _is_text(named: str) -> bool:
    """Whether it may be a piece of text: several words, or one of a script without spaces."""
    return len(named.split()) > 1 or not named.isascii()


def _meant(named: str, exact: Sequence[Memory], near: Sequence[Memory]) -> str:
    plain, words = _plain(named), set(_plain(named).split())
    alike = [one for one in near if plain and plain in _plain(one.content)]
    for those in (exact, alike):
        if len(those) == 1:
            return those[0].id
        if those:
            raise InputError(f"several memories have “{_cut(named)}”: {_list(those)}")
    shared = {one.id: len(words & set(_plain(one.content).split())) for one in near}
    best = sorted((one for one in near if shared[one.id]), key=lambda one: -shared[one.id])
    if best and shared[best[0].id] >= SHARE * len(words):
        first = [one for one in best if shared[one.id] == shared[best[0].id]]
        if len(first) == 1:
            return first[0].id
    nearest = f"; the nearest are {_list(best)}" if best else ""
    raise InputError(f"no memory has “{_cut(named)}”{nearest}")


def _list(memories: Sequence[Memory]) -> str:
    more = f" and {len(memories) - MAX_NAMED} more" if len(memories) > MAX_NAMED else ""
    return "; ".join(f"{one.id} ({_cut(one.content)})" for one in memories[:MAX_NAMED]) + more


def _plain(text: str) -> str:
    """Its words in lower case, one space between."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= EXCERPT else f"{line[: EXCERPT - 1]}…"
