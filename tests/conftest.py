"""What every test shares: a deterministic hypothesis profile, no network, and one imported sample store per session."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, Phase, settings

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

os.environ["HF_HUB_OFFLINE"] = "1"  # before any model library is imported: tests never ask the network
os.environ["CHROMA_ANONYMIZED_TELEMETRY"] = "False"
PRESET = "CEMS_WORKBENCH_PRESET"
os.environ[PRESET] = "cems"  # the documented defaults, whose numbers the tests state

settings.register_profile(
    "deterministic",
    derandomize=True,
    deadline=None,
    max_examples=int(os.environ.get("PROPERTY_EXAMPLES", "50")),
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("deterministic")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder shared by the team, with the specification and the data; skips where it is not beside the checkout."""
    if not SHARED.is_dir():
        pytest.skip("../shared is not beside the checkout")
    return SHARED


@pytest.fixture(scope="session")
def sample_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a closed store with the sample data, indexed by the packaged embedder; for one reader at a time.

    It is imported once per run, whatever the number of workers, and every worker has a copy.
    """
    base = tmp_path_factory.getbasetemp()
    shared_folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "imported-sample"
    with FileLock(f"{shared_folder}.lock"):
        if not shared_folder.exists():
            partial = base / "importing-sample"
            _import_sample(partial)
            partial.rename(shared_folder)
    return shutil.copytree(shared_folder, tmp_path_factory.mktemp("sample") / "store")


def _import_sample(folder: Path) -> None:
    from cems_workbench import formats
    from cems_workbench.runs.opening import open_resources
    from cems_workbench.settings import Settings

    resources = open_resources(Settings(store=folder))
    try:
        for parsed in formats.read_path(ROOT / "sample_data"):
            resources.store.add(parsed)
        resources.refresh()
    finally:
        resources.close()


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A developer's own CEMS_WORKBENCH_* variables do not change what is tested."""
    for name in [name for name in os.environ if name.startswith("CEMS_WORKBENCH_") and name != PRESET]:
        monkeypatch.delenv(name)
    yield
