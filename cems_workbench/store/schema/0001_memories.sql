-- Memories and what refers to them.
--
-- Times are stored as UTC without a zone. `tags` and `evidence` are JSON text, so that an update never touches a nested column
-- (which DuckDB turns into a delete and an insert, at odds with a primary key in the same transaction). A deleted memory keeps its
-- row with `deleted_at` set.

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

CREATE TABLE judgments (
    qid VARCHAR NOT NULL, memory_id VARCHAR NOT NULL, judge VARCHAR NOT NULL,
    grade BIGINT NOT NULL, kind VARCHAR NOT NULL,
    PRIMARY KEY (qid, memory_id, judge)
);

CREATE TABLE score_cache (
    model VARCHAR NOT NULL, query VARCHAR NOT NULL, text_sha VARCHAR NOT NULL, score DOUBLE NOT NULL,
    PRIMARY KEY (model, query, text_sha)
);

CREATE SEQUENCE experiment_ids;
CREATE TABLE experiments (
    id BIGINT PRIMARY KEY DEFAULT nextval('experiment_ids'),
    name VARCHAR NOT NULL, config_yaml VARCHAR NOT NULL, note VARCHAR NOT NULL, evidence VARCHAR NOT NULL,
    created_at TIMESTAMP NOT NULL
);

-- What the vector index holds. Chroma could say so too, but takes seconds where this is one join.
CREATE TABLE embedded (
    collection VARCHAR NOT NULL, memory_id VARCHAR NOT NULL, text_sha VARCHAR NOT NULL,
    project VARCHAR, scope VARCHAR NOT NULL,
    PRIMARY KEY (collection, memory_id)
);
