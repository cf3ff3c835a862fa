-- The tables of `workbench.duckdb`. A change after 0.1.0 is a further numbered file.
--
-- Times are stored as UTC without a zone. Nested values are JSON text, so that an update never touches a nested column (which DuckDB
-- turns into a delete and an insert, at odds with a primary key in the same transaction). For the same reason the tables whose rows are
-- deleted and inserted in one transaction have no key.

CREATE TABLE workbench_meta (key VARCHAR PRIMARY KEY, value VARCHAR NOT NULL);

-- Memories. A deleted memory keeps its row with `deleted_at` set. `changed` is the content version in which what searches read of the memory
-- changed last: its text, title, project or scope, its chunks, whether it is deleted. `size` is the length of the content in characters,
-- `folded` the text in which a search looks: id, title, content and tags without regard to case, not compressed, because to search it then
-- takes half of the time. It holds from `valid_from` until before `valid_until`; null: no such bound is known.
--
-- `origin` of a row, here and below, is the input that wrote its values last (`imports.id`; 0 an edit here, -1 a live source), `added_by`
-- the input that brought it first.
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
    deleted_at TIMESTAMP,
    updated_at TIMESTAMP,
    changed BIGINT DEFAULT 0,
    size BIGINT,
    folded VARCHAR USING COMPRESSION uncompressed,
    valid_from TIMESTAMP,
    valid_until TIMESTAMP,
    origin BIGINT,
    added_by BIGINT
);

-- The mark of each content version: an index says of which it is, and one whose mark is not here was built from another store's content,
-- or from a copy that went apart.
CREATE TABLE content_marks (version BIGINT PRIMARY KEY, mark VARCHAR NOT NULL);

-- `author` is who accepted a proposed edge, null for edges of a file or a source.
CREATE TABLE relations (
    source_id VARCHAR NOT NULL, target_id VARCHAR NOT NULL, kind VARCHAR NOT NULL, weight DOUBLE NOT NULL, author VARCHAR,
    origin BIGINT, added_by BIGINT,
    PRIMARY KEY (source_id, target_id, kind)
);

-- What people decided on proposed `supersedes` edges, one row per decision; the latest that is not undone counts for its two memories.
CREATE TABLE supersession_decisions (
    newer_id VARCHAR NOT NULL, older_id VARCHAR NOT NULL, decided_by VARCHAR NOT NULL, decided_at TIMESTAMP NOT NULL,
    verdict VARCHAR NOT NULL, why VARCHAR, undone_at TIMESTAMP,
    PRIMARY KEY (newer_id, older_id, decided_by, decided_at)
);

-- Chunks of memories. `text_sha` is of the text that is searched: of the chunk with the memory's title before it where `titled`, else of
-- the chunk. `given` chunks came with the memory and are not cut here. `chunked` says by which rule a memory was cut (`given`: by none), and
-- of what text: of its content where they were given, else of its searched text.
CREATE TABLE chunks (
    memory_id VARCHAR NOT NULL, seq BIGINT NOT NULL, start BIGINT, content VARCHAR NOT NULL,
    given BOOLEAN NOT NULL, titled BOOLEAN NOT NULL, text_sha VARCHAR NOT NULL
);
CREATE TABLE chunked (memory_id VARCHAR PRIMARY KEY, rule VARCHAR NOT NULL, text_sha VARCHAR NOT NULL, origin BIGINT);

-- The recorded vectors, one a chunk; `seq` is -1 for a memory that was embedded whole. `vector_hash` proves the vector. A key would be a
-- tenth of the database and serve no query.
CREATE TABLE embedded (
    collection VARCHAR NOT NULL, memory_id VARCHAR NOT NULL, seq BIGINT NOT NULL, text_sha VARCHAR NOT NULL,
    project VARCHAR, scope VARCHAR NOT NULL, vector_hash BIGINT NOT NULL
);

-- Running systems that memories were taken from, which memories are theirs, and the vectors that came with them.
--
-- An address has no secret in it; `secret_from` says where one was found (a variable's name), never what it is. `embedder` is the
-- setting of the embedder that made the vectors and `model_id` its model, NULL while that is not known. `text_form` is the name of the text
-- that reproduced the vectors: "content", a text of `source_texts`, or one that follows from the memory; empty if none did and the vectors
-- are searched all the same, NULL if that is not known. `marker` is the source's own sign of a row's state; it is NULL once the row is gone
-- there.
CREATE SEQUENCE source_ids;
CREATE TABLE sources (
    id BIGINT PRIMARY KEY DEFAULT nextval('source_ids'), address VARCHAR NOT NULL UNIQUE, mapping VARCHAR, probe VARCHAR NOT NULL,
    secret_from VARCHAR NOT NULL, dimension BIGINT, embedder VARCHAR, model_id VARCHAR, begun_at TIMESTAMP NOT NULL, taken_at TIMESTAMP,
    text_form VARCHAR
);
CREATE TABLE source_rows (memory_id VARCHAR NOT NULL, source_id BIGINT NOT NULL, marker VARCHAR);

-- `seq` is the store's number of the chunk, -1 for a whole memory, `source_seq` the source's; the vector is little-endian float32, `length`
-- its Euclidean length (a cosine says nothing of it, and by inner product or distance it decides the order), and `text_sha` is of the text
-- it was made of.
CREATE TABLE source_vectors (
    memory_id VARCHAR NOT NULL, seq BIGINT NOT NULL, source_seq BIGINT, text_sha VARCHAR NOT NULL,
    vector BLOB NOT NULL USING COMPRESSION uncompressed, length FLOAT
);

-- Texts other than the content that a source's vectors may be made of, as JSON: by what a text is called [before the content, after it, how
-- the content is escaped]. Rows whose vector can only be of the content have none.
CREATE TABLE source_texts (memory_id VARCHAR NOT NULL, seq BIGINT NOT NULL, texts VARCHAR NOT NULL);

-- Queries, and query sets with versions. Each version of a set has a copy of its queries, so that a measurement can be repeated.
--
-- `answerable` is whether something in the store answers the query, where its author said; null where nobody did. `given` is what is
-- searched of it instead of by the config: JSON with `searched`, `engine_queries` and `wordings`; null without any. `queries` and
-- `judgments` may be in a team's database, where inputs of several stores meet: there `origin` is STORE:ID, and `brought_by` the name of
-- the file ('' where a person wrote the query here).
CREATE TABLE queries (
    qid VARCHAR PRIMARY KEY, query VARCHAR NOT NULL, project VARCHAR, as_of TIMESTAMP, type VARCHAR, answerable BOOLEAN, given VARCHAR,
    origin VARCHAR, added_by VARCHAR, brought_by VARCHAR
);
CREATE TABLE query_sets (
    name VARCHAR NOT NULL, version BIGINT NOT NULL, created_at TIMESTAMP NOT NULL, digest VARCHAR NOT NULL,
    scale VARCHAR NOT NULL,
    PRIMARY KEY (name, version)
);
CREATE TABLE query_set_members (
    set_name VARCHAR NOT NULL, version BIGINT NOT NULL, qid VARCHAR NOT NULL,
    query VARCHAR NOT NULL, project VARCHAR, as_of TIMESTAMP, type VARCHAR, source VARCHAR NOT NULL, answerable BOOLEAN, given VARCHAR,
    PRIMARY KEY (set_name, version, qid)
);

-- What a real system answered to the queries of a set, one answer a query, as the input `source` said it in its row `row`.
--
-- `results` are best first. A `memory_id` is that of the store where the result is one of its memories; else it is what the input called it,
-- and `content` is kept so that its text may still be found.
CREATE TABLE recorded_answers (
    set_name VARCHAR NOT NULL, qid VARCHAR NOT NULL, source VARCHAR NOT NULL, row BIGINT NOT NULL,
    results STRUCT(memory_id VARCHAR, score DOUBLE, content VARCHAR)[] NOT NULL, origin BIGINT
);

-- The current grades, one row per query, memory, judge and kind; `label_events` has their history. `source` is the input a judgment came
-- from, or `workbench` when it was given here; `shown` is JSON: what the judge saw.
CREATE TABLE judgments (
    qid VARCHAR NOT NULL, memory_id VARCHAR NOT NULL, judge VARCHAR NOT NULL, kind VARCHAR NOT NULL,
    grade BIGINT NOT NULL, judged_at TIMESTAMP, note VARCHAR, source VARCHAR NOT NULL, shown VARCHAR, origin VARCHAR, added_by VARCHAR,
    PRIMARY KEY (qid, memory_id, judge, kind)
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

-- Decisions on conflicts: they never change the raw labels. A null `grade` takes a decision back.
CREATE SEQUENCE adjudication_ids;
CREATE TABLE adjudications (
    id BIGINT PRIMARY KEY DEFAULT nextval('adjudication_ids'),
    qid VARCHAR NOT NULL, memory_id VARCHAR NOT NULL, grade BIGINT, decided_by VARCHAR NOT NULL, note VARCHAR,
    decided_at TIMESTAMP NOT NULL
);

-- `label_queue_rankings` has what each config ranked within the depth when a queue was made: for its order, and for how much is judged.
CREATE TABLE label_queues (
    name VARCHAR PRIMARY KEY, created_at TIMESTAMP NOT NULL, overlap BIGINT NOT NULL, settings VARCHAR NOT NULL
);
CREATE TABLE label_queue_pairs (
    queue VARCHAR NOT NULL, position BIGINT NOT NULL, qid VARCHAR NOT NULL, memory_id VARCHAR NOT NULL,
    PRIMARY KEY (queue, qid, memory_id)
);
CREATE TABLE label_queue_rankings (
    queue VARCHAR NOT NULL, config VARCHAR NOT NULL, qid VARCHAR NOT NULL, rank BIGINT NOT NULL, memory_id VARCHAR NOT NULL,
    PRIMARY KEY (queue, config, qid, rank)
);

-- Kept configs and experiments. A `kind` is `history` or `experiment`; each numbers its configs from 1 on, as people know them. An
-- experiment has no author. `card` is the evidence card as JSON, null for a config that was never measured.
CREATE TABLE configs (
    kind VARCHAR NOT NULL, id BIGINT NOT NULL,
    name VARCHAR NOT NULL, config_yaml VARCHAR NOT NULL, base VARCHAR, author VARCHAR NOT NULL,
    saved_at TIMESTAMP NOT NULL, why VARCHAR NOT NULL, card VARCHAR,
    PRIMARY KEY (kind, id)
);

-- How often the sealed queries of a set were looked at, query by query, and by whom.
CREATE TABLE holdout_looks (
    set_name VARCHAR NOT NULL, qid VARCHAR NOT NULL, looks BIGINT NOT NULL, last_at TIMESTAMP NOT NULL,
    PRIMARY KEY (set_name, qid)
);
CREATE TABLE holdout_lookers (
    set_name VARCHAR NOT NULL, who VARCHAR NOT NULL, looks BIGINT NOT NULL, last_at TIMESTAMP NOT NULL,
    PRIMARY KEY (set_name, who)
);

-- What models answered. `score_cache.detail` is how a score came about, as JSON: seconds, tokens, the answer of the model. Replies are
-- by model, prompt version and digest of the words that were sent.
CREATE TABLE score_cache (
    model VARCHAR NOT NULL, query VARCHAR NOT NULL, text_sha VARCHAR NOT NULL, score DOUBLE NOT NULL, detail VARCHAR,
    PRIMARY KEY (model, query, text_sha)
);
CREATE TABLE reply_cache (
    model VARCHAR NOT NULL, prompt VARCHAR NOT NULL, sent VARCHAR NOT NULL, reply VARCHAR NOT NULL,
    PRIMARY KEY (model, prompt, sent)
);

-- Corrections of typos that were accepted, and those that validation refused.
CREATE TABLE learned_pairs (
    typo VARCHAR NOT NULL, correction VARCHAR NOT NULL, count BIGINT NOT NULL,
    first_at TIMESTAMP NOT NULL, last_at TIMESTAMP NOT NULL, refused BOOLEAN NOT NULL,
    PRIMARY KEY (typo, correction)
);

-- Imports on record: what each input brought and what it replaced, so that none replaces another's rows unsaid and each can be undone.
--
-- The inputs of one command have the same `event`, which is the number that users see. `counts` is JSON, NULL while the import runs, or
-- where it was cut off. The tables `*_before` have what an input replaced. A memory that an undo removed is in `removed_memories`, with the
-- content version of that, until every index has dropped it. `chunked_before.given`: whether the memory had imported chunks, which are then
-- in `chunks_before`.
CREATE TABLE imports (
    id BIGINT NOT NULL, event BIGINT NOT NULL, imported_at TIMESTAMP NOT NULL, source VARCHAR NOT NULL, folder VARCHAR NOT NULL,
    name VARCHAR NOT NULL, format VARCHAR NOT NULL, options VARCHAR NOT NULL, counts VARCHAR, undone_at TIMESTAMP
);
CREATE TABLE memories_before (
    input BIGINT NOT NULL, origin BIGINT, id VARCHAR NOT NULL, content VARCHAR NOT NULL, title VARCHAR, category VARCHAR,
    project VARCHAR, session VARCHAR, author VARCHAR, tags VARCHAR NOT NULL, priority DOUBLE NOT NULL, pinned BOOLEAN NOT NULL,
    importance VARCHAR NOT NULL, created_at TIMESTAMP, last_accessed TIMESTAMP, access_count BIGINT NOT NULL,
    relevant_count BIGINT NOT NULL, noise_count BIGINT NOT NULL, scope VARCHAR NOT NULL, source_ref VARCHAR, updated_at TIMESTAMP,
    valid_from TIMESTAMP, valid_until TIMESTAMP
);
CREATE TABLE removed_memories (memory_id VARCHAR NOT NULL, changed BIGINT NOT NULL);
CREATE TABLE relations_before (
    input BIGINT NOT NULL, origin BIGINT, source_id VARCHAR NOT NULL, target_id VARCHAR NOT NULL, kind VARCHAR NOT NULL,
    weight DOUBLE NOT NULL, author VARCHAR
);
CREATE TABLE chunked_before (input BIGINT NOT NULL, origin BIGINT, memory_id VARCHAR NOT NULL, given BOOLEAN NOT NULL, text_sha VARCHAR);
CREATE TABLE chunks_before (
    input BIGINT NOT NULL, memory_id VARCHAR NOT NULL, seq BIGINT NOT NULL, content VARCHAR NOT NULL, start BIGINT
);
CREATE TABLE answers_before (
    input BIGINT NOT NULL, origin BIGINT, set_name VARCHAR NOT NULL, qid VARCHAR NOT NULL, source VARCHAR NOT NULL, row BIGINT NOT NULL,
    results STRUCT(memory_id VARCHAR, score DOUBLE, content VARCHAR)[] NOT NULL
);
CREATE TABLE queries_before (
    input VARCHAR NOT NULL, origin VARCHAR, brought_by VARCHAR, qid VARCHAR NOT NULL, query VARCHAR NOT NULL, project VARCHAR,
    as_of TIMESTAMP, type VARCHAR, answerable BOOLEAN, given VARCHAR
);
CREATE TABLE judgments_before (
    input VARCHAR NOT NULL, origin VARCHAR, qid VARCHAR NOT NULL, memory_id VARCHAR NOT NULL, judge VARCHAR NOT NULL,
    kind VARCHAR NOT NULL, grade BIGINT NOT NULL, judged_at TIMESTAMP, note VARCHAR, source VARCHAR NOT NULL, shown VARCHAR
);
