CREATE SCHEMA other;
CREATE TABLE other."My notes" (
    nr int PRIMARY KEY, body text, emb halfvec(5), subject text, labels text[], made timestamp, seen bigint, rank text);
INSERT INTO other."My notes" VALUES
    (1, 'one', '[1,0,0,0,0]', 'First', '{a,b}', '2024-05-06 07:08:09', 3, '1.5'),
    (2, 'two', '[0,2,0,0,0]', NULL, NULL, 'infinity', NULL, NULL),
    (3, 'three', NULL, ' ', '{}', NULL, -4, 'high'),
    (4, '  ', '[0,0,1,0,0]', NULL, NULL, NULL, 0, NULL);
CREATE INDEX ON other."My notes" USING ivfflat (emb halfvec_ip_ops) WITH (lists = 1);
GRANT USAGE ON SCHEMA other TO reader;
