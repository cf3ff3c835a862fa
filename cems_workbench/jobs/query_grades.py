"""The stored query that a request means, and what people judged for it; apart from `labelling`, because every search shows it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from cems_workbench.evaluation.grades import agreed_answerable, agreed_grades, as_judged
from cems_workbench.records import DEFAULT_SCALE, Query

if TYPE_CHECKING:
    from cems_workbench.pipeline.gather import Request
    from cems_workbench.store import Store


def stored_query(request: Request, store: Store) -> Query | None:
    """The stored query of this text (`with_words`): of several the one of the same project and moment, else the one written so, else the
    latest; None without one. Its grades are shown, and new grades are for it."""
    matches = store.queries.with_words(request.query)
    if not matches:
        return None

    def nearness(query: Query) -> tuple[bool, bool, bool, str]:
        same = query.as_of == request.as_of, query.project == request.project, query.query == request.query
        return *same, str(query.as_of)

    return max(matches, key=nearness)


class QueryGrades(NamedTuple):
    """Human grades of a query by memory id, the lowest relevant grade, and whether people, or else its set, say that the store has an
    answer; None if nobody does."""

    grades: Mapping[str, int] = MappingProxyType({})
    relevant_from: int = DEFAULT_SCALE.relevant_from
    answerable: bool | None = None


def query_grades(request: Request, store: Store) -> QueryGrades:
    """The human grades of the stored query that a request means (`stored_query`); none for another request."""
    meant = stored_query(request, store)
    if meant is None:
        return QueryGrades()
    judgments = store.judgments.read(meant.qid, "human")
    grades = agreed_grades(judgments).get(meant.qid, {})
    relevant_from = store.query_sets.relevant_from_of([meant.qid])[meant.qid] if grades else DEFAULT_SCALE.relevant_from
    answerable = as_judged([meant], agreed_answerable(judgments))[0].answerable
    return QueryGrades(grades, relevant_from, answerable)
