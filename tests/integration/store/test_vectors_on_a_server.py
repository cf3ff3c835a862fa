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
from cems_workbench.platform import chroma_http
from cems_workbench.records import Memory
from cems_workbench.store import Store
from cems_workbench.store.search import indexes

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
        assert store.indexes.refresh(embedder).embedded == 3
        yield store


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
def test_while_it_is_away_a_line_says_so_and_nothing_is_embedded_again_after(server, opened, embedder, rows):
    before = opened.indexes.open(embedder)
    server.stop()
    for asked in (
        lambda: before.vectors.search(np.ones(16), 1),
        lambda: opened.indexes.open(embedder).vectors.search(np.ones(16), 1),
        lambda: opened.indexes.refresh(embedder),
    ):
        with pytest.raises(StoreError, match=f"127.0.0.1:{server.port}") as error:
            asked()
        assert "\n" not in str(error.value)
    opened.add(rows([Memory("d", "delta")]))
    with pytest.raises(StoreError):
        opened.indexes.refresh(embedder)
    server.start()
    report = opened.indexes.refresh(embedder)
    assert (report.embedded, report.notes) == (1, ())
    assert nearest(opened, embedder, "delta") == "d" and nearest(opened, embedder, "beta") == "b"


@pytest.mark.thorough
def test_a_store_that_is_opened_while_it_is_away_is_as_it_was_when_it_is_back(
    server, opened, embedder, tmp_path, monkeypatch
):
    monkeypatch.setattr(indexes, "SERVER_RETRY_S", 0.0)
    opened.close()
    server.stop()
    with Store.open(tmp_path / "store", chroma_url=server.url) as store:
        (_, vectors) = store.indexes.states(embedder.model_id)
        assert not vectors.fresh and f"127.0.0.1:{server.port}" in vectors.note
        server.start()
        assert all(state.fresh for state in store.indexes.states(embedder.model_id))
        report = store.indexes.refresh(embedder)
        assert (report.embedded, report.notes) == (0, ())
        assert nearest(store, embedder, "gamma") == "c"


@pytest.mark.thorough
def test_one_that_hangs_is_given_up(server, opened, embedder, monkeypatch):
    monkeypatch.setattr(chroma_http, "RESPONSE_TIMEOUT_S", 1.0)
    with Store.open(opened.path, chroma_url=server.url) as store:
        before = store.indexes.open(embedder)
        server.process.send_signal(signal.SIGSTOP)
        try:
            for asked in (lambda: before.vectors.search(np.ones(16), 1), lambda: store.indexes.refresh(embedder)):
                with pytest.raises(StoreError, match=f"127.0.0.1:{server.port}: it did not answer in time"):
                    asked()
        finally:
            server.process.send_signal(signal.SIGCONT)
        assert nearest(store, embedder, "beta") == "b" and store.indexes.refresh(embedder).embedded == 0


def test_what_somebody_took_away_there_is_embedded_again(server, opened, embedder):
    import chromadb

    client = chromadb.HttpClient("127.0.0.1", server.port)
    (collection,) = client.list_collections()
    client.get_collection(collection.name).delete(ids=["b"])
    report = opened.indexes.refresh(embedder)
    assert report.embedded == 1 and nearest(opened, embedder, "beta") == "b"
    client.delete_collection(collection.name)
    report = opened.indexes.refresh(embedder)
    assert report.embedded == 3 and "were lost" in report.notes[0]
    assert nearest(opened, embedder, "beta") == "b"


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
