-- Corrections of typos that were accepted, and those that validation refused.

CREATE TABLE learned_pairs (
    typo VARCHAR NOT NULL, correction VARCHAR NOT NULL, count BIGINT NOT NULL,
    first_at TIMESTAMP NOT NULL, last_at TIMESTAMP NOT NULL, refused BOOLEAN NOT NULL,
    PRIMARY KEY (typo, correction)
);
