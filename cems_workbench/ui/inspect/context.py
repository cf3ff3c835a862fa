"""What a view or a tool of the Inspect page is given to draw from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import streamlit as st

from cems_workbench.analysis.ranks import RankComparison, target_rank
from cems_workbench.evaluation.grades import relevant
from cems_workbench.pipeline import Evidence, Trace
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import DEFAULT_SCALE

Made = TypeVar("Made")
TARGET = "inspect:why:k"
"""The target rank that somebody typed, for all views and tools of the page."""


@dataclass(frozen=True, eq=False)
class InspectContext:
    """One query under the present config, made once a run of the page."""

    request: Request
    trace: Trace
    resources: Resources
    """The open store with its models."""
    grades: Mapping[str, int]
    """Human grades by memory id; empty when nobody judged the query."""
    variants_off: frozenset[int]
    """Query variants that are switched off."""
    against: RankComparison | None
    """The trace beside that of the pinned baseline; None when nothing is pinned."""
    followed: str | None
    """The memory that is followed; None when none is, or when it is no candidate."""
    relevant_from: int = DEFAULT_SCALE.relevant_from
    """The lowest grade that counts as relevant in the query's set."""
    answerable: bool | None = None
    """Whether people, or else its set, say that something in the store answers it; None where nobody does."""

    @property
    def relevant(self) -> set[str]:
        """The memories judged relevant."""
        return relevant(self.grades, self.relevant_from)

    @property
    def target(self) -> int:
        """How far up a memory should stand: what was typed under Why is it missing, else the result limit."""
        return st.session_state.get(TARGET) or target_rank(self.trace.config)

    def remembered(self, slot: str, make: Callable[[], Made], *key: object, most: int = 1) -> Made:
        """What `make` returns, kept in the session under `slot` while evidence, config, variants and `key` are the same.

        The last `most` of a slot are kept, by use. What `make` raises passes through and is not kept.
        """
        kept = self._kept(slot)
        found = self._find(kept, key)
        if found is None:
            found = _Remembered(self.trace.evidence, self._whole(key), make())
        else:
            kept.remove(found)
        kept.append(found)
        del kept[:-most]
        value: Made = found.value
        return value

    def is_remembered(self, slot: str, *key: object) -> bool:
        """Would `remembered` have it without making it?"""
        return self._find(self._kept(slot), key) is not None

    def _kept(self, slot: str) -> list[_Remembered]:
        kept: list[_Remembered] = st.session_state.setdefault(f"inspect:{slot}", [])
        return kept

    def _find(self, kept: Sequence[_Remembered], key: tuple[object, ...]) -> _Remembered | None:
        whole, evidence = self._whole(key), self.trace.evidence
        return next((last for last in kept if last.evidence is evidence and last.key == whole), None)

    def _whole(self, key: tuple[object, ...]) -> tuple[object, ...]:
        return self.trace.config, self.variants_off, key


@dataclass(frozen=True, eq=False, slots=True)
class _Remembered:
    evidence: Evidence
    key: tuple[object, ...]
    value: Any
