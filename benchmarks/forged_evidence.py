"""Scripts that make a forgery of an evidence file, each of one kind: code instead of data, other tables, rows that do not fit."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb

AS_TABLE = "CREATE TABLE kept AS FROM {0}; DROP TABLE {0}; "
FOREVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
CODE = {
    "a view for ever": f"ALTER TABLE scores RENAME TO kept; CREATE VIEW scores AS {FOREVER}",
    "a view of gigabytes": "DROP TABLE texts; "
    "CREATE VIEW texts AS SELECT range::INTEGER AS number, repeat('x', 1000000) AS text FROM range(1000000000)",
    "a view on a file": "DROP TABLE texts; CREATE VIEW texts AS SELECT 1 AS number, content AS text FROM read_text('/etc/hostname')",
    "a view of a view": "CREATE VIEW one AS SELECT 1; CREATE VIEW two AS FROM one",
    "views in a circle": "CREATE VIEW one AS SELECT 1 AS a; CREATE VIEW two AS FROM one; CREATE OR REPLACE VIEW one AS FROM two",
    "a view beside": "CREATE VIEW beside AS SELECT 1",
    "a view on the network": "CREATE VIEW beside AS SELECT 'https://example.org/x.csv'",
    "a macro": "CREATE MACRO plus(a, b) AS a + b",
    "a macro for coalesce": "CREATE MACRO coalesce(a, b) AS 5",
    "a macro for count": "CREATE MACRO count(a) AS 5",
    "a macro for strlen": "CREATE MACRO strlen(a) AS (SELECT content FROM read_text('/etc/hostname'))",
    "a table macro": "CREATE MACRO rows() AS TABLE SELECT 1",
    "a macro for duckdb_views": "CREATE MACRO duckdb_views() AS TABLE SELECT 'x' AS view_name, true AS internal; CREATE VIEW v AS SELECT 1",
    "a macro for duckdb_columns": "CREATE MACRO duckdb_columns() AS TABLE SELECT 1 AS table_name",
    "an enum": "CREATE TYPE mood AS ENUM ('a', 'b')",
    "an enum column": "CREATE TYPE mood AS ENUM ('human', 'model'); ALTER TABLE judgments ALTER kind TYPE mood",
    "a type by another name": "CREATE TYPE words AS VARCHAR",
    "a schema": "CREATE SCHEMA other",
    "a table in a schema": "CREATE SCHEMA other; CREATE TABLE other.meta AS FROM meta",
    "a sequence": "CREATE SEQUENCE numbers",
    "a default of a sequence": "CREATE SEQUENCE numbers; ALTER TABLE texts ALTER number SET DEFAULT nextval('numbers')",
    "a default": "ALTER TABLE texts ALTER text SET DEFAULT 'x'",
    "a generated column": "DROP TABLE texts; "
    "CREATE TABLE texts (number INTEGER NOT NULL, text VARCHAR GENERATED ALWAYS AS (repeat('x', 10)))",
    "a generated column beside": "DROP TABLE texts; "
    "CREATE TABLE texts (number INTEGER NOT NULL, text VARCHAR NOT NULL, more VARCHAR GENERATED ALWAYS AS (text))",
    "a trigger": "CREATE TRIGGER undo AFTER INSERT ON queries FOR EACH STATEMENT DELETE FROM judgments",
    "an index": "CREATE INDEX by_qid ON scores (qid)",
    "an index of an expression": "CREATE INDEX by_words ON scores ((upper(qid)))",
    "a check": "DROP TABLE texts; CREATE TABLE texts (number INTEGER NOT NULL, text VARCHAR NOT NULL, CHECK (number > -1))",
}
TABLES = {
    "no table meta": "DROP TABLE meta",
    "no table queries": "DROP TABLE queries",
    "no table judgments": "DROP TABLE judgments",
    "no table memories": "DROP TABLE memories",
    "no table evidence": "DROP TABLE evidence",
    "no table lists": "DROP TABLE lists",
    "no table scores": "DROP TABLE scores",
    "no table texts": "DROP TABLE texts",
    "no table edges": "DROP TABLE edges",
    "a table beside": "CREATE TABLE beside (x INTEGER)",
    "a table called as a command": 'CREATE TABLE "x; DROP TABLE meta" (x INTEGER)',
    "a column beside": "ALTER TABLE scores ADD COLUMN more BLOB",
    "no column raw": "ALTER TABLE scores DROP raw",
    "no column content": "ALTER TABLE memories DROP content",
    "scores as texts": "ALTER TABLE lists ALTER scores TYPE VARCHAR[]",
    "scores as one number": AS_TABLE.format("lists")
    + "CREATE TABLE lists AS SELECT * REPLACE (1.0 AS scores) FROM kept; DROP TABLE kept",
    "nested members": AS_TABLE.format("lists")
    + "CREATE TABLE lists AS SELECT * REPLACE ([members] AS members) FROM kept; DROP TABLE kept",
    "a struct for the query": AS_TABLE.format("queries")
    + "CREATE TABLE queries AS SELECT * REPLACE ({'a': query} AS query) FROM kept; "
    "DROP TABLE kept",
    "a map for the notes": AS_TABLE.format("evidence")
    + "CREATE TABLE evidence AS SELECT * REPLACE (MAP {'a': notes} AS notes) FROM kept; "
    "DROP TABLE kept",
    "a union": AS_TABLE.format("texts")
    + "CREATE TABLE texts (number INTEGER NOT NULL, text UNION(a VARCHAR, b BLOB) NOT NULL)",
    "blobs for contents": AS_TABLE.format("texts") + "CREATE TABLE texts (number INTEGER NOT NULL, text BLOB NOT NULL)",
    "a huge number as member": "ALTER TABLE scores ALTER member TYPE HUGEINT",
    "grades as decimals": "ALTER TABLE judgments ALTER grade TYPE DECIMAL(18, 3)",
    "times with a zone": "ALTER TABLE queries ALTER as_of TYPE TIMESTAMPTZ",
    "arrays of one length": "UPDATE memories SET embedding = [1, 2, 3]::FLOAT[]; ALTER TABLE memories ALTER embedding TYPE FLOAT[3]",
    "queries that may be empty": "ALTER TABLE queries ALTER query DROP NOT NULL; UPDATE queries SET query = NULL",
}
ROWS = {
    "scores shorter": (
        "UPDATE lists SET scores = scores[:3] WHERE len(members) > 3",
        "lists.scores: 'q1' 'vector:0': there are not as many",
    ),
    "scores longer": ("UPDATE lists SET scores = list_append(scores, 1.0)", "lists.scores"),
    "a score that is no number": (
        "UPDATE lists SET scores = list_transform(scores, lambda s: 'nan'::DOUBLE)",
        "query q1: lists[0].hits[0].score: expected a finite number, found nan",
    ),
    "an infinite score": (
        "UPDATE lists SET scores = list_concat(scores[:1], ['inf'::DOUBLE], scores[3:]) WHERE qid = 'q2'",
        "query q2: lists[0].hits[1].score",
    ),
    "an empty score": (
        "UPDATE lists SET scores = list_transform(scores, lambda s: NULL)",
        "lists.scores: 1: an entry is empty",
    ),
    "a repeated member": (
        "UPDATE lists SET members = list_transform(members, lambda m: 1)",
        "a memory, or a chunk of it, is in the list twice",
    ),
    "an empty member": (
        "UPDATE lists SET members = list_transform(members, lambda m: NULL)",
        "lists.members: 1: an entry is empty",
    ),
    "a member that is not there": (
        "UPDATE lists SET members = list_concat([9999], members[2:]) WHERE len(members) > 0",
        "lists.members: 'q1' has a member that is no memory",
    ),
    "a negative member": (
        "UPDATE evidence SET members = list_concat([-1], members[2:]) WHERE len(members) > 0",
        "evidence.members",
    ),
    "a member that is not the query's": (
        "UPDATE evidence SET members = members[:2]",
        "hits[2].memory_id: 'c' is not among the memories",
    ),
    "chunks that are not there": ("UPDATE lists SET chunks = list_transform(members, lambda m: 7)", "has no chunk 7"),
    "a grade of 2^63-1": (
        "UPDATE judgments SET grade = 9223372036854775807 WHERE memory_id = 'a'",
        "grade 9223372036854775807 is beyond",
    ),
    "a judge of another kind": ("UPDATE judgments SET kind = 'oracle'", "kind 'oracle' is not known"),
    "a judgment twice": (
        "INSERT INTO judgments SELECT qid, memory_id, grade + 1, judge, kind FROM judgments",
        "the judgment is in the file twice",
    ),
    "a query twice": (
        "INSERT INTO queries BY NAME SELECT * REPLACE (position + 100 AS position) FROM queries",
        "queries.qid: 'q",
    ),
    "evidence twice": ("INSERT INTO evidence FROM evidence", "evidence.qid: 'q"),
    "evidence of no query": ("UPDATE evidence SET qid = 'zz' WHERE qid = 'q1'", "is not among"),
    "two lists of one name": ("UPDATE lists SET name = 'same'", "lists.qid, name: 'q"),
    "a list of an unknown source": ("UPDATE lists SET source = 'oracle'", "lists[0].source: 'oracle' is not known"),
    "a variant that is not there": ("UPDATE lists SET variant = 5", "lists[0].variant: 5 is not an index"),
    "variants that are no JSON": ("UPDATE evidence SET variants = '['", "variants: line 1: not JSON"),
    "variants of another shape": ("UPDATE evidence SET variants = '[[1, 2, 3]]'", "variants: expected pairs"),
    "notes too deep": ("UPDATE evidence SET notes = repeat('[', 100000)", "nested too deeply"),
    "notes that are a list": ("UPDATE evidence SET notes = '[]'", "notes: expected an object"),
    "warnings that are text": (
        'UPDATE evidence SET notes = \'{"warnings": "x"}\'',
        "notes.warnings: expected an object",
    ),
    "tags that are a number": ("UPDATE memories SET tags = '5'", "tags: expected an array of texts, found 5"),
    "a memory twice": ("UPDATE memories SET id = 'a'", "memories.id: 'a' is in the file twice"),
    "memories with a gap": ("UPDATE memories SET number = number + 1", "numbered without a gap"),
    "a priority that is no number": (
        "UPDATE memories SET priority = 'nan'",
        "memories.a.priority: expected a finite number",
    ),
    "embeddings of two lengths": (
        "UPDATE memories SET embedding = list_transform(range(number + 1), lambda x: 1)",
        "vectors of different lengths",
    ),
    "an infinite embedding": ("UPDATE memories SET embedding = ['inf']", "embeddings.a: expected finite numbers"),
    "a time beyond the calendar": (
        "UPDATE memories SET created_at = '290000-01-01'",
        "memories.created_at: '290000-01-01 00:00:00' is no time",
    ),
    "an infinite time": ("UPDATE queries SET as_of = 'infinity'", "queries.as_of: 'infinity' is no time"),
    "scores of nobody": (
        "INSERT INTO scores VALUES ('q1', 'rerank', 'm', 999, 1, NULL, NULL, NULL)",
        "scores.member: 999 is not among",
    ),
    "scores of another role": (
        "INSERT INTO scores VALUES ('q1', 'boss', 'm', 0, 1, NULL, NULL, NULL)",
        "scores.role: 'boss' is not one of",
    ),
    "a text that is not there": (
        "INSERT INTO scores VALUES ('q1', 'rerank', 'm', 0, 1, 77, NULL, NULL)",
        "scores.text: 77 is not among",
    ),
    "a detail that is a list": (
        "INSERT INTO scores VALUES ('q1', 'rerank', 'm', 0, 1, NULL, NULL, '[]')",
        "model_scores.m.a.detail: expected an object",
    ),
    "an edge to nowhere": (
        "INSERT INTO edges VALUES ('q1', 0, 'a', 'zz', 'x', 1)",
        "relations[0].target_id: 'zz' is not among",
    ),
    "an edge of no weight": (
        "INSERT INTO edges VALUES ('q1', 0, 'a', 'b', 'x', 'nan')",
        "relations[0].weight: expected a finite number",
    ),
    "chunks out of order": ("INSERT INTO chunks VALUES (0, 5, 0, 'x', NULL)", "chunks.a[0].seq: expected 0"),
    "a negative time taken": ("UPDATE evidence SET seconds = -1", "evidence.seconds: 'q"),
    "a header that is a list": ("UPDATE meta SET value = '[]' WHERE key = 'header'", "not an evidence file"),
    "a header of other types": (
        "UPDATE meta SET value = replace(value, '\"small\"', '[1]') WHERE key = 'header'",
        "not an evidence file",
    ),
    "a header that is no time": (
        "UPDATE meta SET value = replace(value, '2026-09-01T', 'soon') WHERE key = 'header'",
        "not an evidence file",
    ),
    "a format of tomorrow": ("UPDATE meta SET value = 'x' WHERE key = 'format'", "format 'x' is not known"),
    "a thousand million rows": (
        "INSERT INTO texts SELECT 1, 'x' FROM range(12000000)",
        "its table texts holds more than",
    ),
}


FORGED: dict[str, tuple[str, str]] = {name: (script, "") for name, script in {**CODE, **TABLES}.items()} | ROWS
"""By name: the script, and words of the line that refuses it. It fits the file of `tests/unit/evaluation/sets.py`."""


def forge(whole: Path, path: Path, script: str) -> None:
    """Copy an evidence file, run a script on it, and take away the hash that would tell."""
    shutil.copy(whole, path)
    with duckdb.connect(str(path)) as database:
        database.execute(script)
        if "DROP TABLE meta" not in script:
            database.execute("DELETE FROM meta WHERE key LIKE '%hash'")
