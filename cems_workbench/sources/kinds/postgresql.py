"""PostgreSQL with pgvector: the tables of CEMS or mem0, or one table of your own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cems_workbench.sources.kinds import SourceKind

if TYPE_CHECKING:
    from cems_workbench.sources.address import Address
    from cems_workbench.sources.source import Source


def open_database(address: Address, mapping: Mapping[str, Any] | None, timeout: float) -> Source:
    """Open the database; its tables or the mapping say which layout it has."""
    from cems_workbench.sources.postgres.connect import open_address

    return open_address(address, mapping, timeout)


SOURCE = SourceKind(
    name="postgresql",
    title="PostgreSQL",
    addresses=("postgresql://USER@HOST:5432/DATABASE",),
    description="CEMS, mem0, LangChain, LangGraph, LlamaIndex, Haystack, Letta, Hindsight, any table with text and vectors (`--mapping`)",
    schemes=("postgresql", "postgres"),
    open=open_database,
    credential_variable="PGPASSWORD",
    package="psycopg",
    extra="postgres",
    lists=("vector", "ts_rank", "ts_rank_cd", "source_hybrid"),
    products={
        "cems": "CEMS",
        "mem0": "mem0",
        "langchain_pgvector": "LangChain PGVector",
        "langchain_pgvectorstore": "LangChain PGVectorStore",
        "llamaindex": "LlamaIndex",
        "haystack": "Haystack",
        "letta": "Letta",
        "langgraph": "LangGraph",
        "hindsight": "Hindsight",
    },
    path_is_name=True,
    place=10,
)
