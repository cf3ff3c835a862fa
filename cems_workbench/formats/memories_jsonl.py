"""memories.jsonl: one memory a line, or a .json file with a list of them.

`{id, content, title?, category?, project?, session?, author?, tags?, priority?, pinned?, importance?, created_at?,
last_accessed?, access_count?, relevant_count?, noise_count?, scope?, source_ref?,
updated_at?, valid_from?, valid_until?}`

A field that is absent is read under the names that other systems give it (`base/memory_fields.py:NAMES`), also within `metadata`. A field
that cannot be read costs the field; without an id or content there is no memory.
"""

from __future__ import annotations

from dataclasses import MISSING, replace
from dataclasses import fields as dataclass_fields
from datetime import datetime
from pathlib import Path
from typing import Any

from cems_workbench.formats.base import fields, memory_fields, payload
from cems_workbench.formats.base.dataset import DataSet, Exported, json_line, write_rows
from cems_workbench.formats.base.files import Sample
from cems_workbench.formats.base.format import DatasetWriter, Format
from cems_workbench.formats.base.records import MemoryRead, read_memory_rows
from cems_workbench.progress import Progress
from cems_workbench.records import IMPORTANCE, Memory, ParsedInput

NAME = "memories-jsonl"
ANY_NAME = payload.names_of(None)
KNOWN = tuple(field.name for field in dataclass_fields(Memory))


def parse_memory(row: dict[str, Any]) -> Memory:
    """One memory; raises FieldError."""
    valid_from, valid_until = fields.validity(row)
    return Memory(
        id=fields.identifier(row, "id"),
        content=fields.required_text(row, "content"),
        title=fields.text(row, "title"),
        category=fields.text(row, "category"),
        project=fields.text(row, "project"),
        session=fields.text(row, "session"),
        author=fields.text(row, "author"),
        tags=fields.tags(row, "tags"),
        priority=fields.number(row, "priority", 1.0, 2.0, 1.0),
        pinned=fields.flag(row, "pinned"),
        importance=fields.choice(row, "importance", IMPORTANCE, "normal"),
        created_at=fields.moment(row, "created_at"),
        last_accessed=fields.moment(row, "last_accessed"),
        access_count=fields.count(row, "access_count"),
        relevant_count=fields.count(row, "relevant_count"),
        noise_count=fields.count(row, "noise_count"),
        scope=fields.choice(row, "scope", ("personal", "shared"), "personal"),
        source_ref=fields.text(row, "source_ref"),
        updated_at=fields.moment(row, "updated_at"),
        valid_from=valid_from,
        valid_until=valid_until,
    )


def read_memory(row: dict[str, Any]) -> MemoryRead:
    """One memory under any of the known names, and its fields that could not be read; raises FieldError without id or content."""
    name, content = fields.identifier(row, "id"), fields.required_text(row, "content")
    found, values = payload.found_values(row, ANY_NAME)
    memory, problems = memory_fields.memory_of(name, content, values, found)
    if memory.project and "project" not in found:  # the one of source_ref, which CEMS alone means so
        memory = replace(memory, project=None)
    if isinstance(row.get("tags"), list) and not any(each.field == "tags" for each in problems):
        # Ours are kept as they are, blanks too.
        tags = tuple([tag for tag in row["tags"] if tag is not None])
        memory = memory if tags == memory.tags else replace(memory, tags=tags)
    return memory, problems


def unread(row: dict[str, Any]) -> list[str]:
    """The fields of such a row that no field of a memory is read from."""
    return payload.unread(row, ANY_NAME, ("id", "content"))


def as_row(memory: Memory) -> dict[str, Any]:
    """The fields of a memory as JSON values; absent values and defaults are left out."""
    row: dict[str, Any] = {}
    for field in dataclass_fields(Memory):
        value = getattr(memory, field.name)
        if field.default is MISSING or value != field.default:
            row[field.name] = value.isoformat() if isinstance(value, datetime) else value
    return {**row, "tags": list(memory.tags)} if memory.tags else row


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the memories of a file; raises InputError when it is no file of memories at all."""
    return read_memory_rows(path, NAME, read_memory, unread, progress)


def write(dataset: DataSet, path: Path, progress: Progress) -> Exported:
    """Write memories.jsonl; raises InputError when no memory can be written."""
    return write_rows(dataset.counted(progress, path.name), _line, "memories", path)


def _line(memory: Memory) -> tuple[str, Memory]:
    row = as_row(memory)
    return json_line(row), parse_memory(row)


def sniff(sample: Sample) -> bool:
    """Objects with an id and content."""
    return sample.mostly(lambda row: row.keys() >= {"id", "content"})


FORMAT = Format(
    NAME,
    "one memory a line: {id, content, ...}",
    order=0,
    sniff=sniff,
    read=read,
    suffixes=(".jsonl", ".ndjson", ".json"),
    breadth=1,
    dataset=DatasetWriter(write, ("memories",), place=1),
    place=3,
    shape="objects with id and content",
    needs=(("id",), ("content",)),
)
