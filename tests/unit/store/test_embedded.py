"""What is written down of vectors, in the tables of new stores and in those that have a key."""

from __future__ import annotations

import duckdb
import pytest

from cems_workbench.store.search.entries import Entry
from cems_workbench.store.search.vectors import embedded


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (collection, memory_id, seq)"])
def test_what_is_known_is_replaced_and_what_is_new_added_in_one_step(key):
    cursor = duckdb.connect()
    cursor.execute(
        "CREATE TABLE embedded (collection VARCHAR, memory_id VARCHAR, seq BIGINT, text_sha VARCHAR, project VARCHAR, "
        f"scope VARCHAR, vector_hash BIGINT{key})"
    )

    def record(collection, **shas):
        entries = [Entry((name, None), "text", sha, None, "shared", None, "text") for name, sha in shas.items()]
        embedded.record(cursor, collection, entries, {entry.id: 7 for entry in entries})

    record("other", a="of another collection")
    record("own", a="first", b="first")
    record("own", b="second", c="second")
    record("own", c="third")
    rows = cursor.execute("SELECT collection, memory_id, text_sha FROM embedded ORDER BY ALL").fetchall()
    assert rows == [
        ("other", "a", "of another collection"),
        ("own", "a", "first"),
        ("own", "b", "second"),
        ("own", "c", "third"),
    ]
