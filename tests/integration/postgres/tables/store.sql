CREATE TABLE store (prefix text, key text, value jsonb NOT NULL, created_at timestamptz DEFAULT '2026-01-02', updated_at timestamptz,
    expires_at timestamptz, ttl_minutes int, PRIMARY KEY (prefix, key));
CREATE TABLE store_vectors (prefix text, key text, field_name text, embedding vector(3), PRIMARY KEY (prefix, key, field_name));
CREATE INDEX ON store_vectors USING hnsw (embedding vector_cosine_ops);
INSERT INTO store (prefix, key, value, expires_at) VALUES
    ('memories.jo', 'a', '{"content": "tea", "title": "Drink", "notes": [{"text": "green"}, {"text": "black"}], "user_id": 7}', NULL),
    ('memories.jo', 'b', '{"content": "milk"}', '2020-01-01'),
    ('memories.mira.work', 'c', '{"food": "rice", "rating": 2}', NULL),
    ('memoriesx', 'd', '{"content": "not below memories"}', NULL);
INSERT INTO store_vectors VALUES
    ('memories.jo', 'a', 'content', '[1,1,0]'), ('memories.jo', 'a', 'notes[*].text.0', '[0,0,1]'),
    ('memories.jo', 'a', 'notes[*].text.1', '[1,0,0]'), ('memories.jo', 'a', 'notes[*].text.2', '[0,1,0]'),
    ('memories.jo', 'b', 'content', '[0,1,0]'), ('memories.mira.work', 'c', '$', '[3,4,0]');
