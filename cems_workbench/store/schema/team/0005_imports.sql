-- What imports brought and replaced, as in a store (see ../0024_imports.sql).
ALTER TABLE queries ADD COLUMN origin text COLLATE "C", ADD COLUMN added_by text COLLATE "C", ADD COLUMN brought_by text COLLATE "C";
CREATE TABLE queries_before (
    input text COLLATE "C" NOT NULL, origin text COLLATE "C", brought_by text COLLATE "C", qid text COLLATE "C" NOT NULL,
    query text COLLATE "C" NOT NULL, project text COLLATE "C", as_of timestamp, type text COLLATE "C", answerable boolean,
    given text COLLATE "C"
);
CREATE INDEX ON queries_before (input);
ALTER TABLE judgments ADD COLUMN origin text COLLATE "C", ADD COLUMN added_by text COLLATE "C";
CREATE TABLE judgments_before (
    input text COLLATE "C" NOT NULL, origin text COLLATE "C", qid text COLLATE "C" NOT NULL, memory_id text COLLATE "C" NOT NULL,
    judge text COLLATE "C" NOT NULL, kind text COLLATE "C" NOT NULL, grade bigint NOT NULL, judged_at timestamp, note text COLLATE "C",
    source text COLLATE "C" NOT NULL, shown text COLLATE "C"
);
CREATE INDEX ON judgments_before (input);
UPDATE queries SET brought_by = (
    SELECT max(CASE m.source WHEN 'Inspect' THEN '' ELSE m.source END) FROM query_set_members AS m WHERE m.qid = queries.qid
);
