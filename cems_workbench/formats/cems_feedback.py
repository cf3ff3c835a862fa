"""Relevance feedback in the form CEMS logs it, one query a line: `{qid, relevant_ids, noise_ids}`.

CEMS counts how often a memory was relevant or noise, and `adjust.feedback` reads those counts. Of a graded judgment the grades
from HELPFUL up are relevant and 0 is noise; grade 1 is neither, unless no judgment has a higher one. Read back, relevant is
HELPFUL and noise is 0; the judge is "cems", a model, because there an agent says what helped it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cems_workbench.formats.base import fields
from cems_workbench.formats.base.files import Sample, read_records
from cems_workbench.formats.base.format import JudgmentWriter, described, json_line
from cems_workbench.formats.base.records import collect_judgments, reported
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, ParsedInput, RowError

NAME = "cems-feedback"
HELPFUL = 2
JUDGE = "cems"
LISTS = "relevant_ids, noise_ids"
FIELDS = {"memory_id": LISTS, "grade": LISTS}
"""What the fields of a judgment are called in the file."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """What was relevant and what was noise for one query."""

    qid: str
    relevant_ids: tuple[str, ...]
    noise_ids: tuple[str, ...]


def feedback_of(judgments: Sequence[Judgment]) -> list[Feedback]:
    """The feedback that judgments amount to, by query in their order; of several judges' grades the highest counts."""
    helpful = HELPFUL if any(judgment.grade >= HELPFUL for judgment in judgments) else 1
    best: dict[str, dict[str, int]] = {}
    for judgment in judgments:
        grades = best.setdefault(judgment.qid, {})
        grades[judgment.memory_id] = max(judgment.grade, grades.get(judgment.memory_id, judgment.grade))
    feedback = []
    for qid, grades in best.items():
        relevant = tuple(memory_id for memory_id, grade in grades.items() if grade >= helpful)
        noise = tuple(memory_id for memory_id, grade in grades.items() if grade <= 0)
        feedback.append(Feedback(qid, relevant, noise))
    return feedback


def counts(feedback: Iterable[Feedback]) -> dict[str, tuple[int, int]]:
    """(relevant_count, noise_count) by memory id: of how many queries it was relevant, of how many it was noise."""
    total: dict[str, tuple[int, int]] = {}
    for of_query in feedback:
        for memory_id in of_query.relevant_ids:
            relevant, noise = total.get(memory_id, (0, 0))
            total[memory_id] = (relevant + 1, noise)
        for memory_id in of_query.noise_ids:
            relevant, noise = total.get(memory_id, (0, 0))
            total[memory_id] = (relevant, noise + 1)
    return total


def write(feedback: Iterable[Feedback]) -> str:
    """The feedback as text, one line a query; queries with neither are left out, as there is nothing to log of them."""
    rows = (
        {"qid": of_query.qid, "relevant_ids": list(of_query.relevant_ids), "noise_ids": list(of_query.noise_ids)}
        for of_query in feedback
        if of_query.relevant_ids or of_query.noise_ids
    )
    return "".join(f"{json_line(row)}\n" for row in rows)


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read feedback as judgments; raises InputError when the file cannot be read."""
    errors: list[RowError] = []

    def graded() -> Iterable[tuple[int, Judgment]]:
        for number, row in read_records(path, errors, progress):
            with reported(errors, str(path), number):
                yield from [(number, judgment) for judgment in _judgments(row)]

    collected = collect_judgments(str(path), graded(), lambda judgment: judgment, errors)
    return collected.parsed(path, NAME, "judgments", errors, fields=FIELDS)


def _judgments(row: dict[str, Any]) -> Iterable[Judgment]:
    qid = fields.identifier(row, "qid")
    for field, grade in (("relevant_ids", HELPFUL), ("noise_ids", 0)):
        ids = row.get(field)
        if ids is not None and not isinstance(ids, list):
            raise fields.FieldError(field, "must be a list of memory ids")
        for memory_id in ids or []:
            yield Judgment(qid, fields.identifier({field: memory_id}, field), grade, JUDGE, "model")


def sniff(sample: Sample) -> bool:
    """Objects with relevant_ids or noise_ids."""
    return sample.mostly(lambda row: "relevant_ids" in row or "noise_ids" in row)


FORMAT = described(
    __file__,
    NAME,
    sniff,
    read,
    judgments=JudgmentWriter(lambda judgments, words: write(feedback_of(judgments)), place=7),
)
