"""A store with vectors of another embedder: the pages report it, do not search, and re-embed on request."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "models"))
from model_server import ModelServer, Reply, sent, serving

from cems_workbench.cli import main
from cems_workbench.models.resolve import PACKAGED_ID

from .inspect_page import order, search
from .pages import OpenPage, all_html, drawn, plainly

pytestmark = [pytest.mark.models]
QUERY = "which database did the team choose?"


def answer(path: str, body: dict[str, Any], earlier: int) -> Reply:
    """Vectors of eight values."""
    rows = [[float(len(text)), *(float(text.count(letter)) for letter in "etaoins")] for text in body.get("input", [])]
    return sent({"data": [{"index": i, "embedding": row} for i, row in enumerate(rows)]})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setenv("NO_PROXY", "*")
    with serving(answer) as running:
        monkeypatch.setenv("CEMS_WORKBENCH_EMBEDDER", "openai:mini")
        monkeypatch.setenv("CEMS_WORKBENCH_EMBEDDING_URL", running.url)
        yield running


def test_a_search_is_refused_in_one_line_and_goes_once_everything_is_embedded_anew(
    open_page: OpenPage, server: ModelServer, sample_store: Path, tmp_path: Path
) -> None:
    page = search(open_page(shutil.copytree(sample_store, tmp_path / "store")), QUERY)
    (refusal,) = page.error
    for said in (PACKAGED_ID, "384 values", "openai:mini", "CEMS_WORKBENCH_EMBEDDING_SAME_AS"):
        assert said in plainly(refusal.value)
    assert "wb-results" not in all_html(page)
    assert QUERY not in str(server.asked)

    page = drawn(page.switch_page("pages/memories.py").run())
    page.session_state["memories:view"] = "Store"
    page = drawn(page.run())
    assert PACKAGED_ID in plainly(page.error[0].value)
    assert "never built" in all_html(page)
    page = drawn(page.button(key="memories:refresh").click().run(timeout=120))
    assert not page.error
    assert all_html(page).count("✓ up to date") == 2

    page = search(drawn(page.switch_page("pages/inspect.py").run()), QUERY)
    assert not page.error
    assert order(page)


def test_one_that_is_not_found_is_said_on_the_page_and_by_a_command_that_searches(
    open_page: OpenPage, sample_store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CEMS_WORKBENCH_EMBEDDER", "no/such-model")
    page = search(open_page(sample_store), QUERY)
    assert order(page)
    (warning,) = page.warning
    assert "no/such-model was not found; using" in plainly(warning.value) and PACKAGED_ID in plainly(warning.value)
    monkeypatch.setattr(sys, "argv", ["cems_workbench", "search", QUERY, "--store", str(sample_store)])
    with pytest.raises(SystemExit):
        main()
    assert "warning: embedder: no/such-model was not found" in capsys.readouterr().err
