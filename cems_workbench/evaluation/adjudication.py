"""One grade per pair where reviewers differ: by majority, by the strictest, or decided by a named person.

The raw labels stay as they are; a verdict is computed from them, and a person's decision, kept beside them in the store, stands above
any rule. Majority is the grade that more than half gave; without one the pair stays open, as does every conflict under "decided".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from cems_workbench.errors import InputError
from cems_workbench.records import Judgment

Rule = Literal["majority", "strictest", "decided"]
RULES: tuple[Rule, ...] = ("majority", "strictest", "decided")
How = Literal["agreed", "majority", "strictest", "decided", "open"]


class Decided(Protocol):
    """What is read of a person's decision (`cems_workbench.store.Decision` is one)."""

    @property
    def qid(self) -> str: ...
    @property
    def memory_id(self) -> str: ...
    @property
    def grade(self) -> int | None: ...
    @property
    def decided_by(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """The grade of a pair and how it came about; None while it is open. `labels` are the raw grades by reviewer."""

    qid: str
    memory_id: str
    grade: int | None
    how: How
    labels: dict[str, int]
    decided_by: str | None = None


def adjudicate(judgments: Sequence[Judgment], rule: Rule, decisions: Iterable[Decided] = ()) -> list[Verdict]:
    """The verdict on every judged or decided pair, by query and memory. Raises InputError for another rule."""
    if rule not in RULES:
        raise InputError(f"rule: {rule!r} is not one of {', '.join(RULES)}")
    labels: dict[tuple[str, str], dict[str, int]] = {}
    for judgment in judgments:
        labels.setdefault((judgment.qid, judgment.memory_id), {})[judgment.judge] = judgment.grade
    decided = {(one.qid, one.memory_id): one for one in decisions if one.grade is not None}
    return [_verdict(pair, labels.get(pair, {}), rule, decided.get(pair)) for pair in sorted({*labels, *decided})]


def _verdict(pair: tuple[str, str], labels: dict[str, int], rule: Rule, decision: Decided | None) -> Verdict:
    if decision is not None:
        return Verdict(*pair, decision.grade, "decided", labels, decision.decided_by)
    grades = list(labels.values())
    if len(set(grades)) == 1:
        return Verdict(*pair, grades[0], "agreed", labels)
    if rule == "strictest":
        return Verdict(*pair, min(grades), "strictest", labels)
    most = max(grades, key=grades.count)
    if rule == "majority" and grades.count(most) * 2 > len(grades):
        return Verdict(*pair, most, "majority", labels)
    return Verdict(*pair, None, "open", labels)


def settled(verdicts: Iterable[Verdict]) -> list[Judgment]:
    """The verdicts as judgments, one per pair, for metrics and for formats of one grade; open ones are left out."""
    return [
        Judgment(one.qid, one.memory_id, one.grade, one.decided_by or one.how)
        for one in verdicts
        if one.grade is not None
    ]
