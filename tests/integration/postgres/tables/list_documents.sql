CREATE TABLE notes (langchain_id uuid PRIMARY KEY DEFAULT gen_random_uuid(), content text, embedding vector(3), content_tsv tsvector,
    langchain_metadata json);
INSERT INTO notes (content, embedding, content_tsv) SELECT w, e::vector, to_tsvector('english', w) FROM (VALUES
    ('green tea', '[1,0,0]'), ('black tea', '[1,1,0]'), ('green apples', '[0,1,0]')) AS t (w, e);
