-- Chunks of memories, indexed separately, and the time of a memory's last change at its source.
--
-- `chunks.text_sha` is of the text that is searched: of the chunk with the memory's title before it where `titled`, else of the chunk. `given`
-- chunks came with the memory and are not cut here. `chunked` says by which rule a memory was cut (`given`: by none), and of what text:
-- of its content where they were given, else of its searched text. `chunks` has no key, because DuckDB refuses to delete and insert
-- a key in one transaction.

ALTER TABLE memories ADD COLUMN updated_at TIMESTAMP;

CREATE TABLE chunks (
    memory_id VARCHAR NOT NULL, seq BIGINT NOT NULL, start BIGINT, content VARCHAR NOT NULL,
    given BOOLEAN NOT NULL, titled BOOLEAN NOT NULL, text_sha VARCHAR NOT NULL
);
CREATE TABLE chunked (memory_id VARCHAR PRIMARY KEY, rule VARCHAR NOT NULL, text_sha VARCHAR NOT NULL);

-- The vectors are one a chunk; `seq` is -1 for a memory that was embedded whole, as all were until now. (Stores made before 2026-11-26 have a
-- key of collection, memory_id and seq: a tenth of the database. No query uses it, and writes are compared with the existing rows.)
CREATE TEMP TABLE earlier_embedded AS FROM embedded;
DROP TABLE embedded;
CREATE TABLE embedded (
    collection VARCHAR NOT NULL, memory_id VARCHAR NOT NULL, seq BIGINT NOT NULL, text_sha VARCHAR NOT NULL,
    project VARCHAR, scope VARCHAR NOT NULL
);
INSERT INTO embedded SELECT collection, memory_id, -1, text_sha, project, scope FROM earlier_embedded
-- An id with this character is another key among the vectors now; its vector is made again.
WHERE NOT contains(memory_id, chr(31));
DROP TABLE earlier_embedded;

-- A store that has memories keeps searching them whole until a rule is chosen, so that opening it embeds nothing.
INSERT INTO workbench_meta SELECT 'chunk_rule', 'whole' WHERE EXISTS (FROM memories);
