CREATE TABLE archival_passages (
    id varchar PRIMARY KEY, text varchar NOT NULL, embedding_config json, metadata_ json, tags json, embedding vector(6),
    created_at timestamptz, is_deleted boolean NOT NULL DEFAULT false, organization_id varchar NOT NULL, archive_id varchar NOT NULL);
CREATE TABLE source_passages (LIKE archival_passages);
ALTER TABLE source_passages RENAME archive_id TO source_id;
INSERT INTO archival_passages VALUES
    ('p1', 'one', '{"embedding_model": "m", "embedding_dim": 2}', '{}', '["a"]', '[1,0,0,0,0,0]', NULL, false, 'org', 'arc'),
    ('p2', 'two', '{"embedding_model": "m", "embedding_dim": 2}', '{}', NULL, '[1,2,0,0,0,0]', NULL, false, 'org', 'arc'),
    ('p3', 'gone', '{"embedding_model": "m", "embedding_dim": 2}', '{}', NULL, '[0,1,0,0,0,0]', NULL, true, 'org', 'arc'),
    ('p4', 'longer', '{"embedding_model": "m", "embedding_dim": 2}', '{}', NULL, '[0,1,0,0,3,0]', NULL, false, 'org', 'arc');
