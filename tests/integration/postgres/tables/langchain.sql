CREATE TABLE langchain_pg_collection (uuid uuid PRIMARY KEY, name varchar NOT NULL UNIQUE, cmetadata json);
CREATE TABLE langchain_pg_embedding (
    id varchar PRIMARY KEY, collection_id uuid REFERENCES langchain_pg_collection, embedding vector, document varchar, cmetadata jsonb);
INSERT INTO langchain_pg_collection VALUES
    ('00000000-0000-0000-0000-000000000001', 'notes', NULL), ('00000000-0000-0000-0000-000000000002', 'other app', NULL);
INSERT INTO langchain_pg_embedding VALUES
    ('a', '00000000-0000-0000-0000-000000000001', '[1,0]', 'one', '{"user_id": "ann", "tags": ["x", "y"], "access_count": 3,
     "pinned": true, "created_at": 1700000000, "source": {"file": "f"}, "metadata": {"title": "Deep"}, "mood": "calm"}'),
    ('b', '00000000-0000-0000-0000-000000000001', '[1,2]', 'two', '{"user_id": 7, "tags": "u, v", "created_at": "2025-02-03T04:05:06Z",
     "priority": "1.5", "title": "Plain"}'),
    ('c', '00000000-0000-0000-0000-000000000001', '[0,1]', 'three', NULL),
    ('d', '00000000-0000-0000-0000-000000000002', '[1,1,1]', 'of another collection', '{"user_id": "ann"}');
