"""The notebook of the docs is run as a reader runs it, in a kernel of its own, and what it shows is what is stored in it.

`KEEP_OUTPUTS=1 pytest tests/integration/test_notebook.py` stores the outputs anew.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
NUMBER = re.compile(r"-?\d+\.\d+")
ALIKE = 0.02
"""Numbers of another machine: its embedder rounds differently."""
NOTEBOOK = ROOT / "docs" / "start" / "first_look.ipynb"


def shown(notebook: Any) -> list[tuple[str, list[float]]]:
    """What each cell of code shows, as a reader sees it: the words, and the numbers in them."""
    cells = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            parts = [_text(output) for output in cell.outputs]
            text = " ".join(" ".join(part.split()) for part in parts)
            cells.append((NUMBER.sub("#", text), [float(number) for number in NUMBER.findall(text)]))
    return cells


def _text(output: Any) -> str:
    if "text" in output:
        return str(output["text"])
    html = output["data"].get("text/html")
    return (
        str(output["data"]["text/plain"])
        if html is None
        else re.sub(r"<style.*?</style>|<[^>]*>", " ", html, flags=re.DOTALL)
    )


@pytest.fixture
def reader(sample_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as `make run` leaves it, with the sample store below it."""
    shutil.copytree(sample_store, tmp_path / ".workbench" / "store")
    monkeypatch.setenv("CEMS_WORKBENCH_STORE", ".workbench/store")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


@pytest.mark.thorough
def test_the_notebook_runs_and_shows_what_is_stored(reader: Path) -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    place = {"metadata": {"path": str(reader)}}
    NotebookClient(notebook, timeout=120, resources=place, record_timing=False).execute()
    assert not any(output.output_type == "error" for cell in notebook.cells for output in cell.get("outputs", ()))
    assert (reader / "slower.yaml").is_file()
    if os.environ.get("KEEP_OUTPUTS"):
        notebook.metadata["language_info"] = {"name": "python"}
        NOTEBOOK.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
        return
    now, then = shown(notebook), shown(stored)
    stale = "run it with KEEP_OUTPUTS=1, look at what is different, and commit it"
    assert [words for words, _ in now] == [words for words, _ in then], stale
    assert [numbers for _, numbers in now] == [pytest.approx(numbers, abs=ALIKE) for _, numbers in then], stale


def test_no_place_of_a_machine_is_stored() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert not re.findall(r"/(?:tmp|home|root|work|Users)/", text)
