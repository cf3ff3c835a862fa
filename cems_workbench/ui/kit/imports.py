"""Import reports as tables: row counts by kind, and the rows that were left out or taken in part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cems_workbench.jobs.importing import FileImport, took_nothing
from cems_workbench.store.imports import KINDS
from cems_workbench.store.rows import NO_ROWS
from cems_workbench.ui.kit.escape import csv_bytes

ERROR_COLUMNS = ("file", "row", "field", "reason")


def counts_table(imports: Sequence[FileImport]) -> list[dict[str, Any]]:
    """One row per file and kind, with the format it was read in: added, updated, unchanged, and the rows left out or taken in part."""
    rows = []
    for imported in imports:
        if imported.report is None:
            continue
        kinds = [(kind, getattr(imported.report, kind)) for kind in KINDS]
        present = [(kind, counts) for kind, counts in kinds if counts.total] or [("none", NO_ROWS)]
        for i, (kind, counts) in enumerate(present):
            rows.append(
                {
                    "file": imported.name,
                    "format": imported.report.format if i == 0 else "",
                    "rows": kind,
                    "added": counts.added,
                    "updated": counts.updated,
                    "unchanged": counts.unchanged,
                    "left out": len(imported.report.errors) if i == 0 else None,
                }
            )
    return rows


def problems(imports: Sequence[FileImport]) -> list[str]:
    """A line for each file that could not be read, and one if the others brought nothing."""
    nothing = took_nothing([imported.report for imported in imports if imported.report is not None])
    read = any(imported.report is not None for imported in imports)
    return [*(imported.problem for imported in imports if imported.problem), *([nothing] if nothing and read else [])]


def notes(imports: Sequence[FileImport]) -> list[str]:
    """The notes of the reports, without duplicates."""
    return list(dict.fromkeys(note for imported in imports if imported.report for note in imported.report.notes))


def error_rows(imports: Sequence[FileImport]) -> list[tuple[str, int, str, str]]:
    """(file, row, field, reason) of every row that was left out or taken in part."""
    return [
        (imported.name, error.row, error.field or "", error.reason)
        for imported in imports
        if imported.report is not None
        for error in imported.report.errors
    ]


def errors_csv(imports: Sequence[FileImport]) -> bytes:
    """These rows as CSV, safe against formula injection."""
    return csv_bytes(ERROR_COLUMNS, error_rows(imports))
