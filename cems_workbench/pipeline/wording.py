"""Wording shared by stages, reports and pages: ordinals and names of lists."""

from __future__ import annotations

from cems_workbench.pipeline.list_sources import LIST_SOURCES

NUMBERED = frozenset(source.name for source in LIST_SOURCES if not source.per_variant)
"""Sources for which the number in a list's name counts their lists; for the others it is that of a query variant."""


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, ..."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def list_index(name: str) -> int | None:
    """The number of a list among several of its source, such as 2 for `relations:2`; None if the number is a query variant's."""
    source, _, number = name.partition(":")
    return int(number) if source in NUMBERED and number.isdecimal() else None


def list_label(name: str) -> str:
    """The name as pages and reports show it: `relations:2` is "relations (2nd)"; other names are unchanged."""
    index = list_index(name)
    return name if index is None else f"{name.partition(':')[0]} ({ordinal(index)})"


def equal_scores(count: int, value: float, of: str = "") -> str:
    """ "all 12 scores are 1: it tells nothing apart"."""
    return f"all {count} scores{of} are {value:.4g}: it tells nothing apart"
