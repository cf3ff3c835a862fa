-- What is searched of a query as given, instead of by the config: JSON with `searched`, `engine_queries` and `wordings`; null without any.
ALTER TABLE queries ADD COLUMN given text COLLATE "C";
ALTER TABLE query_set_members ADD COLUMN given text COLLATE "C";
