CREATE TABLE notes (id int PRIMARY KEY, body jsonb, v vector(5), hidden bool);
INSERT INTO notes SELECT i, jsonb_build_object('text', 'note ' || i),
    (SELECT array_agg(sin(i * j)) FROM generate_series(1, 5) j)::vector(5), false FROM generate_series(1, 1000) i;
CREATE VIEW inner_view AS SELECT * FROM notes WHERE NOT hidden;
CREATE VIEW memories AS SELECT id, body ->> 'text' AS content, v FROM inner_view;
