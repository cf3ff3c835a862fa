"""Which turns a memory names itself, as its importer kept it: recorded, where everything else is inferred.

A memory names a turn by its own id (a store of raw turns), by its source reference, or by a tag. A turn's names are its id and the
reference that its file gives it, whole or from a colon or a slash on: "locomo:26:D1:3", "26:D1:3", "D1:3". Several are separated by
commas, semicolons or white space. A number alone names no turn. A name that several conversations have counts within the memory's project
alone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from cems_workbench.records import Memory
from cems_workbench.store.memories import Origin

_BETWEEN = re.compile(r"[\s,;]+")
_PART = re.compile(r"[:/]")


class Provenance:
    """The names of a transcript's turns; a turn is known by a number."""

    def __init__(self) -> None:
        self._turns: defaultdict[str, dict[int, str | None]] = defaultdict(dict)

    def add(self, number: int, turn: Memory) -> None:
        """Take the names of a turn."""
        for name in {*_names(turn.id), *_names(turn.source_ref or "")}:
            self._turns[name][number] = turn.project

    def named_by(self, memory: Memory) -> list[int]:
        """The turns that a memory names, in their order; none if it names none."""
        given = [memory.id, *memory.tags, *_BETWEEN.split(memory.source_ref or "")]
        return sorted({number for name in given for number in self._found(name, memory.project)})

    def _found(self, name: str, project: str | None) -> Iterable[int]:
        known = self._turns.get(name, {})
        of_project = [number for number, of in known.items() if of == project]
        return of_project or (known if len(known) == 1 else ())


class Named:
    """The memories of a store that name turns by their source reference, or sessions."""

    def __init__(self, origins: Iterable[Origin]) -> None:
        self._turns, self._sessions = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        for one in origins:
            for name in filter(None, _BETWEEN.split(one.source_ref or "")):
                self._turns[name].append(one.id)
            if one.session:
                self._sessions[one.session].append(one.id)

    def of(self, turn: Memory) -> list[str]:
        """The memories that name a turn; a store of raw turns has it itself."""
        names = dict.fromkeys((*_names(turn.id), *_names(turn.source_ref or "")))
        return list(dict.fromkeys([turn.id, *(one for name in names for one in self._turns.get(name, ()))]))

    def beside(self, turn: Memory) -> list[str]:
        """The memories that name the session of a turn."""
        return self._sessions.get(turn.session, []) if turn.session else []


def _names(reference: str) -> Iterator[str]:
    starts = [0, *(match.end() for match in _PART.finditer(reference))]
    yield from (name for start in starts if (name := reference[start:]) and not name.isdecimal())
