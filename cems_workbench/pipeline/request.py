"""What is searched: a query with its moment and project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Request:
    """A search request: the query, its project and moment, and further variants typed by hand.

    `searched` is a text that every list searches instead of the query: as given, without typo correction or expansion. `engine_queries`
    has, by list source ("lexical"; of variant 2 "lexical:2"), what that list searches instead of its variant's text, as given. Rerankers
    and judges read the query. Both are what a recording of another system says was searched.
    """

    query: str
    project: str | None = None
    as_of: datetime | None = None
    project_only: bool = False
    manual: tuple[str, ...] = ()
    searched: str | None = None
    engine_queries: Mapping[str, str] = field(default_factory=dict, hash=False)

    def engine_query(self, source: str, variant: int = 0) -> str | None:
        """What the list of a source for a variant searches as given; None if it searches the text of the variant."""
        named = self.engine_queries.get(f"{source}:{variant}")
        return self.engine_queries.get(source) if named is None and variant == 0 else named
