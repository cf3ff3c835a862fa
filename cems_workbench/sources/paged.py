"""Snapshots in pages: ids and markers of a part of a source, and of these the memories that are new or changed, in bounded batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cems_workbench.formats.base.payload import ANY_NAMES, Names, Payload, state_of
from cems_workbench.records import SUPERSEDES, Relation, RowProblem, TakenMemory
from cems_workbench.sources.source import Batch, Changed, Vector, bounded


@dataclass(frozen=True, slots=True)
class Page:
    """A part of the memories that exist: ids and markers, and `read`, which gives those at some of their places.

    `sizes` are their bytes of texts and vectors; empty where the whole page is small enough to be read at once.
    """

    ids: Sequence[str]
    markers: Sequence[str]
    read: Callable[[Sequence[int]], tuple[Sequence[TakenMemory], Sequence[RowProblem]]]
    sizes: Sequence[int] = ()
    problems: Sequence[RowProblem] = ()


@dataclass
class PagedSnapshot(ABC):
    """A `source.Snapshot` of pages."""

    _edges: list[tuple[str, str]] = field(init=False, default_factory=list)
    """(reference of the newer memory, id of the older one)."""
    _known_as: dict[str, str] = field(init=False, default_factory=dict)
    """The ids of memories by the one that edges name."""

    @property
    @abstractmethod
    def total(self) -> int:
        """Number of memories."""

    @abstractmethod
    def pages(self) -> Iterator[Page]:
        """Every memory once. Raises SourceError."""

    def batches(self, changed: Changed) -> Iterator[Batch]:
        """Every id as seen, but for memories that cannot be taken, and those that `changed` selects. Raises SourceError."""
        for page in self.pages():
            problems: Sequence[RowProblem] = page.problems
            wanted = set(changed(page.ids, page.markers)) if page.ids else set()
            places = [place for place, id in enumerate(page.ids) if id in wanted]
            parts = bounded([page.sizes[place] for place in places]) if page.sizes else [slice(None)] if places else []
            seen = 0
            for part in parts:
                chosen = places[part]
                taken, found = page.read(chosen)
                ids = page.ids[seen : chosen[-1] + 1]
                if len(taken) < len(chosen):
                    lost = {page.ids[place] for place in chosen} - {each.memory.id for each in taken}
                    ids = [id for id in ids if id not in lost]
                yield Batch(ids, taken, [*problems, *found])
                seen, problems = chosen[-1] + 1, ()
            if seen < len(page.ids) or problems:
                # Unchanged rows after the last changed one were seen too.
                yield Batch(page.ids[seen:], problems=problems)

    def relations(self) -> Iterator[Sequence[Relation]]:
        """What the rows say supersedes them (`note_state`)."""
        found = {(self._known_as.get(newer, newer), older) for newer, older in self._edges}
        edges = [Relation(newer, older, SUPERSEDES) for newer, older in sorted(found) if newer != older]
        if edges:
            yield edges

    def note_state(self, memory_id: str, payload: Payload, names: Names = ANY_NAMES) -> None:
        """Note what supersedes a memory, and by which id others refer to it."""
        newer, own = (_reference(state_of(payload, name, names)) for name in ("superseded_by", "original_id"))
        if newer is not None and newer.strip():
            self._edges.append((newer, memory_id))
        if own is not None:
            self._known_as.setdefault(own, memory_id)


def _reference(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None


def usable_vector(
    memory_id: str,
    name: str,
    vector: Vector | None,
    dimension: int | None,
    problems: list[RowProblem],
    finite: bool | None = None,
) -> Vector | None:
    """The vector if it can be searched, else None and a problem of the field `name`. `finite`: whether its values are numbers, if known."""
    if vector is None:
        reason = "is missing: the row can be read and not found by its vector"
    elif dimension is not None and vector.size != dimension:
        reason = f"has {vector.size} numbers, most there have {dimension}; it was left out"
    elif not (np.isfinite(vector).all() if finite is None else finite):
        reason = "has values that are no numbers; it was left out"
    else:
        return vector
    problems.append(RowProblem(memory_id, name, reason))
    return None
