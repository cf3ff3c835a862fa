-- How a score came about, as JSON: seconds, tokens, the answer of the model.

ALTER TABLE score_cache ADD COLUMN detail VARCHAR;
