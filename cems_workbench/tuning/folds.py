"""Splits of queries by group: a conversation, session or project is never on both sides, or the estimate would be biased.

Folds have nearly equal numbers of queries: groups go, the largest first, to the fold with the fewest queries. The hold-out takes whole
groups, drawn with a seed, until it has its share. A group is a conversation (a project), a session or a type; a query without one is
a separate group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.pipeline.table import Ints


@dataclass(frozen=True, eq=False)
class Split:
    """Rows of the open queries, in folds, and of the sealed queries."""

    folds: tuple[Ints, ...]
    holdout: Ints

    @property
    def open(self) -> Ints:
        """Every row that is not sealed, ascending."""
        return np.sort(np.concatenate(self.folds))

    def training(self, fold: int) -> Ints:
        """The rows of every other fold, ascending."""
        return np.sort(np.concatenate([rows for i, rows in enumerate(self.folds) if i != fold]))


def split(groups: Sequence[str], folds: int = 5, holdout: float = 0.2, seed: int = 0) -> Split:
    """Split queries by their groups into a hold-out of about that share and into folds. Raises InputError for too few groups.

    With fewer groups than folds there are as many folds as groups.
    """
    # A set has no fixed order, and the seed must give the same folds again.
    names = sorted(set(groups))
    by_group = {name: np.array([row for row, group in enumerate(groups) if group == name]) for name in names}
    sealed = _drawn(by_group, holdout, seed)
    rest = [name for name in names if name not in sealed]
    if len(rest) < 2:
        raise InputError(
            f"{len(names)} groups of queries are too few for a hold-out of {holdout:.0%} and cross-validation; "
            "use a finer grouping"
        )
    parts: list[list[Ints]] = [[] for _ in range(min(folds, len(rest)))]
    order = np.random.default_rng(seed).permutation(len(rest))  # equally large groups in random order
    # Largest first, so that the small groups can even out the folds.
    for i in sorted(order.tolist(), key=lambda i: -len(by_group[rest[i]])):
        smallest = min(range(len(parts)), key=lambda part: sum(map(len, parts[part])))
        parts[smallest].append(by_group[rest[i]])
    none = np.zeros(0, dtype=np.int64)
    held = np.sort(np.concatenate([none, *(by_group[name] for name in sealed)]))
    return Split(tuple(np.sort(np.concatenate(part)) for part in parts), held)


def _drawn(by_group: dict[str, Ints], share: float, seed: int) -> set[str]:
    """Groups in random order, each taken if it brings the hold-out nearer to its share."""
    total = sum(map(len, by_group.values()))
    taken: set[str] = set()
    held = 0
    # A separate stream: the hold-out must not share its order with the folds.
    for i in np.random.default_rng([seed, 1]).permutation(len(by_group)).tolist():
        name = sorted(by_group)[i]
        size = len(by_group[name])
        if abs(held + size - share * total) < abs(held - share * total):
            taken.add(name)
            held += size
    return taken


GroupBy = Literal["project", "session", "type", "query"]
GROUPINGS: tuple[GroupBy, ...] = get_args(GroupBy)
GROUP_WORDS: Mapping[GroupBy, str] = {
    "project": "project or conversation",
    "session": "session",
    "type": "type of question",
    "query": "each query alone",
}
"""Display names of the groupings, on the page and on evidence cards."""
MIN_GROUPS = 4
"""Minimum number of groups to split into hold-out and folds."""


def groups_of(batch: LabelledBatch, by: GroupBy) -> list[str]:
    """The group of every query. A conversation is a project; a query's session is that of its best graded memory.

    A query without the property is a separate group.
    """
    read = _READERS[by]
    return [read(batch, q) or f"query {batch.queries[q].qid}" for q in range(len(batch.queries))]


def natural_grouping(batch: LabelledBatch) -> GroupBy:
    """Project if there are enough of them, else session, else each query alone."""
    for by in ("project", "session"):
        if len(set(groups_of(batch, by))) >= MIN_GROUPS and any(
            _READERS[by](batch, q) for q in range(len(batch.queries))
        ):
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
    "project": _project,
    "session": _session,
    "type": _type,
    "query": lambda batch, q: None,
}
