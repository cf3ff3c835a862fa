"""From judgments to one grade per query and memory.

Human judgments go before those of models. Where several judges graded the same memory for the same query, the grade is the
median, the lower of the middle two: no judge is overruled by one other.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median_low

from cems_workbench.records import Judgment

Grades = dict[str, dict[str, int]]
"""Grade by qid and memory id."""


def agreed_grades(judgments: Iterable[Judgment], kind: str | None = None) -> Grades:
    """The grades that the judges agreed on; of one kind of judge alone, or, when None, human before model."""
    given: dict[tuple[str, str], dict[str, list[int]]] = {}
    for judgment in judgments:
        if kind in (None, judgment.kind):
            given.setdefault((judgment.qid, judgment.memory_id), {}).setdefault(judgment.kind, []).append(
                judgment.grade
            )
    grades: Grades = {}
    for (qid, memory_id), by_kind in given.items():
        first = "human" if "human" in by_kind else min(by_kind)
        grades.setdefault(qid, {})[memory_id] = median_low(by_kind[first])
    return grades
