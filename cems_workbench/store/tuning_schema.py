"""The tables of tuning: configs that were kept, and how often sealed queries were looked at. A store of schema 6 gains them.

`config_history.card` is the evidence card as JSON, null for a config that was never measured. A look is counted for each of the
queries that were sealed.
"""

from __future__ import annotations

TUNING = """
CREATE SEQUENCE IF NOT EXISTS config_history_ids;
CREATE TABLE IF NOT EXISTS config_history (
    id BIGINT PRIMARY KEY DEFAULT nextval('config_history_ids'),
    name VARCHAR NOT NULL, config_yaml VARCHAR NOT NULL, base VARCHAR, author VARCHAR NOT NULL,
    saved_at TIMESTAMP NOT NULL, why VARCHAR NOT NULL, card VARCHAR
);
CREATE TABLE IF NOT EXISTS holdout_looks (
    set_name VARCHAR NOT NULL, qid VARCHAR NOT NULL, looks BIGINT NOT NULL, last_at TIMESTAMP NOT NULL,
    PRIMARY KEY (set_name, qid)
);
"""
