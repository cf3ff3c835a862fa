-- Running systems that memories were taken from, which memories are theirs, and the vectors that came with them.
--
-- An address has no secret in it; `secret_from` says where one was found (a variable's name), never what it is. `embedder` is the
-- setting of the embedder that made the vectors and `model_id` its model, NULL while that is not known. `marker` is the source's own
-- sign of a row's state; it is NULL once the row is gone there. `source_vectors.seq` is the store's number of the chunk, -1 for a whole
-- memory, `source_seq` the source's; the vector is little-endian float32, and `text_sha` is of the text it was made of. The last two
-- tables have no key, because DuckDB refuses to delete and insert a key in one transaction.

CREATE SEQUENCE source_ids;
CREATE TABLE sources (
    id BIGINT PRIMARY KEY DEFAULT nextval('source_ids'), address VARCHAR NOT NULL UNIQUE, mapping VARCHAR, probe VARCHAR NOT NULL,
    secret_from VARCHAR NOT NULL, dimension BIGINT, embedder VARCHAR, model_id VARCHAR, begun_at TIMESTAMP NOT NULL, taken_at TIMESTAMP
);
CREATE TABLE source_rows (memory_id VARCHAR NOT NULL, source_id BIGINT NOT NULL, marker VARCHAR);
CREATE TABLE source_vectors (
    memory_id VARCHAR NOT NULL, seq BIGINT NOT NULL, source_seq BIGINT, text_sha VARCHAR NOT NULL,
    vector BLOB NOT NULL USING COMPRESSION uncompressed
);
