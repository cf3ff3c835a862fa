"""Removes a memory from the tables and indexes of a store for good; what it cannot reach the receipt of forgotten.py names.

What goes follows from the columns of each table, in the store's database and in the team's:

    a memory's id      (`id`, `…_id`) the row is removed, but for tables of KEPT, which only name the memory
    `…_cache`          rows are removed that have the text, or the hash of a text of the memory
    CUT, `results`     notes and states of labels, and recorded answers: the text is cut out, the rest stays

The database, the vectors and the lexical index are written again, as they keep bytes of what is deleted; Chroma's files are removed, and
written again from the vectors. An import or a live source that still has the memory brings it back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.store import memories
from cems_workbench.store.database import Database
from cems_workbench.store.rows import bump_content_version
from cems_workbench.store.team import CursorSession, Session

if TYPE_CHECKING:
    from workbench_audit.forgotten import Search

KEPT = {
    *("judgments", "judgments_before", "label_events", "adjudications", "label_queue_pairs", "label_queue_rankings"),
    *("embedded", "source_rows", "removed_memories"),
}
"""Tables whose rows name a memory and stay; those of the indexes go with them."""
CUT = {"note", "shown", "before", "why"}
"""Columns of which the text is cut out."""
OTHERS = {"model_id", "store_id"}
"""Ids of something else than a memory."""
TEXTS = ("VARCHAR", "TEXT", "CHARACTER VARYING")


def columns_of(session: Session) -> dict[str, list[tuple[str, str]]]:
    """By table of a database its columns with their types."""
    known: dict[str, list[tuple[str, str]]] = {}
    own = "FROM information_schema.columns WHERE table_schema = current_schema()"
    for table, column, kind in session.rows(f"SELECT table_name, column_name, data_type {own} ORDER BY 1, 2"):
        known.setdefault(table, []).append((column, kind))
    return known


def to_erase(search: Search, resources: Resources, own: Database) -> list[tuple[str, int]]:
    """The rows that `erase` removes or cuts, by table; nothing is changed."""
    with own.reading() as cursor:
        found = _rows(CursorSession(cursor), search, False)
    team = resources.store.team
    if team.place:
        with team.reading() as session:
            found += [(f"team {table}", count) for table, count in _rows(session, search, False)]
    return found


def erase(search: Search, resources: Resources, progress: Progress = silent) -> list[tuple[str, int]]:
    """Remove a memory for good; returns its rows by table. Raises StoreError, and what `progress` raises before anything is removed."""
    progress("erasing", 0, 1)
    store, of_team = resources.store, list[tuple[str, int]]()
    if store.team.place:
        with store.team.transaction() as session:
            of_team = [(f"team {table}", count) for table, count in _rows(session, search, True)]
    with closing(Database(store.path)) as own:
        with own.transaction() as cursor:
            found = _rows(CursorSession(cursor), search, True)
            memories.remove(cursor, [search.memory_id])
            bump_content_version(cursor)
        own.read(store.memories.reload_hidden)
        with resources.changing():
            mirrored = store.indexes.erase(search.memory_id)
        resources.refresh(progress)
        for embedder_id in mirrored:
            store.indexes.renew_chroma(embedder_id, progress)
        own.rewrite()
    return found + of_team


def _rows(session: Session, search: Search, change: bool) -> list[tuple[str, int]]:
    known, found = columns_of(session), Counter[str]()
    texts = {table: [name for name, kind in columns if kind.upper() in TEXTS] for table, columns in known.items()}
    ids = {table: [name for name in own if f"_{name}".endswith("_id") and name not in OTHERS] for table, own in texts.items()}
    its = {table: " OR ".join(f"{name} = ?" for name in own) for table, own in ids.items()}
    hashes = [
        sha
        for table, own in texts.items()
        if ids[table] and "text_sha" in own
        for (sha,) in session.rows(f'SELECT DISTINCT text_sha FROM "{table}" WHERE {its[table]}', [search.memory_id] * len(ids[table]))
    ]
    forms = search.forms or [search.text]

    def run(table: str, sql: str, given: Sequence[Any], condition: str, values: Sequence[Any]) -> None:
        if change:
            found[table] += session.change(f"{sql} WHERE {condition}", [*given, *values])
        else:
            found[table] += int(session.rows(f'SELECT count(*) FROM "{table}" WHERE {condition}', values)[0][0])

    def holds(column: str) -> str:
        return " OR ".join([f"strpos({column}, ?) > 0" if search.forms else f"{column} = ?"] * len(forms))

    for table, own in texts.items():
        if table.endswith("_cache"):
            conditions, values = [holds(f'"{name}"') for name in own], forms * len(own)
            if "text_sha" in own and hashes:
                conditions.append(f"text_sha IN ({', '.join('?' * len(hashes))})")
                values = values + hashes
            run(table, f'DELETE FROM "{table}"', [], " OR ".join(conditions), values)
        elif ids[table] and table not in KEPT:
            run(table, f'DELETE FROM "{table}"', [], its[table], [search.memory_id] * len(ids[table]))
        for column in CUT.intersection(own):
            name = cut = f'"{column}"'
            for _ in search.forms:
                cut = f"replace({cut}, ?, '')"
            run(table, f'UPDATE "{table}" SET {name} = {cut if search.forms else "NULL"}', search.forms, holds(name), forms)
    for table in (table for table, columns in known.items() if any("STRUCT" in kind for _, kind in columns)):
        said = f"x.content IS NOT NULL AND (x.memory_id = ? OR {holds('x.content')})"
        rest = f"{{memory_id: x.memory_id, score: x.score, content: CASE WHEN {said} THEN NULL ELSE x.content END}}"
        values = [search.memory_id, *forms]
        changed = f'UPDATE "{table}" SET results = list_transform(results, lambda x: {rest})'
        run(table, changed, values, f"list_bool_or(list_transform(results, lambda x: {said}))", values)
    return [(table, count) for table, count in found.items() if count]
