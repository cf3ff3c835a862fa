"""Which memories changed since a content version: what an index has to read to catch up, and no more."""

from __future__ import annotations

from dataclasses import replace

from cems_workbench.records import Chunk, Memory, ParsedInput
from cems_workbench.store import Store, chunks, memories
from cems_workbench.store.rows import content_identity, earlier_identity, read_content_version


def changed(store: Store, since: int) -> list[str]:
    with store._database.reading() as cursor:
        return memories.changed_since(cursor, since)


def test_a_memory_changes_when_its_text_labels_or_chunks_do_and_when_it_leaves_or_comes_back(
    store: Store, rows
) -> None:
    first = [Memory(name, f"text of {name}") for name in "abcde"]
    since = store.add(rows(first)).content_version
    assert changed(store, since - 1) == list("abcde") and changed(store, since) == []
    store.add(rows([replace(first[0], content="another"), replace(first[1], project="p"), *first[2:]]))
    assert changed(store, since) == ["a", "b"]
    since = store.content_version
    store.memories.delete("c")
    assert changed(store, since) == ["c"]
    since = store.content_version
    store.memories.restore("c")
    store.memories.update(replace(first[3], title="a title"))
    assert changed(store, since) == ["c", "d"]
    since = store.content_version
    store.add(ParsedInput("chunks", "test", chunks=(Chunk("e", 0, "text"), Chunk("e", 1, "of e"))))
    assert changed(store, since) == ["e"]


def test_what_no_search_reads_is_no_change(store: Store, rows) -> None:
    memory = Memory("a", "text", access_count=1)
    store.add(rows([memory]))
    since = store.content_version
    store.memories.count_feedback({"a": (2, 1)})
    store.add(rows([replace(memory, access_count=7, tags=("t",))]))
    assert store.content_version == since + 2 and changed(store, since) == []


def test_a_memory_that_is_cut_changes_and_is_looked_at_once(store: Store, embedder, rows) -> None:
    store.chunks.choose("cems")
    store.add(rows([Memory("long", "A sentence of some words. " * 300), Memory("short", "text")]))
    version = store.content_version
    chunks.refresh_chunks(store._database, embedder, lambda *_: None)
    with store._database.transaction() as cursor:
        assert len(chunks.read(cursor, ["long"])["long"]) > 1
        cursor.execute("DELETE FROM chunked")  # nobody does that; it would be seen if all were looked at again
    store.add(rows([Memory("longer", "Another sentence of some words. " * 300)]))
    chunks.refresh_chunks(store._database, embedder, lambda *_: None)
    with store._database.reading() as cursor:
        assert [row[0] for row in cursor.execute("SELECT memory_id FROM chunked").fetchall()] == ["longer"]
    assert changed(store, version) == ["longer"]


def test_the_store_knows_which_contents_it_has_had(store: Store, rows) -> None:
    store.add(rows([Memory("a", "text")]))
    with store._database.reading() as cursor:
        version, identity = read_content_version(cursor), content_identity(cursor)
    store.add(rows([Memory("b", "text")]))
    with store._database.reading() as cursor:
        assert earlier_identity(cursor, version) == identity != content_identity(cursor)
        assert earlier_identity(cursor, version + 1) == content_identity(cursor)
        assert earlier_identity(cursor, version + 2) is None
