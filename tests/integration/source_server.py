"""What the tests of sources in PostgreSQL share: the role that reads, and what it may send."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import postgres_server
from postgres_server import Server

from cems_workbench.records import TakenMemory
from cems_workbench.sources.source import Batch, Source

Opened = Callable[..., Source]
ROLE = "reader"
PASSWORD = "a-secret-4417"
ALLOWED = (
    "SELECT ",
    "WITH ",
    "EXPLAIN (FORMAT JSON) SELECT ",
    "SET LOCAL ",
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    "ROLLBACK",
)


@contextmanager
def watched() -> Iterator[Server]:
    """A server with the role; in the end every statement that the role sent is looked at."""
    with postgres_server.running() as server:
        server.add_role(ROLE, PASSWORD)
        yield server
        statements = server.statements(ROLE)
        assert len(statements) > 100
        assert [said for said in statements if not said.startswith(ALLOWED)] == []
        assert [said for said in statements if "api_key" in said] == []


def everything(ids: Sequence[str], markers: Sequence[str]) -> Sequence[str]:
    return ids


def taken(source: Source) -> tuple[list[Batch], dict[str, TakenMemory]]:
    """A whole snapshot: its batches, and its memories by id."""
    with source.snapshot() as snapshot:
        batches = list(snapshot.batches(everything))
    return batches, {each.memory.id: each for batch in batches for each in batch.taken}
