"""Input of the views and tools of the Inspect page."""

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
from cems_workbench.ui.inspect.state import TARGET

Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class InspectContext:
    """One query under the current config, created once per rerun of the page."""

    request: Request
    trace: Trace
    resources: Resources
    """The open store and its models."""
    grades: Mapping[str, int]
    """Human grades by memory id; empty if the query is not judged."""
    variants_off: frozenset[int]
    """Disabled query variants."""
    against: RankComparison | None
    """The comparison with the pinned baseline; None if nothing is pinned."""
    followed: str | None
    """The followed memory; None if there is none, or if it is not a candidate."""
    relevant_from: int = DEFAULT_SCALE.relevant_from
    """The lowest grade that counts as relevant in the query's set."""
    answerable: bool | None = None
    """Whether the store answers the query, by people or else by its query set; None if unknown."""

    @property
    def relevant(self) -> set[str]:
        """Memories judged relevant."""
        return relevant(self.grades, self.relevant_from)

    @property
    def target(self) -> int:
        """The target rank: as typed under Why is it missing, else the result limit."""
        return st.session_state.get(TARGET) or target_rank(self.trace.config)

    def remembered(self, slot: str, make: Callable[[], Made], *key: object, most: int = 1) -> Made:
        """The value of `make`, cached in the session under `slot` by evidence, config, variants and `key`.

        The `most` recently used values of a slot are kept. Exceptions of `make` propagate and are not cached.
        """
        kept = self._cached(slot)
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
        """Whether `remembered` has this value cached."""
        return self._find(self._cached(slot), key) is not None

    def _cached(self, slot: str) -> list[_Remembered]:
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
