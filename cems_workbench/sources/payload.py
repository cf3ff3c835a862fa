"""What a vector database keeps beside a vector, read as a memory.

Nothing says what the fields of a payload (Qdrant) or of metadata (Chroma) mean, so they are known by their names:
those of this project, of CEMS and mem0 (`data`, `user_id`, `run_id`), of LangChain (`page_content`, and `metadata` with the rest
in it), Haystack (`content`, `meta`) and LlamaIndex (`_node_content`, a JSON text). The first name of a field that is there counts. A
mapping `{field of a memory: name in the payload}` goes before them; dots lead into objects.

A row is a chunk when it names both its document and its own number in it, as a whole number; any other row is a memory by itself.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from cems_workbench.errors import InputError, nearest
from cems_workbench.formats.base import fields
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.records import Memory
from cems_workbench.sources.source import RowProblem

Payload = Mapping[str, Any]

NAMES: Mapping[str, tuple[str, ...]] = {
    "content": ("data", "page_content", "content", "text", "memory", "document", "chunk", "body"),
    "title": ("title", "heading", "document_title"),
    "category": ("category", "memory_type", "kind"),
    "project": ("project", "project_id", "repository", "repo"),
    "session": ("session", "session_id", "run_id", "conversation_id", "thread_id"),
    "author": ("author", "user_id", "actor_id", "agent_id", "speaker"),
    "tags": ("tags", "labels", "keywords"),
    "priority": ("priority",),
    "pinned": ("pinned",),
    "importance": ("importance",),
    "created_at": ("created_at", "createdAt", "created", "creation_date", "timestamp", "date"),
    "updated_at": ("updated_at", "updatedAt", "modified_at", "last_modified", "last_modified_date"),
    "last_accessed": ("last_accessed", "last_accessed_at", "last_shown_at"),
    "access_count": ("access_count", "shown_count"),
    "relevant_count": ("relevant_count",),
    "noise_count": ("noise_count",),
    "scope": ("scope", "visibility"),
    "source_ref": ("source_ref", "source", "url", "file_path", "file_name", "filename", "path"),
    "document": ("document_id", "doc_id", "parent_id", "ref_doc_id"),
    "number": ("chunk_index", "chunk_seq", "seq", "chunk_number", "chunk_id"),
}
"""By field of a memory the names it is known by, first the likelier; `document` and `number` are those of a chunk."""
NESTED = ("metadata", "meta")
"""Objects whose fields count as the payload's own."""
SHARED_WORDS = ("shared", "team", "company", "public")
PERSONAL_WORDS = ("personal", "private", "user")
LATEST_SECONDS = 1e11
"""A time that is a greater number is in milliseconds."""
_PROJECT = re.compile(r"project:([^:#\s]+)")


@dataclass(frozen=True)
class Names:
    """The names by which the fields of memories are looked for in payloads."""

    given: Mapping[str, str]

    @cached_property
    def known(self) -> Mapping[str, tuple[str, ...]]:
        """By field the paths to look at; one that was given is the only one."""
        nested = {field: tuple(path for name in names for path in _paths(name)) for field, names in NAMES.items()}
        return nested | {field: (name,) for field, name in self.given.items()}

    def found(self, payload: Payload, field: str) -> str | None:
        """The path of a field that is in the payload with a value, None when there is none."""
        return next((path for path in self.known[field] if _at(payload, path) is not None), None)

    def value(self, payload: Payload, field: str) -> Any:
        """What the payload has as this field, None when nothing."""
        return next((value for path in self.known[field] if (value := _at(payload, path)) is not None), None)


def names_of(mapping: Mapping[str, Any] | None) -> Names:
    """The names with those that a mapping states; raises InputError for a field that memories do not have."""
    for field, name in (mapping or {}).items():
        if field not in NAMES:
            close = nearest(str(field), NAMES)
            hint = f"; did you mean {close}" if close else ""
            raise InputError(f"mapping: {field} is no field of a memory{hint}? It may be one of {', '.join(NAMES)}")
        if not isinstance(name, str) or not name:
            raise InputError(f"mapping: {field}: must be the name of a field of the payload, found {name!r}")
    return Names(mapping or {})


def text_of(document: str | None, payload: Payload, names: Names) -> str | None:
    """The text of a row: the document that stands beside the payload, else what the payload has; None when there is none."""
    if document is not None and document.strip() and "content" not in names.given:
        return document
    said = names.value(payload, "content")
    if said is None and "content" not in names.given:
        said = _node_text(payload)
    return said if isinstance(said, str) and said.strip() else None


def place_of(payload: Payload, names: Names) -> tuple[str, int] | None:
    """(document, number) of a chunk; None for a row that does not say both."""
    document, number = names.value(payload, "document"), names.value(payload, "number")
    if isinstance(document, bool) or not isinstance(document, str | int) or document == "":
        return None
    if isinstance(number, str) and number.isascii() and number.isdigit():
        number = int(number)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2**63:
        return None
    return str(document), number


def memory_of(memory_id: str, content: str, payload: Payload, names: Names) -> tuple[Memory, list[RowProblem]]:
    """A memory of a payload, and the fields whose values could not be used, which are as if they were absent.

    Raises FieldError when id or content is not what a store can hold.
    """
    problems: list[RowProblem] = []

    def read(field: str, parse: Callable[[Payload, str], Any]) -> Any:
        name = names.found(payload, field)
        if name is None:
            return parse({}, field)
        try:
            return parse({field: _at(payload, name)}, field)
        except FieldError as error:
            problems.append(RowProblem(memory_id, name, error.reason))
            return parse({}, field)

    source_ref = read("source_ref", _words)
    project = read("project", _words)
    if project is None and source_ref and (match := _PROJECT.match(source_ref)):
        project = match[1]
    memory = Memory(
        id=fields.identifier({"id": memory_id}, "id"),
        content=fields.required_text({"content": content}, "content"),
        title=read("title", _words),
        category=read("category", _words),
        project=project,
        session=read("session", _words),
        author=read("author", _words),
        tags=read("tags", _tags),
        priority=read("priority", lambda row, field: fields.number(row, field, 1.0, 2.0, 1.0)),
        pinned=read("pinned", fields.flag),
        importance=read(
            "importance", lambda row, field: fields.choice(row, field, ("low", "normal", "high"), "normal")
        ),
        created_at=read("created_at", _moment),
        last_accessed=read("last_accessed", _moment),
        access_count=read("access_count", fields.count),
        relevant_count=read("relevant_count", fields.count),
        noise_count=read("noise_count", fields.count),
        scope=read("scope", _scope),
        source_ref=source_ref,
        updated_at=read("updated_at", _moment),
    )
    return memory, problems


def canonical(payload: Payload) -> str:
    """The payload as one text that is the same whenever its values are, whatever their order."""
    return json.dumps(payload, sort_keys=True, ensure_ascii=False, default=str)


def used_names(payloads: Sequence[Payload], names: Names) -> dict[str, str]:
    """By field the path that most of these payloads have it under; fields that none has are absent."""
    chosen: dict[str, str] = {}
    for field in NAMES:
        seen = [name for payload in payloads if (name := names.found(payload, field)) is not None]
        if seen:
            chosen[field] = max(dict.fromkeys(seen), key=seen.count)
    return chosen


def _paths(name: str) -> Iterator[str]:
    yield name
    for outer in NESTED:
        yield f"{outer}.{name}"


def _at(payload: Payload, path: str) -> Any:
    """The value under a name, or along the dots of it; None when there is none."""
    if path in payload:
        return payload[path]
    head, dot, rest = path.partition(".")
    inner = payload.get(head) if dot else None
    return _at(inner, rest) if isinstance(inner, Mapping) else None


def _node_text(payload: Payload) -> str | None:
    """The text within a node of LlamaIndex."""
    raw = payload.get("_node_content")
    if not isinstance(raw, str):
        return None
    try:
        node = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(node, dict):
        return None
    resource = node.get("text_resource")
    return node.get("text") or (resource.get("text") if isinstance(resource, dict) else None)


def _words(row: Payload, field: str) -> str | None:
    """Text, or a number as its digits."""
    value = row.get(field)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return fields.text(row, field)


def _tags(row: Payload, field: str) -> tuple[str, ...]:
    """A list of strings, a JSON array in a text, or words between commas or semicolons."""
    value = row.get(field)
    if not isinstance(value, str):
        return fields.tags(row, field)
    if value.lstrip().startswith("["):
        try:
            return fields.tags({field: json.loads(value)}, field)
        except (ValueError, RecursionError):
            raise FieldError(field, "begins like a JSON array and is none") from None
    return fields.tags({field: [tag.strip() for tag in re.split(r"[;,]", value) if tag.strip()]}, field)


def _moment(row: Payload, field: str) -> datetime | None:
    """An ISO 8601 time, or seconds or milliseconds since 1970."""
    value = row.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return fields.moment(row, field)
    try:
        seconds = value / 1000 if abs(value) > LATEST_SECONDS else value
        return datetime.fromtimestamp(seconds, UTC) if math.isfinite(seconds) else fields.moment(row, field)
    except (ValueError, OverflowError, OSError):
        raise FieldError(field, f"is no time: {value!r}"[:80]) from None


def _scope(row: Payload, field: str) -> str:
    value = row.get(field)
    if value is None or value in PERSONAL_WORDS:
        return "personal"
    if value in SHARED_WORDS:
        return "shared"
    return fields.choice(row, field, ("personal", "shared"), "personal")
