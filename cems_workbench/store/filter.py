"""Which memories a search may return: one filter, said once for each of the three places that apply it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cems_workbench.errors import InputError

SCOPES = ("personal", "shared", "both")


@dataclass(frozen=True, slots=True)
class Filter:
    """Restricts a search to a project and a scope.

    `project_only` keeps the memories of `project` alone; without it (or with no project) the project restricts
    nothing, because preferring the query's project is the ranking's business. Raises InputError on another scope.
    """

    project: str | None = None
    project_only: bool = False
    scope: str = "both"

    def __post_init__(self) -> None:
        if self.scope not in SCOPES:
            raise InputError(f"scope: {self.scope!r} is not one of {', '.join(SCOPES)}")

    @property
    def required_project(self) -> str | None:
        """The project a memory must have, or None when any will do."""
        return self.project if self.project_only else None

    @property
    def required_scope(self) -> str | None:
        """The scope a memory must have, or None when any will do."""
        return None if self.scope == "both" else self.scope

    @property
    def trivial(self) -> bool:
        """Whether every memory passes."""
        return self.required_project is None and self.required_scope is None

    def sql(self) -> tuple[str, list[str]]:
        """A WHERE fragment over `project` and `scope` and its parameters; `TRUE` when trivial."""
        wanted = [("project", self.required_project), ("scope", self.required_scope)]
        terms = [(f"{column} = ?", value) for column, value in wanted if value is not None]
        return " AND ".join(term for term, _ in terms) or "TRUE", [value for _, value in terms]

    def chroma(self) -> dict[str, Any] | None:
        """The same as a Chroma `where` document, None when trivial."""
        wanted = {"project": self.required_project, "scope": self.required_scope}
        terms: list[dict[str, Any]] = [{key: value} for key, value in wanted.items() if value is not None]
        if not terms:
            return None
        return terms[0] if len(terms) == 1 else {"$and": terms}


ANY = Filter()
"""The filter that lets every memory pass."""
