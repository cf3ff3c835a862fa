-- Who looked at the sealed queries of a set.

CREATE TABLE holdout_lookers (
    set_name VARCHAR NOT NULL, who VARCHAR NOT NULL, looks BIGINT NOT NULL, last_at TIMESTAMP NOT NULL,
    PRIMARY KEY (set_name, who)
);
