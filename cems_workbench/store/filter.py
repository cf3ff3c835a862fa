"""The search filter, in the forms that its three users need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cems_workbench.errors import InputError

SCOPES = ("personal", "shared", "both")


@dataclass(frozen=True, slots=True)
class Filter:
    """Restricts a search to a project, a scope and an author. `only_project` keeps only the memories of `project`. Without it (or
    without a project) the project restricts nothing, because preferring the query's project is done by the ranking. `ids` are
    those of the memories of `author`: an index has no authors. Raises InputError for an unknown scope."""

    project: str | None = None
    only_project: bool = False
    scope: str = "both"
    author: str | None = None
    ids: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.scope not in SCOPES:
            raise InputError(f"scope: {self.scope!r} is not one of {', '.join(SCOPES)}")

    @property
    def required_project(self) -> str | None:
        return self.project if self.only_project else None

    @property
    def required_scope(self) -> str | None:
        return None if self.scope == "both" else self.scope

    @property
    def trivial(self) -> bool:
        return self.required_project is None and self.required_scope is None and self.ids is None

    def passes(self, memory_id: str, project: str | None, scope: str) -> bool:
        return not self.excluded_by(memory_id, project, scope)

    def excluded_by(self, memory_id: str, project: str | None, scope: str) -> str:
        """What excludes a memory: "scope", "author" or "project"; empty if nothing does."""
        if self.required_scope not in (None, scope):
            return "scope"
        if self.ids is not None and memory_id not in self.ids:
            return "author"
        return "" if self.required_project in (None, project) else "project"

    def sql(self) -> tuple[str, list[str]]:
        """A WHERE fragment over `project`, `scope` and `author` and its parameters; `TRUE` when trivial."""
        wanted = [("project", self.required_project), ("scope", self.required_scope), ("author", self.author)]
        terms = [(f"{column} = ?", value) for column, value in wanted if value is not None]
        return " AND ".join(term for term, _ in terms) or "TRUE", [value for _, value in terms]

    def chroma(self) -> dict[str, Any] | None:
        """The same as a Chroma `where` document, None when trivial."""
        wanted = {"project": self.required_project, "scope": self.required_scope, "author": self.author}
        terms: list[dict[str, Any]] = [{key: value} for key, value in wanted.items() if value is not None]
        if not terms:
            return None
        return terms[0] if len(terms) == 1 else {"$and": terms}


ANY = Filter()
"""The filter that lets every memory pass."""
