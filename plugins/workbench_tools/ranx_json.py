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
from cems_workbench.formats.base.records import collect_judgments, graded, whole_grade
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
    numbers = _numbers(sample)
    return bool(numbers) and all(whole_grade(number) is not None for number in numbers)


def _numbers(sample: Sample) -> list[int | float]:
    """The numbers of an object of objects of numbers; none for any other document."""
    document = sample.document
    if not isinstance(document, dict) or not document:
        return []
    queries = list(document.values())[:MOST_LOOKED_AT]
    given = [value for query in queries if isinstance(query, dict) for value in list(query.values())[:MOST_LOOKED_AT]]
    numbers = [value for value in given if isinstance(value, int | float) and not isinstance(value, bool)]
    return numbers if len(numbers) == len(given) and all(isinstance(query, dict) for query in queries) else []


def doubt(sample: Sample) -> str:
    """What numbers with fractions may be: grades by a stated mapping, or the scores of a run."""
    fraction = next((number for number in _numbers(sample) if whole_grade(number) is None), None)
    if fraction is None:
        return ""
    return (
        f"{{qid: {{docno: number}}}} with fractions such as {fraction} may be judgments whose grades you state, as in --grade 0..0.5=0 "
        "--grade 0.5..1=1, or a run: what a system returned, with its scores, which is no judgment and is not imported"
    )


FORMAT = Format(
    NAME,
    "judgments of ranx: {qid: {docno: grade}} as .json",
    order=3,
    sniff=sniff,
    read=read,
    suffixes=(".json",),
    judgments=JudgmentWriter(lambda judgments, words: write(judgments), judges=False, place=7),
    place=18,
    doubt=doubt,
    shape="one object {qid: {docno: grade}} of whole numbers",
)
