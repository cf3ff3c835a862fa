-- From when until before when a memory holds; null: no such bound is known.

ALTER TABLE memories ADD COLUMN valid_from TIMESTAMP;
ALTER TABLE memories ADD COLUMN valid_until TIMESTAMP;
