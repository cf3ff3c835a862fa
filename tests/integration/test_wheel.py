"""The wheel in an environment of its own, without torch and away from the checkout: the sample is searched, the app answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.processes import free_port

pytestmark = [pytest.mark.models]
LEFT_OUT = ("torch", "sentence_transformers", "psycopg", "qdrant_client", "distributed")
"""What only the extras bring."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built beside it."""
    place = tmp_path_factory.mktemp("wheel")
    steps = [
        "egg_info",
        "--egg-base",
        place,
        "build",
        "--build-base",
        place / "build",
        "bdist_wheel",
        "--dist-dir",
        place,
    ]
    subprocess.run([sys.executable, "setup.py", "-q", *steps], cwd=ROOT, check=True, capture_output=True)
    return next(place.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The command of an installation of it, in an empty environment with what it asks for."""
    place = wheel.parent / "venv"
    venv.create(place, with_pip=True)
    subprocess.run([ROOT / ".ci" / "install", place / "bin" / "python", wheel], check=True, capture_output=True)
    return place / "bin" / "cems-workbench"


@pytest.fixture
def away(installed: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder of nobody's, in which the sample was imported."""
    told = run(installed, tmp_path, "import", "sample_data", "--json")
    assert json.loads(told)["memories_in_store"] == 438
    yield tmp_path


def run(command: Path, folder: Path, *arguments: str) -> str:
    """What it prints; it has to end well."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CEMS_WORKBENCH_")}
    ended = subprocess.run(
        [command, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_wheel_has_the_app_the_sample_and_both_models(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        needs = next(packed.read(name).decode() for name in names if name.endswith("METADATA"))
    for name in ("app/app.py", "app/pages/inspect.py", "app/.streamlit/config.toml", "app/sample_data/memories.jsonl",
                 "models/weights/minilm_judge/model.onnx", "models/weights/minilm_embedder/model/model.safetensors"):  # fmt: skip
        assert f"cems_workbench/{name}" in names
    assert not [
        name for name in names if name.startswith(("tests/", "benchmarks/", "training/")) or "__pycache__" in name
    ]
    required = [line for line in needs.splitlines() if line.startswith("Requires-Dist: ") and "extra ==" not in line]
    assert required and not [line for line in required if any(name in line.replace("-", "_") for name in LEFT_OUT)]
    assert 'torch==2.13.0; extra == "torch"' in needs


def test_it_runs_away_from_the_checkout_without_torch(installed: Path, away: Path) -> None:
    python = installed.with_name("python")
    found = run(python, away, "-c", f"import importlib.util as u; print([n for n in {LEFT_OUT} if u.find_spec(n)])")
    assert found.strip() == "[]"
    answer = json.loads(run(installed, away, "search", "when are we moving house", "--json"))
    assert "m249" in {result["memory_id"] for result in answer["results"]}
    port = free_port()
    app = subprocess.Popen([installed, "app", "--headless", "--port", str(port)], cwd=away, stdout=subprocess.DEVNULL)
    try:
        while True:
            assert app.poll() is None
            try:
                with urllib.request.urlopen(f"http://localhost:{port}/_stcore/health", timeout=5) as reply:
                    assert reply.read() == b"ok"
                    break
            except OSError:
                time.sleep(0.2)
    finally:
        app.kill()
        app.wait()
