-- Configs that were kept, and how often the sealed queries of a set were looked at, query by query.
--
-- `config_history.card` is the evidence card as JSON, null for a config that was never measured.

CREATE SEQUENCE config_history_ids;
CREATE TABLE config_history (
    id BIGINT PRIMARY KEY DEFAULT nextval('config_history_ids'),
    name VARCHAR NOT NULL, config_yaml VARCHAR NOT NULL, base VARCHAR, author VARCHAR NOT NULL,
    saved_at TIMESTAMP NOT NULL, why VARCHAR NOT NULL, card VARCHAR
);

CREATE TABLE holdout_looks (
    set_name VARCHAR NOT NULL, qid VARCHAR NOT NULL, looks BIGINT NOT NULL, last_at TIMESTAMP NOT NULL,
    PRIMARY KEY (set_name, qid)
);
