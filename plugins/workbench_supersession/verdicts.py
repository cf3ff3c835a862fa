"""Proposed supersessions as a file that people fill in, and decisions read back from it.

A row is a pair with its reasons and both texts; the column `verdict` is empty, and takes accept, reject or swap (accept, in the other
direction). Rows without a verdict are left alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cems_workbench.errors import InputError
from cems_workbench.formats.base.csv_table import open_table, read_rows, written
from cems_workbench.platform.atomic_write import write_text
from cems_workbench.progress import Progress, silent
from cems_workbench.records import RowError
from cems_workbench.store import Store
from cems_workbench.store.relations import Verdict
from workbench_supersession.proposals import SupersessionReport, text_of

COLUMNS = ("newer", "older", "verdict", "score", "why", "newer_text", "older_text")
VERDICTS = ("accept", "reject", "swap")


@dataclass(frozen=True, slots=True)
class DecidedRows:
    """How many rows of a file were accepted and rejected, and what was wrong with others."""

    accepted: int
    rejected: int
    errors: tuple[RowError, ...]

    @property
    def sentence(self) -> str:
        """The counts in a line."""
        return f"{self.accepted} accepted, {self.rejected} rejected, {len(self.errors)} rows not used"


def write_proposals(proposals: SupersessionReport, path: Path) -> None:
    """Write proposals as CSV, guarded against formulas. Raises InputError."""
    rows = []
    for edge in proposals.edges:
        texts = [text_of(proposals.texts[end]) for end in (edge.newer, edge.older)]
        rows.append((edge.newer, edge.older, "", f"{edge.score:.4f}", edge.why, *texts))
    write_text(path, written([COLUMNS, *rows]), newline="")


def decide_from_file(store: Store, path: Path, author: str, progress: Progress = silent) -> DecidedRows:
    """Save the verdicts of a file under a name, a row at a time: an unusable row costs only itself. Raises InputError
    for a file that cannot be read or lacks the columns newer, older and verdict, or a person without a name."""
    errors: list[RowError] = []
    table = open_table(path, COLUMNS[:3], COLUMNS[3:])
    accepted = rejected = 0
    for number, row in read_rows(table, errors, progress):
        cells = {name.lower(): cell.strip() for name, cell in row.items()}
        word = cells["verdict"].lower()
        if not word:
            continue
        try:
            if word not in VERDICTS:
                raise InputError(f"{word!r} is not one of {', '.join(VERDICTS)}")
            newer, older = (cells["older"], cells["newer"]) if word == "swap" else (cells["newer"], cells["older"])
            verdict: Verdict = "rejected" if word == "reject" else "accepted"
            store.supersessions.decide(newer, older, verdict, author, cells.get("why") or None)
        except InputError as error:
            errors.append(RowError(str(path), number, str(error)))
            continue
        accepted, rejected = accepted + (verdict == "accepted"), rejected + (verdict == "rejected")
    return DecidedRows(accepted, rejected, tuple(errors))
