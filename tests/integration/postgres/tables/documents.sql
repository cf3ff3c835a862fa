CREATE TABLE kept (
    id varchar(128) PRIMARY KEY, embedding vector(2), content text, blob_data bytea, blob_meta jsonb, blob_mime_type varchar(255),
    meta jsonb);
INSERT INTO kept (id, embedding, content, meta) VALUES ('h1', '[1,0]', 'one', '{"title": "T", "meta": {"category": "deep"}}');
