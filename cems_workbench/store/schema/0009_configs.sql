-- The kept configs and the experiments, which both were name, YAML and card, become one table.
--
-- A `kind` is `history` or `experiment`; each numbers its configs from 1 on, as people know them. An experiment has no author.

CREATE TABLE configs (
    kind VARCHAR NOT NULL, id BIGINT NOT NULL,
    name VARCHAR NOT NULL, config_yaml VARCHAR NOT NULL, base VARCHAR, author VARCHAR NOT NULL,
    saved_at TIMESTAMP NOT NULL, why VARCHAR NOT NULL, card VARCHAR,
    PRIMARY KEY (kind, id)
);
INSERT INTO configs SELECT 'history', id, name, config_yaml, base, author, saved_at, why, card FROM config_history;
INSERT INTO configs SELECT 'experiment', id, name, config_yaml, NULL, '', created_at, note, evidence FROM experiments;
DROP TABLE config_history;
DROP SEQUENCE config_history_ids;
DROP TABLE experiments;
DROP SEQUENCE experiment_ids;
