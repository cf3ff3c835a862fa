"""Where PostgreSQL's rows lie, and how its values are compressed, as the server did it."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pg_text_search import heap
from pg_text_search.heap import (
    DocumentRow,
    HeapRow,
    compressed_size,
    heap_order,
    order_of_lengths,
    row_length,
    text_array_bytes,
    tsvector_bytes,
)
from pg_text_search.ts_rank import lexemes

SAMPLE = Path(__file__).resolve().parents[3] / "sample_data"


def row(text: str, dimension: int = 384) -> HeapRow:
    return HeapRow(text, dimension, lexemes(text))


def with_moved(ids: Iterable[Any], behind: Mapping[Any, Any]) -> list[Any]:
    """The ids in their order, but each key of `behind` right behind its value."""
    moved = [row for row in ids if row not in behind]
    for late, before in behind.items():
        moved.insert(moved.index(before) + 1, late)
    return moved


def words(count: int) -> str:
    return " ".join(f"w{i}" for i in range(count))


LENGTHS: Mapping[str, tuple[str, int, int, int]] = {
    "no text": ("", 101, 1637, 109),
    "a word": ("w7", 111, 1647, 119),
    "the longest with a short header": ("a" * 126, 366, 1894, 374),
    "the shortest with a long header": ("a" * 127, 368, 1904, 376),
    "text compressed out of the way of the vector": ("w7 " * 100, 616, 1864, 624),
    "vector out of line, nothing compressed": (words(60), 1036, 1044, 1044),
    "tsvector out of line": (words(200), 1010, 1010, 1010),
    "text compressed, tsvector and vector out of line": (words(450), 1634, 1634, 1634),
    "text and tsvector out of line, vector inside": (
        " ".join(f"w{i * i * 7919 % 99991}" for i in range(400)),
        130,
        1666,
        138,
    ),
    "text compressed to 61 bytes": ("a" * 5000, 173, 1701, 173),
}


@pytest.mark.parametrize(("text", "at_2", "at_384", "at_768"), LENGTHS.values(), ids=LENGTHS.keys())
def test_length_of_a_row_is_the_servers(text: str, at_2: int, at_384: int, at_768: int) -> None:
    assert [row_length(row(text, dimension)) for dimension in (2, 384, 768)] == [at_2, at_384, at_768]


def test_length_of_a_row_by_hand() -> None:
    text = 24 + 16 + 16 + 4 + 4 + (1 + 13)  # the row's header, id, document_id, seq, pos, "deploy friday"
    vector = 80 + (4 + 4 + 4 * 384)  # from the next multiple of 4
    created_at = 1632 + 8  # tokens and bytes end at 1632, a multiple of 8
    lexemes = 1 + 4 + 2 * 4 + (6 + 2 + 2) + (6 + 2 + 2)
    assert (text, vector + 4 + 4) == (78, 1632)
    assert row_length(row("deploy friday")) == created_at + lexemes


def test_tsvector_holds_lexemes_in_the_order_of_their_bytes_with_positions_at_even_places() -> None:
    stored = tsvector_bytes({"größe": [1, 2], "der": [3], "blöcke": [4]})
    assert stored[:4] == (3).to_bytes(4, "little")
    assert stored[16:] == (
        "blöcke".encode() + b"\0\x01\0\x04\0" + b"der" + b"\0\x01\0\x03\0" + "größe".encode() + b"\0\x02\0\x01\0\x02\0"
    )
    assert len(stored) == 50


@pytest.mark.parametrize(
    ("document", "length"),
    [
        (DocumentRow("", "", "personal", "general"), 132),
        (
            DocumentRow(
                "text", "h" * 64, "personal", "general", ["a", "größe"], "Title", None, "project:a/b", shown=True
            ),
            256,
        ),
        (DocumentRow("w7 " * 900, "h" * 64, "shared", "general", ["tag"]), 252),
    ],
    ids=["least", "most columns", "content compressed"],
)
def test_length_of_a_document_is_the_servers(document: DocumentRow, length: int) -> None:
    assert row_length(document) == length


def test_array_has_its_texts_at_multiples_of_four() -> None:
    stored = text_array_bytes(["a", "größe"])
    assert stored[20:] == b"\x14\0\0\0a\0\0\0" + b"\x2c\0\0\0" + "größe".encode() + b"\0"
    assert len(text_array_bytes([])) == 12


def test_short_row_fills_the_hole_that_long_ones_left() -> None:
    """Four long rows leave 8,168 - 4 · (1,904 + 4) = 536 bytes of a page, room for one short row of 376 + 4."""
    long, short = row("a" * 127), row("a" * 127, 768)
    assert (row_length(long), row_length(short)) == (1904, 376)
    assert heap_order([long] * 4 + [short] * 2) == [0, 1, 2, 3, 4, 5]
    assert heap_order([long] * 8 + [short] * 3) == [0, 1, 2, 3, 9, 4, 5, 6, 7, 8, 10]
    assert order_of_lengths([1904] * 8 + [376] * 3) == [0, 1, 2, 3, 9, 4, 5, 6, 7, 8, 10]


def test_order_of_rows_is_the_servers() -> None:
    rows = [row(words(i * i * 7 % 61 + i * 13 % 17)) for i in range(120)]
    moved = {53: 19, 54: 36, 65: 59, 75: 65, 112: 97}
    expected = with_moved(range(120), moved)
    assert heap_order(rows) == expected


def test_too_many_rows_keep_the_order_of_insertion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "MAX_ROWS", 119)
    assert heap_order([row(words(i * i * 7 % 61 + i * 13 % 17)) for i in range(120)]) == list(range(120))


def test_sample_lies_as_it_did_in_the_recorded_server() -> None:
    """With MiniLM's vectors of 384; all other memories lie in the order of the file."""
    behind = {
        "m012": "m005",
        "m047": "m021",
        "m048": "m026",
        "m049": "m030",
        "m134": "m041",
        "m157": "m054",
        "m174": "m058",
        "m190": "m064",
        "m230": "m074",
        "m231": "m230",
        "m232": "m078",
        "m233": "m232",
        "m255": "m105",
        "m256": "m255",
        "m275": "m118",
        "m276": "m125",
        "m283": "m152",
        "m337": "m156",
        "m434": "m161",
        "m257": "m243",
        "m274": "m254",
        "m338": "m298",
        "m353": "m325",
        "m412": "m393",
        "m413": "m403",
    }
    memories = sample()
    order = heap_order([HeapRow(memory["content"], 384, lexemes(memory["content"])) for memory in memories.values()])
    assert [list(memories)[index] for index in order] == with_moved(memories, behind)


def test_documents_of_the_sample_lie_as_in_a_real_server() -> None:
    behind = {
        "m061": "m035",
        "m062": "m061",
        "m063": "m046",
        "m108": "m093",
        "m217": "m200",
        "m340": "m253",
        "m361": "m350",
        "m438": "m360",
    }
    memories = sample()
    documents = [
        DocumentRow(
            memory["content"],
            hashlib.sha256(memory["content"].encode()).hexdigest(),
            "personal",
            memory["category"],
            memory.get("tags", ()),
            memory.get("title"),
            source_ref=f"project:{memory['project']}" if memory.get("project") else None,
            shown=bool(memory.get("last_accessed")),
        )
        for memory in memories.values()
    ]
    order = heap_order(documents)
    assert [list(memories)[index] for index in order] == with_moved(memories, behind)


def sample() -> dict[str, Any]:
    """Memories by id, in the order of the file."""
    lines = (SAMPLE / "memories.jsonl").read_text(encoding="utf-8").splitlines()
    return {memory["id"]: memory for memory in map(json.loads, lines)}


PROSE = "The retry budget of worker {} is {} seconds and the queue drains every {} minutes."


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("x" * 5000, 61),
        ("abcdefgh " * 60, 17),
        ("w7 " * 100, 10),
        (" ".join(PROSE.format(i, i * 7 % 60, i * 3 % 20) for i in range(8)), 179),
        (" ".join(PROSE.format(i, i * 7 % 60, i * 3 % 20) for i in range(30)), 388),
        (" ".join(PROSE.format(i * i, i * 7 % 60, i * 3 % 20) for i in range(60)), 641),
        (" ".join(f"w{i}" for i in range(450)), 1509),
    ],
    ids=["a run", "a phrase", "a word", "8 sentences", "30 sentences", "60 sentences", "numbered words"],
)
def test_size_is_the_servers(text: str, size: int) -> None:
    assert compressed_size(text.encode()) == size


def test_value_that_saves_less_than_a_quarter_stays_as_it_is() -> None:
    assert compressed_size(" ".join(f"w{i}" for i in range(200)).encode()) is None


def test_value_without_a_repetition_in_the_first_kilobyte_stays_as_it_is() -> None:
    random_ = random.Random(3)
    different = bytes(random_.randrange(33, 127) for _ in range(950))
    assert compressed_size(different[:900] + b"x" * 9000) is not None
    assert compressed_size(different + b"x" * 9000) is None


def test_short_value_stays_as_it_is() -> None:
    assert compressed_size(b"x" * 31) is None
    assert compressed_size(b"x" * 32) is not None


def test_work_ends_once_enough_is_out() -> None:
    numbered = " ".join(f"w{i}" for i in range(450)).encode()
    assert compressed_size(numbered, enough=1509) == 1509
    partly = compressed_size(numbered, enough=700)
    assert partly is not None
    assert 700 < partly < 720
