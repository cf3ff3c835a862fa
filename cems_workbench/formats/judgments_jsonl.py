"""judgments.jsonl: one judgment a line, `{qid, memory_id, grade, judge?, kind?, judged_at?, note?}`; nothing is lost in it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cems_workbench.formats.base import fields
from cems_workbench.formats.base.dataset import json_line
from cems_workbench.formats.base.files import Sample, read_objects
from cems_workbench.formats.base.format import Format, JudgmentWriter
from cems_workbench.formats.base.records import collect_judgments
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, ParsedInput, RowError

NAME = "judgments-jsonl"
KNOWN = ("qid", "memory_id", "grade", "judge", "kind", "judged_at", "note")
KINDS = ("human", "model")


def parse_judgment(row: dict[str, Any]) -> Judgment:
    """One judgment; raises FieldError."""
    return Judgment(
        qid=fields.identifier(row, "qid"),
        memory_id=fields.identifier(row, "memory_id"),
        grade=fields.whole(row, "grade"),
        judge="human" if row.get("judge") is None else fields.identifier(row, "judge"),
        kind=fields.choice(row, "kind", KINDS, "human"),
        judged_at=fields.moment(row, "judged_at"),
        note=fields.text(row, "note"),
    )


def as_row(judgment: Judgment) -> dict[str, Any]:
    """The fields of a judgment as JSON values; what is absent is left out."""
    row: dict[str, Any] = {name: getattr(judgment, name) for name in KNOWN}
    row["judged_at"] = None if judgment.judged_at is None else judgment.judged_at.isoformat()
    return {name: value for name, value in row.items() if value is not None}


def write(judgments: Iterable[Judgment]) -> str:
    """The judgments as text, one line each."""
    return "".join(f"{json_line(as_row(judgment))}\n" for judgment in judgments)


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the judgments of a file; raises InputError when it cannot be read."""
    errors: list[RowError] = []
    unknown = fields.UnknownFields(KNOWN)

    def parse(row: dict[str, Any]) -> Judgment:
        judgment = parse_judgment(row)
        unknown.see(row)
        return judgment

    collected = collect_judgments(str(path), read_objects(path, errors, progress), parse, errors)
    return collected.parsed(path, NAME, "judgments", errors, unknown.notes())


def sniff(sample: Sample) -> bool:
    """Objects with a qid, a memory_id and a grade."""
    return any({"qid", "memory_id", "grade"} <= row.keys() for row in sample.objects)


FORMAT = Format(
    NAME,
    "one judgment a line: {qid, memory_id, grade, judge, kind, judged_at?, note?}",
    order=3,
    sniff=sniff,
    read=read,
    judgments=JudgmentWriter(lambda judgments, words: write(judgments), place=1),
    place=10,
)
