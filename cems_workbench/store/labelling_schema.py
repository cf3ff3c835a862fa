"""The tables of query sets and labels, and how a store of schema 5 gains them.

A version of a query set holds its queries as they were, so that what was measured on it can be measured again. Of a judgment the
present grade stands in `judgments`, one row per query, memory, judge and kind; what stood there before, and who changed it when,
stands in `label_events`. Decisions on conflicts are `adjudications`: they never touch the raw labels.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cems_workbench.store import query_set_rows

if TYPE_CHECKING:
    import duckdb

JUDGMENTS = """
CREATE TABLE IF NOT EXISTS judgments (
    qid VARCHAR NOT NULL, memory_id VARCHAR NOT NULL, judge VARCHAR NOT NULL, kind VARCHAR NOT NULL,
    grade BIGINT NOT NULL, judged_at TIMESTAMP, note VARCHAR, source VARCHAR NOT NULL, shown VARCHAR,
    PRIMARY KEY (qid, memory_id, judge, kind)
);
"""
"""`source` is the input a judgment came from, or `workbench` when it was given here; `shown` is JSON: what the judge saw."""

LABELLING = """
CREATE TABLE IF NOT EXISTS query_sets (
    name VARCHAR NOT NULL, version BIGINT NOT NULL, created_at TIMESTAMP NOT NULL, digest VARCHAR NOT NULL,
    scale VARCHAR NOT NULL,
    PRIMARY KEY (name, version)
);
CREATE TABLE IF NOT EXISTS query_set_members (
    set_name VARCHAR NOT NULL, version BIGINT NOT NULL, qid VARCHAR NOT NULL,
    query VARCHAR NOT NULL, project VARCHAR, as_of TIMESTAMP, type VARCHAR, source VARCHAR NOT NULL,
    PRIMARY KEY (set_name, version, qid)
);
CREATE SEQUENCE IF NOT EXISTS label_event_ids;
CREATE TABLE IF NOT EXISTS label_events (
    id BIGINT PRIMARY KEY DEFAULT nextval('label_event_ids'),
    qid VARCHAR NOT NULL, memory_id VARCHAR NOT NULL, judge VARCHAR NOT NULL, kind VARCHAR NOT NULL,
    action VARCHAR NOT NULL, grade BIGINT, note VARCHAR, source VARCHAR NOT NULL, shown VARCHAR,
    before VARCHAR, undoes BIGINT, recorded_at TIMESTAMP NOT NULL
);
CREATE SEQUENCE IF NOT EXISTS adjudication_ids;
CREATE TABLE IF NOT EXISTS adjudications (
    id BIGINT PRIMARY KEY DEFAULT nextval('adjudication_ids'),
    qid VARCHAR NOT NULL, memory_id VARCHAR NOT NULL, grade BIGINT, decided_by VARCHAR NOT NULL, note VARCHAR,
    decided_at TIMESTAMP NOT NULL
);
CREATE TABLE IF NOT EXISTS label_queues (
    name VARCHAR PRIMARY KEY, created_at TIMESTAMP NOT NULL, overlap BIGINT NOT NULL, settings VARCHAR NOT NULL
);
CREATE TABLE IF NOT EXISTS label_queue_pairs (
    queue VARCHAR NOT NULL, position BIGINT NOT NULL, qid VARCHAR NOT NULL, memory_id VARCHAR NOT NULL,
    PRIMARY KEY (queue, qid, memory_id)
);
"""
"""`before` is JSON, the state an event replaced; a null `grade` takes a label, or a decision, back. The actions `skip`, of
a pair, and `unclear`, of a query (memory_id is empty), change no judgment."""

QUEUE_RANKINGS = """
CREATE TABLE IF NOT EXISTS label_queue_rankings (
    queue VARCHAR NOT NULL, config VARCHAR NOT NULL, qid VARCHAR NOT NULL, rank BIGINT NOT NULL, memory_id VARCHAR NOT NULL,
    PRIMARY KEY (queue, config, qid, rank)
);
"""
"""What each config ranked within the depth when a queue was made: for its order, and for how much of it is judged. A store of schema
7 gains the table; its queues have no rankings."""


def migrate(cursor: duckdb.DuckDBPyConnection) -> None:
    """Give a store of schema 5 these tables; its queries become the set "all", its judgments keep their grades."""
    columns = {row[0] for row in cursor.execute("SELECT column_name FROM (DESCRIBE judgments)").fetchall()}
    if "judged_at" not in columns:
        cursor.execute("CREATE TEMP TABLE earlier_judgments AS FROM judgments")
        cursor.execute("DROP TABLE judgments")
        cursor.execute(JUDGMENTS)
        cursor.execute(
            "INSERT INTO judgments SELECT qid, memory_id, judge, kind, grade, NULL, NULL, '', NULL FROM earlier_judgments"
        )
        cursor.execute("DROP TABLE earlier_judgments")
    cursor.execute(LABELLING)
    query_set_rows.adopt_all(cursor, datetime.now(UTC))
