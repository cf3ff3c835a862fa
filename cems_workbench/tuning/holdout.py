"""Sealed hold-out: queries that no search sees, scored only on request, with a count of the looks.

Repeated looks turn a hold-out into a training set. Looks are counted per query and query set: the count of a hold-out is that of its most
looked-at query. So it survives another gather, a grown set, and another seed that seals some of the same queries.

A look is counted in the store of the evidence if that can be opened, otherwise in a file next to the evidence, which travels with it. The
file also holds a copy of the store's counts:

    looks at a query = looks in the file + looks in the store, or in the file's copy if the store is not open

So page and command see each other's looks, even while the app holds the store.

Splits of queries by group: a conversation, session or project is never on both sides, or the estimate would be biased.

Folds have nearly equal numbers of queries: groups go, the largest first, to the fold with the fewest queries. The hold-out takes whole
groups, drawn with a seed, until it has its share. A group is a conversation (a project), a session or a type; a query without one is
a separate group.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from cems_workbench.errors import InputError
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


Counts = dict[str, dict[str, int]]
"""Looks by query set and qid."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Proposal against baseline on the same queries: means, the difference with its interval, and p (two-sided).

    Values have the measure's sign; `direction` is -1 if lower is better. `p_greater` is the one-sided p of "the proposal is better": half
    of the two-sided p, or 1 minus that if the proposal is worse.
    """

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
    """Compare (Q) scores of two configs on the same queries; scores are `direction` times the measure, so that larger is better.

    Queries with NaN, for which the measure is not defined, are left out.
    """
    defined = ~(np.isnan(baseline) | np.isnan(tuned))
    baseline, tuned = (direction * scores[defined] for scores in (baseline, tuned))
    difference = (tuned - baseline)[:, None]
    # Of a single query there is no interval; a card holds no NaN, so the ends are its difference.
    low, high = paired_interval(difference)[:, 0] if len(difference) != 1 else (difference[0, 0],) * 2
    p = float(randomisation_test(difference, seed)[0])
    return Gain(len(baseline), mean_of(baseline), mean_of(tuned), float(low), float(high), p, direction)


class LooksFile:
    """Counts in a JSON file: the file's own, and copies of the counts of stores by store id. Without a path they are in memory only."""

    def __init__(self, path: Path | None = None) -> None:
        """Raises InputError for a file that is not one."""
        self.path = path
        self._own: Counts = {}
        self._heard: dict[str, Counts] = {}
        if path is not None:
            self._own, self._heard = _read(path)

    def by_query(self, query_set: str, qids: Sequence[str], without_store: str = "") -> dict[str, int]:
        """Looks at each of these queries: the file's own, and the copies of all stores but one."""
        counted = [self._own, *(counts for store, counts in self._heard.items() if store != without_store)]
        return {qid: sum(counts.get(query_set, {}).get(qid, 0) for counts in counted) for qid in qids}

    def heard(self, store: str, query_set: str, qids: Sequence[str]) -> dict[str, int]:
        """Looks at each of these queries in the copy of a store's counts."""
        known = self._heard.get(store, {}).get(query_set, {})
        return {qid: known.get(qid, 0) for qid in qids}

    def count(self, query_set: str, qids: Sequence[str]) -> int:
        """Looks so far: those of the most looked-at query."""
        return max(self.by_query(query_set, qids).values(), default=0)

    def look(self, query_set: str, qids: Sequence[str]) -> int:
        """Count a look, and return the new count. It is written before anything is shown. Raises InputError."""
        known = self._own.setdefault(query_set, {})
        known.update({qid: known.get(qid, 0) + 1 for qid in qids})
        self._write()
        return self.count(query_set, qids)

    def hear(self, store: str, query_set: str, counts: Mapping[str, int]) -> None:
        """Copy the counts of a store. Raises InputError."""
        self._heard.setdefault(store, {}).setdefault(query_set, {}).update(counts)
        self._write()

    def _write(self) -> None:
        if self.path is None:
            return
        text = json.dumps({"looks": self._own, "stores": self._heard}, indent=1, ensure_ascii=False)
        write_text(self.path, text + "\n")


class HoldoutLooks:
    """Looks at the sealed queries of a query set: the store's counts and the file's."""

    def __init__(self, file: LooksFile, store: Holdouts | None = None, store_id: str = "", who: str = "") -> None:
        """`store` holds the counts of the evidence's store if that is open, `store_id` is its id, `who` the person who looks."""
        self._file, self._store, self._store_id, self._who = file, store, store_id, who

    def lookers(self, query_set: str) -> Mapping[str, int]:
        """Looks at sealed queries of the set in the store by person."""
        return {} if self._store is None else self._store.lookers(query_set)

    def count(self, query_set: str, qids: Sequence[str]) -> int:
        """Looks so far: those of the most looked-at query. The file's copy of the store's counts is refreshed."""
        if self._store is None:
            return self._file.count(query_set, qids)
        counts = self._file.by_query(query_set, qids, self._store_id)
        heard = self._file.heard(self._store_id, query_set, qids)
        present = self._store.by_query(query_set, qids)
        if any(present.get(qid, 0) != heard[qid] for qid in qids):
            with suppress(InputError):  # a read-only folder: the store has the counts
                self._file.hear(self._store_id, query_set, present)
        return max((counts[qid] + present.get(qid, 0) for qid in qids), default=0)

    def look(self, query_set: str, qids: Sequence[str]) -> int:
        """Count a look, and return the new count. It is written before anything is shown. Raises InputError."""
        if self._store is None:
            self._file.look(query_set, qids)
        else:
            self._store.look(query_set, qids, self._who)
        return self.count(query_set, qids)


Looks = HoldoutLooks | LooksFile
"""What counts the looks at a hold-out; a look is written before anything can be shown."""


def looks_path(evidence: Path, query_set: str) -> Path:
    """The look file next to an evidence file. It is named after the query set, so that all evidence of the set shares the count."""
    name = re.sub(r"[^\w.-]+", "-", query_set).strip("-.")[:80]
    return evidence.with_name(f"{name or evidence.name}.looks.json")


def _read(path: Path) -> tuple[Counts, dict[str, Counts]]:
    try:
        read: Any = json.loads(path.read_text(encoding="utf-8"))
        return _counts(read["looks"]), {str(store): _counts(looks) for store, looks in read.get("stores", {}).items()}
    except FileNotFoundError:
        return {}, {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(f"{path}: the count of looks cannot be read; repair or remove it") from None


def _counts(values: Any) -> Counts:
    return {
        str(query_set): {str(qid): int(looks) for qid, looks in by_query.items()}
        for query_set, by_query in values.items()
    }


def mean_of(scores: Floats) -> float:
    """Mean of the (Q) scores that are defined; NaN for none."""
    return float(means(scores[:, None])[0])
