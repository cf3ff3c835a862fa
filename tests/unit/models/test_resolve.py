"""Where weights come from, in order, and saying so: path, local cache, packaged, hub, packaged fallback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cems_workbench.models import resolve as module
from cems_workbench.models.resolve import PACKAGED_ID, resolve


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
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
    import httpx

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(httpx, "head", lambda *args, **kwargs: pytest.fail("the network was asked"))
    assert not module.hub_reachable()


@pytest.mark.parametrize("reply", [OSError("no route"), None], ids=["unreachable", "answers"])
def test_the_hub_is_probed_once(reply: OSError | None, monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx

    asked = []

    def head(url: str, timeout: float) -> None:
        asked.append(timeout)
        if reply is not None:
            raise reply

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(httpx, "head", head)
    assert [module.hub_reachable(), module.hub_reachable()] == [reply is None] * 2
    assert asked == [module.PROBE_SECONDS] and asked[0] <= 5
