-- Imports on record: what each input brought and what it replaced, so that none replaces another's rows unsaid and each can be undone.
--
-- The inputs of one command have the same `event`, which is the number that users see. `counts` is JSON, NULL while the import runs, or
-- where it was cut off. `origin` of a row is the input that wrote its values last (`imports.id`; 0 an edit here, -1 a live source; NULL
-- where that was before imports were recorded), `added_by` the input that brought it first. The tables `*_before` have what an input
-- replaced. A memory that an undo removed is in `removed_memories`, with the content version of that, until every index has dropped it.
--
-- `queries` and `judgments` may be in a team's database, where inputs of several stores meet: there `origin` is STORE:ID, and
-- `queries.brought_by` the name of the file ('' where a person wrote the query here).

CREATE TABLE imports (
    id BIGINT NOT NULL, event BIGINT NOT NULL, imported_at TIMESTAMP NOT NULL, source VARCHAR NOT NULL, folder VARCHAR NOT NULL,
    name VARCHAR NOT NULL, format VARCHAR NOT NULL, options VARCHAR NOT NULL, counts VARCHAR, undone_at TIMESTAMP
);

ALTER TABLE memories ADD COLUMN origin BIGINT;
ALTER TABLE memories ADD COLUMN added_by BIGINT;
CREATE TABLE memories_before (
    input BIGINT NOT NULL, origin BIGINT, id VARCHAR NOT NULL, content VARCHAR NOT NULL, title VARCHAR, category VARCHAR,
    project VARCHAR, session VARCHAR, author VARCHAR, tags VARCHAR NOT NULL, priority DOUBLE NOT NULL, pinned BOOLEAN NOT NULL,
    importance VARCHAR NOT NULL, created_at TIMESTAMP, last_accessed TIMESTAMP, access_count BIGINT NOT NULL,
    relevant_count BIGINT NOT NULL, noise_count BIGINT NOT NULL, scope VARCHAR NOT NULL, source_ref VARCHAR, updated_at TIMESTAMP,
    valid_from TIMESTAMP, valid_until TIMESTAMP
);
CREATE TABLE removed_memories (memory_id VARCHAR NOT NULL, changed BIGINT NOT NULL);

ALTER TABLE relations ADD COLUMN origin BIGINT;
ALTER TABLE relations ADD COLUMN added_by BIGINT;
CREATE TABLE relations_before (
    input BIGINT NOT NULL, origin BIGINT, source_id VARCHAR NOT NULL, target_id VARCHAR NOT NULL, kind VARCHAR NOT NULL,
    weight DOUBLE NOT NULL, author VARCHAR
);

-- `chunked_before.given`: whether the memory had imported chunks, which are then in `chunks_before`.
ALTER TABLE chunked ADD COLUMN origin BIGINT;
CREATE TABLE chunked_before (input BIGINT NOT NULL, origin BIGINT, memory_id VARCHAR NOT NULL, given BOOLEAN NOT NULL, text_sha VARCHAR);
CREATE TABLE chunks_before (
    input BIGINT NOT NULL, memory_id VARCHAR NOT NULL, seq BIGINT NOT NULL, content VARCHAR NOT NULL, start BIGINT
);

ALTER TABLE recorded_answers ADD COLUMN origin BIGINT;
CREATE TABLE answers_before (
    input BIGINT NOT NULL, origin BIGINT, set_name VARCHAR NOT NULL, qid VARCHAR NOT NULL, source VARCHAR NOT NULL, row BIGINT NOT NULL,
    results STRUCT(memory_id VARCHAR, score DOUBLE, content VARCHAR)[] NOT NULL
);

ALTER TABLE queries ADD COLUMN origin VARCHAR;
ALTER TABLE queries ADD COLUMN added_by VARCHAR;
ALTER TABLE queries ADD COLUMN brought_by VARCHAR;
CREATE TABLE queries_before (
    input VARCHAR NOT NULL, origin VARCHAR, brought_by VARCHAR, qid VARCHAR NOT NULL, query VARCHAR NOT NULL, project VARCHAR,
    as_of TIMESTAMP, type VARCHAR, answerable BOOLEAN, given VARCHAR
);
ALTER TABLE judgments ADD COLUMN origin VARCHAR;
ALTER TABLE judgments ADD COLUMN added_by VARCHAR;
CREATE TABLE judgments_before (
    input VARCHAR NOT NULL, origin VARCHAR, qid VARCHAR NOT NULL, memory_id VARCHAR NOT NULL, judge VARCHAR NOT NULL,
    kind VARCHAR NOT NULL, grade BIGINT NOT NULL, judged_at TIMESTAMP, note VARCHAR, source VARCHAR NOT NULL, shown VARCHAR
);

-- Of a query it is known already: the input by which it is in a set.
UPDATE queries SET brought_by = (
    SELECT max(CASE m.source WHEN 'Inspect' THEN '' ELSE m.source END) FROM query_set_members AS m WHERE m.qid = queries.qid
);
