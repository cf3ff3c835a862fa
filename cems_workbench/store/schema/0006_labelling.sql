-- Query sets with versions, and labels with a history.
--
-- Each version of a query set has a copy of its queries, so that a measurement can be repeated. `judgments` has the current grades, one row
-- per query, memory, judge and kind; `label_events` has their history. `adjudications` are decisions on conflicts: they never change the
-- raw labels.

-- The primary key gains `kind`. `source` is the input a judgment came from, or `workbench` when it was given here; `shown` is JSON:
-- what the judge saw.
CREATE TEMP TABLE earlier_judgments AS FROM judgments;
DROP TABLE judgments;
CREATE TABLE judgments (
    qid VARCHAR NOT NULL, memory_id VARCHAR NOT NULL, judge VARCHAR NOT NULL, kind VARCHAR NOT NULL,
    grade BIGINT NOT NULL, judged_at TIMESTAMP, note VARCHAR, source VARCHAR NOT NULL, shown VARCHAR,
    PRIMARY KEY (qid, memory_id, judge, kind)
);
INSERT INTO judgments SELECT qid, memory_id, judge, kind, grade, NULL, NULL, '', NULL FROM earlier_judgments;
DROP TABLE earlier_judgments;

CREATE TABLE query_sets (
    name VARCHAR NOT NULL, version BIGINT NOT NULL, created_at TIMESTAMP NOT NULL, digest VARCHAR NOT NULL,
    scale VARCHAR NOT NULL,
    PRIMARY KEY (name, version)
);
CREATE TABLE query_set_members (
    set_name VARCHAR NOT NULL, version BIGINT NOT NULL, qid VARCHAR NOT NULL,
    query VARCHAR NOT NULL, project VARCHAR, as_of TIMESTAMP, type VARCHAR, source VARCHAR NOT NULL,
    PRIMARY KEY (set_name, version, qid)
);

-- `before` is JSON, the state an event replaced; a null `grade` takes a label back. The actions `skip`, of a pair, and `unclear`,
-- of a query (memory_id is empty), change no judgment.
CREATE SEQUENCE label_event_ids;
CREATE TABLE label_events (
    id BIGINT PRIMARY KEY DEFAULT nextval('label_event_ids'),
    qid VARCHAR NOT NULL, memory_id VARCHAR NOT NULL, judge VARCHAR NOT NULL, kind VARCHAR NOT NULL,
    action VARCHAR NOT NULL, grade BIGINT, note VARCHAR, source VARCHAR NOT NULL, shown VARCHAR,
    before VARCHAR, undoes BIGINT, recorded_at TIMESTAMP NOT NULL
);

-- A null `grade` takes a decision back.
CREATE SEQUENCE adjudication_ids;
CREATE TABLE adjudications (
    id BIGINT PRIMARY KEY DEFAULT nextval('adjudication_ids'),
    qid VARCHAR NOT NULL, memory_id VARCHAR NOT NULL, grade BIGINT, decided_by VARCHAR NOT NULL, note VARCHAR,
    decided_at TIMESTAMP NOT NULL
);

CREATE TABLE label_queues (
    name VARCHAR PRIMARY KEY, created_at TIMESTAMP NOT NULL, overlap BIGINT NOT NULL, settings VARCHAR NOT NULL
);
CREATE TABLE label_queue_pairs (
    queue VARCHAR NOT NULL, position BIGINT NOT NULL, qid VARCHAR NOT NULL, memory_id VARCHAR NOT NULL,
    PRIMARY KEY (queue, qid, memory_id)
);
