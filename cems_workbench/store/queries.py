"""The queries of all query sets: the `queries` table."""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cems_workbench.records import Query
from cems_workbench.store import rows as tables
from cems_workbench.store.team import Session, TeamTables, persistent, rows_of

if TYPE_CHECKING:
    import pyarrow as pa

ENDINGS = "?!. "
"""Characters at the end of a query that make it no other question."""
COLUMNS = ("query", "project", "as_of", "type", "answerable", "given")
"""Of a query besides its qid. `given` is `Query.given` with the `answer` as JSON with sorted keys, null when it is empty."""


class Queries:
    """The queries of an open store, of all sets. Thread-safe."""

    def __init__(self, team: TeamTables) -> None:
        self._team = team

    @persistent
    def read(self) -> list[Query]:
        """All queries in their current version, by qid."""
        rows = rows_of(self._team, f"SELECT qid, {', '.join(COLUMNS)} FROM queries ORDER BY qid")
        return [from_row(row) for row in rows]

    @persistent
    def with_words(self, query: str) -> list[Query]:
        """The queries of this text but for case and a mark at its end, those of exactly this text last, else by qid; several may differ in
        project or time."""
        fold = "rtrim(translate({}, ?, ?), ?)"  # lower() of the two databases differs beyond ASCII
        folded = string.ascii_uppercase, string.ascii_lowercase, ENDINGS
        where = f"{fold.format('query')} = {fold.format('?')} ORDER BY query = ?, qid"
        values = [*folded, query, *folded, query]
        rows = rows_of(self._team, f"SELECT qid, {', '.join(COLUMNS)} FROM queries WHERE {where}", values)
        return [from_row(row) for row in rows]


def from_row(row: Sequence[Any]) -> Query:
    """The query of a row (qid, *COLUMNS)."""
    return Query(row[0], row[1], row[2], tables.to_aware(row[3]), row[4], row[5], **given_from(row[6]))


def given_text(query: Query) -> str | None:
    """`Query.given` and the answer as they are stored: JSON with sorted keys, None without any."""
    values = query.given | ({"answer": query.answer} if query.answer else {})
    return json.dumps(values, ensure_ascii=False, sort_keys=True) if values else None


def given_from(text: str | None) -> dict[str, Any]:
    """The fields of a Query that `given_text` stored."""
    values = json.loads(text) if text else {}
    return values | ({"wordings": tuple(values["wordings"])} if "wordings" in values else {})


def upsert(session: Session, queries: Sequence[Query], by: tables.Mark | str = "") -> tables.RowCounts:
    """Insert queries and update those that differ; qids must be distinct in `queries`. `by` is the input on record that
    brings them, which keeps what it replaces, or the name of a file; empty: a person wrote them here."""
    if not queries:
        return tables.RowCounts()
    mark, name = (by.in_team, by.brought_by) if isinstance(by, tables.Mark) else (str(tables.EDITED), by)
    with session.staged("staged_queries", staging(queries)):
        if isinstance(by, tables.Mark):
            session.change(
                f"INSERT INTO queries_before (input, origin, brought_by, qid, {', '.join(COLUMNS)}) "
                f"SELECT ?, q.origin, q.brought_by, q.qid, {', '.join(f'q.{name}' for name in COLUMNS)} FROM queries AS q "
                f"JOIN staged_queries AS s ON {_CHANGES} WHERE {tables.TEAM_FOREIGN.format('q')}",
                [mark, by.inputs_in_team],
            )
        updated = session.change(
            f"UPDATE queries AS q SET {', '.join(f'{name} = s.{name}' for name in COLUMNS)}, origin = ?, brought_by = ? "
            f"FROM staged_queries AS s WHERE {_CHANGES}",
            [mark, name],
        )
        added = session.change(
            f"INSERT INTO queries (qid, {', '.join(COLUMNS)}, origin, added_by, brought_by) "
            f"SELECT qid, {', '.join(COLUMNS)}, ?, ?, ? FROM staged_queries WHERE qid NOT IN (SELECT qid FROM queries)",
            [mark, mark, name],
        )
    return tables.RowCounts(added, updated, len(queries) - added - updated)


_CHANGES = f"q.qid = s.qid AND ({' OR '.join(f'q.{name} IS DISTINCT FROM s.{name}' for name in COLUMNS)})"
"""The condition that a staged query `s` differs from the stored `q` of its qid."""


@dataclass(frozen=True, slots=True)
class OtherQuery:
    """A query that another file brought, or a person wrote, under the qid of an input's query: `query` is the stored
    one. `contradicted`: the input says something else of it, and not only less."""

    query: Query
    brought_by: str
    same_words: bool
    contradicted: bool


def would_replace(session: Session, queries: Sequence[Query], by: tables.Mark) -> dict[str, OtherQuery]:
    """The queries that would change one which no input of this file wrote, by qid with what is stored."""
    given, found = {query.qid: query for query in queries}, dict[str, OtherQuery]()
    if not given:
        return found
    for *row, brought_by in session.rows(
        f"SELECT qid, {', '.join(COLUMNS)}, brought_by FROM queries WHERE qid IN (SELECT unnest(?::text[])) ORDER BY qid",
        [list(given)],
    ):
        query, new = from_row(row), given[row[0]]
        if (query != new or query.answer not in (None, new.answer)) and not by.is_own(brought_by):
            who = tables.NOT_RECORDED if brought_by is None else brought_by or tables.AN_EDIT
            said = [(getattr(query, name), getattr(new, name)) for name in COLUMNS]
            said += [(query.answer, new.answer)] if query.answer else []  # a first answer is no contradiction
            contradicted = any(theirs not in (None, {}, ours) for ours, theirs in said)
            found[query.qid] = OtherQuery(query, who, query.query == new.query, contradicted)
    return found


def staging(queries: Sequence[Query]) -> pa.Table:
    """Queries as rows of the tables `queries` and `query_set_members`."""
    return tables.table_of(
        "qid string, query string, project string, as_of timestamp[us], type string, answerable bool, given string",
        [
            (one.qid, one.query, one.project, tables.to_naive(one.as_of), one.type, one.answerable, given_text(one))
            for one in queries
        ],
    )


def of_qids(session: Session, qids: Sequence[str]) -> dict[str, Query]:
    rows = session.rows(
        f"SELECT qid, {', '.join(COLUMNS)} FROM queries WHERE qid IN (SELECT unnest(?::text[]))", [list(qids)]
    )
    return {row[0]: from_row(row) for row in rows}


def known_qids(session: Session, qids: Sequence[str]) -> set[str]:
    rows = session.rows("SELECT qid FROM queries WHERE qid IN (SELECT unnest(?::text[]))", [list(qids)])
    return {row[0] for row in rows}
