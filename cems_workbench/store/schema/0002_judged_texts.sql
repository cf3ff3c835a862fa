-- The text of each judged memory as it was judged, by which its judgments follow it to another id. `source_ref` is the turn that it came
-- from, where the source says so. `input` is the rebase that moved judgments to it, else 0; of several texts that of the highest is valid.
CREATE TABLE judged_texts (
    memory_id VARCHAR NOT NULL, content VARCHAR NOT NULL, source_ref VARCHAR, input BIGINT NOT NULL, PRIMARY KEY (memory_id, input)
);
INSERT INTO judged_texts SELECT id, content, source_ref, 0 FROM memories WHERE id IN (SELECT memory_id FROM judgments);
