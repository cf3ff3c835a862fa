-- Texts other than the content that a source's vectors may be made of, and which of them they are made of.
--
-- `texts` is JSON: by what a text is called [before the content, after it, how the content is escaped]; `seq` is as in source_vectors. Rows
-- whose vector can only be of the content have none. `text_form` is the name of the text that reproduced the vectors: "content", one of
-- those, or one that follows from the memory; empty if none did and the vectors are searched all the same, NULL if that is not known.

CREATE TABLE source_texts (memory_id VARCHAR NOT NULL, seq BIGINT NOT NULL, texts VARCHAR NOT NULL);
ALTER TABLE sources ADD COLUMN text_form VARCHAR;
