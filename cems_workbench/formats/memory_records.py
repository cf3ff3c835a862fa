"""Memories as memory libraries return or export them, as .json or JSON lines, with their ids.

| from | rows |
| mem0 `get_all` | `{results: [{id, memory, metadata, user_id, …}]}` or the list |
| LangGraph stores | `{namespace, key, value, created_at, updated_at}`; the id is namespace/key, as in its tables |
| Graphiti, Zep | edges or facts: `{uuid, fact, valid_at, invalid_at, …}` |
| Letta | passages: `{id, text, …}` under `passages` |
| LangChain, Haystack | documents: `{id, page_content, metadata}`, also as LangChain dumps them |
| Qdrant | points: `{id, payload}`, also as REST answers |
| Chroma `get` | `{ids: […], documents: […], metadatas: […]}` |

Fields are read by the names that `connect` knows (`base/memory_fields.py:NAMES`). Vectors are not taken. Answers with scores are no
memories: they are what a query found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base import fields, payload
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.files import SAMPLE_LINES, Sample, read_records, type_name
from cems_workbench.formats.base.format import Format
from cems_workbench.formats.base.memory_fields import TEXTS
from cems_workbench.formats.base.records import MemoryRead, memories_of
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, RowError

NAME = "memory-records"
ANY_NAME = payload.names_of(None)
LISTS = ("results", "memories", "items", "passages", "edges", "facts", "points", "documents", "data", "result")
"""Where an answer has its rows."""
IDS = ("id", "_id", "uuid", "id_", "node_id", "memory_id")
SCORES = ("score", "distance", "similarity")
VECTORS = ("vector", "vectors", "embedding", "embeddings")
MAX_DEPTH = 3


def parse_record(row: dict[str, Any]) -> MemoryRead:
    """One memory, and its fields that could not be read; raises FieldError without an id or a text."""
    name = next((name for name in IDS if row.get(name) is not None), IDS[0])
    text = payload.text_of(None, row, ANY_NAME)
    if text is None:
        found = ANY_NAME.found(row, "content")
        raise FieldError(found or "content", "is missing" if found is None else "has no text")
    return payload.memory_of(fields.identifier(row, name), text, row, ANY_NAME)


def unread(row: dict[str, Any]) -> list[str]:
    """The fields of such a row that no field of a memory is read from."""
    return payload.unread(row, ANY_NAME, (*IDS, "_node_content"))


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the memories of a file; raises InputError when it cannot be read."""
    errors: list[RowError] = []
    collected = memories_of(path, _rows(path, errors, progress), parse_record, unread, errors)
    if not collected.records and not errors:
        raise InputError(f"{path}: has no memory")
    return collected.parsed(path, NAME, "memories", errors)


def _rows(path: Path, errors: list[RowError], progress: Progress) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, row in read_records(path, errors, progress):
        items = _items(row)
        if items is None:
            yield number, flat(row)
            continue
        for place, item in enumerate(items, start=1):
            if isinstance(item, dict):
                yield place, flat(item)
            else:
                errors.append(RowError(str(path), place, f"must be an object, found {type_name(item)}"))


def _items(row: Mapping[str, Any], depth: int = MAX_DEPTH) -> list[Any] | None:
    """The rows within an answer; None for a row."""
    if "ids" in row and isinstance(row.get("documents"), list):
        return _of_columns(row)
    for name in LISTS:
        inner = row.get(name)
        if isinstance(inner, list):
            return inner
        if isinstance(inner, dict) and depth and (found := _items(inner, depth - 1)) is not None:
            return found
    return None


def _of_columns(row: Mapping[str, Any]) -> list[Any]:
    """The rows of Chroma's columns; those of a query, a list for each, are none."""
    ids = row["ids"] if isinstance(row["ids"], list) else []
    if any(isinstance(each, list) for each in ids):
        return []
    metadatas = row.get("metadatas") or []
    return [
        {**(metadatas[i] or {} if i < len(metadatas) else {}), "id": name, "document": text}
        for i, (name, text) in enumerate(zip(ids, row["documents"], strict=False))
    ]


def flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the fields of a memory side by side, without its vectors."""
    if isinstance(row.get("kwargs"), dict) and "lc" in row:
        row = row["kwargs"]
    if isinstance(row.get("payload"), dict):
        row = {**row["payload"], "id": row.get("id")}
    elif isinstance(row.get("value"), dict) and "key" in row:
        namespace = row.get("namespace")
        prefix = ".".join(map(str, namespace)) if isinstance(namespace, list) else str(namespace or "")
        times = {name: row[name] for name in ("created_at", "updated_at") if row.get(name) is not None}
        row = {
            "project": prefix or None,
            **row["value"],
            **times,
            "id": f"{prefix}/{row['key']}" if prefix else row["key"],
        }
    return {name: value for name, value in row.items() if name not in VECTORS}


def _is_record(row: Any) -> bool:
    if not isinstance(row, dict) or any(row.get(name) is not None for name in SCORES):
        return False
    if isinstance(row.get("payload"), dict) and "id" in row:
        return payload.text_of(None, row["payload"], ANY_NAME) is not None
    if isinstance(row.get("value"), dict) and {"key", "namespace"} <= row.keys():
        return True
    if "lc" in row and isinstance(row.get("kwargs"), dict):
        return "page_content" in row["kwargs"]
    named = any(row.get(name) is not None for name in IDS)
    return named and any(isinstance(row.get(name), str) for name in TEXTS)


def sniff(sample: Sample) -> bool:
    """Rows as above, or an answer with such rows; bare `{id, text}`, which may be anything, in a file called memories alone."""
    document = sample.document
    rows: Any = document if isinstance(document, list) else sample.rows
    if isinstance(document, dict) and (items := _items(document)) is not None:
        if "ids" in document or "passages" in document:
            return bool(items) and not any(isinstance(each, dict) and "score" in each for each in items)
        rows = items
    if _is_called_memories(sample.path) and all(map(_is_bare, rows[:SAMPLE_LINES])):
        return bool(rows)
    return any(map(_is_record, rows[:SAMPLE_LINES]))


def _is_called_memories(path: Path) -> bool:
    return path.stem.lower().startswith("memor")


def _is_bare(row: Any) -> bool:
    """Whether a row is an id and a text, without a name that says what the text is."""
    return isinstance(row, dict) and row.keys() <= {"id", "text", "metadata"} and {"id", "text"} <= row.keys()


FORMAT = Format(
    NAME,
    "memories as mem0, LangGraph, Graphiti, Zep, Letta, LangChain, Qdrant or Chroma return them",
    order=0,
    sniff=sniff,
    read=read,
    suffixes=(".jsonl", ".json", ".ndjson"),
    breadth=1,
    place=11,
    shape="objects with an id and memory, page_content, fact, payload or value, and no score",
    needs=(("id", "_id", "uuid", "memory_id"), ("memory", "page_content", "fact", "data", "payload", "value")),
)
