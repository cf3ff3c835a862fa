-- Vectors that searches know, and that are not in Chroma's graph yet (store/search/waiting.py); without a vector: what is to leave it.

CREATE TABLE waiting_vectors (
    collection VARCHAR NOT NULL, key VARCHAR NOT NULL, vector BLOB, project VARCHAR, scope VARCHAR
);
