"""Embedding through Ollama and OpenAI-compatible servers, from settings to search: a real llama.cpp server, another embedder."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import llama_cpp_server
import numpy as np
import pytest
from llama_cpp_server import LlamaCpp
from model_server import ModelServer, Reply, nobody, sent, serving

from cems_workbench import formats
from cems_workbench.config import preset, with_values
from cems_workbench.errors import ModelError
from cems_workbench.jobs.diagnosis import Check, diagnose
from cems_workbench.jobs.embedder_match import match_store
from cems_workbench.jobs.factory import open_resources
from cems_workbench.models.resolve import PACKAGED_ID
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.settings import Settings

if TYPE_CHECKING:
    from conftest import Command


KEY = "sk-very-secret-9012"
MEMORIES = {
    "kettle": "The kettle in the kitchen is blue and boils quickly.",
    "release": "Releases go out on Friday afternoon after the standup.",
    "database": "The team chose PostgreSQL because of its full text search.",
    "cat": "The office cat sleeps on the router all day.",
    "python": "Alice has five years of Python experience and teaches it.",
    "japanese": "日本語のメモ: 会議は月曜日の午前十時から。",
}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


def written(path: Path, memories: Mapping[str, str]) -> Path:
    path.write_text("".join(json.dumps({"id": key, "content": text}) + "\n" for key, text in memories.items()))
    return path


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    return written(tmp_path / "memories.jsonl", MEMORIES)


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a few other memories with vectors of the packaged embedder, closed."""
    folder = tmp_path_factory.mktemp("packaged")
    path = written(
        folder / "memories.jsonl", {"pods": "Kubernetes restarts the pods at night.", "tea": "She drinks green tea."}
    )
    with closing(open_resources(Settings(store=folder / "store"))) as resources:
        for parsed in formats.read_path(path):
            resources.store.add(parsed)
        resources.refresh()
    return folder / "store"


@pytest.fixture
def store(packaged: Path, tmp_path: Path) -> Path:
    """A copy of it, of one's own."""
    return Path(shutil.copytree(packaged, tmp_path / "store"))


def vector(text: str, width: int) -> list[float]:
    """Words hashed into a few places, so that texts with the same words are near each other."""
    row = [0.01] * width
    for word in text.lower().split():
        row[hashlib.sha256(word.encode()).digest()[0] % width] += 1.0
    return row


class Embeds:
    """A small server with a model of a width that a test may change, and another model behind the same name."""

    def __init__(self) -> None:
        self.width = 24
        self.other = False

    def answer(self, path: str, body: dict[str, Any], earlier: int) -> Reply:
        if path.partition("?")[0] != "/v1/embeddings":
            return Reply(status=404)
        rows = [vector(text[::-1] if self.other else text, self.width) for text in body["input"]]
        return sent({"data": [{"index": i, "embedding": row} for i, row in enumerate(rows)]})


@pytest.fixture
def embeds() -> Embeds:
    return Embeds()


@pytest.fixture
def server(embeds: Embeds) -> Iterator[ModelServer]:
    with serving(embeds.answer) as running:
        yield running


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def choose(url: str, model: str = "mini", **more: str) -> None:
        monkeypatch.setenv("CEMS_WORKBENCH_EMBEDDER", f"openai:{model}")
        monkeypatch.setenv("CEMS_WORKBENCH_EMBEDDING_URL", url)
        monkeypatch.setenv("CEMS_WORKBENCH_EMBEDDING_KEY", KEY)
        for name, value in more.items():
            monkeypatch.setenv(f"CEMS_WORKBENCH_EMBEDDING_{name}", value)

    return choose


@pytest.fixture
def served(server: ModelServer, facts: Path, command: Command, chosen: Callable[..., None], tmp_path: Path) -> Path:
    """A store of `MEMORIES` with the vectors of the small server, which is chosen."""
    chosen(server.url)
    assert command("import", facts, "--store", tmp_path / "new").code == 0
    return tmp_path / "new"


def checked(store: Path, **more: Any) -> dict[str, Check]:
    settings = Settings(store=store, llama_server_url=nobody(), ollama_url=nobody(), **more)
    return {check.name: check for check in diagnose(settings)}


@pytest.fixture(scope="module")
def llama() -> Iterator[LlamaCpp]:
    with pytest.MonkeyPatch.context() as patch, LlamaCpp(embeds=True) as running:
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield running


@pytest.mark.thorough
@pytest.mark.skipif(llama_cpp_server.missing() is not None, reason=str(llama_cpp_server.missing()))
class TestLlamaCpp:
    """A real server with a real model of 576 values."""

    @staticmethod
    def own_vectors(llama: LlamaCpp, texts: list[str]) -> np.ndarray:
        """The server's own vectors, asked one by one and without the workbench."""
        rows = []
        for text in texts:
            reply = httpx.post(f"{llama.url}/v1/embeddings", json={"input": text, "model": "x"}, timeout=60)
            rows.append(reply.json()["data"][0]["embedding"])
        vectors = np.asarray(rows)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def test_a_search_ranks_as_the_cosines_of_the_servers_own_vectors(
        self, llama: LlamaCpp, facts: Path, command: Command, chosen: Callable[..., None], tmp_path: Path
    ) -> None:
        chosen(llama.url, "smollm2-135m")
        done = command("import", facts, "--store", tmp_path / "new")
        assert (done.code, done.err) == (0, "")
        assert "6 embedded now" in done.out
        query = "which database did the team choose?"
        with closing(open_resources(Settings(store=tmp_path / "new"))) as resources:
            hits = resources.indexes.vectors.search(resources.embedder.encode_query(query), len(MEMORIES))
            dimension = resources.embedder.dimension
        own = self.own_vectors(llama, [query, *MEMORIES.values()])
        cosines = dict(zip(MEMORIES, (own[1:] @ own[0]).tolist(), strict=True))
        assert dimension == own.shape[1] == 576
        assert [key for key, _ in hits] == sorted(cosines, key=lambda key: -cosines[key])
        assert dict(hits) == pytest.approx(cosines, abs=2e-3)
        found = command("search", query, "--store", tmp_path / "new", "--preset", "recollection")
        assert found.code == 0
        assert MEMORIES["database"][:20] in found.out

        checks = checked(tmp_path / "new")
        assert checks["embedder"].status == "ok"
        assert "vectors of 576 values, reads 512 tokens of a text" in checks["embedder"].finding
        assert checks["embedder match"].status == "ok"
        assert "6 of 6 stored vectors reproduced, lowest cosine 0.99" in checks["embedder match"].finding.replace(
            "1.0000", "0.9999"
        )

    def test_a_long_memory_is_refused_in_one_line_and_cut_by_the_rule_embedder(
        self, llama: LlamaCpp, command: Command, chosen: Callable[..., None], tmp_path: Path
    ) -> None:
        chosen(llama.url)
        # Some tokens more than the 512 that are read.
        words = " ".join(f"Release {i} went out on Friday." for i in range(70))
        long = written(tmp_path / "memories.jsonl", {"long": words})
        done = command("import", long, "--store", tmp_path / "new", "--chunks", "whole")
        assert done.code == 2
        assert len(done.err.strip().splitlines()) == 1
        assert "longer than the server reads; import with --chunks embedder" in done.err
        again = command("import", long, "--store", tmp_path / "new", "--chunks", "embedder")
        assert (again.code, again.err) == (0, "")
        found = command("search", "release 69", "--store", tmp_path / "new", "--preset", "recollection", "--json")
        assert found.code == 0 and '"long"' in found.out


class TestAStoreOfAnotherEmbedder:
    """Nothing is searched until somebody says what is meant."""

    def test_another_model_is_one_line_that_names_both_and_exit_code_2(
        self, store: Path, server: ModelServer, command: Command, chosen: Callable[..., None]
    ) -> None:
        chosen(server.url)
        found = command("search", "blue kettle", "--store", store)
        assert (found.code, found.out) == (2, "")
        (line,) = found.err.strip().splitlines()
        for said in (
            f"{PACKAGED_ID} (384 values)",
            "openai:mini",
            f"CEMS_WORKBENCH_EMBEDDING_SAME_AS={PACKAGED_ID}",
            " embed",
        ):
            assert said in line
        assert "kettle" not in json.dumps(server.asked)

    def test_another_dimension_is_refused_though_the_name_is_the_same(
        self, embeds: Embeds, served: Path, command: Command
    ) -> None:
        embeds.width = 32
        found = command("search", "blue kettle", "--store", served)
        assert (found.code, found.out) == (2, "")
        (line,) = found.err.strip().splitlines()
        assert "openai:mini and have 24 values" in line and "makes 32" in line
        assert checked(served)["embedder match"].status == "failed"
        anew = command("reindex", "--store", served)
        assert (anew.code, anew.err) == (0, "")
        assert "6 texts embedded now by openai:mini" in anew.out
        assert command("search", "blue kettle", "--store", served).code == 0

    def test_an_import_keeps_the_memories_and_says_that_they_are_not_embedded(
        self, store: Path, server: ModelServer, facts: Path, command: Command, chosen: Callable[..., None]
    ) -> None:
        chosen(server.url)
        done = command("import", facts, "--store", store)
        assert done.code == 2
        (line,) = done.err.strip().splitlines()
        assert "not embedded: the store's vectors were made by" in line
        with closing(open_resources(Settings(store=store))) as resources:
            assert set(MEMORIES) <= set(resources.store.memories.read())

    def test_a_name_that_is_stated_to_be_the_same_is_believed_if_the_length_is(
        self, embeds: Embeds, server: ModelServer, served: Path, command: Command, chosen: Callable[..., None]
    ) -> None:
        chosen(server.url, "all-mini.gguf")
        refused = command("search", "blue kettle", "--store", served)
        assert refused.code == 2 and "CEMS_WORKBENCH_EMBEDDING_SAME_AS=openai:mini" in refused.err
        chosen(server.url, "all-mini.gguf", SAME_AS="openai:mini")
        assert command("search", "blue kettle", "--store", served).code == 0
        checks = checked(served)
        assert checks["embedder match"] == Check(
            "embedder match", "ok", "6 of 6 stored vectors reproduced, lowest cosine 1.0000"
        )
        embeds.other = True
        checks = checked(served)
        assert checks["embedder match"].status == "warning"
        assert checks["embedder match"].finding.startswith("0 of 6 stored vectors reproduced, lowest cosine 0.")
        embeds.width = 32
        assert command("search", "blue kettle", "--store", served).code == 2


class TestWithoutAServer:
    """What is said, and that the memories are there all the same."""

    def test_a_server_that_is_away_costs_one_line_and_no_imported_memory(
        self, facts: Path, command: Command, chosen: Callable[..., None], tmp_path: Path
    ) -> None:
        chosen(nobody())
        done = command("import", facts, "--store", tmp_path / "new")
        assert done.code == 2 and "6 memories in the store" in done.out
        (line,) = done.err.strip().splitlines()
        assert "not embedded yet" in line and "nothing answers" in line
        check = checked(tmp_path / "new")["embedder"]
        assert (check.status, "nothing answers" in check.finding) == ("failed", True)

    def test_a_wrong_key_is_said(self, store: Path) -> None:
        with serving(lambda *_: sent({"error": {"message": f"no such key: {KEY}"}}, 401)) as server:
            check = checked(store, embedder="openai:mini", embedding_url=server.url, embedding_key=KEY)["embedder"]
        assert check.status == "failed" and "HTTP 401" in check.finding
        assert KEY not in repr(check)


def test_the_key_stands_in_nothing_that_is_written(
    server: ModelServer, facts: Path, command: Command, chosen: Callable[..., None], tmp_path: Path
) -> None:
    """Store with its vectors, bundle, trace, messages."""
    chosen(f"{server.url.replace('http://', 'http://bob:pa55word@')}/v1?apikey=query-secret-77")
    store, bundle = tmp_path / "new", tmp_path / "query.bundle"
    said = [
        command("import", facts, "--store", store),
        command("search", "blue kettle", "--store", store, "--bundle", bundle, "--json"),
        command("doctor", "--store", store),
    ]
    assert [one.code for one in said[:2]] == [0, 0]
    assert {headers.get("authorization") for _, _, headers in server.asked} == {f"Bearer {KEY}"}
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert bundle.is_file() and any(b"openai:mini" in content for content in written)
    for secret in (KEY, "pa55word", "query-secret-77"):
        assert not any(secret.encode() in content for content in written)
        assert not any(secret in one.out + one.err for one in said)


def test_nothing_is_compared_while_the_vectors_are_behind(served: Path) -> None:
    with closing(open_resources(Settings(store=served))) as resources:
        assert match_store(resources.store, resources.embedder).same
        resources.store.memories.delete("cat")
        assert match_store(resources.store, resources.embedder).asked == 0


if TYPE_CHECKING:
    pass
WIDTH = 24


def hashed(text: str) -> list[float]:
    """Words hashed into a few places, so that texts with the same words are near each other."""
    row = [0.01] * WIDTH
    for word in text.lower().split():
        row[hashlib.sha256(word.encode()).digest()[0] % WIDTH] += 1.0
    return row


class Ollama:
    """What the server has: the digest of its one model, which a test may change."""

    def __init__(self) -> None:
        self.digest = "sha256:1"

    def answer(self, path: str, body: dict[str, Any], earlier: int) -> Reply:
        if path == "/api/tags":
            return sent({"models": [{"model": "nomic-embed-text:latest", "digest": self.digest}]})
        if path == "/api/embed" and body["model"] == "nomic-embed-text":
            return sent({"model": body["model"], "embeddings": [hashed(text) for text in body["input"]]})
        return sent({"error": "not found"}, 404)


@pytest.fixture
def ollama() -> Ollama:
    return Ollama()


@pytest.fixture
def ollama_server(ollama: Ollama) -> Iterator[ModelServer]:
    with serving(ollama.answer) as running:
        yield running


def settings(store: Path, url: str, embedder: str = "ollama:nomic-embed-text") -> Settings:
    return Settings(store=store, ollama_url=url, embedder=embedder)


def test_a_model_pulled_anew_makes_them_stale_again(store: Path, ollama_server: ModelServer, ollama: Ollama) -> None:
    first = open_resources(settings(store, ollama_server.url))
    first.embed_anew()
    first.close()
    ollama.digest = "sha256:2"
    second = open_resources(settings(store, ollama_server.url))
    try:
        assert not all(state.fresh for state in second.store.indexes.states(second.embedder.model_id))
        report = second.refresh()
        assert report is not None and report.embedded
    finally:
        second.close()


def test_late_interaction_says_in_one_line_that_it_needs_token_vectors(store: Path, ollama_server: ModelServer) -> None:
    resources = open_resources(settings(store, ollama_server.url))
    resources.embed_anew()
    try:
        with pytest.raises(
            ModelError, match=r"needs token vectors, which nomic-embed-text on Ollama at .* does not give"
        ):
            resources.late_interaction()
        config = with_values(preset("qmd").config, {"rerank.backend": "late_interaction"})
        trace = replay(gather(Request("kubernetes cluster"), config, resources), config)
        rows = [row for row in trace.stage("rerank").rows if row.outcome == "failed"]
        assert rows
        assert all("needs token vectors" in row.error for row in rows)
        assert trace.results
    finally:
        resources.close()


def test_a_model_that_the_server_has_not_names_the_command_that_pulls_it(
    store: Path, ollama_server: ModelServer
) -> None:
    resources = open_resources(settings(store, ollama_server.url, "ollama:other"))
    try:
        with pytest.raises(ModelError, match="has no model other: ollama pull other"):
            resources.refresh()
    finally:
        resources.close()


@pytest.mark.parametrize(
    ("embedder", "status", "finding"),
    [
        ("ollama:nomic-embed-text", "ok", "nomic-embed-text on Ollama at"),
        ("ollama:other", "failed", "not there"),
        ("ollama:", "failed", "names no model"),
    ],
)
def test_doctor_says_whether_the_server_has_the_embedder(
    store: Path, ollama_server: ModelServer, embedder: str, status: str, finding: str
) -> None:
    checks = {check.name: check for check in diagnose(settings(store, ollama_server.url, embedder))}
    assert checks["embedder"].status == status
    assert finding in checks["embedder"].finding
    if status == "ok":
        assert checks["index vectors ollama:nomic-embed-text@sha256:1"].finding == "0 rows, never built"
