"""Input of the views and tools of the Inspect page, and the glossary of their tooltips.

A view ("What happened") or tool ("Why, and what if") is a module in `views/` or `tools/` with a record `VIEW`, or a tuple of them; no other
file lists it. A folder is imported when its section is first opened, and only the chosen view is computed and drawn. A module without a
record is a helper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import streamlit as st

from cems_workbench.analysis.memory_names import NAME_CHARS, with_names
from cems_workbench.analysis.proposed_edges import ProposedEdge, contradicting
from cems_workbench.analysis.ranks import RankComparison, target_rank
from cems_workbench.config.forms.targets import cannot
from cems_workbench.config.sections import AssemblyConfig
from cems_workbench.evaluation.grades import relevant
from cems_workbench.pipeline import Evidence, Trace
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.list_sources import LIST_SOURCES, list_index, ordinal
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import BY_NAME, adjust
from cems_workbench.progress import Progress
from cems_workbench.records import DEFAULT_SCALE
from cems_workbench.settings import saved_target
from cems_workbench.ui.inspect.state import TARGET
from cems_workbench.ui.kit.widgets import progress_bar

Made = TypeVar("Made")
PAIR = "inspect:next:pair"
"""Session key of the request of the last search with its grades, and the pair of its candidates that is asked about."""
MAX_REMEMBERED = 8
"""Values of a slot that are kept, so that switching back to another memory or value needs no new computation."""


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

    def said(self, text: str, chars: int = NAME_CHARS) -> str:
        """A sentence with the first words of memories instead of their ids."""
        return with_names([text], self.resources.store, self.trace.evidence.memories, chars)[0]

    def cannot(self, *changes: Mapping[str, Any]) -> str:
        """What the store's target cannot run of changes to the config, in words; empty if it can, and without a target."""
        return cannot(saved_target(self.resources.store.path), self.trace.config, *changes)

    @property
    def judged(self) -> tuple[Request, dict[str, int]]:
        """The request with its grades."""
        return self.request, dict(self.grades)

    def asked_pair(self) -> ProposedEdge | None:
        """The pair of the query's candidates that is asked about, looked for once for its request and grades."""
        kept = st.session_state.get(PAIR)
        if kept is None or kept[0] != self.judged:
            found = contradicting(self.trace, self.resources, self.grades, self.relevant_from)
            kept = st.session_state[PAIR] = (self.judged, found)
        edge: ProposedEdge | None = kept[1]
        return edge

    @property
    def target(self) -> int:
        """The target rank: as typed under Why is it missing, else the result limit."""
        return st.session_state.get(TARGET) or target_rank(self.trace.config)

    def remembered(self, slot: str, make: Callable[[Progress], Made], *key: object) -> Made:
        """The value of `make`, kept in the session under `slot` by evidence, config, variants and `key`; its progress
        is drawn here. The most recently used values of a slot are kept. Exceptions of `make` propagate and are not
        kept."""
        kept, found = self._find(slot, key)
        if found is None:
            with progress_bar() as progress:
                made = make(progress)
            found = _Remembered(self.trace.evidence, (self.trace.config, self.variants_off, key), made)
        kept[:] = [*(other for other in kept if other is not found), found][-MAX_REMEMBERED:]
        value: Made = found.value
        return value

    def is_remembered(self, slot: str, *key: object) -> bool:
        """Whether `remembered` has this value."""
        return self._find(slot, key)[1] is not None

    def _find(self, slot: str, key: tuple[object, ...]) -> tuple[list[_Remembered], _Remembered | None]:
        kept: list[_Remembered] = st.session_state.setdefault(f"inspect:{slot}", [])
        whole, evidence = (self.trace.config, self.variants_off, key), self.trace.evidence
        return kept, next((last for last in kept if last.evidence is evidence and last.key == whole), None)


@dataclass(frozen=True, eq=False, slots=True)
class _Remembered:
    evidence: Evidence
    key: tuple[object, ...]
    value: Any


SOURCES: dict[str, str] = {source.name: source.description for source in LIST_SOURCES}

FUSIONS_HELP = (
    "The source's own fused answer beside our ranking after fusion, before it is reranked or adjusted. Of equal scores an engine decides "
    "the order as it pleases: where that alone explains another place, it counts as a tie, not as a difference."
)

RAW: dict[str, str] = {source.name: source.raw for source in LIST_SOURCES}

LOST_HELP = "The stage that lost it from the first {k}, lists where no list has it within them; empty: it is within them, or in no list"
"""Help of "lost at" (`analysis.ranks.loss`)."""

FACTORS = {name: factor.description for name, factor in adjust.FACTORS.items()}


def about(name: str) -> str:
    """Description of a stage or a list; the number in a list's name is that of the query variant searched."""
    if name in BY_NAME:
        return BY_NAME[name].description
    source, _, variant = name.partition(":")
    index = list_index(name)
    if index is not None:
        return f"{SOURCES[source]} This list: memories reached by a {ordinal(index)} relation, which count again."
    searched = "" if not variant else " 0: the query itself." if variant == "0" else f" {variant}: variant {variant}."
    return SOURCES.get(source, "") + searched


def token_count_text(config: AssemblyConfig) -> str:
    """How tokens are counted, and for which text."""
    counter = "counted as ceil(characters / 4)" if config.token_counter == "chars4" else "counted with cl100k"
    text = "the content" if config.text == "memory" else "the text with the best score: a chunk, or the whole"
    return f"Tokens are {counter}, for {text}."
