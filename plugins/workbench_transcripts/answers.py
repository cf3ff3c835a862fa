"""What a system answered, as files have it: JSON lines, JSON and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base import csv_table
from cems_workbench.formats.base.files import read_records
from cems_workbench.progress import silent
from cems_workbench.records import Query, RowError

TEXTS = ("answer", "response", "prediction", "hypothesis", "output", "generated_answer")
QUESTIONS = ("qid", "query_id", "question_id", "id", "query", "question", "user_input")


def read_answers(path: Path, queries: Sequence[Query]) -> Mapping[str, str]:
    """The answers of a file by qid, matched by qid or by the question's words. Raises InputError if none is of a query."""
    known = {query.qid: query.qid for query in queries} | {query.query.strip(): query.qid for query in queries}
    found: dict[str, str] = {}
    for row in _rows(path):
        asked = next(
            (known[str(row[name]).strip()] for name in QUESTIONS if str(row.get(name, "")).strip() in known), None
        )
        text = next((str(row[name]) for name in TEXTS if row.get(name) not in (None, "")), None)
        if asked is not None and text is not None:
            found[asked] = text
    if not found:
        raise InputError(
            f"{path}: no row with one of {', '.join(QUESTIONS)} that the set has, and one of {', '.join(TEXTS)}"
        )
    return found


def _rows(path: Path) -> list[Mapping[str, Any]]:
    errors: list[RowError] = []
    if path.suffix in (".csv", ".tsv"):
        table = csv_table.open_table(path, ())
        return [row for _, row in csv_table.read_rows(table, errors, silent)]
    return [row for _, row in read_records(path, errors, silent) if isinstance(row, dict)]
