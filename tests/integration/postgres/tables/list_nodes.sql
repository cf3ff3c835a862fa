CREATE TABLE data_notes (id bigserial PRIMARY KEY, text varchar NOT NULL, metadata_ json, node_id varchar, embedding vector(3),
    text_search_tsv tsvector GENERATED ALWAYS AS (to_tsvector('german', text)) STORED);
CREATE INDEX ON data_notes USING hnsw (embedding vector_cosine_ops);
INSERT INTO data_notes (text, metadata_, node_id, embedding) VALUES
    ('Häuser und Gärten', '{}', 'n1', '[0,1,0]'), ('ein Haus im Garten', '{}', 'n2', '[1,1,0]'), ('Autos', '{}', 'n3', '[1,0,0]');
