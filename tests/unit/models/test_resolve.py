"""Where weights come from, in order, and saying so: path, local cache, packaged, hub, packaged fallback."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cems_workbench.models import resolve as module
from cems_workbench.models.resolve import PACKAGED_ID, resolve


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("NO_PROXY")  # proxies are a subject here
    probe = module.hub_reachable  # a test may put another in its place
    resolve.cache_clear()
    probe.cache_clear()
    yield
    resolve.cache_clear()
    probe.cache_clear()


def cached(tmp_path: Path, model_id: str) -> Path:
    snapshot = tmp_path / "hub" / f"models--{model_id.replace('/', '--')}" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    return snapshot


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    found = resolve(str(tmp_path))
    assert (found.location, found.source, found.fallback) == (str(tmp_path), "configured path", False)


def test_the_local_cache_comes_before_the_packaged_weights(tmp_path: Path) -> None:
    snapshot = cached(tmp_path, PACKAGED_ID)
    found = resolve(PACKAGED_ID)
    assert (found.location, found.source) == (str(snapshot), "local Hugging Face cache")


@pytest.mark.parametrize("asked", [PACKAGED_ID, "all-MiniLM-L6-v2"])
def test_the_packaged_model_needs_no_network(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "hub_reachable", lambda: pytest.fail("the hub was asked"))
    found = resolve(asked)
    assert (found.model_id, found.fallback) == (PACKAGED_ID, False)
    assert found.source.startswith("packaged")
    assert (Path(found.location) / "model.safetensors").is_file()


def test_another_model_comes_from_the_hub_when_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "hub_reachable", lambda: True)
    assert resolve("some/model").source == "Hugging Face hub"


def test_another_model_without_network_falls_back_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = resolve("some/model")
    assert found.fallback and found.model_id == PACKAGED_ID
    assert "some/model was not found" in found.line


def test_offline_is_known_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(module, "_status_of", lambda url: pytest.fail("the network was asked"))
    assert not module.hub_reachable()


@pytest.mark.parametrize("reply", [OSError("no route"), None], ids=["unreachable", "answers"])
def test_the_hub_is_probed_once(reply: OSError | None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def status_of(url: str) -> int:
        asked.append(url)
        if reply is not None:
            raise reply
        return 200

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(module, "_status_of", status_of)
    assert [module.hub_reachable(), module.hub_reachable()] == [reply is None] * 2
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("status", "there"), [(200, True), (302, True), (404, True), (403, False), (407, False), (502, False)]
)
def test_a_proxy_that_lets_nothing_through_is_no_hub(status: int, there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(module, "_status_of", lambda url: status)
    assert module.hub_reachable() is there


@pytest.mark.parametrize("endpoint", ["no scheme", "http://[::1", "ftp://hub", ""])
def test_an_endpoint_that_is_no_url_is_no_hub(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    assert not module.hub_reachable()


def test_a_hub_that_takes_the_connection_and_never_answers_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HUB_TIMEOUT_S", 0.4)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.delenv("HF_HUB_OFFLINE")
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        started = time.monotonic()
        assert resolve("some/model").fallback
        assert time.monotonic() - started < 5


def test_a_hub_whose_name_is_never_looked_up_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def never(*asked: object, **options: object) -> None:
        over.wait(20)
        raise socket.gaierror("nobody knows")

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    monkeypatch.setattr(socket, "getaddrinfo", never)
    monkeypatch.setattr(module, "HUB_TIMEOUT_S", 0.4)
    started = time.monotonic()
    assert not module.hub_reachable()
    assert time.monotonic() - started < 5
    over.set()
