"""The memories of a CEMS server's database, taken and searched on a real PostgreSQL with pgvector."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from postgres_server import USER, LoadedChunk, Server, load, relate, uuid_of
from source_server import PASSWORD, Opened, taken

from cems_workbench.errors import InputError
from cems_workbench.records import Relation
from cems_workbench.sources.address import parse
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.source import EngineQuery, SourceError, Trial

if TYPE_CHECKING:
    from postgres_server import Connection

OTHER = uuid.UUID(int=2)
TEAM = uuid.UUID(int=7)


@pytest.fixture(scope="module")
def cems(server: Server) -> Iterator[Connection]:
    """Twelve documents of two chunks each with vectors of 8 numbers."""
    with server.cems("cems", 8) as connection:
        for i in range(12):
            load(connection, document(i), chunks(i))
        relate(connection, {"source_id": "m1", "target_id": "m2", "kind": "similar", "weight": None})
        relate(connection, {"source_id": "m1", "target_id": "m3", "kind": "refines", "weight": 0.75})
        connection.execute("GRANT SELECT ON memory_documents, memory_chunks, memory_relations TO reader")
        yield connection


def document(i: int) -> dict[str, Any]:
    return {
        "id": f"m{i}",
        "content": f"memory number {i}, deployed on fridays",
        "title": f"Number {i}",
        "project": "org/repo",
        "tags": ["a", f"t{i}"],
        "created_at": "2024-01-02T03:04:05+00:00",
        "last_accessed": None if i % 2 else "2024-02-03T00:00:00Z",
        "updated_at": "2024-01-09T00:00:00Z",
        "access_count": i,
        "relevant_count": 2,
        "noise_count": 1,
    }


def vector_of(i: int, seq: int) -> np.ndarray:
    return np.random.default_rng(100 * i + seq).normal(size=8).astype(np.float32)


def chunks(i: int) -> list[LoadedChunk]:
    return [LoadedChunk(f"memory number {i}", vector_of(i, 0)), LoadedChunk("deployed on fridays", vector_of(i, 1))]


@pytest.fixture
def opened(opened: Opened) -> Opened:
    """As `opened`, of the database with CEMS's tables unless another is named."""
    return lambda **options: opened(**{"database": "cems", **options})


def test_what_it_is_can_be_seen(cems: Connection, opened: Opened) -> None:
    probe = opened().probe()
    assert (probe.kind, probe.memories, probe.vectors, probe.dimension, probe.distance) == ("cems", 12, 24, 8, "cosine")
    assert probe.engine.startswith("PostgreSQL 18") and "pgvector 0.8" in probe.engine
    assert probe.index is not None and probe.index.startswith("hnsw (embedding vector_cosine_ops)")
    assert probe.lists == ("vector", "ts_rank") and probe.missing == () and probe.notes == ()
    settings = {setting.name: setting for setting in probe.settings}
    assert settings["hnsw.ef_search"].value == "40" and "400" in settings["hnsw.ef_search"].tries


def test_a_snapshot_has_what_was_loaded_to_the_bit(cems: Connection, opened: Opened) -> None:
    source = opened()
    batches, found = taken(source)
    assert [id for batch in batches for id in batch.seen] == list(found)
    assert list(found) == [str(uuid_of(f"m{i}")) for i in range(12)]
    stored = cems.execute("SELECT document_id::text, seq, embedding::real[] FROM memory_chunks").fetchall()
    for id, seq, values in stored:
        chunk = found[id].chunks[seq]
        assert chunk.seq == seq and chunk.vector is not None
        assert chunk.vector.tolist() == np.array(values, np.float32).tolist()
    three = found[str(uuid_of("m3"))]
    assert [(chunk.text, chunk.start) for chunk in three.chunks] == [
        ("memory number 3", 0),
        ("deployed on fridays", 17),
    ]
    memory = three.memory
    assert (memory.content, memory.title, memory.project, memory.author) == (
        "memory number 3, deployed on fridays",
        "Number 3",
        "org/repo",
        str(USER),
    )
    assert (memory.tags, memory.access_count, memory.relevant_count, memory.noise_count) == (("a", "t3"), 3, 2, 1)
    assert memory.last_accessed == memory.updated_at != memory.created_at
    with source.snapshot() as snapshot:
        edges = [edge for portion in snapshot.relations() for edge in portion]
    one, two = str(uuid_of("m1")), str(uuid_of("m2"))
    assert edges == [Relation(one, two, "similar", 0.3), Relation(one, str(uuid_of("m3")), "refines", 0.75)]


def test_only_what_changed_is_read_again(cems: Connection, opened: Opened) -> None:
    known: dict[str, str] = {}

    def changed(ids: Sequence[str], markers: Sequence[str]) -> list[str]:
        return [id for id, marker in zip(ids, markers, strict=True) if known.get(id) != marker]

    def take() -> tuple[set[str], set[str]]:
        with opened().snapshot() as snapshot:
            batches = list(snapshot.batches(changed))
        found = [each for batch in batches for each in batch.taken]
        known.update({each.memory.id: each.marker for each in found})
        return {each.memory.id for each in found}, {id for batch in batches for id in batch.seen}

    first, there = take()
    assert first == there and len(first) == 12
    assert take() == (set(), there)
    ids = {i: str(uuid_of(f"m{i}")) for i in range(13)}
    cems.execute("UPDATE memory_documents SET shown_count = shown_count + 1 WHERE id = %s", (ids[0],))
    cems.execute(
        "UPDATE memory_chunks SET embedding = %s WHERE document_id = %s AND seq = 1", ("[1,2,3,4,5,6,7,8]", ids[4])
    )
    cems.execute("DELETE FROM memory_chunks WHERE document_id = %s AND seq = 1", (ids[5],))
    cems.execute("UPDATE memory_documents SET deleted_at = now() WHERE id = %s", (ids[6],))
    load(cems, document(12), chunks(12))
    read, seen = take()
    assert read == {ids[0], ids[4], ids[5], ids[12]}
    assert seen == (there - {ids[6]}) | {ids[12]}
    cems.execute("UPDATE memory_documents SET deleted_at = NULL")
    cems.execute("DELETE FROM memory_documents WHERE id = %s", (ids[12],))


def test_lists_are_those_of_the_statements_of_cems(cems: Connection, opened: Opened) -> None:
    vector = vector_of(77, 0)
    query = EngineQuery("Which memory is deployed on friday?", vector, {"vector": 9, "ts_rank": 30})
    nearest, words = opened(user=str(USER)).search(query, Trial(exact=True))
    rows = cems.execute("SELECT document_id::text, seq, embedding::real[] FROM memory_chunks").fetchall()
    cosines = {(id, seq): float(np.dot(vector, v) / np.linalg.norm(vector) / np.linalg.norm(v)) for id, seq, v in rows}
    best = sorted(cosines, key=lambda key: -cosines[key])[:9]
    assert [(hit.memory_id, hit.seq) for hit in nearest.hits] == best
    assert [hit.score for hit in nearest.hits] == pytest.approx([cosines[key] for key in best], abs=1e-6)
    # What CEMS sends (document_store.py, full_text_search_chunks), with the window of its hybrid search.
    theirs = cems.execute(
        """WITH or_tsquery AS (SELECT to_tsquery('english', string_agg((t).lexeme::text, ' | ' ORDER BY (t).lexeme)) as q
           FROM unnest(to_tsvector('english', %(q)s)) t)
           SELECT c.document_id::text, c.seq, ts_rank(c.content_tsv, oq.q) AS text_score,
                  ROW_NUMBER() OVER (ORDER BY ts_rank(c.content_tsv, oq.q) DESC) AS text_rank
           FROM memory_chunks c JOIN memory_documents d ON c.document_id = d.id CROSS JOIN or_tsquery oq
           WHERE d.deleted_at IS NULL AND d.user_id = %(u)s AND c.content_tsv @@ oq.q ORDER BY text_score DESC LIMIT 30""",
        {"q": query.text, "u": USER},
    ).fetchall()
    assert len(theirs) > 10
    ranked = sorted(theirs, key=lambda row: row[3])
    assert [(hit.memory_id, hit.seq) for hit in words.hits] == [(id, seq) for id, seq, _, _ in ranked]
    assert [hit.score for hit in words.hits] == pytest.approx([rank for _, _, rank, _ in ranked])


def test_a_user_sees_their_own_and_what_the_team_shares(cems: Connection, opened: Opened) -> None:
    cems.execute("INSERT INTO users VALUES (%s)", (OTHER,))
    cems.execute("UPDATE memory_documents SET user_id = %s WHERE id = ANY(%s)", (OTHER, [uuid_of("m7"), uuid_of("m8")]))
    cems.execute("UPDATE memory_documents SET scope = 'shared', team_id = %s WHERE id = %s", (TEAM, uuid_of("m8")))
    try:
        seven, eight = str(uuid_of("m7")), str(uuid_of("m8"))
        assert len(taken(opened())[1]) == 12
        mine = taken(opened(user=str(USER)))[1]
        assert len(mine) == 10 and seven not in mine and eight not in mine
        ours = taken(opened(user=str(USER), team=str(TEAM)))[1]
        assert ours.keys() - mine.keys() == {eight} and ours[eight].memory.scope == "shared"
        notes = opened().probe().notes
        assert str(OTHER) in notes[0] and "?user=" in notes[0]
        query = EngineQuery("memory", vector_of(1, 0), {"vector": 100}, "shared")
        (shared,) = opened(user=str(USER), team=str(TEAM)).search(query, Trial(exact=True))
        assert {hit.memory_id for hit in shared.hits} == {eight}
    finally:
        cems.execute("UPDATE memory_documents SET user_id = %s, scope = 'personal', team_id = NULL", (USER,))


def test_a_list_that_the_index_cuts_is_mended_by_its_settings(server: Server, opened: Opened) -> None:
    """Most of the nearest are another user's: an index scan gives 40 rows, and the filter that follows leaves few of them."""
    with server.cems("cut", 8) as connection:
        connection.execute("INSERT INTO users VALUES (%s)", (OTHER,))
        made = np.random.default_rng(4417).normal(size=(2_000, 8))
        with connection.cursor().copy(
            "COPY memory_documents (id, user_id, content, content_hash, content_bytes) FROM STDIN"
        ) as copy:
            for i in range(2_000):
                copy.write_row((uuid.UUID(int=i), USER if i % 20 == 0 else OTHER, f"memory {i}", str(i), 9))
        with connection.cursor().copy(
            "COPY memory_chunks (document_id, seq, pos, content, embedding) FROM STDIN"
        ) as copy:
            for i, vector in enumerate(made.tolist()):
                copy.write_row((uuid.UUID(int=i), 0, 0, f"memory {i}", str(vector)))
        connection.execute("ANALYZE")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        # A table of this size is scanned; a large one has its index used.
        for name in ("enable_seqscan", "enable_sort"):
            connection.execute(f"ALTER ROLE reader IN DATABASE cut SET {name} = off")
        source = opened(database="cut", user=str(USER))
        query = EngineQuery("memory", made[1].astype(np.float32), {"vector": 60})
        (as_it_is,) = source.search(query)
        (exact,) = source.search(query, Trial(exact=True))
        assert len(as_it_is.hits) < 20 and as_it_is.asked == 60
        mine = made[::20] @ made[1] / np.linalg.norm(made[::20], axis=1)
        assert [hit.memory_id for hit in exact.hits] == [
            str(uuid.UUID(int=int(i) * 20)) for i in np.argsort(-mine)[:60]
        ]
        wider = Trial({"hnsw.ef_search": "1000", "hnsw.iterative_scan": "strict_order"})
        (mended,) = source.search(query, wider)
        assert [hit.memory_id for hit in mended.hits] == [hit.memory_id for hit in exact.hits]
        assert source.search(query)[0].hits == as_it_is.hits, "a trial leaves nothing behind"
        with pytest.raises(InputError, match="'work_mem' is not a setting of a vector search"):
            source.search(query, Trial({"work_mem": "1GB"}))


def test_rows_that_cannot_be_taken_are_named(server: Server, opened: Opened) -> None:
    with server.cems("broken", 8) as connection:
        connection.execute("DROP INDEX memory_chunks_embedding_idx")
        connection.execute("ALTER TABLE memory_chunks ALTER embedding DROP NOT NULL, ALTER embedding TYPE vector")
        connection.execute("ALTER TABLE memory_documents ALTER content DROP NOT NULL")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        for i in range(8):
            load(connection, document(i), chunks(i))
        ids = {i: str(uuid_of(f"m{i}")) for i in range(8)}
        connection.execute("UPDATE memory_chunks SET embedding = NULL WHERE document_id = %s AND seq = 0", (ids[0],))
        connection.execute(
            "UPDATE memory_chunks SET embedding = '[1,2,3]' WHERE document_id = %s AND seq = 1", (ids[1],)
        )
        connection.execute("UPDATE memory_documents SET content = NULL WHERE id = %s", (ids[2],))
        connection.execute("DELETE FROM memory_chunks WHERE document_id = %s", (ids[3],))
        connection.execute("UPDATE memory_documents SET content = ' ' WHERE id = %s", (ids[3],))
        connection.execute("UPDATE memory_documents SET content = repeat('long é ', 150000) WHERE id = %s", (ids[4],))
        connection.execute("UPDATE memory_documents SET created_at = 'infinity' WHERE id = %s", (ids[5],))
        connection.execute("UPDATE memory_documents SET content = repeat('é', 1000000) || '!' WHERE id = %s", (ids[6],))
        connection.execute("UPDATE memory_chunks SET content = repeat('a ', 1000001) WHERE document_id = %s", (ids[7],))
        batches, found = taken(opened(database="broken"))
        problems = {
            (problem.memory_id, problem.field): problem.reason for batch in batches for problem in batch.problems
        }
        assert problems == {
            (ids[0], "chunk 0"): "is missing: the row can be read and not found by its vector",
            (ids[1], "chunk 1"): "has 3 numbers, most there have 8; it was left out",
            (ids[3], "chunks"): "has no chunks, so CEMS's search does not find it",
            (ids[3], "text"): "is empty; the row was left out",
            (ids[6], "content"): "2,000,001 bytes exceed the limit of 2,000,000; it was left out",
            (ids[7], "chunks"): "4,000,004 bytes exceed the limit of 4,000,000; it was left out",
        }
        assert found.keys() == {ids[0], ids[1], ids[2], ids[4], ids[5]}
        assert found[ids[2]].memory.content == "memory number 2\ndeployed on fridays"
        assert len(found[ids[4]].memory.content) == 1_050_000
        assert found[ids[5]].memory.created_at is None
        connection.execute("DELETE FROM memory_chunks WHERE vector_dims(embedding) = 3")
        connection.execute("ALTER TABLE memory_chunks ALTER embedding TYPE vector(8)")
        source = opened(database="broken")
        assert source.probe().dimension == 8
        connection.execute("UPDATE memory_chunks SET embedding = NULL")
        connection.execute("ALTER TABLE memory_chunks ALTER embedding TYPE vector(4)")
        with pytest.raises(SourceError, match="vectors there have 4 numbers, that of the query 8"):
            source.search(EngineQuery("x", vector_of(0, 0), {"vector": 1}))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"password": "another-5521"}, "refused reader's password (from PGPASSWORD)"),
        ({"database": "nowhere"}, "there is no database 'nowhere'"),
        ({"database": "cems", "usr": "x"}, "unknown option 'usr' (did you mean user?)"),
        ({"database": "cems", "user": "me"}, "user= is a UUID in CEMS, found 'me'"),
        ({"host": "/nowhere"}, "nothing listens on /nowhere"),
        ({"host": "no-such-host.invalid"}, "the host 'no-such-host.invalid' is not known"),
    ],
)
def test_what_cannot_be_opened_is_one_line(cems, opened, arguments, says):
    with pytest.raises((SourceError, InputError)) as error:
        opened(**arguments)
    said = str(error.value)
    assert said.startswith("postgresql://reader@/") and says in said and "\n" not in said
    assert "another-5521" not in said and PASSWORD not in said


def test_many_pages_give_every_document_once_with_chunks_that_lie_far_apart(server, opened, monkeypatch):
    from workbench_stores.postgres import source

    with server.cems("apart", 4) as connection:
        for i in range(40):
            vectors = [np.full(4, i + 1.0), np.full(4, i + 2.0)]
            load(
                connection,
                document(i) | {"content": f"{i} {random.Random(i).randbytes(700).hex()}"},
                [LoadedChunk(f"{i} {i}", each) for each in vectors],
            )
        late = "INSERT INTO memory_chunks (document_id, seq, pos, content, embedding) SELECT document_id, 2, 0, content, embedding "
        connection.execute(late + "FROM memory_chunks WHERE seq = 0")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        in_one_page, found = taken(opened(database="apart"))
        monkeypatch.setattr(source, "PAGE_BLOCKS", 1)
        batches, again = taken(opened(database="apart"))
        assert len(batches) > 5 > len(in_one_page)
        assert [id for batch in batches for id in batch.seen] == [str(uuid_of(f"m{i}")) for i in range(40)]
        assert {id: each.marker for id, each in again.items()} == {id: each.marker for id, each in found.items()}
        assert [len(each.chunks) for each in again.values()] == [3] * 40


def test_an_older_server_is_read_and_what_it_lacks_is_named(server: Server, opened: Opened) -> None:
    with server.cems("older", 8) as connection:
        load(connection, document(1), chunks(1))
        connection.execute("DROP TABLE memory_relations")
        connection.execute("ALTER TABLE memory_chunks DROP COLUMN content_tsv")
        connection.execute(
            "ALTER TABLE memory_documents DROP COLUMN team_id, DROP COLUMN shown_count, DROP COLUMN last_shown_at"
        )
        connection.execute("ALTER TABLE memory_documents ADD COLUMN weight real")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        source = opened(database="older")
        probe = source.probe()
        assert probe.lists == ("vector",)
        assert [said.split(":")[0] for said in probe.missing] == [
            "memory_documents has no team_id",
            "memory_documents has no shown_count",
            "memory_documents has no last_shown_at",
            "memory_chunks has no content_tsv",
            "memory_relations is missing or may not be read",
        ]
        assert probe.notes == ("columns of memory_documents that are not imported: weight",)
        memory = taken(source)[1][str(uuid_of("m1"))].memory
        assert memory.access_count == 0 and memory.last_accessed == memory.updated_at
        with source.snapshot() as snapshot:
            assert list(snapshot.relations()) == []


def test_a_password_of_pgpass_is_used(cems: Connection, server: Server, tmp_path: Path) -> None:
    kept = tmp_path / "pgpass"
    kept.write_text(f"*:*:cems:reader:{PASSWORD}\n", "utf-8")
    kept.chmod(0o600)
    address = parse(server.address("cems", "reader", passfile=str(kept)), {})
    assert address.secret is None
    source = open_source(address)
    assert source.probe().memories == 12
    source.close()


def test_no_traceback_has_the_password(cems: Connection, opened: Opened) -> None:
    import traceback

    for arguments in ({"password": "another-5521"}, {"database": "nowhere"}):
        with pytest.raises(SourceError) as error:
            opened(**arguments)
        told = "".join(traceback.format_exception(error.value))
        assert PASSWORD not in told and "another-5521" not in told
