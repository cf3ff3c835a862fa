-- The Euclidean length of each vector of a source. A cosine says nothing of it, and by inner product or distance it decides the order.

ALTER TABLE source_vectors ADD COLUMN length FLOAT;
