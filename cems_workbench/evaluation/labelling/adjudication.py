"""One grade per pair where reviewers differ: by majority, by the strictest, or decided by a named person.

Raw labels never change; a verdict is computed from them, and a person's decision, stored separately, takes precedence over
any rule. Majority is the grade that more than half gave; without one the pair stays open, as does every conflict under "decided".

Which judgments are meant: of some queries, of one judge, of people or models, raw or settled to one grade a pair.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from cems_workbench.errors import InputError
from cems_workbench.records import Judgment
from cems_workbench.store import Store

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
    decided = {(decision.qid, decision.memory_id): decision for decision in decisions if decision.grade is not None}
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
        Judgment(verdict.qid, verdict.memory_id, verdict.grade, verdict.decided_by or verdict.how)
        for verdict in verdicts
        if verdict.grade is not None
    ]


Kind = Literal["human", "model", "all"]
MAX_NAMED = 10


@dataclass(frozen=True, slots=True)
class Chosen:
    """The judgments, and a line for each pair that the rule leaves open."""

    judgments: tuple[Judgment, ...]
    still_open: tuple[str, ...] = ()


def choose_judgments(
    store: Store, qids: Collection[str], judge: str | None = None, kind: str = "human", rule: Rule | None = None
) -> Chosen:
    """The judgments of the queries `qids`; by a rule of adjudication one per pair. Raises InputError for an unknown judge or kind."""
    if kind not in get_args(Kind):
        raise InputError(f"kind: {kind!r} is not one of {', '.join(get_args(Kind))}")
    every = store.judgments.read(kind=None if kind == "all" else kind)
    found = [label for label in every if label.qid in qids and judge in (None, label.judge)]
    if judge is not None and not found:
        known = sorted({label.judge for label in store.judgments.read()})
        raise InputError(
            f"judge: no label of {judge!r}; there are labels of {', '.join(known[:MAX_NAMED]) or 'nobody'}"
        )
    if rule is None:
        return Chosen(tuple(found))
    decisions = [one for one in store.decisions.read() if one.qid in qids]
    verdicts = adjudicate(found, rule, decisions)
    still_open = tuple(
        f"{one.qid} {one.memory_id}: {', '.join(f'{who} {grade}' for who, grade in one.labels.items())}"
        for one in verdicts
        if one.grade is None
    )
    return Chosen(tuple(settled(verdicts)), still_open)
