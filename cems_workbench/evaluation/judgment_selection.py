"""Which judgments are meant: of some queries, of one judge, of people or models, raw or settled to one grade a pair."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

from cems_workbench.errors import InputError
from cems_workbench.evaluation.adjudication import Rule, adjudicate, settled
from cems_workbench.records import Judgment
from cems_workbench.store import Store

Kind = Literal["human", "model", "all"]
NAMED = 10


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
    every = store.judgments(kind=None if kind == "all" else kind)
    found = [label for label in every if label.qid in qids and judge in (None, label.judge)]
    if judge is not None and not found:
        known = sorted({label.judge for label in store.judgments()})
        raise InputError(f"judge: no label of {judge!r}; there are labels of {', '.join(known[:NAMED]) or 'nobody'}")
    if rule is None:
        return Chosen(tuple(found))
    decisions = [one for one in store.labels.decisions() if one.qid in qids]
    verdicts = adjudicate(found, rule, decisions)
    still_open = tuple(
        f"{one.qid} {one.memory_id}: {', '.join(f'{who} {grade}' for who, grade in one.labels.items())}"
        for one in verdicts
        if one.grade is None
    )
    return Chosen(tuple(settled(verdicts)), still_open)
