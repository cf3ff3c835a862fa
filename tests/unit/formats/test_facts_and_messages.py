"""Facts and messages: short rows that become sentences."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import pytest

from cems_workbench.formats import detect, read
from cems_workbench.records import Memory

FACT = {"subject": "Mira", "predicate": "works on", "object": "harbor/api"}


def problems(parsed):
    return [(error.row, error.field, error.reason) for error in parsed.errors]


def hashed(prefix, text):
    return f"{prefix}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def test_a_fact_is_read_as_a_sentence_with_an_id_from_what_it_says(write):
    parsed = read(write("x.jsonl", FACT))
    assert parsed.memories == (Memory(hashed("f", "Mira works on harbor/api"), "Mira works on harbor/api"),)
    assert (parsed.format, parsed.notes) == ("facts-jsonl", ())


def test_a_fact_keeps_its_id_and_the_fields_of_a_memory(write):
    row = {**FACT, "id": 7, "created_at": "2024-05-08", "session": "s", "project": "p", "tags": ["t"], "priority": 1.5}
    memory = read(write("x.json", [row])).memories[0]
    assert (memory.id, memory.session, memory.project, memory.tags, memory.priority) == ("7", "s", "p", ("t",), 1.5)
    assert memory.created_at == datetime(2024, 5, 8, tzinfo=UTC)


def test_facts_of_graphiti_hold_from_valid_at_until_invalid_at_or_expired_at(write):
    rows = [
        FACT | {"id": "a", "valid_at": "2024-05-01", "invalid_at": "2024-06-01", "expired_at": "2024-07-01"},
        FACT | {"id": "b", "valid_at": None, "expired_at": "2024-07-01"},
        FACT | {"id": "c", "valid_at": "2024-05-01", "invalid_at": "2024-04-01"},
    ]
    parsed = read(write("x.jsonl", *rows))
    bounds = [(memory.valid_from, memory.valid_until) for memory in parsed.memories]
    months = [tuple(moment and moment.month for moment in both) for both in bounds]
    assert months == [(5, 6), (None, 7), (5, None)]
    assert [(row, field) for row, field, _ in problems(parsed)] == [(3, "invalid_at")]
    # Graphiti (graphiti-core 0.31.2, run on 2026-11-29) sets both, and expired_at is known: formats.md says so.
    said = "field 'expired_at' says valid_until, as another field of the row does, and was left out (1 rows)"
    assert parsed.notes == (said,)


def test_facts_about_numbers_and_facts_that_are_none(write):
    rows = [
        {**FACT, "object": 42},
        {**FACT, "object": 1.5},
        {**FACT, "object": None},
        {**FACT, "subject": " "},
        {**FACT, "object": True},
        '{"subject": "a", "predicate": "is", "object": NaN}',
        {**FACT, "content": "something else"},
        FACT,
    ]
    parsed = read(write("x.jsonl", *rows))
    assert [memory.content for memory in parsed.memories] == [
        "Mira works on 42",
        "Mira works on 1.5",
        "Mira works on harbor/api",
    ]
    assert [(row, field) for row, field, _ in problems(parsed)] == [
        (3, "object"),
        (4, "subject"),
        (5, "object"),
        (6, "object"),
        (8, "id"),
    ]
    assert parsed.notes == ("field 'content' is not known and was left out (1 rows)",)


@pytest.mark.parametrize("speaker", ["author", "speaker", "role"])
@pytest.mark.parametrize("words", ["content", "text"])
def test_a_message_is_read_as_its_author_says_it(write, speaker, words):
    path = write("x.jsonl", {speaker: "Ann", words: "Hello"})
    parsed = read(path)
    assert parsed.memories == (Memory(hashed("m", "Ann: Hello"), "Ann: Hello", author="Ann"),)
    assert (detect(path), parsed.notes) == ("messages-jsonl", ())


def test_a_message_keeps_its_id_and_the_fields_of_a_memory(write):
    row = {"id": "m1", "role": "user", "content": "Hi", "session": "s", "project": "p", "created_at": "2024-05-08"}
    memory = read(write("x.json", [row])).memories[0]
    assert memory == Memory(
        "m1", "user: Hi", project="p", session="s", author="user", created_at=datetime(2024, 5, 8, tzinfo=UTC)
    )


def test_the_same_word_said_again_is_another_message_only_at_another_time_or_place(write):
    rows = [{"role": "user", "text": "yes", "session": s, "created_at": t} for s in "ab" for t in ("2024", "2025")]
    dated = [{**row, "created_at": f"{row['created_at']}-01-01"} for row in rows]
    parsed = read(write("x.jsonl", *dated, dated[0]))
    assert len({memory.id for memory in parsed.memories}) == 4
    assert [row for row, _, _ in problems(parsed)] == [5]
    assert read(write("y.jsonl", *reversed(dated))).memories == tuple(reversed(parsed.memories))


def test_messages_that_say_nothing_are_reported(write):
    rows = [{"role": "user"}, {"text": "x"}, {"role": "a", "content": ["x"]}, {"role": 5, "text": "x"}]
    parsed = read(write("x.jsonl", *rows), "messages-jsonl")
    assert problems(parsed) == [
        (1, "content", "is missing, and so is text"),
        (2, "author", "is missing, and so is speaker and role"),
        (3, "content", "must be a string, found a list"),
        (4, "role", "must be a string, found a number"),
    ]


@pytest.mark.parametrize(
    ("row", "format"),
    [
        ({"id": "a", "content": "x", "author": "Ann"}, "memories-jsonl"),
        ({"id": "a", "content": "x", "author": "Ann", "title": "T"}, "memories-jsonl"),
        ({"id": "a", "content": "x", "speaker": "Ann"}, "messages-jsonl"),
        ({"id": "a", "text": "x", "author": "Ann"}, "messages-jsonl"),
        ({**FACT, "content": "x", "id": "a"}, "memories-jsonl"),
    ],
)
def test_a_memory_with_an_author_or_a_subject_stays_a_memory(write, row, format):
    assert detect(write("x.jsonl", row)) == format
