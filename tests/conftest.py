"""What every test shares: a deterministic hypothesis profile, no network, and one imported sample store per session."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, Phase, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from cems_workbench.store import database, duckdb_file

from .thoroughly import EXAMPLES, partly

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
CHECKOUT_STORE = ROOT / ".workbench"

os.environ["HF_HUB_OFFLINE"] = "1"  # before any model library is imported: tests never ask the network
os.environ["CHROMA_ANONYMIZED_TELEMETRY"] = "False"
os.environ["NUMBA_DISABLE_JIT"] = (
    "1"  # ranx compiles for 40 s what its five queries take a second for as they are written
)
# Workers share the cores: with more threads each, models wait for one another by spinning.
os.environ.setdefault("OMP_NUM_THREADS", "1")
PRESET = "CEMS_WORKBENCH_PRESET"
os.environ[PRESET] = "cems"  # the documented defaults, whose numbers the tests state
SERVE = "CEMS_WORKBENCH_SERVE"
os.environ[SERVE] = "off"  # no command of a test leaves a process behind, unless the test is about that

MEMORY = Path("/dev/shm")
ENOUGH = 6 << 30
"""Bytes that are to be free there and in memory: a run takes up to 2 GB, and models some more."""


def _temporary_files_in_memory() -> None:
    """Stores are written to memory where there is enough: a disk that makes sure of each commit takes a quarter of the time."""
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text("ascii").splitlines())
        free = min(int(lines["MemAvailable"].split()[0]) << 10, shutil.disk_usage(MEMORY).free)
    except (OSError, KeyError, ValueError):  # not Linux
        return
    if free > ENOUGH and os.access(MEMORY, os.W_OK):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


_temporary_files_in_memory()

# A store of a test is far below what DuckDB shares among threads, and each that is opened would start and end its own.
duckdb_file.SETTINGS = {**duckdb_file.SETTINGS, "threads": 1}


class CopiesToo(duckdb_file.CheckedFiles):
    """The stores that were found to be data, and their copies, which keep size and time of change: tests open hundreds of them."""

    def __init__(self) -> None:
        super().__init__()
        self._alike: set[tuple[tuple[int, int], ...]] = set()

    def contains(self, path: Path) -> bool:
        now = duckdb_file.file_state(path)
        return now is not None and (_alike(now) in self._alike or super().contains(path))

    def add(self, path: Path, seen: duckdb_file.FileState) -> None:
        super().add(path, seen)
        self._alike.add(_alike(seen))

    def add_closed(self, path: Path, opened: duckdb_file.FileId | None) -> None:
        super().add_closed(path, opened)
        if super().contains(path):
            self._alike.add(_alike(self._states[path]))


def _alike(state: duckdb_file.FileState) -> tuple[tuple[int, int], ...]:
    return tuple((size, changed) for _, _, size, changed, _ in state)


database._checked_files = CopiesToo()

settings.register_profile(
    "deterministic",
    derandomize=True,
    deadline=None,
    max_examples=EXAMPLES,
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("deterministic")


SLOWEST_FIRST = ("browser", "integration", "app", "property")
"""Folders of tests by the time they take: long ones begin while there is enough else for the other worker to the end."""
BROWSER, PROPERTIES = "tests/browser/", ROOT / "tests" / "property"


class Scheduling(LoadFileScheduling):
    """A file is one worker's, and so are all that open a browser: the app is started once, not once a worker."""

    def _split_scope(self, nodeid: str) -> str:
        return BROWSER if nodeid.startswith(BROWSER) else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """The scheduler of `--dist loadfile` here; marks for `--dist loadgroup` are lost by xdist 3.8 under pytest 9.2."""
    return Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)  # before those that the marks of this run leave out are taken away
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests by folder, the slowest first; within a folder they stay as they were. Properties try a part."""
    place = {name: rank for rank, name in enumerate(SLOWEST_FIRST)}

    def rank(item: pytest.Item) -> int:
        return place.get(item.path.relative_to(ROOT / "tests").parts[0], len(place))

    items.sort(key=rank)
    for item in items:
        if item.path.is_relative_to(PROPERTIES):
            item.add_marker(partly)
        if item.nodeid.startswith(BROWSER):
            item.add_marker("browser")


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
    folder = _imported(tmp_path_factory)
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            partial = folder.with_name("importing-sample")
            _import_sample(partial, folder.with_suffix(".json"))
            partial.rename(folder)
    file = folder / database.FILE_NAME
    seen = duckdb_file.file_state(file)
    assert seen is not None
    database._checked_files.add(file, seen)  # by the worker that imported it
    return shutil.copytree(folder, tmp_path_factory.mktemp("sample") / "store")


@pytest.fixture(scope="session")
def sample_vectors(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[float]]:
    """The vector of each text that was embedded for `sample_store`."""
    vectors: dict[str, list[float]] = json.loads(_imported(tmp_path_factory).with_suffix(".json").read_text())
    return vectors


def _imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the sample store of all workers is."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "imported-sample"


def _import_sample(folder: Path, vectors: Path) -> None:
    from cems_workbench import formats
    from cems_workbench.jobs.factory import open_resources
    from cems_workbench.models.protocol import Float32
    from cems_workbench.progress import Progress, silent
    from cems_workbench.settings import Settings

    resources = open_resources(Settings(store=folder))
    embedded: dict[str, list[float]] = {}
    encode = resources.embedder.encode

    def kept(texts: Sequence[str], progress: Progress = silent) -> Float32:
        found = encode(texts, progress)
        embedded.update(zip(texts, found.tolist(), strict=True))
        return found

    try:
        for parsed in formats.read_path(ROOT / "sample_data"):
            resources.store.add(parsed)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(resources.embedder, "encode", kept)
            resources.refresh()
    finally:
        resources.close()
    vectors.write_text(json.dumps(embedded))


@pytest.fixture(scope="session")
def default_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the settings say that the store is while tests run; nothing is there, and no test makes it."""
    return tmp_path_factory.mktemp("default") / "store"


@pytest.fixture(autouse=True)
def _settings_of_tests(
    default_store: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """A developer's own CEMS_WORKBENCH_* variables do not change what is tested, and no test opens the developer's store.

    A test that opens a store without saying which would open that of the checkout, where a developer's own memories are.
    """
    for name in [name for name in os.environ if name.startswith("CEMS_WORKBENCH_") and name not in (PRESET, SERVE)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CEMS_WORKBENCH_STORE", str(default_store))
    monkeypatch.setenv("CEMS_WORKBENCH_FOLDERS", f"{tmp_path_factory.getbasetemp()},{ROOT},{SHARED}")
    monkeypatch.setenv("CEMS_WORKBENCH_GATHER_AHEAD", "false")  # it would search 129 queries behind every page
    before = CHECKOUT_STORE.exists()
    yield
    assert not default_store.exists(), "the test opened a store without saying which"
    assert before or not CHECKOUT_STORE.exists(), f"the test left a store in {CHECKOUT_STORE}"
