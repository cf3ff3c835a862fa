"""What the matrix of recorded stores compares: a row for each, whose table is docs/use/stores.md.

`python -m tests.store_matrix` writes that table again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests import recorded_stores as recorded

PAGE = Path(__file__).resolve().parents[1] / "docs" / "use" / "stores.md"
BEGIN, END = "<!-- matrix -->", "<!-- end of matrix -->"
FIELDS: Mapping[str, tuple[str, ...]] = {
    "content": ("content", "text", "memory", "data", "document", "summary", "body"),
    "title": ("title",),
    "category": ("category", "source_type"),
    "project": ("project",),
    "session": ("session_id", "run_id"),
    "author": ("user_id",),
    "tags": ("tags", "entities"),
    "created_at": ("created_at", "date_created"),
    "updated_at": ("updated_at", "modifiedAt"),
    "last_accessed": ("last_accessed", "accessed_at"),
    "access_count": ("access_count",),
    "priority": ("priority",),
    "pinned": ("pinned",),
}
"""Fields of a memory, and what the stores' writers called them, likelier ones first."""
TIMES = ("created_at", "updated_at", "last_accessed")
MILLISECONDS = 1e11
"""Numbers above are milliseconds since 1970, others seconds."""


@dataclass(frozen=True, slots=True)
class Row:
    """A recorded store: the live lists that are compared with the library's, and what differs on purpose.

    `other` fields are not compared, for the reason that `limit` gives; so are ids that `limit` explains.
    """

    layout: str
    lists: tuple[str, ...] = ("vector",)
    limit: str = ""
    other: tuple[str, ...] = ()


ROW_TIME = "times are the row's own; map {} to take those in the metadata"
HIDES = "expired memories are taken with their end and are in no live list"
NO_INDEX = "memories without a vector are taken and named"
LANGGRAPH = f"id is prefix/key; {NO_INDEX}"
MATRIX: Mapping[str, Row] = {
    "agno_pgvector": Row(
        "any table with pgvector", limit=ROW_TIME.format("`created_at: meta_data.created_at`"), other=("created_at",)
    ),
    "lancedb": Row("table"),
    "langchain_lancedb": Row("table"),
    "llamaindex_lancedb": Row("table"),
    "mem0_faiss": Row("mem0"),
    "mem0_faiss_l2": Row("mem0"),
    "txtai": Row("txtai"),
    "txtai_hybrid": Row("txtai", ()),
    "langgraph_sqlite": Row("langgraph"),
    "langgraph_sqlite_l2": Row("langgraph"),
    "letta_pg": Row("letta", limit="padding is left out; is_deleted is imported as deleted"),
    "crewai": Row("table", limit="scope is a path there and importance a number: named as not read"),
    "haystack_chroma": Row("collection"),
    "haystack_pg": Row("haystack", ("vector", "ts_rank_cd")),
    "haystack_pg_l2": Row("haystack", ("vector", "ts_rank_cd"), "nothing there says l2: `?distance=l2`, else cosines"),
    "haystack_qdrant": Row("collection", limit="id is payload `id`, as Haystack names documents"),
    "langchain_chroma": Row("collection"),
    "langchain_chroma_cosine": Row("collection"),
    "langchain_pgvector": Row("langchain_pgvector", limit="`?collection=NAME` chooses one of several"),
    "langchain_pgvector_l2": Row("langchain_pgvector", limit="nothing there says l2: `?distance=l2`, else cosines"),
    "langchain_pgvectorstore": Row("langchain_pgvectorstore"),
    "langchain_pgvectorstore_json": Row("langchain_pgvectorstore"),
    "langchain_pgvectorstore_hybrid": Row(
        "langchain_pgvectorstore",
        ("vector", "ts_rank_cd", "source_hybrid"),
        "the config's top_k and fusion are the program's: options `hybrid.…`",
    ),
    "langchain_qdrant": Row("collection"),
    "langchain_qdrant_hybrid": Row(
        "collection", limit="its sparse embedder is the test's own, so only the vector list is asked"
    ),
    "langchain_qdrant_fastembed": Row("collection", ("vector", "sparse", "source_hybrid")),
    "langchain_qdrant_fastembed_default": Row("collection", ("vector", "sparse", "source_hybrid")),
    "langgraph_pg": Row("langgraph", limit=LANGGRAPH),
    "langgraph_pg_whole": Row("langgraph", limit=LANGGRAPH),
    "llamaindex_chroma": Row("collection"),
    "llamaindex_pg": Row("llamaindex"),
    "llamaindex_pg_hybrid": Row("llamaindex", ("vector", "ts_rank", "source_hybrid")),
    "llamaindex_qdrant": Row("collection"),
    "llm_embeddings": Row("llm", limit="`?collection=NAME` chooses one of several"),
    "mcp_memory_service": Row("mcp_memory_service", limit="last_accessed is the row's own", other=("last_accessed",)),
    "mem0_chroma": Row("collection", limit=HIDES),
    "mem0_pgvector": Row("mem0", limit=HIDES),
    "mem0_qdrant": Row("collection", limit=HIDES),
    "memori": Row("memori", limit="`?user=ID` takes the facts of one entity, as its search does"),
    "sqlite_vec": Row("any table with vec0", ("vector", "fts5")),
    "sqlite_vec_cosine": Row("any table with vec0", ("vector", "fts5")),
    "vecs": Row("any table with pgvector", limit="the text is the metadata's `content`"),
}
"""By the name of the recording."""


TOOLS_RECORDINGS = Path(__file__).parent / "recordings" / "tools"
TOOLS: Mapping[str, tuple[Row, tuple[str, ...]]] = {
    "basic_memory": (Row("basic_memory", ("vector", "fts5")), ("title", "category", "tags", "source_ref")),
    "claude_mem": (
        Row("claude_mem", ("vector", "fts5"), "vectors are in its Chroma folder"),
        ("title", "category", "project", "tags", "created_at"),
    ),
    "engram": (
        Row("engram", ("vector", "fts5")),
        ("project", "session", "tags", "importance", "created_at", "last_accessed", "access_count"),
    ),
    "letta_sqlite": (Row("letta"), ("title", "tags", "author", "project", "created_at")),
    "qmd": (Row("qmd", ("vector", "fts5")), ("title", "project", "source_ref", "updated_at")),
}
"""What test_sqlite_layouts.py compares: the row, and the fields besides the content."""


def flat(memory: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an answer's memory, with those of its metadata or value."""
    found = {key: value for key, value in memory.items() if not isinstance(value, dict)}
    for name in ("value", "data", "metadata", "frontmatter"):
        inner = memory.get(name)
        if isinstance(inner, str) and inner.startswith("{"):
            inner = json.loads(inner)
        if isinstance(inner, dict):
            found = {**inner, **found}
    return found


def expected(row: Mapping[str, Any], field: str) -> Any:
    """The library's value of a field, as a memory of ours has it; None where it says nothing."""
    value = next((row[name] for name in FIELDS[field] if row.get(name) is not None), None)
    if value is None or value == "":
        return None
    if field in TIMES:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value / 1000 if value > MILLISECONDS else value, UTC)
        moment = datetime.fromisoformat(value)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    if field == "tags":
        value = json.loads(value) if isinstance(value, str) and value.startswith("[") else value
        return tuple(value.split(",")) if isinstance(value, str) else tuple(value)
    if field == "content":
        return value.strip()
    return bool(value) if field == "pinned" else value


def compared(name: str) -> tuple[str, ...]:
    """The fields of a store that are compared: those that its library's answers have."""
    rows = [flat(memory) for memory in recorded.answers(name)["memories"]]
    return tuple(
        field
        for field in FIELDS
        if field not in MATRIX[name].other and any(expected(row, field) is not None for row in rows)
    )


def _line(answer: Mapping[str, Any], row: Row, fields: Sequence[str]) -> str:
    versions = ", ".join(f"{package} {version}" for package, version in [*dict(answer["version"]).items()][:2])
    counts = f"{len(answer['memories'])}; {len(answer['expired'])}, {len(answer['deleted'])}"
    cells = (answer["library"], versions, row.layout, counts, ", ".join(fields), ", ".join(row.lists), row.limit)
    return f"| {' | '.join(cells)} |"


def table() -> str:
    """The matrix in Markdown."""
    lines = []
    for name, row in MATRIX.items():
        lines.append(_line(recorded.answers(name), row, [each for each in compared(name) if each != "content"]))
    for name, (row, fields) in TOOLS.items():
        answer = json.loads((TOOLS_RECORDINGS / name / "answers.json").read_text("utf-8"))
        lines.append(_line(answer, row, fields))
    head = (
        "| library | version | read as | memories; expired, deleted | fields, besides id and text | live lists | remarks |",
        "|---|---|---|---|---|---|---|",
    )
    return "\n".join((*head, *sorted(lines, key=str.lower)))


def in_page(page: str) -> str:
    """The table that a page has."""
    return page.partition(BEGIN)[2].partition(END)[0].strip()


if __name__ == "__main__":
    text = PAGE.read_text("utf-8")
    PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{table()}\n{END}", text, flags=re.S), "utf-8")
