"""TREC qrels: one judgment a line, `qid 0 docno rel`, separated by blanks; the second column is not used.

Grades may be any integer (TREC uses negative ones for spam). The judge is "human".
"""

from __future__ import annotations

import re
from pathlib import Path

from cems_workbench.formats.lines import read_lines
from cems_workbench.formats.reader import Reader, Sample, register
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, ParsedInput, RowError

NAME = "qrels"
_GRADE = re.compile(r"[+-]?[0-9]{1,18}")


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the judgments of a file; of two grades for one pair the first is kept. Raises InputError."""
    errors: list[RowError] = []
    kept: dict[tuple[str, str], tuple[int, Judgment]] = {}
    repeated = 0
    for number, line in read_lines(path, errors, progress):
        judgment = _parse(line)
        if isinstance(judgment, str):
            errors.append(RowError(str(path), number, judgment, "rel" if "rel" in judgment else None))
            continue
        before, first = kept.setdefault((judgment.qid, judgment.memory_id), (number, judgment))
        if first.grade != judgment.grade:
            reason = f"{judgment.qid} {judgment.memory_id} has grade {first.grade} in row {before}, which is kept"
            errors.append(RowError(str(path), number, reason, "rel"))
        elif before != number:
            repeated += 1
    return ParsedInput(
        str(path),
        NAME,
        judgments=tuple(judgment for _, judgment in kept.values()),
        errors=tuple(sorted(errors, key=lambda error: error.row)),
        notes=(f"{repeated} lines repeat an earlier one",) if repeated else (),
        extra={"rows": {"judgments": [number for number, _ in kept.values()]}},
    )


def _parse(line: str) -> Judgment | str:
    """The judgment of a line, or what is wrong with it."""
    columns = line.split()
    if len(columns) != 4:
        return f"must have the 4 columns qid 0 docno rel, found {len(columns)}"
    qid, _, docno, grade = columns
    if not _GRADE.fullmatch(grade):
        return f"rel must be a whole number, found {ascii(grade)[:60]}"
    return Judgment(qid, docno, int(grade)) if "\0" not in qid + docno else "must not contain NUL"


def sniff(sample: Sample) -> bool:
    """Four columns that end in a whole number, in most of the first lines."""
    good = sum(isinstance(_parse(line), Judgment) for line in sample.lines)
    return good * 2 > len(sample.lines)


register(Reader(NAME, "TREC judgments: qid 0 docno rel", 3, sniff, read, (".qrels", ".txt", ".tsv", ".trec")))
