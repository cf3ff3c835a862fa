"""TREC runs: one result a line, `qid Q0 docno rank score tag`, separated by blanks; what trec_eval and ir_measures read.

A run is a result of searching and not part of a store, so it is not among the formats of `import`; `runs.py` reads it. Evaluation tools
order a run by score; ranks are written as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cems_workbench.formats.qrels import writable


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
