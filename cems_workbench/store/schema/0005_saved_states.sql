-- States of the Inspect page that a short link brings back: JSON text by the begin of its digest.

CREATE TABLE saved_states (
    id VARCHAR PRIMARY KEY, state VARCHAR NOT NULL, saved_at TIMESTAMP NOT NULL
);
