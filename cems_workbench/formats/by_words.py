"""Formats that name a query by its words and not by an id: what their readers share.

The reader gives such a query the id `q-` and a hash of its words, and says in `extra["queries_by_words"]` that it did; the
store then takes the query it has with these words, if it has exactly one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cems_workbench.formats.fields import FieldError, identifier, required_text
from cems_workbench.formats.rows import Collected, derived_id
from cems_workbench.records import Judgment, ParsedInput, Query, RowError


def graded(row: dict[str, Any], grade: int, judge: str = "human") -> tuple[Judgment, str]:
    """The judgment of a row with `query` and `docid`, and the query's words; raises FieldError."""
    words = required_text(row, "query")
    return Judgment(derived_id("q", words), identifier(row, "docid"), grade, judge), words


def whole_rating(field: str, cell: str) -> int:
    """A rating: a whole number, also written as 3.0; raises FieldError."""
    digits, _, decimals = cell.strip().partition(".")
    sign = digits[:1] if digits[:1] in "+-" else ""
    number = digits.removeprefix(sign)
    whole = number.isascii() and number.isdigit() and len(number) <= 18
    if not whole or decimals.strip("0"):
        raise FieldError(field, f"must be a whole number, found {ascii(cell)[:60]}")
    return int(digits)


def as_input(
    source: str,
    name: str,
    found: Collected[Judgment],
    words: dict[str, str],
    errors: Iterable[RowError],
    notes: Iterable[str] = (),
    grade_column: str = "rating",
) -> ParsedInput:
    """The judgments with the queries they name; `words` are those of each qid, an empty `grade_column` is named by the judge."""
    first: dict[str, int] = {}
    for judgment, row in zip(found.records, found.rows, strict=True):
        first.setdefault(judgment.qid, row)
    return ParsedInput(
        source,
        name,
        queries=tuple(Query(qid, words[qid]) for qid in first),
        judgments=tuple(found.records),
        errors=tuple(errors),
        notes=(*found.notes, *notes),
        extra={
            "rows": {"judgments": found.rows, "queries": list(first.values())},
            "fields": {"qid": "query", "memory_id": "docid", "grade": grade_column},
            "queries_by_words": True,
        },
    )
