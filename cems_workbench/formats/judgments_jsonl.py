"""judgments.jsonl: one judgment a line, `{qid, memory_id, grade, judge?, kind?, judged_at?, note?}`; nothing is lost in it.

qid, memory_id and grade may have the names of other tools (`base/judgment_names.py`): `query_id`, `doc_id`, `relevance` of ir_datasets,
`query-id`, `corpus-id`, `score` of MTEB. A row may have the words of its query as `query`, beside the qid or instead of it.

A judgment of the whole store has `answerable`, true or false, instead of memory_id and grade: does anything in it answer the query?
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from cems_workbench.formats.base import fields, memory_fields
from cems_workbench.formats.base.dataset import json_line
from cems_workbench.formats.base.files import Sample, read_records
from cems_workbench.formats.base.format import Format, JudgmentWriter
from cems_workbench.formats.base.grades import TakenInPartError, graded
from cems_workbench.formats.base.judgment_names import NAMES, WORDS, names_judgments, names_words, renamed
from cems_workbench.formats.base.judgments import WordsBeside
from cems_workbench.formats.base.records import collect_judgments
from cems_workbench.progress import Progress
from cems_workbench.records import WHOLE_STORE, Judgment, ParsedInput, RowError

NAME = "judgments-jsonl"
KNOWN = ("qid", "memory_id", "grade", "judge", "kind", "judged_at", "note")
OF_STORE = "answerable"
KINDS = ("human", "model")


def parse_judgment(row: dict[str, Any]) -> Judgment:
    """One judgment; raises FieldError, TakenInPartError if its time cannot be read."""
    answerable = fields.said(row, OF_STORE)
    if answerable is not None and any(row.get(name) is not None for name in ("memory_id", "grade")):
        raise fields.FieldError(OF_STORE, "is of the whole store, and stands without memory_id and grade")
    judgment = Judgment(
        qid=fields.identifier(row, "qid"),
        memory_id=fields.identifier(row, "memory_id") if answerable is None else WHOLE_STORE,
        grade=int(answerable or 0),
        judge="human" if row.get("judge") is None else fields.identifier(row, "judge"),
        kind=fields.choice(row, "kind", KINDS, "human"),
        note=fields.text(row, "note"),
    )
    try:
        judgment = replace(judgment, judged_at=memory_fields.moment(row, "judged_at") if row.get("judged_at") else None)
        unread = None
    except fields.FieldError as error:
        unread = error
    if answerable is None:
        judgment = graded("grade", row.get("grade"), lambda grade: replace(judgment, grade=grade))
    if unread is not None:
        raise TakenInPartError(unread, judgment)
    return judgment


def as_row(judgment: Judgment) -> dict[str, Any]:
    """The fields of a judgment as JSON values; what is absent is left out."""
    row: dict[str, Any] = {name: getattr(judgment, name) for name in KNOWN}
    if judgment.memory_id == WHOLE_STORE:
        row |= {"memory_id": None, "grade": None, OF_STORE: judgment.grade > 0}
    row["judged_at"] = None if judgment.judged_at is None else judgment.judged_at.isoformat()
    return {name: value for name, value in row.items() if value is not None}


def write(judgments: Iterable[Judgment]) -> str:
    """The judgments as text, one line each."""
    return "".join(f"{json_line(as_row(judgment))}\n" for judgment in judgments)


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the judgments of a file; raises InputError when it cannot be read."""
    errors: list[RowError] = []
    unknown = fields.UnknownFields((*KNOWN, OF_STORE, *WORDS))
    beside = WordsBeside()

    def parse(row: dict[str, Any]) -> Judgment:
        named = beside.identified(renamed(row))
        judgment = parse_judgment(named)
        unknown.see(named)
        return judgment

    collected = collect_judgments(str(path), read_records(path, errors, progress), parse, errors)
    return beside.parsed(collected.parsed(path, NAME, "judgments", errors, unknown.notes()))


def sniff(sample: Sample) -> bool:
    """Objects with a qid or the words of a query, a memory_id and a grade, or with a qid and a judgment of the whole store."""
    return sample.mostly(
        lambda row: names_judgments(row) or names_words(row) or {"qid", OF_STORE} == row.keys() - {*KNOWN[3:]}
    )


FORMAT = Format(
    NAME,
    "one judgment a line: {qid, memory_id, grade, judge, kind, judged_at?, note?}",
    order=3,
    sniff=sniff,
    read=read,
    suffixes=(".jsonl", ".ndjson", ".json"),
    breadth=1,
    judgments=JudgmentWriter(lambda judgments, words: write(judgments), whole_store=True, place=1),
    place=10,
    shape="objects with qid (or query, its words), memory_id and grade, under any of their names, or with qid and answerable",
    needs=tuple(NAMES.values()),
)
