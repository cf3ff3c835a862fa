"""Embedding through an Ollama server: the whole way from the settings to a search, and what is said when it is not there."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "models"))
from model_server import ModelServer, Reply, nobody, sent, serving

from cems_workbench.config import preset, with_values
from cems_workbench.errors import EmbedderMismatchError, ModelError
from cems_workbench.jobs.diagnosis import diagnose
from cems_workbench.jobs.factory import open_resources
from cems_workbench.models.minilm_judge import MODEL_ID, MiniLMJudge
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.pipeline.rerankers import cross_encoder
from cems_workbench.settings import Settings

if TYPE_CHECKING:
    from conftest import Command

pytestmark = [pytest.mark.models]
WIDTH = 24


def vector(text: str) -> list[float]:
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
            return sent({"model": body["model"], "embeddings": [vector(text) for text in body["input"]]})
        return sent({"error": "not found"}, 404)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
def ollama() -> Ollama:
    return Ollama()


@pytest.fixture
def server(ollama: Ollama) -> Iterator[ModelServer]:
    with serving(ollama.answer) as running:
        yield running


def settings(store: Path, url: str, embedder: str = "ollama:nomic-embed-text") -> Settings:
    return Settings(store=store, ollama_url=url, embedder=embedder)


def chosen(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("CEMS_WORKBENCH_EMBEDDER", "ollama:nomic-embed-text")
    monkeypatch.setenv("CEMS_WORKBENCH_OLLAMA_URL", url)


def facts(folder: Path) -> Path:
    path = folder / "memories.jsonl"
    path.write_text('{"id": "a", "content": "the kettle is blue"}\n{"id": "b", "content": "releases on Friday"}\n')
    return path


def test_another_embedder_is_refused_until_it_is_asked_to_embed_anew_and_the_first_ones_vectors_stay(
    store: Path, server: ModelServer
) -> None:
    resources = open_resources(settings(store, server.url))
    try:
        with pytest.raises(EmbedderMismatchError, match=r"made by sentence-transformers/.*384 values.*ollama:nomic"):
            gather(Request("kubernetes cluster"), preset("recollection").config, resources)
        assert {text for body in server.bodies("/api/embed") for text in body["input"]} <= {"dimension"}
        states = {state.name: state for state in resources.store.indexes.states(resources.embedder.model_id)}
        name = "vectors ollama:nomic-embed-text@sha256:1"
        assert states["lexical"].fresh
        assert (states[name].fresh, states[name].note) == (False, "never built")
        resources.embed_anew()
        evidence = gather(Request("kubernetes cluster"), preset("recollection").config, resources)
        assert all(state.fresh for state in resources.store.indexes.states(resources.embedder.model_id))
        assert evidence.notes["models"]["embedder"] == "ollama:nomic-embed-text@sha256:1"
        assert {len(row) for row in evidence.embeddings.values()} == {WIDTH}
        assert replay(evidence, preset("recollection").config).results
    finally:
        resources.close()
    back = open_resources(Settings(store=store))
    try:
        report = back.refresh()
        assert report is None or report.embedded == 0
    finally:
        back.close()


def test_a_model_pulled_anew_makes_them_stale_again(store: Path, server: ModelServer, ollama: Ollama) -> None:
    first = open_resources(settings(store, server.url))
    first.embed_anew()
    first.close()
    ollama.digest = "sha256:2"
    second = open_resources(settings(store, server.url))
    try:
        assert not all(state.fresh for state in second.store.indexes.states(second.embedder.model_id))
        report = second.refresh()
        assert report is not None and report.embedded
    finally:
        second.close()


def test_late_interaction_says_in_one_line_that_it_needs_token_vectors(store: Path, server: ModelServer) -> None:
    resources = open_resources(settings(store, server.url))
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


def test_a_cross_encoder_that_is_nowhere_and_no_packaged_one_name_both_reasons(
    store: Path, server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross_encoder, "MiniLMJudge", lambda: MiniLMJudge(tmp_path / "nowhere"))
    resources = open_resources(settings(store, server.url))
    resources.embed_anew()
    try:
        config = with_values(preset("ace").config, {"rerank.model": "no-such/model", "rerank.depth": 5})
        trace = replay(gather(Request("kubernetes cluster"), config, resources), config)
        errors = {row.error for row in trace.stage("rerank").rows if row.outcome == "failed"}
        (judge,) = trace.stage("judge").warnings
    finally:
        resources.close()
    assert len(errors) == 1
    for said in (errors.pop(), judge):
        for reason in ("was not found", f"{MODEL_ID} is not in this checkout", "needs token vectors"):
            assert reason in said


def test_import_and_search_from_the_command_line(
    server: ModelServer, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen(monkeypatch, server.url)
    done = command("import", facts(tmp_path), "--store", tmp_path / "new")
    assert (done.code, done.err) == (0, "")
    assert "2 embedded now" in done.out
    moved = facts(tmp_path)
    moved.write_text(moved.read_text().replace('"content"', '"project": "kitchen", "content"'))
    again = command("import", moved, "--store", tmp_path / "new")
    assert "2 memories in the store, nothing left to embed" in again.out
    found = command("search", "blue kettle", "--store", tmp_path / "new", "--preset", "recollection")
    assert found.code == 0
    assert "the kettle is blue" in found.out


def test_a_server_that_is_down_costs_one_line_and_no_imported_memory(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen(monkeypatch, nobody())
    done = command("import", facts(tmp_path), "--store", tmp_path / "new")
    assert done.code == 2
    assert "2 memories in the store" in done.out
    assert len(done.err.strip().splitlines()) == 1
    assert "not embedded yet" in done.err
    assert "refused" in done.err
    found = command("search", "blue kettle", "--store", tmp_path / "new")
    assert found.code == 2
    assert len(found.err.strip().splitlines()) == 1


def test_a_model_that_the_server_has_not_names_the_command_that_pulls_it(store: Path, server: ModelServer) -> None:
    resources = open_resources(settings(store, server.url, "ollama:other"))
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
    store: Path, server: ModelServer, embedder: str, status: str, finding: str
) -> None:
    checks = {check.name: check for check in diagnose(settings(store, server.url, embedder))}
    assert checks["embedder"].status == status
    assert finding in checks["embedder"].finding
    if status == "ok":
        assert checks["index vectors ollama:nomic-embed-text@sha256:1"].finding == "0 rows, never built"


def test_doctor_fails_when_nobody_embeds(store: Path) -> None:
    checks = {check.name: check for check in diagnose(settings(store, nobody()))}
    assert checks["embedder"].status == "failed"
    assert "refused" in checks["embedder"].finding
    assert checks["store"].status == "ok"
