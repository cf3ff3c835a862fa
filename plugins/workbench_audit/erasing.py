"""Removes a memory from the tables and indexes of a store for good; what it cannot reach the receipt of forgotten.py names.

    its rows        of memories, what imports replaced, chunks, the vectors and texts of a source, relations and decisions on them
    its text        in recorded answers, and in notes and states of labels: cut out, the rest stays
    caches          replies that have the text, scores by its hash
    files           the database, the vectors and the lexical index are written again, as they keep bytes of what is deleted

Chroma's files are removed, and written again from the vectors. What names the memory by its id alone stays, such as judgments. An import
or a live source that still has the memory brings it back.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.store import memories
from cems_workbench.store.database import Database
from cems_workbench.store.rows import bump_content_version

if TYPE_CHECKING:
    import duckdb

    from workbench_audit.forgotten import Search

_HASHES = "(SELECT text_sha FROM memories WHERE id = $id UNION ALL SELECT text_sha FROM chunks WHERE memory_id = $id)"
_ROWS = {
    "memories_before": "id = $id",
    **dict.fromkeys(("judged_texts", "chunks_before", "chunked_before", "source_vectors", "source_texts"), "memory_id = $id"),
    **dict.fromkeys(("relations", "relations_before"), "$id IN (source_id, target_id)"),
    "supersession_decisions": "$id IN (newer_id, older_id)",
    "score_cache": f"text_sha IN {_HASHES}",
}
"""Rows that are removed, by table, besides those of `memories.remove`."""
_CUT = [
    *((table, column) for table in ("judgments", "judgments_before", "label_events") for column in ("note", "shown")),
    ("label_events", "before"),
    ("adjudications", "note"),
]
"""Columns of which the text is cut out."""


def to_erase(search: Search, own: Database) -> list[tuple[str, int]]:
    """The rows that `erase` removes or cuts, by table; nothing is changed."""
    return own.read(_rows, search, False)


def erase(search: Search, resources: Resources, progress: Progress = silent) -> list[tuple[str, int]]:
    """Remove a memory for good; returns its rows by table. Raises StoreError, and what `progress` raises before anything is removed."""
    progress("erasing", 0, 1)
    with closing(Database(resources.store.path)) as own:
        with own.transaction() as cursor:
            found = _rows(cursor, search, True)
        own.read(resources.store.memories.reload_hidden)
        with resources.changing():
            resources.store.indexes.erase(search.memory_id)
        resources.refresh(progress)
        own.rewrite()
    return found


def _rows(cursor: duckdb.DuckDBPyConnection, search: Search, change: bool) -> list[tuple[str, int]]:
    values: dict[str, Any] = {"id": search.memory_id, "text": search.text, "forms": search.forms}
    found = Counter[str]()

    def run(table: str, sql: str, condition: str) -> None:
        sql = f"{sql if change else f'SELECT count(*) FROM {table}'} WHERE {condition}"
        given = {name: value for name, value in values.items() if f"${name}" in sql}
        found[table] += int(cursor.execute(sql, given).fetchall()[0][0])

    def holds(column: str) -> str:
        inside = f"list_bool_or(list_transform($forms, lambda form: contains({column}, form)))"
        return inside if search.forms else f"{column} = $text"

    for table, condition in _ROWS.items():
        run(table, f"DELETE FROM {table}", condition)
    run("reply_cache", "DELETE FROM reply_cache", holds("reply"))
    for table, column in _CUT:
        cut = f"list_reduce($forms, lambda said, form: replace(said, form, ''), {column})" if search.forms else "''"
        run(table, f"UPDATE {table} SET {column} = {cut}", holds(column))
    its = f"x.content IS NOT NULL AND (x.memory_id = $id OR {holds('x.content')})"
    rest = f"{{memory_id: x.memory_id, score: x.score, content: CASE WHEN {its} THEN NULL ELSE x.content END}}"
    for table in ("recorded_answers", "answers_before"):
        changed = f"UPDATE {table} SET results = list_transform(results, lambda x: {rest})"
        run(table, changed, f"list_bool_or(list_transform(results, lambda x: {its}))")
    for table, key in (("chunks", "memory_id"), ("memories", "id")):
        run(table, f"SELECT count(*) FROM {table}", f"{key} = $id")
    if change:
        memories.remove(cursor, [search.memory_id])
        bump_content_version(cursor)
    return [(table, count) for table, count in found.items() if count]
