"""Labels and help texts of a memory's fields, as used in tables and lists."""

from __future__ import annotations

from cems_workbench.records import Memory
from cems_workbench.ui.kit.html import excerpt

FIELDS = {
    "id": "Id of the memory in its store; select the row to see it in full.",
    "memory": "Title and first words of the content.",
    "category": "Kind of memory, such as preference or decision.",
    "project": "Project of the memory; empty: none.",
    "session": "Conversation it was written in.",
    "author": "Who said or wrote it.",
    "tags": "Keywords for this page.",
    "scope": "Who may find it: personal: only its owner; shared: everybody.",
    "created": "When it was written, UTC.",
    "last accessed": "When it was last returned to an agent, UTC.",
    "out of date": "By which memory it is superseded, and when it expired.",
    "valid from": "From when on it holds, UTC; empty: not known.",
    "valid until": "From this moment on it is expired, UTC; empty: not known to end.",
    "accesses": "How often it was returned to an agent.",
    "feedback": "How often it was marked relevant, and how often noise, after it was returned to an agent.",
    "priority": "1 to 2: a factor of the search score.",
    "importance": "How much it matters: low, normal or high.",
    "pinned": "A pinned memory is never dropped because of its age.",
    "source": "Where it was imported from, according to the file.",
    "length": "Characters of the content.",
}
"""Help text by field label."""


def title_and_text(memory: Memory) -> str:
    """Title and first words of the content, on one line."""
    return excerpt(f"{memory.title}: {memory.content}" if memory.title else memory.content)
