"""What a system answered, as files have it: JSON lines, JSON and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError, counted
from cems_workbench.formats.base import csv_table
from cems_workbench.formats.base.files import read_records
from cems_workbench.progress import silent
from cems_workbench.records import Query, RowError

TEXTS = ("answer", "response", "prediction", "hypothesis", "output", "generated_answer")
QUESTIONS = ("qid", "query_id", "question_id", "id", "query", "question", "user_input")


@dataclass(frozen=True)
class Answers:
    """What a system answered, by qid, and notes on rows that were left out."""

    by_qid: Mapping[str, str]
    notes: Sequence[str] = ()


def read_answers(path: Path, queries: Sequence[Query]) -> Answers:
    """The answers of a file, matched by qid or by the question's words. Raises InputError if none is of a query."""
    qids = {query.qid for query in queries}
    of_words: dict[str, list[str]] = {}
    for query in queries:
        of_words.setdefault(query.query.strip(), []).append(query.qid)
    errors: list[RowError] = []
    found: dict[str, str] = {}
    unknown, ambiguous, twice = 0, 0, 0
    for row in _rows(path, errors):
        names = [str(row[name]).strip() for name in QUESTIONS if row.get(name) not in (None, "")]
        text = next((str(row[name]) for name in TEXTS if row.get(name) not in (None, "")), None)
        asked = next(([one] if one in qids else of_words[one] for one in names if one in qids or one in of_words), [])
        unknown += not asked or text is None
        ambiguous += len(asked) > 1
        if text is not None and len(asked) == 1:
            twice += asked[0] in found
            found.setdefault(asked[0], text)
    if not found:
        why = (
            str(errors[0])
            if errors
            else f"no row has one of {', '.join(QUESTIONS)} that the set has, and one of {', '.join(TEXTS)}"
        )
        raise InputError(f"{path}: {why}")
    notes = [str(error) for error in errors[:3]] + (
        [f"{len(errors) - 3:,} more rows cannot be read"] if errors[3:] else []
    )
    for count, reason in (
        (unknown, "no question of the set, or no answer"),
        (ambiguous, "several questions have these words; name them by qid"),
        (twice, "the question has an answer already"),
    ):
        notes += [f"left out of {path.name}: {counted(count, 'rows')}: {reason}"] if count else []
    return Answers(found, notes)


def _rows(path: Path, errors: list[RowError]) -> list[Mapping[str, Any]]:
    if path.suffix in (".csv", ".tsv"):
        table = csv_table.open_table(path, ())
        return [row for _, row in csv_table.read_rows(table, errors, silent)]
    return [row for _, row in read_records(path, errors, silent) if isinstance(row, dict)]
