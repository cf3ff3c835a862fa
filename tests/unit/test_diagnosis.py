"""What doctor finds and says: found or not, what takes the place of what is not there, and how to get the better one."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "models"))
from model_server import HANG, Reply, no_sleep, nobody, sent, serving

from cems_workbench.config import PipelineConfig, preset
from cems_workbench.errors import StoreError
from cems_workbench.jobs import diagnosis as scorers
from cems_workbench.jobs.diagnosis import Check, diagnose
from cems_workbench.models import ollama
from cems_workbench.models import resolve as resolving
from cems_workbench.models import servers as asking
from cems_workbench.settings import Settings
from cems_workbench.store.search.chroma import connect

QWEN = str(preset("cems_qwen").config.rerank.model)


@pytest.fixture(autouse=True)
def nothing_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(scorers, "available", lambda: True)
    monkeypatch.setattr(asking, "models", partial(ollama.models, sleep=no_sleep))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)  # no .env and no store
    resolving.resolve.cache_clear()
    resolving.hub_reachable.cache_clear()
    yield
    resolving.resolve.cache_clear()
    resolving.hub_reachable.cache_clear()


def settings(**values: Any) -> Settings:
    """Settings under which no server answers, but for what is said."""
    return Settings(**{"llama_server_url": nobody(), "ollama_url": nobody()} | values)


def defaults(monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings as nobody touched them, on a machine where no server runs."""
    for name in ("llama_server_url", "ollama_url"):
        monkeypatch.setattr(Settings.model_fields[name], "default", nobody())
    return Settings(**{name: Settings.model_fields[name].default for name in ("llama_server_url", "ollama_url")})


def checks(of: Settings, config: PipelineConfig | None = None) -> dict[str, Check]:
    return {check.name: check for check in diagnose(of, config)}


def ollama_with(*names: str) -> Any:
    return serving(lambda path, body, before: sent({"models": [{"model": name} for name in names]}))


def llama(path: str, body: dict[str, Any], before: int) -> Reply:
    return sent({"status": "ok"}) if path == "/health" else sent({"data": [{"id": "models/qwen.gguf"}]})


def test_with_nothing_there_nothing_warns_and_every_fallback_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checks(defaults(monkeypatch))
    assert [name for name, check in found.items() if check.status not in ("ok", "optional")] == ["store"]
    assert "the packaged workbench/minilm-judge is used instead" in found["cross-encoder"].finding
    assert "CEMS_WORKBENCH_CROSS_ENCODER" in found["cross-encoder"].advice
    assert "auto means the packaged workbench/minilm-judge, instead of" in found["judge"].finding
    assert "only memory_agent would ask it" in found["llama.cpp server"].finding
    assert "llama-server" in found["llama.cpp server"].advice
    assert "only cems_qwen would ask it" in found["Ollama"].finding and "ollama serve" in found["Ollama"].advice
    assert "feedback" in found["LLM"].finding and "words" in found["LLM"].finding
    assert "CEMS_WORKBENCH_LLM_MODEL" in found["LLM"].advice


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("llama.cpp server", {"llama_server_url": "http://127.0.0.1:1"}),
        ("Ollama", {"ollama_url": "http://127.0.0.1:1"}),
        ("cross-encoder", {"cross_encoder": "some/other"}),
        ("LLM", {"llm_model": "chatty"}),
        ("LLM", {"llm_model": "chatty", "llm_url": "http://127.0.0.1:1"}),
        ("LLM", {"llm_url": "http://127.0.0.1:1"}),
        ("embedder", {"embedder": "some/other"}),
        ("llama.cpp server", {"llama_server_url": "nonsense"}),
        ("Ollama", {"ollama_url": "http://"}),
        ("LLM", {"llm_model": "chatty", "llm_url": "http://"}),
        ("LLM", {"llm_model": "chatty", "llm_url": "http://127.0.0.1:1", "llm_key": "sé"}),
    ],
)
def test_what_somebody_set_and_is_not_there_is_a_warning(name: str, values: dict[str, str]) -> None:
    check = checks(settings(**values))[name]
    assert check.status == "warning" and check.advice


class TestTheReranker:
    """What the config reranks with, or what takes its place."""

    def test_late_interaction_is_always_there(self) -> None:
        check = checks(settings(), preset("qmd").config)["reranker"]
        assert (check.status, check.finding) == (
            "ok",
            "qmd reranks with late interaction on the embedder; no server is needed",
        )

    def test_the_packaged_one_takes_the_place_of_a_cross_encoder_that_is_nowhere(self) -> None:
        found = checks(settings(), preset("ace").config)
        assert found["reranker"].status == found["cross-encoder"].status == "warning"
        assert found["reranker"].finding == (
            "ace reranks with the packaged workbench/minilm-judge, instead of the cross-encoder "
            "cross-encoder/ms-marco-MiniLM-L6-v2"
        )
        for name in ("reranker", "cross-encoder", "judge"):
            assert "CEMS_WORKBENCH_CROSS_ENCODER" in found[name].advice

    def test_without_its_weights_late_interaction_takes_the_place(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(scorers, "available", lambda: False)
        found = checks(settings(), preset("ace").config)
        for name in ("reranker", "cross-encoder", "judge"):
            assert (
                "late interaction on the embedder (workbench/minilm-judge is not in this checkout)"
                in found[name].finding
            )

    def test_a_cross_encoder_in_a_folder_reranks_and_judges(self, tmp_path: Path) -> None:
        found = checks(settings(cross_encoder=str(tmp_path)), preset("ace").config)
        for name in ("reranker", "cross-encoder", "judge"):
            assert found[name].status == "ok" and "configured path" in found[name].finding
        assert found["judge"].finding.startswith("auto means the cross-encoder")

    def test_a_server_that_is_not_there_leaves_flagged_neutral_scores(self) -> None:
        for name, server in (("memory_agent", "llama.cpp server"), ("cems_qwen", "Ollama")):
            found = checks(settings(), preset(name).config)
            assert found["reranker"].status == found[server].status == "warning"
            assert "count 0.5, flagged" in found["reranker"].finding
            assert "late_interaction" in found["reranker"].advice


class TestServers:
    """What each says when it answers."""

    def test_llama_cpp_names_its_model(self) -> None:
        with serving(llama) as server:
            found = checks(settings(llama_server_url=server.url), preset("memory_agent").config)
        assert found["llama.cpp server"] == Check(
            "llama.cpp server", "ok", f"llama.cpp server at {server.url}: ok, serves qwen.gguf"
        )
        assert found["reranker"].status == "ok"

    def test_ollama_lists_its_models_and_says_which_is_missing(self) -> None:
        with ollama_with("a:latest", "b:1b") as server:
            found = checks(settings(ollama_url=server.url))
        assert "2 models: a:latest, b:1b" in found["Ollama"].finding
        assert f"{QWEN} (preset cems_qwen) is not among them" in found["Ollama"].finding
        assert (found["Ollama"].status, found["Ollama"].advice) == ("ok", f"ollama pull {QWEN}")

    def test_the_model_that_the_config_needs_is_a_warning_until_it_is_pulled(self) -> None:
        config = preset("cems_qwen").config
        with ollama_with() as server:
            found = checks(settings(ollama_url=server.url), config)
        assert found["Ollama"].status == found["reranker"].status == "warning"
        with ollama_with(QWEN) as server:
            found = checks(settings(ollama_url=server.url), config)
        assert found["Ollama"].status == found["reranker"].status == "ok"
        assert "is among them" in found["Ollama"].finding

    def test_a_chat_model_that_ollama_lacks_is_a_warning_with_the_command(self) -> None:
        with ollama_with(QWEN) as server:
            found = checks(settings(ollama_url=server.url, llm_model="chatty"))
        assert found["LLM"].status == "warning" and found["LLM"].advice == "ollama pull chatty"
        assert "feedback" in found["LLM"].finding

    @pytest.mark.parametrize(
        ("reply", "status", "part"),
        [
            (sent({"data": [{"id": "chatty"}]}), "ok", "there"),
            (sent({"data": [{"id": "other"}]}), "warning", "1 models: other"),
            (Reply(status=404), "ok", "does not list its models"),
            (sent({"hello": 1}), "ok", "does not list its models"),
            (Reply(b"key sesame is wrong", status=401), "warning", "HTTP 401"),
            (Reply(b"<html>", status=200), "warning", "bad reply"),
        ],
    )
    def test_an_openai_compatible_server(self, reply: Reply, status: str, part: str) -> None:
        with serving(lambda path, body, before: reply) as server:
            check = checks(settings(llm_url=server.url, llm_model="chatty", llm_key="sesame"))["LLM"]
            headers = server.asked[0][2]
        assert (check.status, server.asked[0][0]) == (status, "/v1/models")
        assert part in check.finding and "sesame" not in check.finding
        assert headers["authorization"] == "Bearer sesame"

    @pytest.mark.parametrize(
        ("paths", "status", "part"),
        [
            (
                {"embeddings": sent({"data": [{"index": 0, "embedding": [3, 4]}]})},
                "ok",
                "does not say how much of a text",
            ),
            (
                {
                    "embeddings": sent({"data": [{"index": 0, "embedding": [3, 4]}]}),
                    "models": sent({"data": [{"id": "mini", "max_model_len": 2048}]}),
                },
                "ok",
                "vectors of 2 values, reads 2048 tokens of a text",
            ),
            ({"embeddings": Reply(b"key sesame is wrong", status=401)}, "failed", "HTTP 401: key *** is wrong"),
            ({"embeddings": sent({"data": []})}, "failed", "0 vectors for 1 texts"),
            ({"embeddings": HANG}, "failed", "timeout"),
        ],
    )
    def test_an_embedder_on_an_openai_compatible_server(self, paths, status, part, monkeypatch):
        monkeypatch.setattr(asking, "TOTAL_TIMEOUT_S", 1.0)
        with serving(lambda path, body, before: paths.get(path.removeprefix("/v1/"), Reply(status=404))) as server:
            of = settings(embedder="openai:mini", embedding_url=server.url, embedding_key="sesame")
            check = checks(of)["embedder"]
            asked = {headers.get("authorization") for _, _, headers in server.asked}
        assert check.status == status and part in check.finding and "sesame" not in repr(check)
        assert asked == {"Bearer sesame"}

    def test_what_stands_before_an_at_is_kept_secret(self) -> None:
        url = nobody().replace("http://", "http://user:sesame@")
        urls = {"llm_url": url, "ollama_url": url, "llama_server_url": url, "chroma_url": url, "embedding_url": url}
        for embedder in ("openai:mini", "ollama:mini"):
            found = [repr(check) for check in diagnose(settings(llm_model="chatty", embedder=embedder, **urls))]
            assert "sesame" not in json.dumps(found)
        assert "sesame" not in json.dumps([repr(check) for check in diagnose(settings(llm_model="chatty", **urls))])

    @pytest.mark.parametrize(("reply", "status"), [(sent({"nanosecond heartbeat": 1}), "ok"), (HANG, "failed")])
    def test_a_chroma_server_has_no_stand_in(self, reply: Reply, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
        if reply is HANG:
            monkeypatch.setattr(asking, "SERVER_TIMEOUT_S", 0.2)
        with serving(lambda path, body, before: reply) as server:
            assert checks(settings(chroma_url=server.url))["Chroma server"].status == status
        assert server.asked[0][0] == "/api/v2/heartbeat"

    def test_a_chroma_server_that_is_too_old_says_so_here_and_where_it_is_used(self, tmp_path: Path) -> None:
        with serving(lambda path, body, before: sent("0.5.23" if path.endswith("version") else {})) as server:
            check = checks(settings(chroma_url=server.url))["Chroma server"]
            with pytest.raises(
                StoreError, match=r"cannot be used: it is version 0\.5\.23, and 1\.0 or newer is needed$"
            ):
                connect(tmp_path, server.url)
        assert check.status == "failed" and "it is version 0.5.23, and 1.0 or newer is needed" in check.finding


class TestTime:
    """doctor has its answers within 5 s, whatever does not answer; waited for is a fifth of that."""

    @pytest.fixture(autouse=True)
    def sooner(self, monkeypatch: pytest.MonkeyPatch) -> None:
        limits = [(asking, name) for name in ("SERVER_TIMEOUT_S", "LOOKUP_TIMEOUT_S", "TOTAL_TIMEOUT_S")]
        for module, name in [*limits, (resolving, "HUB_TIMEOUT_S")]:
            monkeypatch.setattr(module, name, getattr(module, name) / 5)

    def test_the_limits_together_are_less(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.undo()
        assert asking.LOOKUP_TIMEOUT_S < asking.SERVER_TIMEOUT_S < asking.TOTAL_TIMEOUT_S
        assert asking.TOTAL_TIMEOUT_S + resolving.HUB_TIMEOUT_S < 5

    def test_servers_and_a_hub_that_take_the_connection_and_never_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            monkeypatch.delenv("HF_HUB_OFFLINE")
            monkeypatch.setenv("HF_ENDPOINT", url)
            urls = {"llama_server_url": url, "ollama_url": url, "llm_url": url, "chroma_url": url}
            started = time.monotonic()
            found = checks(settings(embedder="some/model", llm_model="chatty", **urls), preset("ace").config)
            assert time.monotonic() - started < 5
            started = time.monotonic()
            served = checks(settings(embedder="openai:mini", embedding_url=url, **urls))["embedder"]
            assert time.monotonic() - started < 5
            assert served.status == "failed" and "timeout" in served.finding
        for name in ("llama.cpp server", "Ollama", "LLM", "Chroma server"):
            assert "timeout" in found[name].finding
        assert found["embedder"].status == "warning"
