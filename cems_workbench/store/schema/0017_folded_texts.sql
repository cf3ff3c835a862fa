-- What lists of memories are searched and ordered by: the length of a content in characters, and the text in which a search looks, id, title,
-- content and tags without regard to case. Both are filled in by the step in Python. The texts are not compressed: to search them takes half of
-- the time. (Stores made on 2026-11-25 and 26 compress them.)

ALTER TABLE memories ADD COLUMN size BIGINT;
ALTER TABLE memories ADD COLUMN folded VARCHAR USING COMPRESSION uncompressed;
