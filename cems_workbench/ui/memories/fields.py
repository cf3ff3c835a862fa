"""What is shown of a memory, by the names that tables and lists have for it."""

from __future__ import annotations

from cems_workbench.records import Memory
from cems_workbench.ui.kit.escape import excerpt

FIELDS = {
    "id": "The name of the memory in its store; the whole of it is shown when the row is picked.",
    "memory": "Title and the beginning of the content.",
    "category": "What kind of memory it is, such as preference or decision.",
    "project": "The project it belongs to; none when empty.",
    "session": "The conversation it was written in.",
    "author": "Who said or wrote it.",
    "tags": "Words to find it by in this page.",
    "scope": "Who may find it: personal, only its owner; shared, everybody.",
    "created": "When it was written, UTC.",
    "last accessed": "When it was last given to an agent, UTC.",
    "accesses": "How often it was given to an agent.",
    "feedback": "How often it was called relevant, and how often noise, after it was given to an agent.",
    "priority": "1 to 2: a factor of the score in searches.",
    "importance": "How much it matters: low, normal or high.",
    "pinned": "A pinned memory is never dropped for its age.",
    "source": "Where it was imported from, as the file says.",
    "length": "Characters of the content.",
}
"""What each of them means, for tooltips."""


def title_and_text(memory: Memory) -> str:
    """Title and the beginning of the content, on one line."""
    return excerpt(f"{memory.title}: {memory.content}" if memory.title else memory.content)
