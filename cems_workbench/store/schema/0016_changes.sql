-- The content version of each memory's last change, so that a refresh reads only the changed memories.
--
-- `memories.changed` is the content version in which what searches read of a memory changed last: its text, title, project or scope,
-- its chunks, whether it is deleted; 0 where that was before versions were kept. `content_marks` has the mark of each content version:
-- an index says of which it is, and one whose mark is not here was built from another store's content, or from a copy that went apart.

ALTER TABLE memories ADD COLUMN changed BIGINT DEFAULT 0;
CREATE TABLE content_marks (version BIGINT PRIMARY KEY, mark VARCHAR NOT NULL);
INSERT INTO content_marks
SELECT CAST(value AS BIGINT), coalesce((SELECT value FROM workbench_meta WHERE key = 'content_mark'), '')
FROM workbench_meta WHERE key = 'content_version';
