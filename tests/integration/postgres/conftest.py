"""Sources in a real PostgreSQL with pgvector, read by a role whose statements are all looked at in the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import postgres_server
import pytest
from postgres_server import Server
from source_server import PASSWORD, Opened, watched

from cems_workbench.sources.address import parse
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.source import Source

if TYPE_CHECKING:
    from postgres_server import Connection


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    if reason := postgres_server.missing():
        pytest.skip(reason)
    with watched() as server:
        yield server


@pytest.fixture
def database(server: Server) -> Iterator[Connection]:
    """A new database, called `own`, whose tables the role may read."""
    with server.connect() as first:
        first.execute("CREATE DATABASE own")
        with server.connect("own") as connection:
            connection.execute("CREATE EXTENSION vector")
            connection.execute("ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO reader")
            yield connection
        first.execute("DROP DATABASE own WITH (FORCE)")


@pytest.fixture
def opened(server: Server) -> Iterator[Opened]:
    """Opens a database as the role, with options of the address."""
    with ExitStack() as sources:

        def open_(
            mapping: Mapping[str, Any] | None = None,
            timeout: float = 60.0,
            database: str = "own",
            password: str = PASSWORD,
            **options: str,
        ) -> Source:
            address = parse(server.address(database, "reader", **options), {"PGPASSWORD": password})
            return sources.enter_context(closing(open_source(address, mapping, timeout)))

        yield open_
