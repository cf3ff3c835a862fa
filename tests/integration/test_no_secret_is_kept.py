"""A password that opened a source is nowhere afterwards: not in the store, a bundle, a link, what was printed, or an error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import duckdb
import postgres_server
import pytest
from postgres_server import LoadedChunk, Server, load

from cems_workbench.models.embedder import SentenceTransformerEmbedder
from cems_workbench.settings import Settings

if TYPE_CHECKING:
    from conftest import Command

pytestmark = [
    pytest.mark.models,
    pytest.mark.skipif(postgres_server.missing() is not None, reason=str(postgres_server.missing())),
]
PASSWORD = "s3cret/of the+reader"
TEXTS = {f"n{i}": f"the reader keeps note {i} about {word}" for i, word in enumerate(("deploys", "tea", "rollbacks"))}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server.running() as running:
        running.add_role("reader", PASSWORD)
        with running.cems("kept") as connection:
            vectors = SentenceTransformerEmbedder(Settings().embedder).encode(list(TEXTS.values()))
            for (name, text), vector in zip(TEXTS.items(), vectors, strict=True):
                load(connection, {"id": name, "content": text}, [LoadedChunk(text, vector)])
            connection.execute("GRANT SELECT ON memory_documents, memory_chunks, memory_relations TO reader")
            yield running


def forms(secret: str) -> list[str]:
    return [secret, quote(secret), quote(secret, safe=""), json.dumps(secret)[1:-1]]


def holding(folder: Path, secret: str) -> list[str]:
    """The files under a folder, and the tables of a store in it, that hold the secret in some form."""
    found = [
        str(file)
        for file in folder.rglob("*")
        if file.is_file()
        for form in forms(secret)
        if form.encode() in file.read_bytes()
    ]
    with duckdb.connect(str(folder / "workbench.duckdb"), read_only=True) as database:
        for (table,) in database.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            rows = str(database.execute(f'SELECT * FROM "{table}"').fetchall())
            found += [table for form in forms(secret) if form in rows]
    return found


def test_a_password_is_written_nowhere(
    server: Server, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, bundle = tmp_path / "store", tmp_path / "bundle.json"
    plain = server.address("kept", "reader")
    typed = plain.replace("reader@", f"reader:{quote(PASSWORD, safe='')}@")
    monkeypatch.setenv("NOTES_DATABASE", typed)
    said = []

    def run(code: int, *arguments: object) -> str:
        finished = command(*arguments)
        said.append(finished.out + finished.err)
        assert finished.code == code, said[-1]
        return said[-1]

    assert "3 of 3 stored vectors reproduced" in run(0, "connect", typed, "--store", store)
    assert holding(store, PASSWORD) == []
    assert "asks for reader's password" in run(2, "connect", "--store", store)  # it was not kept
    run(0, "connect", "env:NOTES_DATABASE", "--store", store)
    asked = ("search", "who keeps tea", "--preset", "cems_head", "--set", "lists.origin=source", "--store", store)
    assert "the lists are the store's own" not in run(0, *asked, "--bundle", bundle, "--json")
    run(0, "doctor", "--store", store)
    monkeypatch.setenv("PGPASSWORD", PASSWORD + " and more")
    refused = run(2, "connect", plain, "--store", store)
    assert "refused reader's password (from PGPASSWORD)" in refused and "Traceback" not in refused
    run(2, "connect", typed.replace("/kept", "/lost"), "--store", store)
    run(2, "connect", typed.replace("postgresql", "mysql"), "--store", store)
    run(2, "connect", "--probe", typed + "&port=notaport", "--store", store)
    everything = "\n".join(said) + bundle.read_text("utf-8")
    assert [form for form in forms(PASSWORD) if form in everything] == []
    assert holding(store, PASSWORD) == []
