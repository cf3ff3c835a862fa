"""Reading a file of JSON rows that each become a memory: what the memory, fact and message formats share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from cems_workbench.formats.lines import read_records
from cems_workbench.formats.rows import collect
from cems_workbench.progress import Progress
from cems_workbench.records import Memory, ParsedInput, RowError


def read_memory_rows(
    path: Path, name: str, parse: Callable[[dict[str, Any]], Memory], known: Iterable[str], progress: Progress
) -> ParsedInput:
    """Every good row of `path` as a memory made by `parse`; raises InputError when the file cannot be read."""
    errors: list[RowError] = []
    rows = read_records(path, errors, progress)
    found = collect(str(path), rows, parse, lambda memory: memory.id, "id", known, errors)
    return ParsedInput(
        str(path),
        name,
        memories=tuple(found.records),
        errors=tuple(errors),
        notes=found.notes,
        extra={"rows": {"memories": found.rows}},
    )
