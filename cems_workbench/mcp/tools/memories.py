"""Memories by text and by id, and the whole text of one, a page at a time."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cems_workbench.errors import InputError
from cems_workbench.mcp.arguments import MOST_NAME, Limit, MemoryId, Offset, Project
from cems_workbench.mcp.responses import EXCERPT, TITLE, UNTRUSTED, Paged, Reply, Text, counted, cut, text_of
from cems_workbench.mcp.served_store import ServedStore
from cems_workbench.store.selection import Selection

MAX_PAGE_CHARS = 20_000
MAX_TAGS = 20


class MemoryRow(Reply):
    """A memory of a list."""

    memory_id: str
    untrusted: Text


class FoundMemories(Paged):
    """Memories that contain the words, newest first."""

    memories: tuple[MemoryRow, ...] = ()
    said: tuple[str, ...] = ()
    untrusted_note: str = UNTRUSTED


class MemoryText(Text):
    """A part of a memory's text, and its other fields."""

    category: str | None = None
    session: str | None = None
    author: str | None = None
    tags: tuple[str, ...] = ()
    scope: str | None = None


class ReadMemory(Reply):
    """A memory: the dates and counters that the pipeline uses, and a part of its text."""

    memory_id: str
    offset: int
    created_at: str | None = None
    last_accessed: str | None = None
    access_count: int | None = None
    importance: str | None = None
    priority: float | None = None
    pinned: bool | None = None
    untrusted: MemoryText
    untrusted_note: str = UNTRUSTED


class MemoryTools:
    """`find_memories` and `read_memory` of a served store."""

    def __init__(self, served: ServedStore) -> None:
        self._served = served

    def find_memories(
        self,
        words: Annotated[
            str,
            Field(
                min_length=1,
                max_length=MOST_NAME,
                description="Matched literally, ignoring case, in id, title, content and tags.",
            ),
        ],
        project: Project = "",
        limit: Limit = 10,
        offset: Offset = 0,
    ) -> FoundMemories:
        """Memories that contain these words literally, with their ids. Does not run the pipeline: use `search` for that."""
        store = self._served.resources.store
        problem = store.memories.project_problem(project or None)
        if problem:
            raise InputError(f"project: {problem}")
        found = store.memories.find(Selection(text=words, projects=(project,) if project else ()), limit, offset)
        said = [] if found.total else ["No memory contains these words literally: try fewer words, or search."]
        rows = [MemoryRow(memory_id=memory.id, untrusted=text_of(memory)) for memory in found.memories]
        return FoundMemories(memories=rows, said=said, **counted(found.total, offset, limit))

    def read_memory(
        self,
        memory_id: MemoryId,
        offset: Annotated[int, Field(ge=0, le=1_000_000_000, description="Character to begin with.")] = 0,
        length: Annotated[int, Field(ge=1, le=MAX_PAGE_CHARS, description="Characters to give.")] = 4000,
    ) -> ReadMemory:
        """The text of one memory, `length` characters from `offset`, and the dates and counters that ranking uses."""
        memory = self._served.store.memory(memory_id)
        if offset and offset >= len(memory.content):
            raise InputError(f"offset: {memory_id} has {len(memory.content)} characters, counted from 0")
        text = text_of(memory, offset, length)
        return ReadMemory(
            memory_id=memory.id,
            offset=offset,
            created_at=memory.created_at and memory.created_at.isoformat(),
            last_accessed=memory.last_accessed and memory.last_accessed.isoformat(),
            access_count=memory.access_count,
            importance=memory.importance,
            priority=memory.priority,
            pinned=memory.pinned,
            untrusted=MemoryText(
                **dict(text),
                category=memory.category and cut(memory.category, TITLE),
                session=memory.session and cut(memory.session, TITLE),
                author=memory.author and cut(memory.author, TITLE),
                tags=[cut(tag, EXCERPT) for tag in memory.tags[:MAX_TAGS]],
                scope=memory.scope,
            ),
        )
