"""Messages of a chat: `{author|speaker|role, content|text}`, each a memory that reads "author: content".

Any other field of memories.jsonl may stand beside them. A message without an id gets `m-` and a hash of what it says,
and of its project, session and created_at where it has them: the same word said twice is two messages.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cems_workbench.formats import memories_jsonl
from cems_workbench.formats.base.fields import FieldError, required_text
from cems_workbench.formats.base.files import Sample
from cems_workbench.formats.base.format import Format
from cems_workbench.formats.base.records import MemoryRead, derived_id, read_memory_rows
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput

NAME = "messages-jsonl"
SPEAKER_FIELDS = ("author", "speaker", "role")
TEXT_FIELDS = ("content", "text")
_MEMORY_ONLY = {"title", "category", "tags", "priority", "pinned", "importance", "scope", "source_ref"}


def parse_message(row: dict[str, Any]) -> MemoryRead:
    """One message, and its fields that could not be read; raises FieldError."""
    author, said = _first(row, SPEAKER_FIELDS), _first(row, TEXT_FIELDS)
    content = f"{author}: {said}"
    given = {**row, "author": author, "content": content}
    if row.get("id") is None:
        said_at = (row.get(name) for name in ("project", "session", "created_at"))
        given["id"] = derived_id("m", content, *(part for part in said_at if isinstance(part, str)))
    return memories_jsonl.read_memory(given)


def unread(row: dict[str, Any]) -> list[str]:
    """The fields of such a row that no field of a memory is read from."""
    return [name for name in memories_jsonl.unread(row) if name not in (*SPEAKER_FIELDS, *TEXT_FIELDS)]


def _first(row: dict[str, Any], names: tuple[str, ...]) -> str:
    """The text of the first of these fields that has any."""
    name = next((name for name in names if row.get(name) is not None and row.get(name) != ""), None)
    if name is None:
        raise FieldError(names[0], f"is missing, and so is {' and '.join(names[1:])}")
    return required_text(row, name)


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the messages of a file; raises InputError when it cannot be read."""
    return read_memory_rows(path, NAME, parse_message, unread, progress)


def sniff(sample: Sample) -> bool:
    """Rows most of which say who said what, and are not memories with an author."""
    return sum(map(_is_message, sample.rows)) * 2 > len(sample.rows)


def _is_message(row: dict[str, Any]) -> bool:
    keys = row.keys()
    if not keys & set(TEXT_FIELDS) or keys & _MEMORY_ONLY or "_id" in keys:
        return False
    return bool(keys & {"speaker", "role"}) or ("author" in keys and ("text" in keys or "id" not in keys))


FORMAT = Format(
    NAME,
    "one message a line: {author, content, ...}",
    order=0,
    sniff=sniff,
    read=read,
    suffixes=(".jsonl", ".ndjson", ".json"),
    place=14,
    shape="objects with a speaker, role or author and content or text",
    needs=(("speaker", "role", "author"), ("content", "text")),
)
