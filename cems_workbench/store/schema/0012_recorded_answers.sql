-- What a real system answered to the queries of a set, one answer a query, as the input `source` said it in its row `row`.
--
-- `results` are best first. A `memory_id` is that of the store where the result is one of its memories; else it is what the input called it,
-- and `content` is kept so that its text may still be found. There is no key, because DuckDB refuses to delete and insert a key in one
-- transaction.

CREATE TABLE recorded_answers (
    set_name VARCHAR NOT NULL, qid VARCHAR NOT NULL, source VARCHAR NOT NULL, row BIGINT NOT NULL,
    results STRUCT(memory_id VARCHAR, score DOUBLE, content VARCHAR)[] NOT NULL
);
