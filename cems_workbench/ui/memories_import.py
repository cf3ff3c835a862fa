"""Importing uploaded files: each read on its own, so that a bad one costs only itself, and every row accounted for."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any

from cems_workbench import formats
from cems_workbench.errors import WorkbenchError
from cems_workbench.formats import FORMATS
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, RowError
from cems_workbench.store import ImportReport, Store
from cems_workbench.ui.memories_escape import csv_bytes

KINDS = ("memories", "relations", "queries", "judgments")
ERROR_COLUMNS = ("file", "row", "field", "reason")


@dataclass(frozen=True)
class Outcome:
    """What became of one file: the store's report, or the one line that says why nothing could be read."""

    name: str
    report: ImportReport | None = None
    problem: str = ""


def import_files(
    files: Iterable[tuple[str, IO[bytes]]], store: Store, progress: Progress, format: str = "auto"
) -> Iterator[Outcome]:
    """Import (name, content) files, memories before what refers to them; yields each outcome once it is committed.

    Raises what `progress` raises (Cancelled): the file at hand is then left out as a whole, those before it stay.
    """
    with tempfile.TemporaryDirectory(prefix="cems-upload-") as folder:
        kept = [_saved(Path(folder) / str(i), name, content) for i, (name, content) in enumerate(files)]
        for path in sorted(kept, key=lambda path: _order(path, format)):
            try:
                parsed = _named(formats.read(path, format, progress), path)
                yield Outcome(path.name, store.add(parsed, progress))
            except WorkbenchError as error:
                line = str(error).replace(str(path), path.name).replace("; pass one of ", "; the known ones are ")
                yield Outcome(path.name, problem=line)


def counts_table(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """A row per file and kind of row: added, updated, unchanged; and what was left out of each file."""
    rows = []
    for outcome in outcomes:
        if outcome.report is None:
            continue
        kinds = [(kind, getattr(outcome.report, kind)) for kind in KINDS]
        present = [(kind, counts) for kind, counts in kinds if counts.total] or kinds[:1]
        for i, (kind, counts) in enumerate(present):
            left_out = len(outcome.report.errors) if i == 0 else None
            rows.append(
                {
                    "file": outcome.name,
                    "rows": kind,
                    "added": counts.added,
                    "updated": counts.updated,
                    "unchanged": counts.unchanged,
                    "left out": left_out,
                }
            )
    return rows


def error_rows(outcomes: Sequence[Outcome]) -> list[tuple[str, int, str, str]]:
    """(file, row, field, reason) of every row that was left out."""
    return [
        (outcome.name, error.row, error.field or "", error.reason)
        for outcome in outcomes
        if outcome.report is not None
        for error in outcome.report.errors
    ]


def errors_csv(outcomes: Sequence[Outcome]) -> bytes:
    """The rows that were left out as a CSV, safe against formula injection."""
    return csv_bytes(ERROR_COLUMNS, error_rows(outcomes))


def _saved(folder: Path, name: str, content: IO[bytes]) -> Path:
    """The upload in a folder of its own (two may have one name) under its own name, which formats look at."""
    folder.mkdir()
    base = PurePosixPath(name.replace("\\", "/")).name.replace("\0", "").lstrip(".")
    path = folder / (base[-120:] or "upload")
    with path.open("wb") as file:
        shutil.copyfileobj(content, file)
    return path


def _order(path: Path, format: str) -> int:
    """When its rows can be imported: memories first; an unreadable file is met again, and reported, when it is read."""
    try:
        return FORMATS[formats.detect(path) if format == "auto" else format].order
    except WorkbenchError:
        return 0


def _named(parsed: ParsedInput, path: Path) -> ParsedInput:
    """The same rows as coming from the file's name, not from where it lay for a moment."""

    def renamed(error: RowError) -> RowError:
        return replace(error, source=path.name)

    return replace(parsed, source=path.name, errors=tuple(renamed(error) for error in parsed.errors))
