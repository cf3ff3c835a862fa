"""The text rule of an open store, and its change (`text_rule` has the rules themselves)."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from cems_workbench.records import Memory, TextRule
from cems_workbench.store import memories
from cems_workbench.store.database import Database
from cems_workbench.store.meta import bump_content_version, next_version, write_meta
from cems_workbench.store.rows import staged, text_sha
from cems_workbench.store.search.entries import WHOLE_MEMORY
from cems_workbench.store.text_rule import TEXT_RULE, searched_text, text_rule

if TYPE_CHECKING:
    import duckdb

BATCH_ROWS = 20_000
"""Memories whose texts are hashed again at a time."""


class TextRules:
    """The text rule of an open store. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def rule(self) -> TextRule:
        """The rule by which the texts of memories are made."""
        return self._database.read(text_rule)

    def of(self, memory: Memory) -> str:
        """The text of a memory that is embedded and searched, if it has no chunks."""
        return searched_text(memory, self.rule)

    def choose(self, rule: TextRule) -> bool:
        """Set the rule; False if it is already set.

        The next refresh of the indexes cuts again and embeds the texts that differ; vectors of a live source stay those of its memories.
        """
        with self._database.transaction() as cursor:
            if text_rule(cursor) == rule:
                return False
            write_meta(cursor, TEXT_RULE, json.dumps(asdict(rule)))
            if memories.count(cursor):
                _hash_again(cursor, rule)
                bump_content_version(cursor)
        return True


def _hash_again(cursor: duckdb.DuckDBPyConnection, rule: TextRule) -> None:
    """Write `text_sha` of every memory, deleted ones included, as the rule makes its text."""
    import pyarrow as pa

    version, columns = next_version(cursor), ", ".join(memories.FIELDS)
    (last,) = cursor.execute("SELECT coalesce(max(rowid), -1) FROM memories").fetchall()[0]
    for start in range(0, last + 1, BATCH_ROWS):
        rows = cursor.execute(
            f"SELECT text_sha, {columns} FROM memories WHERE rowid >= ? AND rowid < ?", [start, start + BATCH_ROWS]
        ).fetchall()
        found = [(row[1], row[0], text_sha(searched_text(memories.record(row[1:]), rule))) for row in rows]
        changed = [row for row in found if row[1] != row[2]]
        table = pa.table(
            {name: pa.array([row[i] for row in changed], pa.string()) for i, name in enumerate(("id", "was", "is_now"))}
        )
        with staged(cursor, "staged_texts", table):
            cursor.execute(
                "UPDATE memories SET text_sha = s.is_now, changed = ? FROM staged_texts AS s WHERE memories.id = s.id",
                [version],
            )
            # Such a vector is what the live system searches, whatever text it made it of.
            cursor.execute(
                "UPDATE source_vectors SET text_sha = s.is_now FROM staged_texts AS s "
                "WHERE source_vectors.memory_id = s.id AND source_vectors.seq = ? AND source_vectors.text_sha = s.was",
                [WHOLE_MEMORY],
            )
