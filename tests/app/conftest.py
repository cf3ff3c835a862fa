"""The page under Streamlit's AppTest, on a copy of the sample store."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest, local_script_runner
from streamlit.testing.v1.local_script_runner import LocalScriptRunner

import cems_workbench.jobs.factory
from cems_workbench.errors import WorkbenchError
from cems_workbench.jobs import background
from cems_workbench.jobs.factory import embedder as made
from cems_workbench.models.protocol import QueryEmbedder
from cems_workbench.models.resolve import resolve
from cems_workbench.settings import Settings
from cems_workbench.ui.inspect import fetch_evidence, searched
from cems_workbench.ui.kit import session
from cems_workbench.ui.tune.state import searches
from tests.remembered import remembered_runs
from tests.sample import SampleEmbedder

ROOT = Path(__file__).resolve().parents[2]
STORE = "CEMS_WORKBENCH_STORE"

# Every AppTest reads what all installed packages say of themselves, to find components: no page has any.
manifest_scanner.scan_component_manifests = list


def wait_for_script(runner: LocalScriptRunner, timeout: float) -> None:
    """Instead of AppTest's, which asks a thousand times a second whether the script has ended, while it runs."""
    runner._script_thread.join(timeout)
    assert runner.script_stopped(), f"the page was not drawn within {timeout} s"


local_script_runner.require_widgets_deltas = wait_for_script

run_script = AppTest._run


def run_without_exception(page: AppTest, *arguments: Any, **options: Any) -> AppTest:
    """Every run of a page in these tests: it shows no exception."""
    run_script(page, *arguments, **options)
    assert not page.exception, page.exception
    return page


AppTest._run = run_without_exception  # type: ignore[method-assign]
switch_page = AppTest.switch_page


def switch_as_browsers_do(page: AppTest, path: str) -> AppTest:
    """Go to another page, whose address begins empty."""
    page.query_params.clear()
    return switch_page(page, path)


AppTest.switch_page = switch_as_browsers_do  # type: ignore[method-assign]


@pytest.fixture(scope="module", autouse=True)
def _models_remember() -> Iterator[None]:
    with remembered_runs():
        yield


@pytest.fixture(scope="session")
def app_store(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sample store that the page may hold open."""
    return shutil.copytree(sample_store, tmp_path_factory.mktemp("app") / "store")


@pytest.fixture(scope="module")
def held() -> Iterator[dict[str, str]]:
    """The settings with which the page holds a store; empty where it holds none. It is closed after the last test of a file."""
    settings: dict[str, str] = {}
    yield settings
    if settings:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(STORE, settings[STORE])
            release()


@pytest.fixture
def open_page(
    app_store: Path,
    held: dict[str, str],
    sample_vectors: dict[str, list[float]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., AppTest]]:
    """Open the Inspect page, or another, on the sample store, or on another.

    It is left open for the next test of the file with the same settings, unless it is the test's own.
    """
    for module, pause in (
        (session, "WARM_UP_DELAY_S"),
        (searched, "PAINT_DELAY_S"),
        (fetch_evidence, "FLUSH_SECONDS"),
    ):
        monkeypatch.setattr(module, pause, 0.0)  # no browser is here to paint
    searches.clear()  # each test is somebody who searches first
    monkeypatch.setattr(session, "_keep_chroma", lambda opened, state: None)  # Chroma is for the tests that ask for it
    monkeypatch.setattr(cems_workbench.jobs.factory, "embedder", loaded_once)
    SampleEmbedder.known = sample_vectors

    def start(store: Path = app_store, form: str = "Cards", page: str = "") -> AppTest:
        monkeypatch.setenv(STORE, str(store))
        settings = {name: value for name, value in os.environ.items() if name.startswith("CEMS_WORKBENCH_")}
        if held not in ({}, settings):
            release()
        held.clear()
        held.update(settings)
        test = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
        test.session_state["inspect:form"] = form  # the grid is drawn in the browser, where AppTest sees nothing
        test.session_state["inspect:controls"] = "All"
        for opened in ("inspect:group:fusion", "inspect:scope"):
            test.session_state[opened] = True
        return (test.switch_page(f"pages/{page}.py") if page else test).run()

    yield start
    if held and not (store := Path(held[STORE])).is_relative_to(tmp_path) and path() == store:
        settle()
    elif held:  # else asking for the store would open one: that of the settings
        release()
        held.clear()


@cache
def _embedder(name: str) -> QueryEmbedder:
    return SampleEmbedder(resolve(name))


def loaded_once(settings: Settings) -> QueryEmbedder:
    """The embedder as the app makes it; every page of this process has the same one, so that its weights load once."""
    return _embedder(settings.embedder) if settings.served_embedder is None else made(settings)


def path() -> Path | None:
    """The folder of the store that the page holds; None where it could not be opened."""
    with contextlib.suppress(WorkbenchError):
        return session.resources().store.path
    return None


def settle() -> None:
    """Wait until the page's background loading is over."""
    for thread in threading.enumerate():
        if thread.name in ("warm-up", background.QUEUE_THREAD, background.EVIDENCE_THREAD):
            thread.join(60)


def release() -> None:
    """Close the store that the page holds, after its background loading is over."""
    settle()
    with contextlib.suppress(WorkbenchError):  # it could not be opened, which is what the test was about
        session.resources().close()
    session.resources.clear()
    session.warm_up_state.clear()
