"""The real packaged model and the command line as a user meets it."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import postgres_server
import pytest

from cems_workbench.models.resolve import resolve
from cems_workbench.pipeline.resources import Resources
from cems_workbench.settings import Settings
from tests.remembered import remembered_runs
from tests.sample import SampleEmbedder


@pytest.fixture(scope="session", autouse=True)
def _weights_are_read_once() -> Iterator[None]:
    """Every command opens its own embedder; here they share one, to save the seconds of loading it."""
    from cems_workbench.jobs import factory as module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "local_embedder", lru_cache(module.local_embedder))
        yield


@pytest.fixture(scope="module", autouse=True)
def _models_remember(request: pytest.FixtureRequest) -> Iterator[None]:
    """But for the tests of the models themselves."""
    with nullcontext() if request.path.name == "test_packaged_models.py" else remembered_runs():
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[postgres_server.Server]:
    """A real PostgreSQL with pgvector; skips where it is not installed."""
    if reason := postgres_server.missing():
        pytest.skip(reason)
    with postgres_server.running() as server:
        yield server


@pytest.fixture
def store(sample_store: Path, tmp_path: Path) -> Path:
    """A store of one's own with the sample data, closed."""
    return Path(shutil.copytree(sample_store, tmp_path / "store"))


@pytest.fixture(scope="session")
def sample_embedder(sample_vectors: dict[str, list[float]]) -> SampleEmbedder:
    """The packaged embedder with the vectors that it made of the sample's memories when they were imported."""
    SampleEmbedder.known = sample_vectors
    return SampleEmbedder(resolve(Settings().embedder))


@pytest.fixture
def resources(store: Path) -> Iterator[Resources]:
    """The same, open."""
    from cems_workbench.jobs.factory import open_resources

    opened = open_resources(Settings(store=store))
    yield opened
    opened.close()


@dataclass(frozen=True)
class Finished:
    """A command that ended: exit code and what it wrote."""

    code: int
    out: str
    err: str


Command = Callable[..., Finished]


def called(patch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    """The exit code of `python -m cems_workbench ARGUMENTS`, run within this process."""
    from cems_workbench.cli import main

    patch.setattr(sys, "argv", ["cems_workbench", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


@pytest.fixture(scope="module")
def module_command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """As `command`, for fixtures that the tests of a module share; only what it prints is returned."""
    folder = tmp_path_factory.mktemp("commands")

    def run(*arguments: str | Path) -> Finished:
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(folder)
            code = called(patch, *arguments)
        return Finished(code, out.getvalue(), err.getvalue())

    return run


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """Run `python -m cems_workbench ARGUMENTS` within this process, in an empty directory."""

    def run(*arguments: str | Path) -> Finished:
        capsys.readouterr()
        code = called(monkeypatch, *arguments)
        out, err = capsys.readouterr()
        return Finished(code, out, err)

    monkeypatch.chdir(tmp_path)
    return run
