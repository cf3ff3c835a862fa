"""A store whose vectors are on a real Chroma server: restarted, away, slow, emptied by somebody, and shared."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import chroma_server
import numpy as np
import pytest

from cems_workbench.errors import StoreError
from cems_workbench.platform import http_limits
from cems_workbench.records import Memory
from cems_workbench.store import Store

TEXTS = {"a": "alpha", "b": "beta", "c": "gamma"}


class Server:
    """A Chroma server at one address that can be stopped and started again on its data."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = chroma_server.free_port()
        self._running = ExitStack()
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.process = self._running.enter_context(chroma_server.process(self.directory, self.port))

    def stop(self) -> None:
        self._running.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path / "server")
    yield started
    started.stop()


@pytest.fixture
def opened(server: Server, tmp_path: Path, embedder, rows) -> Iterator[Store]:
    """A store on the server, with vectors of three memories."""
    with Store.open(tmp_path / "store", chroma_url=server.url) as store:
        store.add(rows([Memory(name, text) for name, text in TEXTS.items()]))
        assert store.indexes.refresh(embedder).embedded == 3 and caught_up(store, embedder) == ""
        yield store


def caught_up(store: Store, embedder) -> str:
    return store.indexes.catch_up_chroma(embedder.model_id)


def nearest(store: Store, embedder, text: str) -> str:
    return store.indexes.open(embedder).vectors.search(embedder.encode([text])[0], 1)[0][0]


@pytest.mark.thorough
def test_a_restart_is_not_noticed(server, opened, embedder):
    assert nearest(opened, embedder, "beta") == "b"
    server.stop()
    server.start()
    assert nearest(opened, embedder, "beta") == "b" and opened.indexes.refresh(embedder).embedded == 0
    assert not opened.indexes.notices


@pytest.mark.thorough
def test_while_it_is_away_searches_go_on_and_it_gets_what_it_lacks_afterwards(server, opened, embedder, rows):
    server.stop()
    assert nearest(opened, embedder, "beta") == "b"
    opened.add(rows([Memory("d", "delta")]))
    assert opened.indexes.refresh(embedder).embedded == 1
    said = caught_up(opened, embedder)
    assert f"127.0.0.1:{server.port}" in said and "\n" not in said
    assert nearest(opened, embedder, "delta") == "d"
    with pytest.raises(StoreError, match=f"127.0.0.1:{server.port}"):
        opened.indexes.open(embedder).vectors.approximate(np.ones(16), 1)
    server.start()
    assert caught_up(opened, embedder) == ""
    assert held(server) == {"a", "b", "c", "d"}


@pytest.mark.thorough
def test_one_that_hangs_is_given_up(server, opened, embedder, rows, monkeypatch):
    monkeypatch.setattr(http_limits, "RESPONSE_TIMEOUT_S", 1.0)
    with Store.open(opened.path, chroma_url=server.url) as store:
        store.memories.delete("a")
        store.indexes.refresh(embedder)
        server.process.send_signal(signal.SIGSTOP)
        try:
            said = caught_up(store, embedder)
            assert f"127.0.0.1:{server.port}" in said and "did not answer in time" in said
        finally:
            server.process.send_signal(signal.SIGCONT)
        assert nearest(store, embedder, "beta") == "b" and caught_up(store, embedder) == ""


def held(server: Server) -> set[str]:
    import chromadb

    client = chromadb.HttpClient("127.0.0.1", server.port)
    (collection,) = client.list_collections()
    return set(client.get_collection(collection.name).get(include=[])["ids"])


def test_what_somebody_took_away_there_is_written_again_on_request_and_a_collection_always(server, opened, embedder):
    import chromadb

    client = chromadb.HttpClient("127.0.0.1", server.port)
    (collection,) = client.list_collections()
    client.get_collection(collection.name).delete(ids=["b"])
    opened.memories.delete("a")
    assert opened.indexes.refresh(embedder).embedded == 0
    said = caught_up(opened, embedder)
    assert "2 records, and 3 were written here" in said and "reindex --chroma" in said and held(server) == {"a", "c"}
    assert opened.indexes.renew_chroma(embedder.model_id) == "" and held(server) == {"b", "c"}
    client.delete_collection(collection.name)
    opened.memories.delete("c")
    opened.indexes.refresh(embedder)
    assert caught_up(opened, embedder) == "" and held(server) == {"b"}


@pytest.mark.thorough
def test_two_workbenches_share_it(server, opened, embedder, rows, tmp_path):
    with Store.open(tmp_path / "another", chroma_url=server.url) as another:
        another.add(rows([Memory("b", "something else")]))
        another.indexes.refresh(embedder)
        assert len(another.indexes.open(embedder).vectors) == 1
    assert len(opened.indexes.open(embedder).vectors) == 3 and nearest(opened, embedder, "beta") == "b"
    # The same store in another process: what that adds is found here.
    program = (
        "import sys; from tests.small_store import HashEmbedder; from cems_workbench.store import Store\n"
        "from cems_workbench.records import Memory, ParsedInput\n"
        "with Store.open(sys.argv[1], chroma_url=sys.argv[2]) as store:\n"
        "    store.add(ParsedInput('more', 'test', memories=(Memory('d', 'delta'),)))\n"
        "    print(store.indexes.refresh(HashEmbedder()).embedded)\n"
    )
    command = [sys.executable, "-c", program, str(opened.path), server.url]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert said.stdout == "1\n"
    assert nearest(opened, embedder, "delta") == "d" and opened.indexes.refresh(embedder).embedded == 0
