"""Recorded answers of a production system to the queries of a set: the `recorded_answers` table, and matching of their ids.

A result's id matches a memory by its id, by the UUID that CEMS derives from it when it loads files (from the md5), or, in logs with
truncated ids, by a prefix of either. An id that matches none or several is kept unchanged and reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cems_workbench.records import JUDGED_TEXTS, ParsedInput, Query, RecordedAnswer, Returned, RowError
from cems_workbench.store import memories, query_sets
from cems_workbench.store.database import Database
from cems_workbench.store.rows import FOREIGN, Mark, RowCounts, staged
from cems_workbench.store.team import TeamTables, read_of

if TYPE_CHECKING:
    import duckdb

SHORTEST_PART = 24
"""Characters from which on a text may be a part of the memory that it stands for."""
MOST_NAMED = 3
"""Memories listed when an id matches several."""


class RecordedAnswers:
    """The recorded answers of an open store. Thread-safe."""

    def __init__(self, database: Database, team: TeamTables) -> None:
        self._database = database
        self._team = team

    def sets(self) -> dict[str, int]:
        """The query sets with recorded answers, by name, with the number of answered queries."""
        rows = self._database.rows("SELECT set_name, list(qid) FROM recorded_answers GROUP BY ALL ORDER BY ALL")
        counted = {name: len(self._asked(name).keys() & set(qids)) for name, qids in rows}
        return {name: count for name, count in counted.items() if count}

    def read(self, name: str) -> list[RecordedAnswer]:
        """The answers to the queries in the latest version of a set, failures first: empty answers, then by best score, lowest first, then
        answers without scores; ties by qid."""
        rows = self._database.rows(
            "SELECT row, qid, results FROM recorded_answers WHERE set_name = ? "
            "ORDER BY len(results) > 0, list_max(list_transform(results, lambda r: r.score)) NULLS LAST, qid",
            [name],
        )
        asked = self._asked(name) if rows else {}
        return [_answer(number, asked[qid], results) for number, qid, results in rows if qid in asked]

    def _asked(self, name: str) -> dict[str, Query]:
        """The queries of the latest version of a set, by qid."""
        return {query.qid: query for query, _ in read_of(self._team, query_sets.members, name)}

    def resolved(self, answers: Sequence[RecordedAnswer], id_length: int | None = None) -> list[RecordedAnswer]:
        """The answers with the store's ids where exactly one memory matches. `id_length`: the length of truncated ids."""
        known = self._database.read(meant, answers, id_length)
        return [_resolved(answer, known) for answer in answers]


def _answer(number: int, asked: Query, results: Sequence[Mapping[str, Any]]) -> RecordedAnswer:
    returned = tuple(
        Returned(rank, one["memory_id"], one["score"], one["content"]) for rank, one in enumerate(results, 1)
    )
    return RecordedAnswer(number, asked.qid, asked.query, asked.project, returned, asked_at=asked.as_of)


def meant(
    cursor: duckdb.DuckDBPyConnection, answers: Iterable[RecordedAnswer], id_length: int | None = None
) -> dict[str, tuple[str, ...]]:
    """The matching memories of each id in the answers, deleted ones included; ids without a match are absent. A full id
    of the store matches only that memory."""
    ids = {row.memory_id: None for answer in answers for row in answer.returned if row.memory_id is not None}
    if id_length is None:
        fits = "m.id = g.id", "md5(m.id) = replace(g.id, '-', '')"
    else:
        fits = f"left(m.id, {id_length:d}) = g.id", f"left(md5(m.id), {id_length:d}) = g.id"
    found: dict[str, tuple[str, ...]] = {}
    for fit in fits:
        for given, memory_ids in cursor.execute(
            "SELECT g.id, list(m.id ORDER BY m.id) FROM (SELECT unnest(?) AS id) AS g "
            f"JOIN memories AS m ON {fit} GROUP BY g.id",
            [list(ids)],
        ).fetchall():
            if id_length is not None or given not in found:
                found[given] = tuple(dict.fromkeys((*found.get(given, ()), *memory_ids)))
    return found


def _resolved(answer: RecordedAnswer, known: Mapping[str, Sequence[str]]) -> RecordedAnswer:
    """The answer with the store's id for each result that matches exactly one memory."""

    def of_store(row: Returned) -> Returned:
        fitting = known.get(row.memory_id or "", ())
        return replace(row, memory_id=fitting[0]) if len(fitting) == 1 else row

    return replace(answer, returned=tuple(map(of_store, answer.returned)))


def resolve(
    cursor: duckdb.DuckDBPyConnection, parsed: ParsedInput, problems: list[RowError]
) -> tuple[ParsedInput, list[str]]:
    """The input with its answers' ids replaced by the store's, and a note with the number of results. Results that
    match no memory of the store are reported; judgments of them are skipped."""
    parsed = _with_judged_texts(cursor, parsed, problems)
    if not parsed.answers:
        return parsed, []
    length = parsed.extra.get("id_length")
    known = meant(cursor, parsed.answers, length)
    results = [(answer, row) for answer in parsed.answers for row in answer.returned]
    field = parsed.extra.get("fields", {}).get("results", "results")
    strangers = 0
    for answer, row in results:
        if row.memory_id is not None and len(fitting := known.get(row.memory_id, ())) != 1:
            strangers += 1
            reason = _strange(row.memory_id, fitting, length)
            where = f"{field}[{row.row - 1}].id"
            problems.append(RowError(parsed.source, answer.row, reason, where, taken=True))
    textual = sum(row.memory_id is None for _, row in results)
    note = (
        f"{len(parsed.answers):,} recorded answers with {len(results):,} results, "
        f"{strangers:,} ids not in the store"
        + (f", {textual:,} without an id, to be found by their texts" if textual else "")
    )
    judged = [
        (number, replace(judgment, memory_id=fitting[0]) if len(fitting) == 1 else judgment)
        for number, judgment in parsed.numbered("judgments")
        # A cut id that no memory begins with is reported with its answer; a whole one where judgments are imported.
        if len(fitting := known.get(judgment.memory_id, ())) == 1 or length is None
    ]
    answers = tuple(_resolved(answer, known) for answer in parsed.answers)
    return replace(parsed.with_rows(judgments=judged), answers=answers), [note]


def _with_judged_texts(cursor: duckdb.DuckDBPyConnection, parsed: ParsedInput, problems: list[RowError]) -> ParsedInput:
    """The input with a judgment of the memory of each judged text; a text that is not that of exactly one memory is reported."""
    texts = parsed.extra.get(JUDGED_TEXTS, ())
    if not texts:
        return parsed
    meant_by = _memories_with(cursor, {_plain(text) for *_, text in texts})
    judged = []
    for row, field, judgment, text in texts:
        ids = meant_by.get(_plain(text), [])
        if not ids:
            problems.append(RowError(parsed.source, row, f"no single memory has this text: {ascii(text)[:60]}", field))
        judged += [(row, replace(judgment, memory_id=memory_id)) for memory_id in ids]
    several = "1 judged text is" if len(judged) == 1 else f"{len(judged):,} judged texts are"
    notes = (f"{several} that of a memory, or part of a single one",) if judged else ()
    parsed = replace(parsed, notes=(*parsed.notes, *notes))
    return parsed.with_rows(judgments=[*parsed.numbered("judgments"), *dict.fromkeys(judged)])


def _memories_with(cursor: duckdb.DuckDBPyConnection, texts: Iterable[str]) -> dict[str, list[str]]:
    """By text, blanks aside, the memories with that content, or the only one that contains it."""
    content = r"trim(regexp_replace(content, '\s+', ' ', 'g'))"
    found: dict[str, list[str]] = dict(
        cursor.execute(
            f"SELECT {content}, list(id ORDER BY id) FROM memories WHERE {content} IN (SELECT unnest(?)) GROUP BY 1",
            [list(texts)],
        ).fetchall()
    )
    parts = [text for text in texts if text not in found and len(text) >= SHORTEST_PART]
    within = cursor.execute(
        "SELECT t.text, list(m.id) FROM (SELECT unnest(?::VARCHAR[]) AS text) AS t JOIN memories AS m "
        f"ON contains({content}, t.text) GROUP BY t.text HAVING count(*) = 1",
        [parts],
    ).fetchall()
    return found | dict(within)


def _plain(text: str) -> str:
    return " ".join(text.split())


def _strange(given: str, fitting: Sequence[str], length: int | None) -> str:
    shown = ascii(given)[:60]
    if fitting:
        more = ", …" if len(fitting) > MOST_NAMED else ""
        return f"{shown} matches {len(fitting)} memories of the store: {', '.join(fitting[:MOST_NAMED])}{more}"
    return f"no memory {'begins with' if length else 'of the store is'} {shown}; the answer is kept with an unmatched result"


def put(
    cursor: duckdb.DuckDBPyConnection, name: str, source: str, answers: Sequence[RecordedAnswer], by: Mark
) -> RowCounts:
    """Write the answers to queries of a set; they replace those of `source` and other answers to the same queries. What
    they replace is kept for an undo."""
    import pyarrow as pa

    ids = [row.memory_id for answer in answers for row in answer.returned if row.memory_id is not None]
    known = memories.known_ids(cursor, ids)

    def as_result(row: Returned) -> dict[str, Any]:
        content = None if row.memory_id in known else row.content
        return {"memory_id": row.memory_id, "score": row.score, "content": content}

    result = pa.struct([("memory_id", pa.string()), ("score", pa.float64()), ("content", pa.string())])
    table = pa.table(
        {
            "qid": pa.array([answer.qid for answer in answers], pa.string()),
            "row": pa.array([answer.row for answer in answers], pa.int64()),
            "results": pa.array([list(map(as_result, answer.returned)) for answer in answers], pa.list_(result)),
        }
    )
    with staged(cursor, "staged_answers", table):
        ((before, same),) = cursor.execute(
            "SELECT count(*), count(*) FILTER (s.results IS NOT DISTINCT FROM a.results) "
            "FROM recorded_answers AS a JOIN staged_answers AS s USING (qid) WHERE a.set_name = ?",
            [name],
        ).fetchall()
        replaced = (
            "a.set_name = ? AND (a.source = ? OR a.qid IN (SELECT qid FROM staged_answers)) AND NOT EXISTS (FROM staged_answers AS s "
            "WHERE s.qid = a.qid AND a.source = ? AND s.row = a.row AND s.results IS NOT DISTINCT FROM a.results)"
        )
        cursor.execute(
            "INSERT INTO answers_before (input, origin, set_name, qid, source, row, results) "
            "SELECT ?, a.origin, a.set_name, a.qid, a.source, a.row, a.results FROM recorded_answers AS a "
            f"WHERE {replaced} AND {FOREIGN.format('a')}",
            [by.id, name, source, source, by.inputs],
        )
        cursor.execute(f"DELETE FROM recorded_answers AS a WHERE {replaced}", [name, source, source])
        cursor.execute(
            "INSERT INTO recorded_answers (set_name, qid, source, row, results, origin) "
            "SELECT $name, s.qid, $source, s.row, s.results, $by FROM staged_answers AS s "
            "WHERE NOT EXISTS (FROM recorded_answers AS a WHERE a.set_name = $name AND a.qid = s.qid)",
            {"name": name, "source": source, "by": by.id},
        )
    return RowCounts(len(answers) - before, before - same, same)
