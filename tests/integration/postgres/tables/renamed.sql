CREATE TABLE renamed (
    nr uuid PRIMARY KEY, body text NOT NULL, emb vector(2) NOT NULL, mood text, title text, extra json, deleted_at timestamptz);
INSERT INTO renamed VALUES ('00000000-0000-0000-0000-000000000001', 'one', '[1,0]', 'calm', 'T',
    '{"tags": ["x"], "color": "red"}', NULL), ('00000000-0000-0000-0000-000000000002', 'gone', '[1,0]', NULL, NULL, NULL, now());
