"""Facts: one triple a line, `{subject, predicate, object}`, whose memory reads "subject predicate object".

Any other field of memories.jsonl may stand beside them. Graphiti's valid_at is valid_from; its invalid_at, else expired_at, is
valid_until (by its source, not recorded). A fact without an id gets `f-` and a hash of what it says.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from cems_workbench.formats import memories_jsonl
from cems_workbench.formats.base import fields
from cems_workbench.formats.base.files import Sample
from cems_workbench.formats.base.format import Format
from cems_workbench.formats.base.records import MemoryRead, derived_id, read_memory_rows
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput

NAME = "facts-jsonl"
PARTS = ("subject", "predicate", "object")


def parse_fact(row: dict[str, Any]) -> MemoryRead:
    """One fact, and its fields that could not be read; raises FieldError."""
    content = " ".join(_word(row, part) for part in PARTS)
    given = {name: value for name, value in row.items() if name not in PARTS} | {"content": content}
    if row.get("id") is None:
        given["id"] = derived_id("f", content)
    return memories_jsonl.read_memory(given)


def unread(row: dict[str, Any]) -> list[str]:
    """The fields of such a row that no field of a memory is read from."""
    rest = {name: value for name, value in row.items() if name not in PARTS}
    return [*memories_jsonl.unread(rest), *(["content"] if row.get("content") is not None else [])]


def _word(row: dict[str, Any], part: str) -> str:
    """A part of the triple; a number keeps its written form."""
    value = row.get(part)
    if isinstance(value, int | float) and not isinstance(value, bool):
        fields.number(row, part, -sys.float_info.max, sys.float_info.max, 0.0)  # Refuses NaN and infinity.
        return str(value)
    return fields.required_text(row, part).strip()


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the facts of a file; raises InputError when it cannot be read."""
    return read_memory_rows(path, NAME, parse_fact, unread, progress)


def sniff(sample: Sample) -> bool:
    """Objects with the three parts and no content."""
    return sample.mostly(lambda row: row.keys() >= set(PARTS) and "content" not in row)


FORMAT = Format(
    NAME,
    "one fact a line: {subject, predicate, object, ...}",
    order=0,
    sniff=sniff,
    read=read,
    suffixes=(".jsonl", ".ndjson", ".json"),
    place=9,
    shape="objects with subject, predicate and object, without content",
    needs=(("subject",), ("predicate",), ("object",)),
)
