"""Which queries belong together and must not be split: those of one conversation, session, project or type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from cems_workbench.evaluation.batch import LabelledBatch

GroupBy = Literal["project", "session", "type", "query"]
GROUPINGS: tuple[GroupBy, ...] = get_args(GroupBy)
FEWEST = 4
"""Groups from which on a grouping can be split into hold-out and folds."""


def groups_of(batch: LabelledBatch, by: GroupBy) -> list[str]:
    """The group of every query. A conversation is a project; a query's session is that of its best graded memory.

    A query without the property is a group of its own.
    """
    read = _READERS[by]
    return [read(batch, q) or f"query {batch.queries[q].qid}" for q in range(len(batch.queries))]


def natural_grouping(batch: LabelledBatch) -> GroupBy:
    """Project where there are enough of them, else session, else each query alone."""
    for by in ("project", "session"):
        if len(set(groups_of(batch, by))) >= FEWEST and any(_READERS[by](batch, q) for q in range(len(batch.queries))):
            return by
    return "query"


def _project(batch: LabelledBatch, q: int) -> str | None:
    return batch.queries[q].project


def _session(batch: LabelledBatch, q: int) -> str | None:
    grades, memories = batch.grades[q], batch.evidences[q].memories
    best = [key for key in sorted(grades, key=lambda key: (-grades[key], key)) if key in memories]
    return memories[best[0]].session if best else None


def _type(batch: LabelledBatch, q: int) -> str | None:
    return batch.queries[q].type


_READERS: dict[str, Callable[[LabelledBatch, int], str | None]] = {
    "project": _project, "session": _session, "type": _type, "query": lambda batch, q: None,
}  # fmt: skip
