-- A store of schema 8, as commit c3d5208 left it: its tables as DuckDB reports them, and the rows of a small use.

CREATE SEQUENCE adjudication_ids START 2;
CREATE SEQUENCE config_history_ids START 3;
CREATE SEQUENCE experiment_ids START 4;
CREATE SEQUENCE label_event_ids START 6;

CREATE TABLE adjudications(id BIGINT DEFAULT(nextval('adjudication_ids')) PRIMARY KEY, qid VARCHAR NOT NULL, memory_id VARCHAR NOT NULL, grade BIGINT, decided_by VARCHAR NOT NULL, note VARCHAR, decided_at TIMESTAMP NOT NULL);
INSERT INTO adjudications VALUES (1, 'q1', 'm1', 3, 'Eve', 'because', '2026-11-22 18:14:53.019416');

CREATE TABLE config_history(id BIGINT DEFAULT(nextval('config_history_ids')) PRIMARY KEY, "name" VARCHAR NOT NULL, config_yaml VARCHAR NOT NULL, base VARCHAR, author VARCHAR NOT NULL, saved_at TIMESTAMP NOT NULL, why VARCHAR NOT NULL, card VARCHAR);
INSERT INTO config_history VALUES (1, 'base', concat('name: base', chr(10), ''), NULL, 'Ada', '2026-03-04 05:06:07', '', NULL);
INSERT INTO config_history VALUES (2, 'tuned', concat('name: tuned', chr(10), ''), 'cems', 'Bo', '2026-03-04 05:06:07', 'temporal questions', '{"measured": [{"metric": "nDCG@10"}]}');

CREATE TABLE embedded(collection VARCHAR, memory_id VARCHAR, text_sha VARCHAR NOT NULL, project VARCHAR, "scope" VARCHAR NOT NULL, PRIMARY KEY(collection, memory_id));

CREATE TABLE experiments(id BIGINT DEFAULT(nextval('experiment_ids')) PRIMARY KEY, "name" VARCHAR NOT NULL, config_yaml VARCHAR NOT NULL, note VARCHAR NOT NULL, evidence VARCHAR NOT NULL, created_at TIMESTAMP NOT NULL);
INSERT INTO experiments VALUES (1, 'try', concat('name: try', chr(10), ''), '', '{}', '2026-11-22 18:14:53.135693');
INSERT INTO experiments VALUES (2, 'try 2', concat('name: try2', chr(10), ''), 'note ü', '{"configs": [{"config": "a"}], "query_set": "team"}', '2026-11-22 18:14:53.143178');
INSERT INTO experiments VALUES (3, 'try 3', concat('name: try3', chr(10), ''), '', '{}', '2026-11-22 18:14:53.151456');

CREATE TABLE holdout_looks(set_name VARCHAR, qid VARCHAR, looks BIGINT NOT NULL, last_at TIMESTAMP NOT NULL, PRIMARY KEY(set_name, qid));
INSERT INTO holdout_looks VALUES ('team', 'q1', 1, '2026-11-22 18:14:53.155395');
INSERT INTO holdout_looks VALUES ('team', 'q2', 2, '2026-11-22 18:14:53.167446');

CREATE TABLE judgments(qid VARCHAR, memory_id VARCHAR, judge VARCHAR, kind VARCHAR, grade BIGINT NOT NULL, judged_at TIMESTAMP, note VARCHAR, "source" VARCHAR NOT NULL, shown VARCHAR, PRIMARY KEY(qid, memory_id, judge, kind));
INSERT INTO judgments VALUES ('q1', 'm1', 'Ann', 'human', 0, '2026-11-22 18:14:52.980188', NULL, 'workbench', NULL);
INSERT INTO judgments VALUES ('q1', 'm1', 'human', 'human', 3, '2026-03-04 05:06:07', 'sure', 'team.jsonl', NULL);
INSERT INTO judgments VALUES ('q1', 'm2', 'Ann', 'human', 1, '2026-11-22 18:14:52.932132', NULL, 'workbench', NULL);
INSERT INTO judgments VALUES ('q2', 'm2', 'net', 'model', 2, NULL, NULL, 'team.jsonl', NULL);

CREATE TABLE label_events(id BIGINT DEFAULT(nextval('label_event_ids')) PRIMARY KEY, qid VARCHAR NOT NULL, memory_id VARCHAR NOT NULL, judge VARCHAR NOT NULL, kind VARCHAR NOT NULL, "action" VARCHAR NOT NULL, grade BIGINT, note VARCHAR, "source" VARCHAR NOT NULL, shown VARCHAR, "before" VARCHAR, undoes BIGINT, recorded_at TIMESTAMP NOT NULL);
INSERT INTO label_events VALUES (1, 'q1', 'm2', 'Ann', 'human', 'label', 0, NULL, 'workbench', '{"rank": 2}', NULL, NULL, '2026-11-22 18:14:52.904950');
INSERT INTO label_events VALUES (2, 'q1', 'm2', 'Ann', 'human', 'label', 1, NULL, 'workbench', NULL, '{"grade": 0, "note": null, "judged_at": "2026-11-22T18:14:52.904950+00:00", "source": "workbench", "shown": "{\"rank\": 2}"}', NULL, '2026-11-22 18:14:52.932132');
INSERT INTO label_events VALUES (3, 'q2', 'm1', 'Bo', 'human', 'skip', NULL, 'unsure', 'workbench', NULL, NULL, NULL, '2026-11-22 18:14:52.943453');
INSERT INTO label_events VALUES (4, 'q2', 'm1', 'Bo', 'human', 'undo', NULL, NULL, 'workbench', NULL, NULL, 3, '2026-11-22 18:14:52.953420');
INSERT INTO label_events VALUES (5, 'q1', 'm1', 'Ann', 'human', 'label', 0, NULL, 'workbench', NULL, NULL, NULL, '2026-11-22 18:14:52.980188');

CREATE TABLE label_queue_pairs(queue VARCHAR, "position" BIGINT NOT NULL, qid VARCHAR, memory_id VARCHAR, PRIMARY KEY(queue, qid, memory_id));
INSERT INTO label_queue_pairs VALUES ('first', 0, 'q1', 'm1');
INSERT INTO label_queue_pairs VALUES ('first', 1, 'q2', 'm2');

CREATE TABLE label_queue_rankings(queue VARCHAR, config VARCHAR, qid VARCHAR, rank BIGINT, memory_id VARCHAR NOT NULL, PRIMARY KEY(queue, config, qid, rank));
INSERT INTO label_queue_rankings VALUES ('first', 'cems', 'q1', 1, 'm1');
INSERT INTO label_queue_rankings VALUES ('first', 'cems', 'q1', 2, 'm2');

CREATE TABLE label_queues("name" VARCHAR PRIMARY KEY, created_at TIMESTAMP NOT NULL, overlap BIGINT NOT NULL, settings VARCHAR NOT NULL);
INSERT INTO label_queues VALUES ('first', '2026-03-04 05:06:07', 2, '{"depth": 10}');

CREATE TABLE learned_pairs(typo VARCHAR, correction VARCHAR, count BIGINT NOT NULL, first_at TIMESTAMP NOT NULL, last_at TIMESTAMP NOT NULL, refused BOOLEAN NOT NULL, PRIMARY KEY(typo, correction));
INSERT INTO learned_pairs VALUES ('kofka', 'coffee', 0, '2026-03-04 05:06:07', '2026-03-04 05:06:07', TRUE);
INSERT INTO learned_pairs VALUES ('modle', 'model', 1, '2026-03-04 05:06:07', '2026-03-04 05:06:07', FALSE);

CREATE TABLE memories(id VARCHAR PRIMARY KEY, "content" VARCHAR NOT NULL, title VARCHAR, category VARCHAR, project VARCHAR, "session" VARCHAR, author VARCHAR, tags VARCHAR NOT NULL, priority DOUBLE NOT NULL, pinned BOOLEAN NOT NULL, importance VARCHAR NOT NULL, created_at TIMESTAMP, last_accessed TIMESTAMP, access_count BIGINT NOT NULL, relevant_count BIGINT NOT NULL, noise_count BIGINT NOT NULL, "scope" VARCHAR NOT NULL, source_ref VARCHAR, text_sha VARCHAR NOT NULL, deleted_at TIMESTAMP);
INSERT INTO memories VALUES ('m1', 'Deploys run on Fridays', 'It''s the Größe', 'fact', 'p', 's', 'Ada', '["a", "ü"]', 0.7, TRUE, 'high', '2026-03-04 05:06:07', '2026-03-04 05:06:07', 3, 2, 1, 'shared', 'project:x/y', 'b7703edb5873d7438480a980defd62363e5371f60fc1d6cefcb103cb578dfeaf', NULL);
INSERT INTO memories VALUES ('m2', 'Kafka keeps the log', NULL, NULL, NULL, NULL, NULL, '[]', 1.0, FALSE, 'normal', NULL, NULL, 0, 0, 0, 'personal', NULL, '264e20790f381fb977ef39f174e8b95b47c718c7decd2e632f788f58e52ec3f0', NULL);
INSERT INTO memories VALUES ('m3', 'thrown away', NULL, NULL, NULL, NULL, NULL, '[]', 1.0, FALSE, 'normal', NULL, NULL, 0, 0, 0, 'personal', NULL, '1e72c3903e08c2146484e025fd63d2b6a650db87a51e6096204bda2bc6b0432d', '2026-11-22 18:14:53.091505');

CREATE TABLE queries(qid VARCHAR PRIMARY KEY, query VARCHAR NOT NULL, project VARCHAR, as_of TIMESTAMP, "type" VARCHAR);
INSERT INTO queries VALUES ('q1', 'when do we deploy?', 'p', '2026-03-04 05:06:07', 'temporal');
INSERT INTO queries VALUES ('q2', 'where is the Kafka log?', NULL, NULL, NULL);

CREATE TABLE query_set_members(set_name VARCHAR, "version" BIGINT, qid VARCHAR, query VARCHAR NOT NULL, project VARCHAR, as_of TIMESTAMP, "type" VARCHAR, "source" VARCHAR NOT NULL, PRIMARY KEY(set_name, "version", qid));
INSERT INTO query_set_members VALUES ('team', 1, 'q1', 'when do we deploy?', 'p', '2026-03-04 05:06:07', 'temporal', 'team.jsonl');
INSERT INTO query_set_members VALUES ('team', 1, 'q2', 'where is the log?', NULL, NULL, NULL, 'team.jsonl');
INSERT INTO query_set_members VALUES ('team', 2, 'q1', 'when do we deploy?', 'p', '2026-03-04 05:06:07', 'temporal', 'team.jsonl');
INSERT INTO query_set_members VALUES ('team', 2, 'q2', 'where is the Kafka log?', NULL, NULL, NULL, 'typed');

CREATE TABLE query_sets("name" VARCHAR, "version" BIGINT, created_at TIMESTAMP NOT NULL, digest VARCHAR NOT NULL, scale VARCHAR NOT NULL, PRIMARY KEY("name", "version"));
INSERT INTO query_sets VALUES ('team', 1, '2026-03-04 05:06:07', 'd7ec2587629e91a5b8298019500a6fb944b47dc3e81f7673c6a9d3dfc03178e9', '{"0": "Not relevant: does not help, or is out of date and would mislead", "1": "Related: about the same thing, does not answer", "2": "Helpful: answers in part, or helps a lot", "3": "Answers the question, or is a necessary part of the answer"}');
INSERT INTO query_sets VALUES ('team', 2, '2026-11-22 18:14:52.815714', '3bdc7e081397e64dbe409b888bd0dac2299422c68d6dbeec0df02b284ccd8766', '{"0": "Not relevant: does not help, or is out of date and would mislead", "1": "Related: about the same thing, does not answer", "2": "Helpful: answers in part, or helps a lot", "3": "Answers the question, or is a necessary part of the answer"}');

CREATE TABLE relations(source_id VARCHAR, target_id VARCHAR, kind VARCHAR, weight DOUBLE NOT NULL, PRIMARY KEY(source_id, target_id, kind));
INSERT INTO relations VALUES ('m1', 'm2', 'related', 0.5);

CREATE TABLE reply_cache(model VARCHAR, prompt VARCHAR, sent VARCHAR, reply VARCHAR NOT NULL, PRIMARY KEY(model, prompt, sent));
INSERT INTO reply_cache VALUES ('m', 'p', 'sha', 'said');

CREATE TABLE saved_states(id VARCHAR PRIMARY KEY, state VARCHAR NOT NULL, saved_at TIMESTAMP NOT NULL);
INSERT INTO saved_states VALUES ('z4i4ggjh', '{"query":"q"}', '2026-11-22 18:14:53.232875');

CREATE TABLE score_cache(model VARCHAR, query VARCHAR, text_sha VARCHAR, score DOUBLE NOT NULL, detail VARCHAR, PRIMARY KEY(model, query, text_sha));
INSERT INTO score_cache VALUES ('m@1', 'q', '982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1', 0.25, '{"seconds": 1.5}');

CREATE TABLE workbench_meta("key" VARCHAR PRIMARY KEY, "value" VARCHAR NOT NULL);
INSERT INTO workbench_meta VALUES ('content_version', '2');
INSERT INTO workbench_meta VALUES ('schema', '8');
INSERT INTO workbench_meta VALUES ('store_id', 'c5e62158c11b');
