-- Whether something in the store answers a query, where its author said; null where nobody did.

ALTER TABLE queries ADD COLUMN answerable BOOLEAN;
ALTER TABLE query_set_members ADD COLUMN answerable BOOLEAN;
