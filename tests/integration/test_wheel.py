"""The wheel in an environment of its own, without torch and away from the checkout; and what a command may not load."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
import venv
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT
from tests.processes import free_port

LEFT_OUT = (
    "torch",
    "sentence_transformers",
    "psycopg",
    "qdrant_client",
    "lancedb",
    "faiss",
    "langchain_core",
    "llama_index",
)
"""What only the extras bring."""
NAMES = """
from cems_workbench.formats import FORMATS
from cems_workbench.sources.address import SOURCE_KINDS
print(*FORMATS, *SOURCE_KINDS, *(SOURCE_KINDS.origin(name) for name in SOURCE_KINDS))
"""
"""Prints what plugins and modules add."""
OWN = (".dist-info", ".libs")
"""Folders of one distribution alone, as packages are."""


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
    """The command of an installation of it, in an environment of just what it asks for: nothing else can be imported there."""
    place = wheel.parent / "venv"
    venv.create(place)
    site = next(place.glob("lib/python*/site-packages"))
    (needs,) = metadata.distributions(path=[str(wheel)])
    for one in asked_for([Requirement(line) for line in needs.requires or ()]):
        link(one, site)
    pip = [sys.executable, "-m", "pip", "--python", place / "bin" / "python", "--disable-pip-version-check"]
    told = ["install", "-q", "--no-index", "--no-deps", "--no-compile", wheel]
    subprocess.run([*pip, *told], check=True, capture_output=True)
    return place / "bin" / "cems-workbench"


def asked_for(requirements: Sequence[Requirement]) -> list[metadata.Distribution]:
    """What is installed here of these requirements and of what they require in turn, each in a version that is allowed."""
    found: dict[str, metadata.Distribution] = {}
    left = [(one, "") for one in requirements]
    seen: set[tuple[str, str]] = set()
    while left:
        asked, extra = left.pop()
        if asked.marker is not None and not asked.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(asked.name)
        one = found.setdefault(name, metadata.distribution(asked.name))
        assert asked.specifier.contains(one.version, prereleases=True), f"{asked}: {one.version} is installed"
        for extra in {"", *asked.extras} - {extra for known, extra in seen if known == name}:
            seen.add((name, extra))
            left += [(Requirement(line), extra) for line in one.requires or ()]
    return list(found.values())


def link(distribution: metadata.Distribution, site: Path) -> None:
    """Link what a distribution installed into another environment; a folder that several share is made there."""
    for file in distribution.files or ():
        if file.parts[0] == "..":
            continue
        for depth in range(1, len(file.parts) + 1):
            name = Path(*file.parts[:depth])
            source, target = Path(str(distribution.locate_file(name))), site / name
            if target.is_symlink():
                break
            if source.is_file() or source.suffix in OWN or (source / "__init__.py").exists():
                target.symlink_to(source)
                break
            target.mkdir(exist_ok=True)


@pytest.fixture
def away(installed: Path, sample_store: Path, tmp_path: Path) -> Path:
    """A folder of nobody's with a store of the sample, in which the sample of the wheel is nothing new, and one memory is embedded."""
    shutil.copytree(sample_store, tmp_path / ".workbench" / "store")
    told = json.loads(run(installed, tmp_path, "import", "sample_data", "--json"))
    assert (told["memories_in_store"], told["embedded"], told["errors"]) == (438, 0, [])
    (tmp_path / "one.jsonl").write_text(
        json.dumps({"id": "van", "content": "The movers come with a van on the ninth."})
    )
    told = json.loads(run(installed, tmp_path, "import", "one.jsonl", "--json"))
    assert (told["memories_in_store"], told["embedded"], told["errors"]) == (439, 1, [])
    return tmp_path


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
    for name in (
        "sources/score_meanings.csv",
        "app/app.py",
        "app/pages/inspect.py",
        "app/.streamlit/config.toml",
        "app/sample_data/memories.jsonl",
        "models/weights/minilm_judge/model.onnx",
        "models/weights/minilm_embedder/model/model.safetensors",
    ):
        assert f"cems_workbench/{name}" in names
    plugins = {
        found.relative_to(ROOT / "plugins")
        for found in (ROOT / "plugins").rglob("*")
        if found.suffix in (".html", ".json", ".md", ".py", ".sql")
    }
    assert {str(found) for found in plugins} <= names
    assert not [
        name for name in names if name.startswith(("tests/", "benchmarks/", "training/")) or "__pycache__" in name
    ]
    required = [line for line in needs.splitlines() if line.startswith("Requires-Dist: ") and "extra ==" not in line]
    assert required and not [line for line in required if any(name in line.replace("-", "_") for name in LEFT_OUT)]
    assert 'torch==2.13.0; extra == "torch"' in needs


@pytest.mark.thorough
def test_it_runs_away_from_the_checkout_without_torch(installed: Path, away: Path) -> None:
    python = installed.with_name("python")
    found = run(python, away, "-c", f"import importlib.util as u; print([n for n in {LEFT_OUT} if u.find_spec(n)])")
    assert found.strip() == "[]"
    assert run(python, away, "-c", NAMES) == run(Path(sys.executable), ROOT, "-c", NAMES)
    answer = json.loads(run(installed, away, "search", "when are we moving house", "--json"))
    assert {"m249", "van"} <= {result["memory_id"] for result in answer["results"]}
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


NOT_LOADED = {
    "search": (
        *(
            "chromadb",
            "pandas",
            "pyarrow",
            "scipy",
            "streamlit",
            "plotly",
            "torch",
            "transformers",
            "optuna",
            "tiktoken",
        ),
        *(
            "httpx",
            "ollama",
            "tenacity",
            "rapidfuzz",
            "jinja2",
            "pg_text_search",
            "cems_workbench.formats",
        ),
        *(
            "cems_workbench.analysis.why.counterfactual",
            "cems_workbench.evaluation.comparison",
            "cems_workbench.tuning",
        ),
        *("cems_workbench.sources.source", "cems_workbench.cli.tune", "cems_workbench.config.evidence_card"),
    ),
    "export": ("numpy", "duckdb", "pandas", "pyarrow", "rich", "cems_workbench.pipeline", "cems_workbench.store"),
}


@pytest.mark.parametrize("command", NOT_LOADED)
def test_a_command_loads_nothing_that_it_does_not_use(command: str, store: Path) -> None:
    arguments = {
        "search": ["search", "idempotency keys", "--preset", "cems", "--store", str(store)],
        "export": ["export", "workbench"],
    }[command]
    script = (
        "import sys; from cems_workbench.__main__ import main\n"
        f"sys.argv[1:] = {arguments!r}\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "CEMS_WORKBENCH_SERVE": "off"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    loaded = set(ran.stderr.splitlines()[-1].split())
    assert "cems_workbench.config.model" in loaded
    assert not loaded & set(NOT_LOADED[command])
