"""Judgments as ranx keeps them in JSON: `{qid: {docno: grade}}`, all grades whole numbers. A run of ranx has fractions and is none.

Source: ranx 0.3.21, which wrote and read such files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base.fields import FieldError, identifier
from cems_workbench.formats.base.files import Sample, read_document, type_name
from cems_workbench.formats.base.format import Format, JudgmentWriter
from cems_workbench.formats.base.grades import graded, whole_grade
from cems_workbench.formats.base.records import collect_judgments
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, ParsedInput, RowError

NAME = "ranx-json"
MOST_LOOKED_AT = 50


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the judgments of a file; raises InputError when it is no object of objects."""
    document = read_document(path)
    if not isinstance(document, dict):
        raise InputError(f"{path}: must be an object of queries, found {type_name(document)}")
    errors: list[RowError] = []
    collected = collect_judgments(str(path), _rows(document), _parse, errors)
    return collected.parsed(path, NAME, "judgments", errors)


def _rows(document: dict[str, Any]) -> Iterator[tuple[int, tuple[str, Any, Any]]]:
    """(number of the pair, (qid, docno, grade)); a query whose value is no object is one row of it."""
    number = 0
    for qid, grades in document.items():
        for docno, grade in grades.items() if isinstance(grades, dict) else [(None, grades)]:
            number += 1
            yield number, (qid, docno, grade)


def _parse(row: tuple[str, Any, Any]) -> Judgment:
    qid, docno, grade = row
    if docno is None:
        raise FieldError(qid, f"must be an object of grades, found {type_name(grade)}")
    named = {"qid": qid, "docno": docno, "grade": grade}
    ids = identifier(named, "qid"), identifier(named, "docno")
    return graded("grade", grade, lambda whole: Judgment(*ids, whole))


def write(judgments: Iterable[Judgment]) -> str:
    """The judgments as ranx reads them; the judge is not written: there must be one grade per pair."""
    grades: dict[str, dict[str, int]] = {}
    for judgment in judgments:
        grades.setdefault(judgment.qid, {})[judgment.memory_id] = judgment.grade
    return f"{json.dumps(grades, ensure_ascii=False, indent=1)}\n"


def sniff(sample: Sample) -> bool:
    """An object of objects of whole numbers."""
    document = sample.document
    if not isinstance(document, dict) or not document:
        return False
    queries = list(document.values())[:MOST_LOOKED_AT]
    grades = [grade for query in queries if isinstance(query, dict) for grade in list(query.values())[:MOST_LOOKED_AT]]
    return all(isinstance(query, dict) for query in queries) and bool(grades) and all(map(_is_grade, grades))


def _is_grade(value: Any) -> bool:
    return not isinstance(value, str) and whole_grade(value) is not None


FORMAT = Format(
    NAME,
    "judgments of ranx: {qid: {docno: grade}} as .json",
    order=3,
    sniff=sniff,
    read=read,
    suffixes=(".json",),
    judgments=JudgmentWriter(lambda judgments, words: write(judgments), judges=False, place=7),
    place=18,
    shape="one object {qid: {docno: grade}} of whole numbers",
)
