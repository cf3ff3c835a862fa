"""SQLite: a file that another program keeps memories in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cems_workbench.sources.kinds import SourceKind

if TYPE_CHECKING:
    from cems_workbench.sources.address import Address
    from cems_workbench.sources.source import Source


def open_file(address: Address, mapping: Mapping[str, Any] | None, timeout: float) -> Source:
    """Open the file; its tables or the mapping say which layout it has."""
    from cems_workbench.sources.sqlite.connect import open_address

    return open_address(address, mapping, timeout)


SOURCE = SourceKind(
    name="sqlite",
    title="SQLite",
    addresses=("sqlite:/FOLDER/FILE", "sqlite:/FOLDER/FILE?table=TABLE"),
    description="engram, QMD, basic-memory, LangGraph, Letta, claude-mem, any table with texts (`--mapping`); read beside its owner",
    schemes=("sqlite", "sqlite3"),
    open=open_file,
    lists=("vector", "fts5"),
    products={
        "sqlite": "SQLite",
        "engram": "engram",
        "qmd": "QMD",
        "basic_memory": "basic-memory",
        "langgraph": "LangGraph",
        "letta": "Letta",
        "claude_mem": "claude-mem",
        "llm": "llm (embeddings.db)",
        "memori": "Memori",
        "mcp_memory_service": "mcp-memory-service",
    },
    place=40,
)
