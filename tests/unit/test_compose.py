"""compose.yaml and the Dockerfile: names that the settings know, ports for this machine only, data that outlives a container."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cems_workbench.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "CEMS_WORKBENCH_"
KNOWN = {f"{PREFIX}{name}".upper() for name in Settings.model_fields}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def test_it_starts_the_workbench_chroma_and_ollama(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == {"workbench", "chroma", "ollama"}
    assert set(compose["services"]["workbench"]["depends_on"]) == {"chroma", "ollama"}


def test_every_setting_it_names_exists(compose: dict[str, Any]) -> None:
    named = {name for name in compose["services"]["workbench"]["environment"] if name.startswith(PREFIX)}
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8") + (ROOT / "Dockerfile").read_text(encoding="utf-8")
    named |= set(re.findall(rf"{PREFIX}[A-Z_]*[A-Z]", text))
    assert named >= {f"{PREFIX}STORE", f"{PREFIX}CHROMA_URL", f"{PREFIX}OLLAMA_URL"}
    assert named <= KNOWN


def test_the_servers_it_names_are_its_own_services(compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in compose["services"]["workbench"]["environment"].items():
        monkeypatch.setenv(name, re.sub(r"\$\{.*:-(.*)\}", r"\1", str(value)))
    settings = Settings(_env_file=None)  # type: ignore[call-arg]
    assert settings.chroma_url == "http://chroma:8000"
    assert settings.ollama_url == "http://ollama:11434"
    assert not settings.llm_url
    assert not settings.llm_model


def test_what_is_published_is_published_on_this_machine_only(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert ports == ["127.0.0.1:8501:8501"]
    assert compose["services"]["workbench"]["environment"]["STREAMLIT_SERVER_ADDRESS"] == "0.0.0.0"


def test_what_is_written_outlives_the_containers(compose: dict[str, Any]) -> None:
    mounted = {name: service["volumes"] for name, service in compose["services"].items()}
    assert set(mounted) == set(compose["services"])
    assert {volume.partition(":")[0] for volumes in mounted.values() for volume in volumes} == set(compose["volumes"])
    store = compose["services"]["workbench"]["environment"][f"{PREFIX}STORE"]
    assert store.startswith(mounted["workbench"][0].partition(":")[2])


def test_secrets_come_from_outside(compose: dict[str, Any]) -> None:
    assert compose["services"]["workbench"]["environment"][f"{PREFIX}LLM_KEY"] == f"${{{PREFIX}LLM_KEY:-}}"
    assert ".env" in (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
