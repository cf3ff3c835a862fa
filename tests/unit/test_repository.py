"""The commit hook, compose.yaml and the generated pages."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cems_workbench.settings import Settings
from docs.make_reference import FOLDER, PAGES
from docs.reference_pages.markdown import COMMAND

HOOK = Path(__file__).resolve().parents[2] / ".githooks" / "commit-msg"


def refusal(folder: Path, message: str) -> str:
    """What the hook says of a message; empty if it accepts it."""
    path = folder / "message"
    path.write_text(message, encoding="utf-8")
    run = subprocess.run([sys.executable, str(HOOK), str(path)], capture_output=True, text=True, check=False)
    assert (run.returncode == 0) == (run.stderr == "")
    return run.stderr


@pytest.mark.parametrize(
    "message",
    [
        "Move modules into packages named for what they hold",
        "docs: Add a page on hooks\n\nWhy it is needed.\n",
        "Embed texts in batches",
        'Revert "Added something that is long enough to be longer than the hook allows in a subject"',
        "Fix the count\n# Please enter the commit message\n",
    ],
)
def test_commit_subject_is_accepted(tmp_path: Path, message: str) -> None:
    assert refusal(tmp_path, message) == ""


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("", "empty"),
        ("Added a page", "not an imperative"),
        ("Words", "not an imperative"),
        ("The store counts its rows", "not an imperative"),
        ("Add a page.", "full stop"),
        ("add a page", "lower-case"),
        ("Add a page " + "and more " * 8, "at most 72"),
        ("Add a page\nof text", "second line"),
    ],
)
def test_commit_subject_is_refused(tmp_path: Path, message: str, reason: str) -> None:
    assert reason in refusal(tmp_path, message)


ROOT = Path(__file__).resolve().parents[2]
PREFIX = "CEMS_WORKBENCH_"
KNOWN = {f"{PREFIX}{name}".upper() for name in Settings.model_fields}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


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


@pytest.mark.parametrize("name", PAGES)
def test_reference_page_is_current(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), (
        f"docs/reference/{name} is stale: run {COMMAND}"
    )


def test_reference_folder_has_no_other_generated_page() -> None:
    generated = {path.name for path in FOLDER.glob("*.md") if COMMAND in path.read_text(encoding="utf-8")}
    assert generated == set(PAGES)
