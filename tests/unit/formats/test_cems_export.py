"""CEMS exports: documents, with their chunks, become memories."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cems_workbench.formats import detect, read
from cems_workbench.records import Chunk, Memory

USER = "6a1f0c52-8a55-4a0e-9d0c-000000000001"
DOCUMENT = {
    "id": "d1",
    "user_id": USER,
    "team_id": None,
    "scope": "shared",
    "category": "decision",
    "title": "T",
    "source": "hook",
    "source_ref": "project:harbor/api:src/app.py",
    "tags": ["a"],
    "content": "words",
    "created_at": "2024-05-08 13:56:00.12345+00",
    "updated_at": "2024-05-09T00:00:00Z",
    "deleted_at": None,
    "shown_count": 4,
    "last_shown_at": "2024-05-10T00:00:00Z",
    "relevant_count": 2,
    "noise_count": 1,
}


def problems(parsed):
    return [(error.row, error.field, error.reason) for error in parsed.errors]


def contents(parsed):
    return {memory.id: memory.content for memory in parsed.memories}


def test_the_fields_of_a_document(write):
    parsed = read(write("x.jsonl", DOCUMENT))
    assert parsed.memories == (
        Memory(
            id="d1",
            content="words",
            title="T",
            category="decision",
            project="harbor/api",
            author=USER,
            tags=("a",),
            created_at=datetime(2024, 5, 8, 13, 56, 0, 123450, tzinfo=UTC),
            last_accessed=datetime(2024, 5, 10, tzinfo=UTC),
            access_count=4,
            relevant_count=2,
            noise_count=1,
            scope="shared",
            source_ref="project:harbor/api:src/app.py",
            updated_at=datetime(2024, 5, 9, tzinfo=UTC),
        ),
    )
    assert (parsed.format, parsed.errors, parsed.notes) == ("cems-export", (), ())


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("x.json", [[DOCUMENT]]),
        ("x.json", [DOCUMENT]),
        ("x.json", [{"documents": [DOCUMENT], "chunks": []}]),
        ("x.jsonl", [{"documents": [DOCUMENT]}]),
        ("x.txt", [DOCUMENT]),
    ],
)
def test_a_list_an_object_or_lines(write, name, rows):
    path = write(name, *rows)
    assert detect(path) == "cems-export"
    assert contents(read(path)) == {"d1": "words"}


@pytest.mark.parametrize(
    ("source_ref", "project"),
    [
        ("project:org/repo", "org/repo"),
        ("project:org/repo#12", "org/repo"),
        ("project:org/repo and more", "org/repo"),
        ("project:", None),
        ("slack:project:org/repo", None),
        (None, None),
    ],
)
def test_the_project_ends_at_a_colon_a_hash_or_a_blank(write, source_ref, project):
    assert read(write("x.jsonl", {**DOCUMENT, "source_ref": source_ref})).memories[0].project == project


@pytest.mark.parametrize(
    ("absent", "accessed"),
    [((), 10), (("last_shown_at",), 9), (("last_shown_at", "updated_at"), 8)],
)
def test_last_accessed_is_when_it_was_shown_or_updated_or_created(write, absent, accessed):
    row = {name: value for name, value in DOCUMENT.items() if name not in absent}
    assert read(write("x.jsonl", row)).memories[0].last_accessed.day == accessed


@pytest.mark.parametrize(("scope", "kept"), [("personal", "personal"), ("team", "shared"), ("company", "shared")])
def test_scopes_of_a_team_or_company_are_shared(write, scope, kept):
    assert read(write("x.jsonl", {**DOCUMENT, "scope": scope})).memories[0].scope == kept


def test_deleted_documents_are_left_out_and_counted(write):
    deleted = {**DOCUMENT, "deleted_at": "2024-06-01T00:00:00Z"}
    chunk = {"document_id": "d3", "content": "gone"}
    parsed = read(write("x.jsonl", {**deleted, "id": "d2"}, DOCUMENT, {**deleted, "id": "d3", "content": None}, chunk))
    assert contents(parsed) == {"d1": "words"}
    assert (parsed.errors, parsed.notes) == ((), ("2 deleted documents were left out",))


@pytest.mark.parametrize("place", ["seq", "chunk_index", "index"])
def test_a_document_without_content_has_that_of_its_chunks_in_their_order(write, place):
    chunks = [{"document_id": "d1", place: n, "content": f"part {n}"} for n in (10, 0, 2)]
    bare = {name: value for name, value in DOCUMENT.items() if name != "content"}
    joined = {"d1": "part 0\npart 2\npart 10"}
    assert contents(read(write("a.json", {"documents": [bare], "chunks": chunks}))) == joined
    assert contents(read(write("b.jsonl", chunks[0], bare, *chunks[1:]))) == joined
    assert contents(read(write("c.jsonl", {**bare, "content": " ", "chunks": chunks}))) == joined


def test_chunks_without_a_place_stay_in_the_order_of_the_file(write):
    assert contents(read(write("x.jsonl", {"id": "a", "chunks": ["x", {"content": "y"}, "z"]}))) == {"a": "x\ny\nz"}


def test_chunks_do_not_touch_a_document_with_content(write):
    parsed = read(write("x.jsonl", DOCUMENT, {"document_id": "d1", "seq": "broken", "content": 5}))
    assert (contents(parsed), parsed.errors) == ({"d1": "words"}, ())


def test_chunks_are_kept_as_they_are_in_the_order_of_their_places(write):
    chunks = [{"document_id": "d1", "seq": n, "content": text} for n, text in ((2, "two three"), (0, "one two"))]
    parsed = read(write("x.json", {"documents": [{**DOCUMENT, "content": "one two three"}], "chunks": chunks}))
    assert parsed.chunks == (Chunk("d1", 0, "one two", 0), Chunk("d1", 1, "two three", 4))


def test_a_chunk_that_is_not_in_its_document_has_no_start(write):
    parsed = read(write("x.jsonl", {**DOCUMENT, "chunks": ["other", "\ufffdds"]}))
    assert parsed.chunks == (Chunk("d1", 0, "other", None), Chunk("d1", 1, "\ufffdds", 2))


def test_a_document_with_a_chunk_without_text_is_left_to_the_store_to_cut(write):
    parsed = read(write("x.jsonl", {**DOCUMENT, "chunks": ["words", {"seq": 1, "embedding": [0.1]}]}))
    assert (parsed.chunks, parsed.errors) == ((), ())
    assert "1 documents have a chunk without text" in parsed.notes[0]


def test_rows_that_are_chunks_alone_make_their_document(write):
    rows = [{"document_id": "d", "id": f"c{n}", "seq": n, "content": f"p{n}", "title": "T"} for n in (1, 0)]
    parsed = read(write("x.jsonl", *rows))
    assert parsed.memories == (Memory("d", "p0\np1", "T"),)
    assert parsed.notes == ("1 documents are in the file only as chunks and were put together from them",)


def test_broken_rows_are_reported_where_they_stand(write):
    documents = [DOCUMENT, 5, {"id": "d2", "chunks": ["x", 5]}, {**DOCUMENT, "scope": "world"}, {"id": "d4"}, DOCUMENT]
    chunks = [{"document_id": "d2", "seq": -1, "content": "y"}, {"content": "z"}]
    parsed = read(write("x.json", {"documents": documents, "chunks": chunks}))
    assert contents(parsed) == {"d1": "words", "d2": "x"}
    assert problems(parsed) == [
        (1, "chunks[1].seq", "must be a whole number from 0, found -1"),
        (2, "documents[2]", "must be an object, found a number"),
        (2, "chunks[2].document_id", "is missing"),
        (3, "documents[3].chunks[2]", "must be an object or a string, found a number"),
        (4, "scope", "must be one of personal, shared, team, company, found 'world'"),
        (5, "content", "is missing"),
        (6, "id", "'d1' stands already in row 1"),
    ]


def test_unknown_fields_are_noted(write):
    parsed = read(write("x.jsonl", {**DOCUMENT, "pinned": True}))
    assert parsed.notes == ("field 'pinned' is not known and was left out (1 rows)",)


@pytest.mark.parametrize(
    "row",
    [
        {"id": "a", "content": "x", "project": "p", "user_id": "u"},
        {"id": "a", "content": "x", "tags": ["x"], "scope": "shared", "source_ref": "project:a/b"},
    ],
)
def test_a_row_of_memories_jsonl_is_no_cems_document(write, row):
    assert detect(write("x.jsonl", row)) == "memories-jsonl"
