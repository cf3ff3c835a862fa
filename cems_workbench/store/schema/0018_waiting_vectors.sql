-- Buffered vectors that are not in Chroma's graph yet (store/search/vectors/write_buffer.py); a row without a vector is a deletion.

CREATE TABLE waiting_vectors (
    collection VARCHAR NOT NULL, key VARCHAR NOT NULL, vector BLOB, project VARCHAR, scope VARCHAR
);
