-- What each vector hashed to when it was written: the vectors in Chroma are proven by it.

ALTER TABLE embedded ADD COLUMN vector_hash BIGINT;
