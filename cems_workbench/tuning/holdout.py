"""The sealed hold-out: queries that no search sees, scored only when asked, and every look is counted.

A hold-out that is looked at again and again becomes a training set. The count is kept in a file beside the evidence, under the hash of
the evidence and of which queries were sealed, so that a new search on the same queries goes on counting.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cems_workbench.errors import InputError
from cems_workbench.evaluation.significance import randomisation_test
from cems_workbench.evaluation.uncertainty import bootstrap
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


class Looks:
    """How often each hold-out was scored: a JSON file, or memory alone when there is no path."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._counts: dict[str, int] = {} if path is None else _read(path)

    def count(self, key: str) -> int:
        """Looks at this hold-out so far."""
        return self._counts.get(key, 0)

    def look(self, key: str) -> int:
        """Count a look, and give the number of it. It is written before anything is shown. Raises InputError."""
        self._counts[key] = self.count(key) + 1
        if self.path is not None:
            partial = self.path.with_name(self.path.name + ".partial")
            try:
                partial.write_text(json.dumps({"looks": self._counts}, indent=1) + "\n", encoding="utf-8")
                partial.replace(self.path)
            except OSError as error:
                raise InputError(f"{self.path}: cannot be written: {error.strerror}") from None
        return self._counts[key]


def holdout_key(evidence_hash: str, qids: Sequence[str]) -> str:
    """Names a hold-out: the evidence and the queries that are sealed."""
    return hashlib.sha256("\n".join([evidence_hash, *sorted(qids)]).encode()).hexdigest()[:16]


def _read(path: Path) -> dict[str, int]:
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))["looks"]
        return {str(key): int(value) for key, value in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path}: the count of looks is not readable; mend or remove it") from None


def mean_of(scores: Floats) -> float:
    """Mean of (Q) scores; NaN for none."""
    return float(np.mean(scores)) if len(scores) else float("nan")
