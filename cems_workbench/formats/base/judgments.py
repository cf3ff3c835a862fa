"""What formats of judgments share: one grade per pair, and queries that are named by their words and not by an id.

The reader of such a query gives it the id `q-` and a hash of its words, and says in `extra["queries_by_words"]` that it did; the
store then takes the query it has with these words, if it has exactly one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cems_workbench.formats.base.fields import FieldError, identifier, required_text
from cems_workbench.formats.base.records import Collected, derived_id
from cems_workbench.records import WHOLE_STORE, Judgment, ParsedInput, Query, RowError

_GUARDED = re.compile(r" +[-=+@]")


def of_memories(judgments: Iterable[Judgment]) -> tuple[list[Judgment], list[Judgment]]:
    """The judgments of memories, and those of the whole store."""
    judgments = list(judgments)
    of_store = [judgment for judgment in judgments if judgment.memory_id == WHOLE_STORE]
    return [judgment for judgment in judgments if judgment.memory_id != WHOLE_STORE], of_store


def with_unique_words(
    judgments: Sequence[Judgment], queries: Mapping[str, Query], left_out: list[str]
) -> list[Judgment]:
    """The judgments whose query is the only one with its words; a line in `left_out` for each other query."""
    owners: dict[str, list[str]] = {}
    for qid, query in sorted(queries.items()):
        owners.setdefault(query.query, []).append(qid)
    good = set()
    for qid in sorted({judgment.qid for judgment in judgments}):
        if qid not in queries:
            left_out.append(f"{qid}: the words of this query are not known")
        elif len(same := owners[queries[qid].query]) > 1:
            others = ", ".join(other for other in same if other != qid)
            left_out.append(f"{qid}: has the same words as {others}, and the format has nothing else")
        else:
            good.add(qid)
    return [judgment for judgment in judgments if judgment.qid in good]


def one_grade_each(judgments: Sequence[Judgment], left_out: list[str]) -> list[Judgment]:
    """One judgment of every pair on whose grade all judges agree; a line in `left_out` for each of the others."""
    pairs: dict[tuple[str, str], list[Judgment]] = {}
    for judgment in judgments:
        pairs.setdefault((judgment.qid, judgment.memory_id), []).append(judgment)
    agreed = []
    for (qid, memory_id), labels in pairs.items():
        if len({label.grade for label in labels}) == 1:
            agreed.append(labels[0])
        else:
            grades = ", ".join(f"{label.judge} {label.grade}" for label in labels)
            left_out.append(
                f"{qid} {memory_id}: {grades}; the format has one grade per pair: adjudicate, or choose a judge"
            )
    return agreed


def judgment_by_words(row: Mapping[str, Any], grade: int, judge: str = "human") -> tuple[Judgment, str]:
    """The judgment of a row with `query` and `docid`, and the query's words; raises FieldError."""
    words = query_words(row)
    return Judgment(derived_id("q", words), identifier(row, "docid"), grade, judge), words


def query_words(row: Mapping[str, Any]) -> str:
    """The words of a row's `query` without Quepid's guard: the blank that it puts before - = + and @. Raises FieldError."""
    words = required_text(row, "query")
    return words[1:] if _GUARDED.match(words) else words


def guarded_words(words: str) -> str:
    """Words that begin with blanks and one of - = + @, with one blank more, which `query_words` takes off."""
    return f" {words}" if _GUARDED.match(words) else words


def whole_rating(field: str, cell: str) -> int:
    """A rating: a whole number, also written as 3.0; raises FieldError."""
    digits, mark, decimals = cell.strip().partition(".")
    if not mark:  # as a spreadsheet of another language writes it
        digits, _, decimals = cell.strip().partition(",")
    sign = digits[:1] if digits[:1] in "+-" else ""
    number = digits.removeprefix(sign)
    whole = number.isascii() and number.isdigit() and len(number) <= 18
    if not whole or decimals.strip("0"):
        raise FieldError(field, f"must be a whole number, found {ascii(cell)[:60]}")
    return int(digits)


def parsed_by_words(
    source: str,
    name: str,
    collected: Collected[Judgment],
    words: Mapping[str, str],
    errors: Iterable[RowError],
    notes: Iterable[str] = (),
    grade_column: str = "rating",
    unrated: Mapping[str, int] | None = None,
) -> ParsedInput:
    """The judgments with the queries they name; `words` are those of each qid, an empty `grade_column` is named by the judge.

    `unrated` are the rows of queries without a judgment, by their words: queries to be judged.
    """
    first: dict[str, int] = {}
    for judgment, row in zip(collected.records, collected.rows, strict=True):
        first.setdefault(judgment.qid, row)
    named = {qid: words[qid] for qid in first}
    for text, row in (unrated or {}).items():
        named.setdefault(derived_id("q", text), text)
        first.setdefault(derived_id("q", text), row)
    return ParsedInput(
        source,
        name,
        queries=tuple(Query(qid, named[qid]) for qid in first),
        judgments=tuple(collected.records),
        errors=tuple(errors),
        notes=(*collected.notes, *notes),
        extra={
            "rows": {"judgments": collected.rows, "queries": list(first.values())},
            "fields": {"qid": "query", "memory_id": "docid", "grade": grade_column},
            "queries_by_words": True,
        },
    )
