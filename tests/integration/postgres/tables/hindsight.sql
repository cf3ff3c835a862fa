CREATE TABLE memory_units (id uuid PRIMARY KEY, bank_id text, document_id text, text text, embedding vector(3), context text,
    event_date timestamptz, occurred_start timestamptz, mentioned_at timestamptz, fact_type text, metadata jsonb, tags varchar[],
    created_at timestamptz, updated_at timestamptz, proof_count int, search_vector tsvector);
CREATE TABLE memory_links (from_unit_id uuid, to_unit_id uuid, link_type text, entity_id uuid, weight float8, bank_id text);
CREATE TABLE unit_entities (unit_id uuid, entity_id uuid);
INSERT INTO memory_units (id, bank_id, document_id, text, embedding, fact_type, tags, mentioned_at, search_vector)
    SELECT (repeat(n::text, 8) || '-0000-0000-0000-000000000000')::uuid, bank, 'd' || n, t, e::vector, f, '{x}', '2026-03-04',
        to_tsvector('english', t)
    FROM (VALUES (1, 'ann', 'tea is green', '[1,0,0]', 'world'), (2, 'ann', 'I made tea', '[1,1,0]', 'experience'),
        (3, 'ann', 'tea teas', '[0,1,0]', 'opinion'), (4, 'bob', 'tea', '[1,0,0]', 'world')) AS v (n, bank, t, e, f);
INSERT INTO memory_links SELECT a.id, b.id, 'semantic', NULL, 1.5, 'ann' FROM memory_units a, memory_units b
    WHERE a.document_id = 'd1' AND b.document_id IN ('d2', 'd4');
INSERT INTO unit_entities SELECT u.id, gen.e FROM memory_units u, (SELECT gen_random_uuid() AS e FROM generate_series(1, 2)) gen
    WHERE document_id IN ('d2', 'd3');
CREATE INDEX ON memory_units USING hnsw (embedding vector_cosine_ops) WHERE fact_type = 'world' AND bank_id = 'ann';
