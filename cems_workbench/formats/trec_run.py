"""TREC runs: one result a line, `qid Q0 docno rank score tag`, separated by blanks; what trec_eval and ir_measures read.

A run is a result of searching and not part of a store, so it is not among the formats of `import`. Evaluation tools order a run by
score; ranks are written as they are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cems_workbench.formats.base.files import read_lines
from cems_workbench.formats.qrels import writable
from cems_workbench.formats.runs import COLUMNS
from cems_workbench.progress import Progress, silent
from cems_workbench.records import RowError

_RANK = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class RunRow:
    """One result of a run: `rank` from 1 (some tools begin at 0), a finite score, the name of the run."""

    qid: str
    docno: str
    rank: int
    score: float
    tag: str


def write(rows: Iterable[RunRow]) -> str:
    """The run as text; scores are written so that they read back to the bit. Raises ValueError for ids with blanks."""
    lines = []
    for row in rows:
        if not all(map(writable, (row.qid, row.docno, row.tag))):
            raise ValueError(
                f"{row.qid!r} {row.docno!r} {row.tag!r}: ids and tags with blanks cannot be written as a run"
            )
        lines.append(f"{row.qid} Q0 {row.docno} {row.rank} {row.score!r} {row.tag}\n")
    return "".join(lines)


def read(path: Path, progress: Progress = silent) -> tuple[list[RunRow], list[RowError]]:
    """The results of a run and the lines that are none, or repeat a document. Raises InputError when it cannot be read."""
    errors: list[RowError] = []
    rows: dict[tuple[str, str], tuple[int, RunRow]] = {}
    for number, line in read_lines(path, errors, progress):
        row = _parse(line)
        if isinstance(row, str):
            errors.append(RowError(str(path), number, row))
            continue
        first, _ = rows.setdefault((row.qid, row.docno), (number, row))
        if first != number:
            errors.append(RowError(str(path), number, f"{row.qid} {row.docno} stands already in row {first}", "docno"))
    return [row for _, row in rows.values()], sorted(errors, key=lambda error: error.row)


def _parse(line: str) -> RunRow | str:
    columns = line.split()
    if len(columns) != 6:
        return f"must have the 6 columns {COLUMNS}, found {len(columns)}"
    qid, _, docno, rank, score, tag = columns
    if "\0" in qid + docno + tag:
        return "must not contain NUL"
    if not _RANK.fullmatch(rank):
        return f"rank must be a whole number from 0, found {ascii(rank)[:60]}"
    try:
        value = float(score)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        return f"score must be a number, found {ascii(score)[:60]}"
    return RunRow(qid, docno, int(rank), value, tag)
