"""Why queries are won or lost between two states: parts are put back one at a time, and the query is measured again by exact replay.

    cause     the first part that alone reverses the outcome; else the first two that do only together; else "cannot tell"
    reversed  a lost query has at least its value of before, a won one at most that

Where one part differs, putting it back is the state before, which is measured already; so is any set of parts that holds all that differ.

Source: our own, after counterfactual causes (Halpern and Pearl, Causes and Explanations, 2005): what is named was reverted, and the
outcome with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from cems_workbench.errors import counted
from cems_workbench.evaluation.comparison import VALUE_TOLERANCE
from cems_workbench.results import Table

CANNOT_TELL = "cannot tell"
Values = Mapping[str, float]
Trial = Callable[[frozenset[str], Sequence[str]], Values | None]
"""The values of some queries with these parts as before, by qid; None if that state cannot be made."""


@dataclass(frozen=True, slots=True)
class ChangedQuery:
    """A query that is won or lost, `lower_is_better` applied: `gain` is above 0 for a won one."""

    qid: str
    query: str
    type: str | None
    before: float
    now: float
    gain: float
    cause: tuple[str, ...] = ()
    """The part that alone reverses it, or two that only together do; empty: cannot tell."""

    @property
    def cause_words(self) -> str:
        return " and ".join(self.cause) or CANNOT_TELL

    def reversed_by(self, value: float) -> bool:
        """Whether a value takes the outcome back."""
        away = value - self.before
        return (away if self.now > self.before else -away) <= VALUE_TOLERANCE


def causes(changed: Sequence[ChangedQuery], parts: Sequence[str], trial: Trial) -> dict[str, tuple[str, ...]]:
    """By qid the cause of each changed query that has one; `parts` are those that differ, in the order in which they are tried."""
    found: dict[str, tuple[str, ...]] = {}
    tries: Iterator[tuple[str, ...]] = iter([*((part,) for part in parts), *combinations(parts, 2)])
    for back in tries:
        left = [one for one in changed if one.qid not in found]
        if not left:
            break
        if len(back) == len(parts):  # it is the state before
            found |= {one.qid: back for one in left}
            continue
        values = trial(frozenset(back), [one.qid for one in left])
        found |= {one.qid: back for one in left if values and one.qid in values and one.reversed_by(values[one.qid])}
    return found


def summary(changed: Sequence[ChangedQuery]) -> list[str]:
    """ "of 26 lost, 17 by chunks, 6 by vectors, 3 cannot tell", a line each for lost and won."""
    lines = []
    for word, own in (
        ("lost", [one for one in changed if one.gain < 0]),
        ("won", [one for one in changed if one.gain > 0]),
    ):
        if own:
            by = Counter(one.cause_words for one in own).most_common()
            known = [f"{count:,} by {cause}" for cause, count in by if cause != CANNOT_TELL]
            unknown = [f"{count:,} {CANNOT_TELL}" for cause, count in by if cause == CANNOT_TELL]
            lines.append(f"of {counted(len(own), 'queries')} {word}, {', '.join([*known, *unknown])}")
    return lines


def table(changed: Sequence[ChangedQuery], measure: str, shown: int) -> Table:
    """A row for each changed query, the largest losses first."""
    rows = tuple((one.qid, one.query, one.type, one.before, one.now, one.cause_words) for one in in_order(changed))
    return Table(("qid", "query", "type", "before", "now", "cause"), rows, f"changed by {measure}", shown=shown)


def in_order(changed: Sequence[ChangedQuery]) -> list[ChangedQuery]:
    """The largest losses first, the largest gains last."""
    return sorted(changed, key=lambda one: (one.gain, one.qid))


def to_json(changed: Sequence[ChangedQuery]) -> list[dict[str, Any]]:
    """The changed queries as plain values."""
    return [
        {
            "qid": one.qid,
            "query": one.query,
            "type": one.type,
            "before": one.before,
            "now": one.now,
            "cause": list(one.cause),
        }
        for one in in_order(changed)
    ]
