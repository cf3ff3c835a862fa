CREATE TABLE meta (key VARCHAR PRIMARY KEY, value VARCHAR NOT NULL);
CREATE TABLE queries (
    position INTEGER NOT NULL, qid VARCHAR NOT NULL, query VARCHAR NOT NULL, project VARCHAR, as_of TIMESTAMP, type VARCHAR,
    answerable BOOLEAN, given VARCHAR
);
CREATE TABLE judgments (
    qid VARCHAR NOT NULL, memory_id VARCHAR NOT NULL, grade BIGINT NOT NULL, judge VARCHAR NOT NULL, kind VARCHAR NOT NULL
);
CREATE TABLE memories (
    number INTEGER NOT NULL, id VARCHAR NOT NULL, content VARCHAR NOT NULL, title VARCHAR, category VARCHAR, project VARCHAR,
    session VARCHAR, author VARCHAR, tags VARCHAR NOT NULL, priority DOUBLE NOT NULL, pinned BOOLEAN NOT NULL,
    importance VARCHAR NOT NULL, created_at TIMESTAMP, last_accessed TIMESTAMP, access_count BIGINT NOT NULL,
    relevant_count BIGINT NOT NULL, noise_count BIGINT NOT NULL, scope VARCHAR NOT NULL, source_ref VARCHAR, embedding FLOAT[],
    updated_at TIMESTAMP, valid_from TIMESTAMP, valid_until TIMESTAMP, tokens INTEGER
);
CREATE TABLE chunks (member INTEGER NOT NULL, seq INTEGER NOT NULL, start BIGINT, content VARCHAR NOT NULL, tokens INTEGER);
CREATE TABLE edges (
    qid VARCHAR NOT NULL, position INTEGER NOT NULL, source_id VARCHAR NOT NULL, target_id VARCHAR NOT NULL, kind VARCHAR NOT NULL,
    weight DOUBLE NOT NULL
);
CREATE TABLE evidence (
    qid VARCHAR NOT NULL, query VARCHAR NOT NULL, project VARCHAR, as_of TIMESTAMP, members INTEGER[] NOT NULL,
    variants VARCHAR NOT NULL, notes VARCHAR NOT NULL, seconds DOUBLE NOT NULL
);
CREATE TABLE lists (
    qid VARCHAR NOT NULL, position INTEGER NOT NULL, name VARCHAR NOT NULL, source VARCHAR NOT NULL, variant INTEGER,
    members INTEGER[] NOT NULL, scores DOUBLE[] NOT NULL, chunks INTEGER[]
);
CREATE TABLE scores (
    qid VARCHAR NOT NULL, role VARCHAR NOT NULL, model VARCHAR NOT NULL, member INTEGER NOT NULL, raw DOUBLE, text INTEGER,
    error VARCHAR, detail VARCHAR
);
CREATE TABLE texts (number INTEGER NOT NULL, text VARCHAR NOT NULL);
