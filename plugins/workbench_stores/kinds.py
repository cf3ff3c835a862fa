"""The kinds of sources of this package, which pyproject.toml declares as entry points; a store's driver is imported when one is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cems_workbench.progress import Progress
from cems_workbench.sources.address import SourceKind

if TYPE_CHECKING:
    from cems_workbench.formats.recorded_answers import Recording
    from cems_workbench.records import Query
    from cems_workbench.sources.address import Address
    from cems_workbench.sources.source import Source


def _opened_by(module: str) -> Callable[[Address, Mapping[str, Any] | None, float], Source]:
    def opened(address: Address, mapping: Mapping[str, Any] | None, timeout: float) -> Source:
        source: Source = import_module(f"workbench_stores.{module}").open_address(address, mapping, timeout)
        return source

    return opened


def _ask_cems(address: Address, queries: Sequence[Query], progress: Progress) -> Recording:
    from workbench_stores.cems_api import CemsApi

    with CemsApi(address) as server:
        return server.recording(list(server.answers(queries, progress)))


POSTGRESQL = SourceKind(
    name="postgresql",
    title="PostgreSQL",
    addresses=("postgresql://USER@HOST:5432/DATABASE",),
    description="CEMS, mem0, LangChain, LangGraph, LlamaIndex, Haystack, Letta, Hindsight, any table with text and vectors (`--mapping`)",
    schemes=("postgresql", "postgres"),
    open=_opened_by("postgres.connect"),
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

QDRANT = SourceKind(
    name="qdrant",
    title="Qdrant",
    addresses=("qdrant://HOST:6333/COLLECTION", "qdrant:/FOLDER/COLLECTION", "qdrant:/SHARD"),
    description="a collection on a Qdrant server, in a folder of its local mode, or in a shard of Qdrant Edge",
    schemes=("qdrant", "qdrant+https"),
    open=_opened_by("qdrant"),
    credential_variable="QDRANT_API_KEY",
    package="qdrant_client",
    extra="qdrant",
    lists=("vector", "sparse", "source_hybrid"),
    place=30,
)

CEMS = SourceKind(
    name="cems",
    title="CEMS server",
    addresses=("https://CEMS-HOST",),
    description="a CEMS server, asked for its answers by `fidelity --ask`",
    schemes=("http", "https"),
    open=None,
    ask=_ask_cems,
    credential_variable="CEMS_API_KEY",
    lists=(),
    place=40,
)

SQLITE = SourceKind(
    name="sqlite",
    title="SQLite",
    addresses=("sqlite:/FOLDER/FILE", "sqlite:/FOLDER/FILE?table=TABLE"),
    description="engram, QMD, basic-memory, LangGraph, Letta, claude-mem, any table with texts (`--mapping`); read beside its owner",
    schemes=("sqlite", "sqlite3"),
    open=_opened_by("sqlite.connect"),
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

LANCEDB = SourceKind(
    name="lancedb",
    title="LanceDB",
    addresses=("lancedb:/FOLDER?table=TABLE", "lancedb:/FOLDER?table=TABLE&distance=cosine"),
    description="a table in a folder of LanceDB; `distance` (l2, cosine or ip) as its program searches it, if no index names one",
    schemes=("lancedb",),
    open=_opened_by("lancedb"),
    package="lancedb",
    extra="lancedb",
    lists=("vector", "sparse", "source_hybrid"),
    place=50,
)

FAISS = SourceKind(
    name="faiss",
    title="FAISS",
    addresses=("faiss:/FOLDER",),
    description="a folder with a FAISS index as mem0 (NAME.faiss, NAME.json) or txtai (embeddings, documents) writes it",
    schemes=("faiss",),
    open=_opened_by("faiss"),
    package="faiss",
    extra="faiss",
    place=60,
)
