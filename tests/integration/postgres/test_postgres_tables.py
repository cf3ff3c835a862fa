"""Tables of a real PostgreSQL with pgvector as sources: what is taken, how it fails, and lists that libraries answer."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from source_server import Opened, taken

from benchmarks.score_meanings.engines import of_postgres
from cems_workbench.errors import InputError
from cems_workbench.pipeline.live_engine import rescaled
from cems_workbench.records import DELETED_MARK, Relation
from cems_workbench.sources.score_meanings import differences
from cems_workbench.sources.source import EngineQuery, SourceError, Trial
from cems_workbench.store.sources import VectorLengths

if TYPE_CHECKING:
    from postgres_server import Connection


def sql(name: str) -> str:
    """What makes and fills a table as a library does."""
    return (Path(__file__).parent / "tables" / f"{name}.sql").read_text("utf-8")


def written(vector: Sequence[float]) -> str:
    return json.dumps([float(value) for value in vector])


def numbers(i: int) -> np.ndarray:
    return np.random.default_rng(i).normal(size=5).astype(np.float32)


def mem0(connection: Connection, name: str = "mem0") -> None:
    """As mem0 1.x makes and fills it (mem0/vector_stores/pgvector.py, mem0/memory/main.py)."""
    connection.execute(f"CREATE TABLE {name} (id UUID PRIMARY KEY, vector vector(5), payload JSONB)")
    connection.execute(f"CREATE INDEX {name}_hnsw_idx ON {name} USING hnsw (vector vector_cosine_ops)")
    for i in range(8):
        payload = {
            "data": f"likes tea {i}",
            "hash": "0" * 32,
            "user_id": "ann" if i % 2 else "bob",
            "run_id": f"r{i}",
            "created_at": "2025-06-07T08:09:10.111213-07:00",
        }
        values = (uuid.UUID(int=i + 1), written(numbers(i)), json.dumps(payload))
        connection.execute(f"INSERT INTO {name} VALUES (%s, %s, %s)", values)


def test_the_table_of_mem0_is_known_and_searched_for_its_user(database: Connection, opened: Opened) -> None:
    mem0(database)
    database.execute("CREATE TABLE mem0_entities (LIKE mem0)")
    source = opened()
    probe = source.probe()
    assert (probe.kind, probe.memories, probe.vectors, probe.dimension, probe.distance) == ("mem0", 8, 8, 5, "cosine")
    assert probe.index is not None and probe.index.startswith("hnsw")
    _, found = taken(source)
    one = found[str(uuid.UUID(int=2))]
    assert (one.memory.content, one.memory.author, one.memory.session) == ("likes tea 1", "ann", "r1")
    assert one.memory.created_at == datetime(2025, 6, 7, 15, 9, 10, 111213, tzinfo=UTC)
    assert one.vector is not None and one.vector.tolist() == numbers(1).tolist() and one.chunks == ()
    query = EngineQuery("tea", numbers(99), {"vector": 3})
    (of_ann,) = opened(user="ann").search(query, Trial(exact=True))
    cosine = {
        i: float(numbers(i) @ numbers(99) / np.linalg.norm(numbers(i)) / np.linalg.norm(numbers(99)))
        for i in (1, 3, 5, 7)
    }
    best = sorted(cosine, key=lambda i: -cosine[i])[:3]
    assert [hit.memory_id for hit in of_ann.hits] == [str(uuid.UUID(int=i + 1)) for i in best]
    assert [hit.score for hit in of_ann.hits] == pytest.approx([cosine[i] for i in best], abs=1e-6)
    assert taken(opened(user="ann"))[1].keys() == {str(uuid.UUID(int=i + 1)) for i in (1, 3, 5, 7)}


def test_rows_without_a_distance_and_with_the_same_id_are_counted(database: Connection, opened: Opened) -> None:
    database.execute("CREATE TABLE notes (id text, content text, embedding vector(2))")
    rows = (("a", [1, 0]), ("b", [0, 1]), ("a", [0.6, 0.8]), ("zero", [0, 0]))
    for i, (name, vector) in enumerate(rows):
        database.execute("INSERT INTO notes VALUES (%s, %s, %s)", (name, f"text {i}", str(vector)))
    source = opened()
    batches, _ = taken(source)
    assert [(each.memory_id, each.duplicate) for batch in batches for each in batch.problems] == [("a", True)]
    (answer,) = source.search(EngineQuery("", np.array([1, 0], np.float32), {"vector": 9}))
    hits = [(hit.memory_id, hit.score, hit.seq) for hit in answer.hits]
    found = rescaled(hits, np.array([1, 0], np.float32), source.probe().distance, VectorLengths(4, 1, 1.0, 1.0))
    assert found.hits == [("a", 1.0, None), ("b", 0.0, None)]
    assert found.left_out == (
        "hits left out, without a distance (NaN): 1",
        "hits left out, with an id that came already: 1",
    )


def test_pgvector_and_text_search_answer_as_the_table_of_scores_says(database: Connection) -> None:
    assert differences(of_postgres(database)) == []


def test_rows_that_are_deleted_or_superseded_are_read_as_such(database: Connection, opened: Opened) -> None:
    database.execute(sql("letta"))
    source = opened()
    assert "the state of a memory is read from is_deleted, is_active, superseded_by" in source.probe().notes
    with source.snapshot() as snapshot:
        found = {each.memory.id: each for batch in snapshot.batches(lambda ids, _: ids) for each in batch.taken}
        edges = [edge for portion in snapshot.relations() for edge in portion]
    assert {key for key, each in found.items() if each.marker.startswith(DELETED_MARK)} == {"p2"}
    assert edges == [Relation("p1", "p3", "supersedes")]
    assert found["p3"].memory.valid_until == datetime(2026, 1, 1, tzinfo=UTC) and found["p1"].memory.valid_until is None
    (live,) = source.search(EngineQuery("x", np.array([1.0, 0.0, 0.0], np.float32), {"vector": 3}))
    assert [hit.memory_id for hit in live.hits] == ["p1", "p3"]


def test_the_day_of_mem0s_expiration_date_is_the_last_valid_one(database: Connection, opened: Opened) -> None:
    mem0(database)
    database.execute(
        "UPDATE mem0 SET payload = payload || '{\"expiration_date\": \"2026-03-01\"}' WHERE payload->>'run_id' = 'r1'"
    )
    _, found = taken(opened())
    ends = {each.memory.session: each.memory.valid_until for each in found.values() if each.memory.valid_until}
    assert ends == {"r1": datetime(2026, 3, 2, tzinfo=UTC)}


MAPPING = {
    "table": "other.My notes",
    "id": "nr",
    "text": "body",
    "vector": "emb",
    "title": "subject",
    "tags": "labels",
    "created_at": "made",
    "access_count": "seen",
    "priority": "rank",
}


def test_a_mapped_table_gives_what_the_mapping_says(database: Connection, opened: Opened) -> None:
    database.execute(sql("notes"))
    source = opened(MAPPING)
    probe = source.probe()
    assert (probe.kind, probe.memories, probe.vectors, probe.dimension, probe.distance) == ("table", 4, 3, 5, "ip")
    assert [setting.name for setting in probe.settings] == ["ivfflat.probes", "ivfflat.iterative_scan"]
    batches, found = taken(source)
    one = found["1"].memory
    assert (one.content, one.title, one.tags, one.access_count, one.priority) == ("one", "First", ("a", "b"), 3, 1.5)
    assert one.created_at == datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC) and found["2"].memory.created_at is None
    assert {(problem.memory_id, problem.field): problem.reason for batch in batches for problem in batch.problems} == {
        ("3", "emb"): "is missing: the row can be read and not found by its vector",
        ("3", "access_count"): "must be a whole number from 0, found -4",
        ("3", "priority"): "must be a number 1.0–2.0, found 'high'",
        ("4", "text"): "is empty; the row was left out",
    }
    assert found["2"].vector is not None and found["2"].vector.tolist() == [0, 2, 0, 0, 0]
    (nearest,) = source.search(
        EngineQuery("", np.array([0.5, 1, 0.25, 0, 0], np.float32), {"vector": 9}), Trial(exact=True)
    )
    assert [(hit.memory_id, hit.score) for hit in nearest.hits] == [("2", 2.0), ("1", 0.5), ("4", 0.25)]
    (by_l2,) = opened({**MAPPING, "distance": "l2"}).search(
        EngineQuery("", np.array([0, 2, 0, 0, 0], np.float32), {"vector": 1})
    )
    assert [(hit.memory_id, hit.score) for hit in by_l2.hits] == [("2", 0.0)]
    assert "not by l2" in opened({**MAPPING, "distance": "l2"}).probe().notes[0]


def test_a_table_alone_is_guessed_and_the_guess_is_said(database: Connection, opened: Opened) -> None:
    database.execute(
        "CREATE TABLE facts (key text PRIMARY KEY, source text, document text, embedding vector(5), title varchar, created_at date)"
    )
    database.execute(
        "INSERT INTO facts VALUES ('k1', 's', 'tea is hot', %s, 'Tea', '2024-01-02')", (written(numbers(1)),)
    )
    source = opened()
    note = source.probe().notes[0]
    assert "id: key, text: document, vector: embedding, title: title, created_at: created_at" in note
    memory = taken(source)[1]["k1"].memory
    assert (memory.content, memory.title, memory.created_at) == ("tea is hot", "Tea", datetime(2024, 1, 2, tzinfo=UTC))


def test_a_scope_is_searched_by_every_word_for_it_as_it_is_read(database: Connection, opened: Opened) -> None:
    database.execute("CREATE TABLE spoken (id int PRIMARY KEY, text text, v vector(5), whose text)")
    for i, whose in enumerate(["team", "public", "private", None]):
        database.execute("INSERT INTO spoken VALUES (%s, %s, %s, %s)", (i, f"said {i}", written(numbers(i)), whose))
    mapping = {"table": "spoken", "id": "id", "text": "text", "vector": "v"}
    source = opened({**mapping, "scope": "whose"})
    scopes = {id: each.memory.scope for id, each in taken(source)[1].items()}
    assert scopes == {"0": "shared", "1": "shared", "2": "personal", "3": "personal"}
    for one, scope, ids in (
        (source, "shared", {"0", "1"}),
        (source, "personal", {"2", "3"}),
        (source, None, {"0", "1", "2", "3"}),
        (opened(mapping), "shared", set()),
        (opened(mapping), "personal", {"0", "1", "2", "3"}),
    ):
        (found,) = one.search(EngineQuery("", numbers(9), {"vector": 9}, scope))
        assert {hit.memory_id for hit in found.hits} == ids


def test_a_view_is_read_by_the_hash_of_its_rows(database: Connection, opened: Opened) -> None:
    database.execute("CREATE TABLE kept (id int, said text, v vector(5))")
    for i in (3, 1, 2, 2):
        database.execute("INSERT INTO kept VALUES (%s, %s, %s)", (i, f"said {i}", written(numbers(i))))
    database.execute("CREATE VIEW shown AS SELECT id, said, v FROM kept")
    source = opened({"table": "shown", "id": "id", "text": "said", "vector": "v"})
    batches, first = taken(source)
    assert list(first) == ["1", "2", "3"]
    assert [(problem.memory_id, problem.field) for batch in batches for problem in batch.problems] == [("2", "id")]
    database.execute("UPDATE kept SET v = %s WHERE id = 3", (written(numbers(9)),))
    database.execute("UPDATE kept SET id = id")
    second = taken(source)[1]
    assert [id for id in first if first[id].marker != second[id].marker] == ["3"]


def test_a_view_is_exact_only_if_no_index_below_it_can_be_used(database: Connection, opened: Opened) -> None:
    database.execute(sql("view"))
    query = EngineQuery("", numbers(9), {"vector": 150})
    source = opened(table="memories")
    assert source.probe().index_line == "none: every search is exact" and source.probe().distance == "cosine"
    assert len(source.search(query)[0].hits) == 150
    database.execute("CREATE INDEX ON notes USING hnsw (v vector_l2_ops)")
    database.execute("ANALYZE notes")
    database.execute("ALTER DATABASE own SET enable_seqscan = off")
    source = opened(table="memories")
    probe = source.probe()
    assert (probe.index, probe.distance) == ("hnsw (v vector_l2_ops)", "l2")
    assert next(each.name for each in probe.settings) == "hnsw.ef_search"
    assert [each for each in probe.notes if "EXPLAIN" in each or "no index" in each] == []
    (short,), (more,), (exact,) = (
        source.search(query, trial) for trial in (Trial(), Trial({"hnsw.ef_search": "200"}), Trial(exact=True))
    )
    assert (len(short.hits), len(more.hits), len(exact.hits)) == (40, 150, 150)
    assert exact.hits[0].score == pytest.approx(-min(distances()), abs=1e-6)


def distances() -> Iterator[float]:
    """Of all rows of VIEW to the query."""
    for i in range(1, 1001):
        yield float(np.linalg.norm(np.sin(i * np.arange(1, 6)) - numbers(9)))


def test_an_index_that_is_not_used_now_is_said_to_be_exact_now(database: Connection, opened: Opened) -> None:
    mem0(database)
    database.execute("INSERT INTO mem0 SELECT gen_random_uuid(), vector, payload FROM mem0, generate_series(1, 5)")
    database.execute("ANALYZE mem0")
    probe = opened().probe()
    assert probe.index == "hnsw (vector vector_cosine_ops)"
    assert (
        "PostgreSQL does not use the index for a search of 40 rows now (EXPLAIN): such a search is exact" in probe.notes
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"titel": "subject"}, "mapping: unknown field 'titel' (did you mean title?); known are table, id,"),
        (
            {"title": "subjct"},
            "mapping: title: other.My notes has no column 'subjct' (did you mean subject?); it has nr, body, emb",
        ),
        ({"vector": "body"}, "mapping: vector: body is of type text, not vector or halfvec"),
        ({"distance": "manhattan"}, "mapping: distance: must be one of cosine, l2, ip, found 'manhattan'"),
        ({"table": "notes"}, "mapping: table: postgresql://reader@/own"),
        ({"id": 3}, "mapping: id: must be a name, found 3"),
    ],
)
def test_a_mapping_that_does_not_fit_is_one_line(database, opened, change, says):
    database.execute(sql("notes"))
    with pytest.raises(InputError) as error:
        opened({**MAPPING, **change})
    assert str(error.value).startswith(says)


def test_a_database_that_leaves_a_choice_names_it(database: Connection, opened: Opened) -> None:
    with pytest.raises(SourceError, match="has neither CEMS's tables"):
        opened()
    mem0(database, "one")
    mem0(database, "two")
    with pytest.raises(SourceError, match=r"several tables with vectors \(one, two\); \?table=NAME chooses one"):
        opened()
    assert opened(table="two").probe().memories == 8
    database.execute("DROP EXTENSION vector CASCADE")
    with pytest.raises(SourceError, match="has no extension vector"):
        opened(table="two")


def test_a_role_without_rights_is_told_what_gives_them(database: Connection, opened: Opened) -> None:
    mem0(database)
    database.execute("REVOKE SELECT ON mem0 FROM reader")
    with pytest.raises(SourceError, match="reader may not read mem0; to allow it: GRANT SELECT ON mem0 TO reader"):
        opened().probe()


def test_a_source_that_drops_on_the_way_is_one_line_and_is_there_again(database: Connection, opened: Opened) -> None:
    mem0(database)
    source = opened()
    source.probe()
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cems-workbench'"
    with (
        pytest.raises(SourceError, match=r"the connection was lost .*; connect again to resume"),
        source.snapshot() as snapshot,
    ):
        database.execute(end)
        list(snapshot.batches(lambda ids, markers: ids))
    database.execute(end)
    assert source.probe().memories == 8
    (found,) = source.search(EngineQuery("", numbers(1), {"vector": 2}))
    assert len(found.hits) == 2


def test_a_statement_that_hangs_is_ended(database: Connection, opened: Opened) -> None:
    mem0(database)
    database.execute(
        "CREATE VIEW slow AS SELECT id, payload ->> 'data' AS said, vector FROM mem0 WHERE pg_sleep(3600) IS NOT NULL"
    )
    source = opened({"table": "slow", "id": "id", "text": "said", "vector": "vector"}, timeout=0.3)
    with pytest.raises(SourceError, match=r"a statement was ended after 0\.3 s"):
        source.probe()


def test_a_server_that_falls_silent_is_given_up(database, opened, monkeypatch):
    """Stopped, its process can end no statement, while its machine still answers for the connection."""
    import os
    import signal

    from workbench_stores.postgres import connection

    monkeypatch.setattr(connection, "UNRESPONSIVE_S", 0.2)
    mem0(database)
    source = opened(timeout=0.3)
    with pytest.raises(SourceError, match="the connection was lost"), source.snapshot() as snapshot:
        rows = database.execute("SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction'").fetchall()
        for (process,) in rows:
            os.kill(process, signal.SIGSTOP)
        try:
            list(snapshot.batches(lambda ids, markers: ids))
        finally:
            for (process,) in rows:
                os.kill(process, signal.SIGCONT)


def test_a_collection_of_langchain_is_chosen_and_its_json_keys_are_fields(database: Connection, opened: Opened) -> None:
    database.execute(sql("langchain"))
    with pytest.raises(
        InputError, match=r"several collections: notes \(3\), other app \(1\); \?collection=NAME chooses"
    ):
        opened()
    with pytest.raises(InputError, match=r"no collection 'note' \(did you mean notes\?\)"):
        opened(collection="note")
    source = opened(collection="notes")
    probe = source.probe()
    assert (probe.kind, probe.memories, probe.vectors, probe.dimension) == ("langchain_pgvector", 3, 3, 2)
    assert "not read: cmetadata.mood, cmetadata.source; a mapping can take them" in probe.notes
    assert any("?distance=l2" in note for note in probe.notes)
    batches, found = taken(source)
    a, b, c = (found[id].memory for id in "abc")
    assert len(found) == 3 and not [problem for batch in batches for problem in batch.problems]
    assert (a.author, a.title, a.tags, a.access_count, a.pinned) == ("ann", "Deep", ("x", "y"), 3, True)
    assert (b.author, b.title, b.tags, b.priority, c.author) == ("7", "Plain", ("u", "v"), 1.5, None)
    assert a.created_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert b.created_at == datetime(2025, 2, 3, 4, 5, 6, tzinfo=UTC) and a.source_ref is None
    query = EngineQuery("", np.array([0, 2], np.float32), {"vector": 9})
    (near,) = opened(collection="notes", distance="l2").search(query)
    assert [(hit.memory_id, hit.score) for hit in near.hits] == [
        ("b", -1.0),
        ("c", -1.0),
        ("a", pytest.approx(-(5**0.5))),
    ]
    assert {hit.memory_id for hit in opened(collection="notes", user="7").search(query)[0].hits} == {"b"}
    assert taken(opened(collection="*", user="ann"))[1].keys() == {"a", "d"}


def test_the_second_snapshot_reads_what_changed_and_misses_what_is_gone(database: Connection, opened: Opened) -> None:
    database.execute(sql("langchain"))
    source = opened(collection="notes")
    before = {id: each.marker for id, each in taken(source)[1].items()}
    database.execute("UPDATE langchain_pg_embedding SET cmetadata = cmetadata || '{\"title\": \"New\"}' WHERE id = 'b'")
    database.execute("DELETE FROM langchain_pg_embedding WHERE id = 'c'")
    with source.snapshot() as snapshot:
        read = [
            *snapshot.batches(lambda ids, markers: [i for i, m in zip(ids, markers, strict=True) if before.get(i) != m])
        ]
    assert {id for batch in read for id in batch.seen} == {"a", "b"}
    assert [each.memory.title for batch in read for each in batch.taken] == ["New"]


def test_a_mapping_leads_into_json_and_corrects_a_known_layout(database: Connection, opened: Opened) -> None:
    database.execute(sql("langchain"))
    whole = {"table": "langchain_pg_embedding", "id": "id", "text": "document", "vector": "embedding"}
    one = {id: each.memory for id, each in taken(opened({**whole, "category": "cmetadata.mood"}))[1].items()}
    assert (one["a"].category, one["a"].author, sorted(one)) == ("calm", None, ["a", "b", "c", "d"])
    of_key = {**whole, "text": "cmetadata.title"}
    assert [each.memory.content for each in taken(opened(of_key, collection="notes"))[1].values()] == ["Plain"]
    source = opened({"category": "cmetadata.mood"}, collection="notes")
    assert "not read: cmetadata.source; a mapping can take them" in source.probe().notes
    memory = taken(source)[1]["a"].memory
    assert (memory.category, memory.author, memory.title) == ("calm", "ann", "Deep")
    for path, says in (
        ("document.mood", "leads into document, which is of type varchar"),
        ("cmeta.x", "has no column"),
    ):
        with pytest.raises(InputError, match=says):
            opened({"category": path}, collection="notes")


def test_tables_of_libraries_are_known_by_their_columns(database: Connection, opened: Opened) -> None:
    for script in (sql("nodes"), sql("documents"), sql("renamed")):
        database.execute(script)
    with pytest.raises(
        SourceError, match=r"several tables with vectors \(data_notes, kept\); \?table=NAME chooses one"
    ):
        opened()
    nodes = opened(table="data_notes")
    batches, found = taken(nodes)
    assert (nodes.probe().kind, sorted(found), found["n1"].memory.title) == ("llamaindex", ["n1", "n2"], "T")
    assert [problem.memory_id for batch in batches for problem in batch.problems] == ["n1"]
    documents = opened(table="kept")
    assert documents.probe().kind == "haystack"
    assert "not read: blob_data, blob_meta, blob_mime_type; a mapping can take them" in documents.probe().notes
    assert taken(documents)[1]["h1"].memory.category == "deep"
    renamed = opened(table="renamed")
    there, gone = taken(renamed)[1].values()
    assert gone.marker.startswith(DELETED_MARK) and renamed.probe().memories == 1
    memory = there.memory
    assert (memory.content, memory.title, memory.tags) == ("one", "T", ("x",))
    assert "not read: extra.color, mood; a mapping can take them" in renamed.probe().notes


def test_padding_of_letta_is_cut_where_it_is_zero(database: Connection, opened: Opened) -> None:
    database.execute(sql("padded"))
    source = opened()
    probe = source.probe()
    assert (probe.kind, probe.memories, probe.dimension, probe.model) == ("letta", 3, 2, "m")
    batches, found = taken(source)
    assert {id: None if each.vector is None else each.vector.tolist() for id, each in found.items()} == {
        "p1": [1, 0],
        "p2": [1, 2],
        "p3": [0, 1],
        "p4": None,
    }
    assert found["p3"].marker.startswith(DELETED_MARK)
    assert [(problem.memory_id, problem.field) for batch in batches for problem in batch.problems] == [
        ("p4", "embedding")
    ]
    memory = found["p1"].memory
    assert (memory.project, memory.author, memory.tags) == ("arc", "org", ("a",))
    (near,) = source.search(EngineQuery("", np.array([3, 4], np.float32), {"vector": 2}))
    assert [(hit.memory_id, hit.score) for hit in near.hits] == [
        ("p2", pytest.approx(11 / 5 / 5**0.5, abs=1e-6)),
        ("p1", pytest.approx(0.6, abs=1e-6)),
    ]


def test_memories_that_mem0_calls_expired_are_kept_and_in_no_live_list(database: Connection, opened: Opened) -> None:
    mem0(database)
    for day, run in (("2020-01-01", "r1"), ("2999-01-01", "r2"), ("someday", "r3")):
        change = json.dumps({"expiration_date": day, "agent_id": "bot"})
        database.execute("UPDATE mem0 SET payload = payload || %s::jsonb WHERE payload->>'run_id' = %s", (change, run))
    source = opened()
    assert "not read: payload.hash, payload.agent_id; a mapping can take them" in source.probe().notes
    (live,) = source.search(EngineQuery("", numbers(9), {"vector": 9}))
    found = taken(source)[1]
    assert found.keys() - {hit.memory_id for hit in live.hits} == {str(uuid.UUID(int=2))}
    assert found[str(uuid.UUID(int=2))].memory.valid_until == datetime(2020, 1, 2, tzinfo=UTC)


def test_json_that_python_cannot_read_costs_its_fields_not_the_row(database: Connection, opened: Opened) -> None:
    database.execute("CREATE TABLE deep (id int PRIMARY KEY, body text, v vector(2), metadata json)")
    rows = [
        "[" * 3_000 + "]" * 3_000,
        '{"title": "a\\u0000b"}',
        '"only text"',
        json.dumps({"title": "T", "big": "x" * 200_000}),
    ]
    for number, row in enumerate(rows):
        database.execute("INSERT INTO deep VALUES (%s, 'said', '[1,0]', %s)", (number, row))
    batches, found = taken(opened())
    problems = [(problem.memory_id, problem.field) for batch in batches for problem in batch.problems]
    assert (problems, sorted(found)) == ([("0", "metadata")], ["0", "1", "2", "3"])
    assert [found[id].memory.title for id in "0123"] == [None, "a\0b", None, "T"]


def test_a_table_with_its_text_in_json_is_guessed(database: Connection, opened: Opened) -> None:
    database.execute("CREATE TABLE vecs (id varchar PRIMARY KEY, vec vector(2), metadata jsonb, owner_id text)")
    database.execute('INSERT INTO vecs VALUES (\'v\', \'[1,0]\', \'{"data": "said", "user_id": "ann"}\')')
    source = opened()
    memory = taken(source)[1]["v"].memory
    assert (memory.content, memory.author) == ("said", "ann")
    assert "text: metadata.data, vector: vec, author: metadata.user_id" in source.probe().notes[0]


if TYPE_CHECKING:
    from postgres_server import Connection


def written_list(*numbers: float) -> str:
    return json.dumps(list(numbers))


def answer(source, name, asked, text="", trial=None):
    query = EngineQuery(text, np.array([1.0, 0.0, 0.0], np.float32), {name: asked})
    (found,) = source.search(query, trial or Trial())
    assert (found.name, found.asked) == (name, asked)
    return [(hit.memory_id, hit.score) for hit in found.hits]


def test_items_of_langgraph_have_their_texts_as_chunks(database: Connection, opened: Opened) -> None:
    database.execute(sql("store"))
    source = opened()
    probe = source.probe()
    assert (probe.kind, probe.memories, probe.vectors, probe.distance) == ("langgraph", 4, 6, "cosine")
    assert any(note.startswith("items past expires_at and not yet swept: 1;") for note in probe.notes)
    assert any(line.startswith("items without a vector: 1,") for line in probe.missing)
    assert any("value.rating" in note for note in probe.notes if note.startswith("not read"))
    batches, found = taken(source)
    tea = found["memories.jo/a"]
    assert (tea.memory.content, tea.memory.title, tea.memory.author) == ("tea", "Drink", "7")
    assert [(chunk.seq, chunk.text, chunk.start) for chunk in tea.chunks] == [
        (0, "tea", 0),
        (1, "green", None),
        (2, "black", None),
    ]
    milk = found["memories.jo/b"]
    assert milk.chunks == () and milk.vector is not None and milk.vector.tolist() == [0, 1, 0]
    assert (milk.memory.author, milk.memory.valid_until) == ("jo", datetime(2020, 1, 1, tzinfo=UTC))
    assert milk.memory.created_at == datetime(2026, 1, 2, tzinfo=UTC)
    rice = found["memories.mira.work/c"]
    assert (rice.memory.content, rice.memory.author) == ('{"food": "rice", "rating": 2}', "work")
    assert rice.chunks == () and rice.vector is not None
    problems = [(problem.memory_id, problem.field) for batch in batches for problem in batch.problems]
    assert problems == [("memories.jo/a", "notes[*].text.2"), ("memoriesx/d", "embedding")]
    database.execute("UPDATE store_vectors SET embedding = '[0,1,1]' WHERE key = 'c'")
    again = taken(source)[1]
    assert [id for id in found if found[id].marker != again[id].marker] == ["memories.mira.work/c"]


def test_namespace_user_and_expiry_of_langgraph_choose_items(database: Connection, opened: Opened) -> None:
    database.execute(sql("store"))
    half = 2**-0.5
    every = [("memories.jo/a", 1.0), ("memories.jo/a", half), ("memories.mira.work/c", 0.6)]
    assert answer(opened(), "vector", 3) == [(id, pytest.approx(score, abs=1e-6)) for id, score in every]
    (found,) = opened().search(EngineQuery("", np.array([1.0, 0.0, 0.0], np.float32), {"vector": 3}))
    # The chunk of the second note, that of the content, and an item with one text.
    assert [hit.seq for hit in found.hits] == [2, 0, None]
    assert {id for id, _ in answer(opened(namespace="memories"), "vector", 9)} == {
        "memories.jo/a",
        "memories.jo/b",
        "memories.mira.work/c",
    }
    assert {id for id, _ in answer(opened(namespace="memories", omit_expired="true"), "vector", 9)} == {
        "memories.jo/a",
        "memories.mira.work/c",
    }
    assert taken(opened(user="jo"))[1].keys() == {"memories.jo/b"}
    database.execute("UPDATE store SET prefix = '50%s' WHERE prefix = 'memoriesx'")
    database.execute("INSERT INTO store_vectors VALUES ('50%s', 'd', 'content', NULL)")
    assert (answer(opened(namespace="50%s"), "vector", 9), [*taken(opened(namespace="50%s"))[1]]) == ([], ["50%s/d"])
    mapped = {"author": "namespace.2", "project": "namespace"}
    of_label = taken(opened(mapped, user="mira"))[1]["memories.mira.work/c"].memory
    assert (of_label.author, of_label.project) == ("mira", "memories.mira.work")
    with pytest.raises(InputError, match="omit_expired= must be true or false, found 'yes'"):
        opened(omit_expired="yes")


def test_nodes_of_llamaindex_are_ranked_by_any_word_in_their_language(database: Connection, opened: Opened) -> None:
    database.execute(sql("list_nodes"))
    source = opened()
    assert source.probe().lists == ("vector", "ts_rank", "source_hybrid")
    by_hand = "SELECT ts_rank(to_tsvector('german', %s), to_tsquery('german', 'haus|autos'))"
    (house,), (car,) = (
        database.execute(by_hand, (text,)).fetchone() or (0,) for text in ("ein Haus im Garten", "Autos")
    )
    words = answer(source, "ts_rank", 9, "haus, (autos)?")
    assert {id: score for id, score in words} == pytest.approx({"n1": house, "n2": house, "n3": car}, abs=1e-6)
    # Two of the vector list with cosines, then what only the other list has.
    fused = answer(source, "source_hybrid", 4, "gärten")
    assert [id for id, _ in fused] == ["n3", "n2", "n1"] and fused[0][1] == 1.0 and fused[2][1] < 0.1
    assert answer(source, "ts_rank", 9, "!!") == []


def test_documents_of_langchain_are_fused_as_its_config_says(database: Connection, opened: Opened) -> None:
    database.execute(sql("list_documents"))
    texts = {str(id): text for id, text in database.execute("SELECT langchain_id, content FROM notes").fetchall()}

    def fused(trial: Trial, **options: str) -> list[tuple[str, float]]:
        return [(texts[id], score) for id, score in answer(opened(**options), "source_hybrid", 3, "green apple", trial)]

    # Cosines 1, 0.71 and 0 scaled, and the only hit by words, each half.
    scaled = [("green tea", 0.5), ("green apples", 0.5), ("black tea", 0.5 * 2**-0.5)]
    assert fused(Trial()) == [(text, pytest.approx(score, abs=1e-6)) for text, score in scaled]
    ranks = [("green apples", 1 / 62 + 1 / 60), ("green tea", 1 / 60), ("black tea", 1 / 61)]
    expected = [(text, pytest.approx(score)) for text, score in ranks]
    assert fused(Trial({"hybrid.fusion": "rrf"})) == fused(Trial(), **{"hybrid.fusion": "rrf"}) == expected
    one = fused(Trial({"hybrid.primary_top_k": "1"}))
    assert one == [("green tea", 0.5), ("green apples", 0.5)]
    settings = {each.name: each.value for each in opened(**{"hybrid.primary_top_k": "9"}).probe().settings}
    assert settings == {"hybrid.primary_top_k": "9", "hybrid.secondary_top_k": "4", "hybrid.fusion": "weighted_sum"}
    with pytest.raises(InputError, match=r"hybrid\.primary_top_k must be a number of rows, found 'many'"):
        fused(Trial({"hybrid.primary_top_k": "many"}))


def test_a_setting_of_the_address_is_that_of_the_client(database: Connection, opened: Opened) -> None:
    database.execute(sql("list_nodes"))
    stated = opened(**{"hnsw.ef_search": "2"})
    assert next(each.value for each in stated.probe().settings) == "2"
    assert "hnsw.ef_search=2: by the address; live lists use it" in stated.probe().notes
    assert any(note.startswith("LlamaIndex sets hnsw.ef_search") for note in opened().probe().notes)
    database.execute("ALTER DATABASE own SET enable_seqscan = off")
    database.execute("ALTER DATABASE own SET enable_sort = off")
    stated = opened(**{"hnsw.ef_search": "2"})
    assert len(answer(stated, "vector", 3)) == 2
    assert len(answer(stated, "vector", 3, trial=Trial({"hnsw.ef_search": "40"}))) == 3


def test_facts_of_a_hindsight_bank_are_searched_by_kind_and_related(database: Connection, opened: Opened) -> None:
    database.execute(sql("hindsight"))
    with pytest.raises(InputError, match=r"several banks: ann \(3\), bob \(1\); \?bank=NAME chooses one"):
        opened()
    with pytest.raises(InputError, match="there is no bank 'anna' \\(did you mean ann\\?\\)"):
        opened(bank="anna")
    source = opened(bank="ann")
    probe = source.probe()
    assert (probe.kind, probe.memories, probe.lists) == ("hindsight", 3, ("vector", "ts_rank_cd"))
    assert probe.index is not None and "WHERE ((fact_type = 'world'::text) AND (bank_id = 'ann'::text))" in probe.index
    one, two, three = (f"{str(n) * 8}-0000-0000-0000-000000000000" for n in (1, 2, 3))
    # An opinion is no kind of fact that Hindsight searches.
    assert answer(source, "vector", 9) == [(one, 1.0), (two, pytest.approx(2**-0.5, abs=1e-6))]
    rank = "SELECT ts_rank_cd(to_tsvector('english', %s), to_tsquery('english', 'green | tea'))"
    by_hand = {
        id: (database.execute(rank, (text,)).fetchone() or (0,))[0]
        for id, text in ((one, "tea is green"), (two, "I made tea"))
    }
    assert dict(answer(source, "ts_rank_cd", 9, "Green, tea!")) == pytest.approx(by_hand, abs=1e-6)
    memory = taken(source)[1][two].memory
    assert (memory.category, memory.project, memory.tags, memory.source_ref) == ("experience", "ann", ("x",), "d2")
    assert memory.created_at == datetime(2026, 3, 4, tzinfo=UTC)
    with source.snapshot() as snapshot:
        edges = [edge for portion in snapshot.relations() for edge in portion]
    assert [(edge.source_id, edge.target_id, edge.kind) for edge in edges] == [
        (one, two, "semantic"),
        (two, three, "entity"),
    ]
    # A weight above 1 counts as 1; two shared entities as tanh(0.5 × 2).
    assert [edge.weight for edge in edges] == [1.0, pytest.approx(0.761594, abs=1e-6)]
