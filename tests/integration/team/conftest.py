"""A team's tables in a real PostgreSQL, the server of all tests of a process, and stores that work on them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cems_workbench.store import Store
from cems_workbench.store.team import TABLES
from tests.integration.postgres_server import Server
from tests.small_store import embedder, empty_store, rows
from workbench_team.postgres import PostgresTables

__all__ = ["embedder", "empty_store", "rows"]

PASSWORD = "hunter2-correct-horse"


@pytest.fixture(scope="session")
def server(postgres: Server) -> Server:
    return postgres


@pytest.fixture(scope="session")
def prepared(server: Server) -> str:
    """The address of a database with the tables of a team, whose role needs a password."""
    server.add_role("team", PASSWORD)
    with server.connect() as connection:
        connection.execute("CREATE DATABASE team OWNER team")
    address = server.address("team", "team").replace("team@", f"team:{PASSWORD}@")
    tables = PostgresTables(address)
    tables.state()
    tables.close()
    return address


@pytest.fixture
def team(prepared: str, server: Server) -> str:
    """The address of a team's database that holds nothing."""
    with server.connect("team") as connection:
        names = ", ".join(
            f"cems_workbench.{name}"
            for name in (*TABLES, "label_claims", "pushed_looks", "queries_before", "judgments_before")
        )
        connection.execute(f"TRUNCATE {names} RESTART IDENTITY".encode())
    return prepared


@pytest.fixture
def store(team: str, empty_store: Path, tmp_path: Path) -> Iterator[Store]:
    """A store whose labels are the team's."""
    with Store.open(shutil.copytree(empty_store, tmp_path / "store"), team=team) as opened:
        yield opened


@pytest.fixture
def open_store(team: str, empty_store: Path, tmp_path: Path) -> Iterator[Callable[[str], Store]]:
    """Another store of the same team, by a name."""
    opened: list[Store] = []

    def another(name: str) -> Store:
        opened.append(Store.open(shutil.copytree(empty_store, tmp_path / name), team=team))
        return opened[-1]

    yield another
    for each in opened:
        each.close()
