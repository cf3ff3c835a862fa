-- What people decided on proposed `supersedes` edges, one row per decision; the latest that is not undone counts for its two memories.
-- An accepted edge is a row of `relations` with its author, null for edges of a file or a source.

CREATE TABLE supersession_decisions (
    newer_id VARCHAR NOT NULL, older_id VARCHAR NOT NULL, decided_by VARCHAR NOT NULL, decided_at TIMESTAMP NOT NULL,
    verdict VARCHAR NOT NULL, why VARCHAR, undone_at TIMESTAMP,
    PRIMARY KEY (newer_id, older_id, decided_by, decided_at)
);
ALTER TABLE relations ADD COLUMN author VARCHAR;
