-- What each config ranked within the depth when a queue was made: for its order, and for how much of it is judged. Queues that were
-- made before have no rankings.

CREATE TABLE label_queue_rankings (
    queue VARCHAR NOT NULL, config VARCHAR NOT NULL, qid VARCHAR NOT NULL, rank BIGINT NOT NULL, memory_id VARCHAR NOT NULL,
    PRIMARY KEY (queue, config, qid, rank)
);
