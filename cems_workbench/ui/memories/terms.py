"""What the words of the Memories page mean, for the tooltips of its tables and lists."""

from __future__ import annotations

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

NUMBERS = {
    "memories": "All that are not deleted.",
    "pinned": "Those that are never dropped for their age.",
    "never accessed": "Those that were never given to an agent.",
    "deleted": "Hidden from every search; see Deleted.",
    "oldest": "Day of the first creation, UTC.",
    "newest": "Day of the latest creation, UTC.",
    "median length": "Half of the memories have at most so many characters.",
    "longest": "Characters of the longest content.",
}

INDEX_COLUMNS = {
    "Index": "What a search looks memories up in.",
    "State": "Whether it has every change of the store.",
    "Memories": "How many memories are in it.",
    "Version": "The store counts its changes: at which change the index was built, and which is the present one.",
    "Note": "Why it has to be built again, if it has to.",
}

INDEXES = {
    "lexical": ("Words", "BM25 ranks memories by the words they share with a query; rare words count more."),
    "vectors": ("Meaning", "The embedding model turns texts into vectors; texts of like meaning lie close together."),
}

COSINE = "Cosine of the two embeddings: 1 is the same meaning to the model."
RELATIONS = "Links between memories, such as one that supersedes another. Pick a row to open the other memory."
JUDGMENTS = "How well this memory answers a query, as a person or a model graded it. They measure searches."
