-- What people decided on proposed `supersedes` edges, one row per decision; the latest that is not undone counts for its two memories.

CREATE TABLE supersession_decisions (
    newer_id text COLLATE "C" NOT NULL, older_id text COLLATE "C" NOT NULL, decided_by text COLLATE "C" NOT NULL,
    decided_at timestamp NOT NULL, verdict text COLLATE "C" NOT NULL, why text COLLATE "C", undone_at timestamp,
    PRIMARY KEY (newer_id, older_id, decided_by, decided_at)
);
