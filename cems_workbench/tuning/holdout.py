"""The sealed hold-out: queries that no search sees, scored only when asked, and every look is counted.

A hold-out that is looked at again and again becomes a training set. The count is kept with the query set, in the store where there is
one and else in a file beside the evidence, for each query: a hold-out has been looked at as often as the most looked at of its queries.
So the count goes on when the evidence is gathered again, and when another seed seals some of the same queries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cems_workbench.errors import InputError
from cems_workbench.evaluation.statistics import bootstrap, randomisation_test
from cems_workbench.pipeline.table import Floats


@dataclass(frozen=True, slots=True)
class Gain:
    """Proposal against baseline on the same queries: means, the difference with its interval, and p (two-sided).

    `p_greater` is the one-sided p of "the proposal is better": half of the two-sided, or 1 less that where it is worse.
    """

    queries: int
    baseline: float
    tuned: float
    low: float
    high: float
    p: float

    @property
    def difference(self) -> float:
        """Tuned - baseline."""
        return self.tuned - self.baseline

    @property
    def p_greater(self) -> float:
        """One-sided p."""
        return self.p / 2 if self.difference > 0 else 1 - self.p / 2


def gain(baseline: Floats, tuned: Floats, seed: int = 0) -> Gain:
    """Compare (Q) scores of two configs on the same queries."""
    difference = (tuned - baseline)[:, None]
    low, high = bootstrap(difference, seed)[:, 0]
    p = float(randomisation_test(difference, seed)[0])
    return Gain(len(baseline), float(baseline.mean()), float(tuned.mean()), float(low), float(high), p)


class Looks(Protocol):
    """How often the sealed queries of a query set were scored: `Store.holdouts`, or a `LooksFile`."""

    def count(self, query_set: str, qids: Sequence[str]) -> int:
        """Looks at these queries so far."""

    def look(self, query_set: str, qids: Sequence[str]) -> int:
        """Count a look at these queries and give the number of it; it is kept before anything can be shown."""


class LooksFile:
    """The counts in a JSON file of `{query set: {qid: looks}}`; in memory alone when there is no path."""

    def __init__(self, path: Path | None = None) -> None:
        """Raises InputError for a file that is not one."""
        self.path = path
        self._counts: dict[str, dict[str, int]] = {} if path is None else _read(path)

    def count(self, query_set: str, qids: Sequence[str]) -> int:
        """Looks at these queries so far: those of the most looked at."""
        known = self._counts.get(query_set, {})
        return max((known.get(qid, 0) for qid in qids), default=0)

    def look(self, query_set: str, qids: Sequence[str]) -> int:
        """Count a look, and give the number of it. It is written before anything is shown. Raises InputError."""
        known = self._counts.setdefault(query_set, {})
        known.update({qid: known.get(qid, 0) + 1 for qid in qids})
        if self.path is not None:
            partial = self.path.with_name(self.path.name + ".partial")
            try:
                text = json.dumps({"looks": self._counts}, indent=1, ensure_ascii=False)
                partial.write_text(text + "\n", encoding="utf-8")
                partial.replace(self.path)
            except OSError as error:
                raise InputError(f"{self.path}: cannot be written: {error.strerror}") from None
        return self.count(query_set, qids)


def looks_path(evidence: Path, query_set: str) -> Path:
    """The file of looks beside an evidence file. It is named after the query set, so that other evidence of it shares the count."""
    name = re.sub(r"[^\w.-]+", "-", query_set).strip("-.")[:80]
    return evidence.with_name(f"{name or evidence.name}.looks.json")


def _read(path: Path) -> dict[str, dict[str, int]]:
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))["looks"]
        return {
            str(query_set): {str(qid): int(count) for qid, count in counts.items()}
            for query_set, counts in found.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(f"{path}: the count of looks is not readable; mend or remove it") from None


def mean_of(scores: Floats) -> float:
    """Mean of (Q) scores; NaN for none."""
    return float(np.mean(scores)) if len(scores) else float("nan")
