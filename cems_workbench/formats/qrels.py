"""TREC qrels: one judgment a line, `qid 0 docno rel`, separated by blanks; the second column is not used.

Grades may be any integer (TREC uses negative ones for spam). The judge is "human".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.files import Sample, read_lines
from cems_workbench.formats.base.format import Format, JudgmentWriter
from cems_workbench.formats.base.records import collect_judgments
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, ParsedInput, RowError

NAME = "qrels"
FIELDS = {"memory_id": "docno", "grade": "rel"}
"""What the fields of a judgment are called in the file."""
_GRADE = re.compile(r"[+-]?[0-9]{1,18}")


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the judgments of a file; of two grades for one pair the first is kept. Raises InputError."""
    errors: list[RowError] = []
    collected = collect_judgments(str(path), read_lines(path, errors, progress), _parse, errors)
    return collected.parsed(path, NAME, "judgments", errors, fields=FIELDS)


def write(judgments: Iterable[Judgment]) -> str:
    """The judgments as qrels, one line each; the judge is not written: there must be one grade per pair.

    Raises ValueError for an id that qrels cannot hold; `writable` says of one whether they can.
    """
    lines = []
    for judgment in judgments:
        if not (writable(judgment.qid) and writable(judgment.memory_id)):
            raise ValueError(f"{judgment.qid!r} {judgment.memory_id!r}: ids with blanks cannot be written as qrels")
        lines.append(f"{judgment.qid} 0 {judgment.memory_id} {judgment.grade}\n")
    return "".join(lines)


def writable(name: str) -> bool:
    """Whether an id survives a round trip through blank-separated columns."""
    return name.split() == [name] and "\0" not in name and not name.startswith("\ufeff")


def _without_blanks(judgments: Sequence[Judgment], left_out: list[str]) -> list[Judgment]:
    fitting = []
    for judgment in judgments:
        if writable(judgment.qid) and writable(judgment.memory_id):
            fitting.append(judgment)
        else:
            left_out.append(f"{judgment.qid!r} {judgment.memory_id!r}: ids with blanks cannot stand in this format")
    return fitting


def _parse(line: str) -> Judgment:
    """The judgment of a line; raises FieldError."""
    columns = line.split()
    if len(columns) != 4:
        raise FieldError("", f"must have the 4 columns qid 0 docno rel, found {len(columns)}")
    qid, _, docno, grade = columns
    if "\0" in qid + docno:
        raise FieldError("", "must not contain NUL")
    return Judgment(qid, docno, whole_grade(grade, "rel"))


def whole_grade(grade: str, field: str) -> int:
    """A grade written in a line of qrels; raises FieldError."""
    if not _GRADE.fullmatch(grade):
        raise FieldError(field, f"{field} must be a whole number, found {ascii(grade)[:60]}")
    return int(grade)


def _is_judgment(line: str) -> bool:
    try:
        return bool(_parse(line))
    except FieldError:
        return False


def sniff(sample: Sample) -> bool:
    """Four columns that end in a whole number, in most of the first lines."""
    good = sum(_is_judgment(line) for line in sample.lines)
    return good * 2 > len(sample.lines)


FORMAT = Format(
    NAME,
    "TREC judgments: qid 0 docno rel",
    order=3,
    sniff=sniff,
    read=read,
    suffixes=(".qrels", ".txt", ".tsv", ".trec"),
    breadth=2,
    judgments=JudgmentWriter(lambda judgments, words: write(judgments), judges=False, fitting=_without_blanks, place=3),
    place=5,
)
