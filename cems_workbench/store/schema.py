"""The tables of `workbench.duckdb` and the version they carry.

Times are stored as UTC without a zone. `tags` and `evidence` are JSON text, so that an update never touches a nested
column (which DuckDB turns into a delete and an insert, at odds with a primary key in the same transaction).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import uuid4

from cems_workbench.errors import StoreError
from cems_workbench.store import labelling_schema, tuning_schema

if TYPE_CHECKING:
    import duckdb

SCHEMA_VERSION = 8

LEARNED_PAIRS = """
CREATE TABLE IF NOT EXISTS learned_pairs (
    typo VARCHAR NOT NULL, correction VARCHAR NOT NULL, count BIGINT NOT NULL,
    first_at TIMESTAMP NOT NULL, last_at TIMESTAMP NOT NULL, refused BOOLEAN NOT NULL,
    PRIMARY KEY (typo, correction)
);
"""

REPLY_CACHE = """
CREATE TABLE IF NOT EXISTS reply_cache (
    model VARCHAR NOT NULL, prompt VARCHAR NOT NULL, sent VARCHAR NOT NULL, reply VARCHAR NOT NULL,
    PRIMARY KEY (model, prompt, sent)
);
"""

SAVED_STATES = """
CREATE TABLE IF NOT EXISTS saved_states (
    id VARCHAR PRIMARY KEY, state VARCHAR NOT NULL, saved_at TIMESTAMP NOT NULL
);
"""

TABLES = f"""{LEARNED_PAIRS}{REPLY_CACHE}{SAVED_STATES}{labelling_schema.JUDGMENTS}{labelling_schema.LABELLING}
{tuning_schema.TUNING}{labelling_schema.QUEUE_RANKINGS}
CREATE TABLE workbench_meta (key VARCHAR PRIMARY KEY, value VARCHAR NOT NULL);
CREATE TABLE memories (
    id VARCHAR PRIMARY KEY,
    content VARCHAR NOT NULL,
    title VARCHAR,
    category VARCHAR,
    project VARCHAR,
    session VARCHAR,
    author VARCHAR,
    tags VARCHAR NOT NULL,
    priority DOUBLE NOT NULL,
    pinned BOOLEAN NOT NULL,
    importance VARCHAR NOT NULL,
    created_at TIMESTAMP,
    last_accessed TIMESTAMP,
    access_count BIGINT NOT NULL,
    relevant_count BIGINT NOT NULL,
    noise_count BIGINT NOT NULL,
    scope VARCHAR NOT NULL,
    source_ref VARCHAR,
    text_sha VARCHAR NOT NULL,
    deleted_at TIMESTAMP
);
CREATE TABLE relations (
    source_id VARCHAR NOT NULL, target_id VARCHAR NOT NULL, kind VARCHAR NOT NULL, weight DOUBLE NOT NULL,
    PRIMARY KEY (source_id, target_id, kind)
);
CREATE TABLE queries (
    qid VARCHAR PRIMARY KEY, query VARCHAR NOT NULL, project VARCHAR, as_of TIMESTAMP, type VARCHAR
);
CREATE TABLE score_cache (
    model VARCHAR NOT NULL, query VARCHAR NOT NULL, text_sha VARCHAR NOT NULL, score DOUBLE NOT NULL,
    detail VARCHAR,
    PRIMARY KEY (model, query, text_sha)
);
CREATE SEQUENCE experiment_ids;
CREATE TABLE experiments (
    id BIGINT PRIMARY KEY DEFAULT nextval('experiment_ids'),
    name VARCHAR NOT NULL, config_yaml VARCHAR NOT NULL, note VARCHAR NOT NULL, evidence VARCHAR NOT NULL,
    created_at TIMESTAMP NOT NULL
);
CREATE TABLE embedded (
    collection VARCHAR NOT NULL, memory_id VARCHAR NOT NULL, text_sha VARCHAR NOT NULL,
    project VARCHAR, scope VARCHAR NOT NULL,
    PRIMARY KEY (collection, memory_id)
);
"""
"""`embedded` says what the vector index holds; Chroma could say so too, but takes seconds where this is one join."""

MIGRATIONS: dict[int, str | Callable[[duckdb.DuckDBPyConnection], None]] = {
    1: "ALTER TABLE score_cache ADD COLUMN detail VARCHAR",
    2: LEARNED_PAIRS,
    3: REPLY_CACHE,
    4: SAVED_STATES,
    5: labelling_schema.migrate,
    6: tuning_schema.TUNING,
    7: labelling_schema.QUEUE_RANKINGS,
}
"""Per schema version what makes the next one of it; an older store is brought up when it is opened."""


def prepare(cursor: duckdb.DuckDBPyConnection, where: str) -> None:
    """Create the tables in a new database, bring an older one up to date, or check that these are ours and known.

    Runs inside the caller's transaction. Raises StoreError for somebody else's database or a newer schema.
    """
    tables = {row[0] for row in cursor.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if not tables:
        cursor.execute(TABLES)
        rows = [("schema", str(SCHEMA_VERSION)), ("store_id", uuid4().hex[:12]), ("content_version", "0")]
        cursor.executemany("INSERT INTO workbench_meta VALUES (?, ?)", rows)
        return
    if "workbench_meta" not in tables:
        raise StoreError(f"{where} is a DuckDB database, but not one of CEMS Workbench")
    found = int(read_meta(cursor, "schema") or 0)
    while found in MIGRATIONS:
        step = MIGRATIONS[found]
        if isinstance(step, str):
            cursor.execute(step)
        else:
            step(cursor)
        found += 1
        write_meta(cursor, "schema", str(found))
    if found != SCHEMA_VERSION:
        raise StoreError(
            f"store {where} has schema {found}, this version reads {SCHEMA_VERSION}: "
            + ("update cems-workbench" if found > SCHEMA_VERSION else "import its inputs into a new store")
        )


def read_meta(cursor: duckdb.DuckDBPyConnection, key: str) -> str | None:
    """The value of a meta key, None when it was never written."""
    # fetchall, not fetchone: a result that was not read to its end blocks the connection.
    row = next(iter(cursor.execute("SELECT value FROM workbench_meta WHERE key = ?", [key]).fetchall()), None)
    return None if row is None else str(row[0])


def write_meta(cursor: duckdb.DuckDBPyConnection, key: str, value: str) -> None:
    """Set a meta key."""
    cursor.execute("INSERT OR REPLACE INTO workbench_meta VALUES (?, ?)", [key, value])


def delete_meta(cursor: duckdb.DuckDBPyConnection, key: str) -> None:
    """Take a meta key away, if it is there."""
    cursor.execute("DELETE FROM workbench_meta WHERE key = ?", [key])


def bump_content_version(cursor: duckdb.DuckDBPyConnection) -> int:
    """Add one to the content version; to be called in the transaction that changes a memory."""
    version = int(read_meta(cursor, "content_version") or 0) + 1
    write_meta(cursor, "content_version", str(version))
    return version
