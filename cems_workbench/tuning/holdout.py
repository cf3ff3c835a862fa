"""Splits of queries by group into folds and a sealed hold-out, which no search sees; it is scored only on request, and the looks are
counted.

Repeated looks turn a hold-out into a training set. Looks are counted per query and query set: the count of a hold-out is that of its most
looked-at query. So it survives another gather, a grown set, and another seed that seals some of the same queries.

A look is counted in the store of the evidence if that can be opened, otherwise in a file next to the evidence, which travels with it. The
file also holds a copy of the store's counts:

    looks at a query = looks in the file + looks in the store, or in the file's copy if the store is not open

So page and command see each other's looks, even while the app holds the store.

A conversation, session or project is never on both sides of a split, or the estimate would be biased. Folds have nearly equal numbers of
queries: groups go, the largest first, to the fold with the fewest queries. The hold-out takes whole groups, drawn with a seed, until it
has its share. A group is a conversation (a project), a session or a type; a query without one is a separate group.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from cems_workbench.errors import InputError, counted
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.statistics import means, paired_interval, randomisation_test
from cems_workbench.pipeline.table import Floats, Ints
from cems_workbench.platform.atomic_write import write_text

if TYPE_CHECKING:
    from cems_workbench.store.configs import Holdouts


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
    """Split queries by their groups into a hold-out of about that share and into folds. Raises InputError for too few
    groups. With fewer groups than folds there are as many folds as groups."""
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
MIN_SEALED = 20
"""Below so many sealed queries hardly any gain can be told from chance."""


def few_sealed(sealed: int) -> str:
    """The warning before so few queries are sealed, and before they are opened."""
    return (
        f"{counted(sealed, 'queries')} sealed: fewer than about {MIN_SEALED} cannot tell a gain from chance; seal more, or none, and "
        "rely on the cross-validation"
    )


MIN_GROUPS = 4
"""Minimum number of groups to split into hold-out and folds."""


def groups_of(batch: LabelledBatch, by: GroupBy) -> list[str]:
    """The group of every query. A conversation is a project; a query's session is that of its best graded memory. A
    query without the property is a separate group."""
    return [_group(batch, by, q) or f"query {query.qid}" for q, query in enumerate(batch.queries)]


def natural_grouping(batch: LabelledBatch) -> GroupBy:
    """Project if there are enough of them, else session, else each query alone."""
    rows = range(len(batch.queries))
    for by in ("project", "session"):
        if len(set(groups_of(batch, by))) >= MIN_GROUPS and any(_group(batch, by, q) for q in rows):
            return by
    return "query"


def _group(batch: LabelledBatch, by: GroupBy, q: int) -> str | None:
    query, grades, memories = batch.queries[q], batch.grades[q], batch.evidences[q].memories
    if by == "session":
        best = [key for key in sorted(grades, key=lambda key: (-grades[key], key)) if key in memories]
        return memories[best[0]].session if best else None
    return query.project if by == "project" else query.type if by == "type" else None


Counts = dict[str, dict[str, int]]
"""Looks by query set and qid."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Proposal against baseline on the same queries: means, the difference with its interval, and p (two-sided). Values
    have the measure's sign; `direction` is -1 if lower is better. `p_greater` is the one-sided p of "the proposal is
    better": half of the two-sided p, or 1 minus that if the proposal is worse."""

    queries: int
    baseline: float
    tuned: float
    low: float
    high: float
    p: float
    direction: int = 1

    @property
    def improvement(self) -> float:
        """The difference, positive if the proposal is better."""
        return self.direction * self.difference

    @property
    def difference(self) -> float:
        """Tuned - baseline."""
        return self.tuned - self.baseline

    @property
    def p_greater(self) -> float:
        """One-sided p."""
        return self.p / 2 if self.improvement > 0 else 1 - self.p / 2


def gain(baseline: Floats, tuned: Floats, seed: int = 0, direction: int = 1) -> Gain:
    """Compare (Q) scores of two configs on the same queries; scores are `direction` times the measure, so that larger
    is better. Queries with NaN, for which the measure is not defined, are left out."""
    defined = ~(np.isnan(baseline) | np.isnan(tuned))
    baseline, tuned = (direction * scores[defined] for scores in (baseline, tuned))
    difference = (tuned - baseline)[:, None]
    # Of a single query there is no interval; a card holds no NaN, so the ends are its difference.
    low, high = paired_interval(difference)[:, 0] if len(difference) != 1 else (difference[0, 0],) * 2
    p = float(randomisation_test(difference, seed)[0])
    return Gain(len(baseline), mean_of(baseline), mean_of(tuned), float(low), float(high), p, direction)


class HoldoutLooks:
    """Looks at the sealed queries of query sets: a JSON file's counts, its copies of the counts of stores, and those of the open store."""

    def __init__(
        self, path: Path | None = None, store: Holdouts | None = None, store_id: str = "", who: str = ""
    ) -> None:
        """Without a path the counts are in memory only. `store` is the evidence's, if that is open; `who` looks. Raises
        InputError for a file that is not one."""
        self.path = path
        self._store, self._store_id, self._who = store, store_id, who
        self._own, self._copies = _read(path) if path is not None else ({}, {})

    def lookers(self, query_set: str) -> Mapping[str, int]:
        """Looks at sealed queries of the set in the store by person."""
        return {} if self._store is None else self._store.lookers(query_set)

    def count(self, query_set: str, qids: Sequence[str]) -> int:
        """Looks so far: those of the most looked-at query. The file's copy of the store's counts is refreshed."""
        if self._store is not None:
            present = self._store.by_query(query_set, qids)
            copy = self._copies.setdefault(self._store_id, {}).setdefault(query_set, {})
            if any(present.get(qid, 0) != copy.get(qid, 0) for qid in qids):
                copy.update(present)
                with suppress(InputError):  # a read-only folder: the store has the counts
                    self._write()
        counted = [counts.get(query_set, {}) for counts in (self._own, *self._copies.values())]
        return max((sum(looks.get(qid, 0) for looks in counted) for qid in qids), default=0)

    def look(self, query_set: str, qids: Sequence[str]) -> int:
        """Count a look, and return the new count. It is written before anything is shown. Raises InputError."""
        if self._store is not None:
            self._store.look(query_set, qids, self._who)
        else:
            known = self._own.setdefault(query_set, {})
            known.update({qid: known.get(qid, 0) + 1 for qid in qids})
            self._write()
        return self.count(query_set, qids)

    def _write(self) -> None:
        if self.path is not None:
            text = json.dumps({"looks": self._own, "stores": self._copies}, indent=1, ensure_ascii=False)
            write_text(self.path, text + "\n")


def looks_path(evidence: Path, query_set: str) -> Path:
    """The look file next to an evidence file. It is named after the query set, so that all evidence of the set shares the count."""
    name = re.sub(r"[^\w.-]+", "-", query_set).strip("-.")[:80]
    return evidence.with_name(f"{name or evidence.name}.looks.json")


def _read(path: Path) -> tuple[Counts, dict[str, Counts]]:
    def counts(values: Any) -> Counts:
        return {str(name): {str(qid): int(looks) for qid, looks in row.items()} for name, row in values.items()}

    try:
        read: Any = json.loads(path.read_text(encoding="utf-8"))
        return counts(read["looks"]), {str(store): counts(looks) for store, looks in read.get("stores", {}).items()}
    except FileNotFoundError:
        return {}, {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(f"{path}: the count of looks cannot be read; repair or remove it") from None


def mean_of(scores: Floats) -> float:
    """Mean of the (Q) scores that are defined; NaN for none."""
    return float(means(scores[:, None])[0])
