"""Inputs that name a query by its words: which query of the store is meant.

Exactly one query with these words: it is the one, whatever its id. None: the input's query is new. Several: nobody can tell, so
the rows that name it are reported and left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cems_workbench.records import Judgment, ParsedInput, RowError

if TYPE_CHECKING:
    import duckdb


def resolved(cursor: duckdb.DuckDBPyConnection, parsed: ParsedInput) -> ParsedInput:
    """The input with the store's qids, without the queries the store has; as it is when it names queries by id."""
    if not parsed.extra.get("queries_by_words"):
        return parsed
    found: dict[str, list[str]] = {}
    words = list({query.query for query in parsed.queries})
    for text, qid in cursor.execute(
        "SELECT query, qid FROM queries WHERE query IN (SELECT unnest(?)) ORDER BY qid", [words]
    ).fetchall():
        found.setdefault(text, []).append(qid)
    meant = {query.qid: found.get(query.query, []) for query in parsed.queries}
    numbers = parsed.extra.get("rows", {})
    judgments: list[Judgment] = []
    rows: list[int] = []
    problems: list[RowError] = []
    for number, judgment in zip(numbers.get("judgments", ()), parsed.judgments, strict=True):
        qids = meant.get(judgment.qid, [])
        if len(qids) > 1:
            reason = f"these words are those of the queries {', '.join(qids[:5])}; use a format that names the qid"
            problems.append(RowError(parsed.source, number, reason, "query"))
        else:
            judgments.append(replace(judgment, qid=qids[0]) if qids else judgment)
            rows.append(number)
    new = [
        (number, query)
        for number, query in zip(numbers.get("queries", ()), parsed.queries, strict=True)
        if not meant[query.qid]
    ]
    return replace(
        parsed,
        queries=tuple(query for _, query in new),
        judgments=tuple(judgments),
        errors=(*parsed.errors, *problems),
        extra={**parsed.extra, "rows": {**numbers, "judgments": rows, "queries": [number for number, _ in new]}},
    )
