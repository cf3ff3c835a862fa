-- What lists of memories are searched and ordered by: the length of a content in characters, and the text in which a search looks, id, title,
-- content and tags without regard to case. It is kept as it is, because finding a text among a million takes twice as long where they have to be
-- decompressed. Both are filled in by the step in Python.

ALTER TABLE memories ADD COLUMN size BIGINT;
ALTER TABLE memories ADD COLUMN folded VARCHAR USING COMPRESSION uncompressed;
