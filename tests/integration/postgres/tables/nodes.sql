CREATE TABLE data_notes (id bigserial PRIMARY KEY, text varchar NOT NULL, metadata_ json, node_id varchar, embedding vector(2));
INSERT INTO data_notes (text, metadata_, node_id, embedding) VALUES
    ('one', '{"title": "T", "_node_content": "{}", "ref_doc_id": "doc"}', 'n1', '[1,0]'),
    ('one again', '{"ref_doc_id": "doc"}', 'n1', '[1,0]'), ('two', NULL, 'n2', '[0,1]');
