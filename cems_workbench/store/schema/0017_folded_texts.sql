-- What lists of memories are searched and ordered by: the length of a content in characters, and the text in which a search looks, id, title,
-- content and tags without regard to case. Both are filled in by the step in Python. (Stores made before 2026-11-25 keep the texts
-- uncompressed: twice the room, and no quicker where a text stands in many.)

ALTER TABLE memories ADD COLUMN size BIGINT;
ALTER TABLE memories ADD COLUMN folded VARCHAR;
