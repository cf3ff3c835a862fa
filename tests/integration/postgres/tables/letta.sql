CREATE TABLE archival_passages (
    id varchar PRIMARY KEY, text varchar NOT NULL, embedding vector(3), created_at timestamptz,
    is_deleted boolean NOT NULL DEFAULT false, is_active boolean, superseded_by varchar);
INSERT INTO archival_passages VALUES
    ('p1', 'kept', '[1,0,0]', '2026-01-01', false, true, NULL),
    ('p2', 'deleted', '[1,0,0]', '2026-01-01', true, NULL, NULL),
    ('p3', 'inactive', '[0,1,0]', '2026-01-01', false, false, 'p1');
