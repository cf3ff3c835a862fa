"""What `import cems_workbench` offers, and that it loads nothing heavy."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cems_workbench as cw
from cems_workbench import _HOME

ROOT = Path(__file__).resolve().parents[2]
HEAVY = (
    "torch",
    "sentence_transformers",
    "transformers",
    "chromadb",
    "duckdb",
    "bm25s",
    "streamlit",
    "plotly",
    "pandas",
    "pyarrow",
    "sklearn",
    "scipy",
    "optuna",
    "onnxruntime",
    "pyterrier",
    "jinja2",
)
LATER = ("numpy", "pydantic", "yaml", "httpx", "typer")
"""Needed by nearly every call, and not by the import."""


def loaded_after(code: str) -> set[str]:
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print('\\n'.join(sys.modules))"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(run.stdout.split())


def test_importing_the_package_loads_nothing() -> None:
    loaded = loaded_after("import cems_workbench")
    assert not loaded & {*HEAVY, *LATER}
    assert [name for name in loaded if name.startswith("cems_workbench")] == ["cems_workbench"]


def test_every_name_can_be_had_without_anything_heavy() -> None:
    loaded = loaded_after("import cems_workbench as cw\nfor name in cw.__all__: getattr(cw, name)")
    assert "cems_workbench.api.tuning" in loaded, "they are imported at all"
    assert not loaded & set(HEAVY)


def test_the_names_are_those_that_have_a_home() -> None:
    assert sorted(cw.__all__) == sorted([*_HOME, "trace"]) and set(cw.__all__) <= set(dir(cw))
    with pytest.raises(AttributeError, match="no attribute 'evalaute'"):
        cw.evalaute  # noqa: B018


@pytest.mark.parametrize("name", sorted(_HOME))
def test_the_reference_tells_of_every_name_and_argument(name: str) -> None:
    reference = (ROOT / "docs" / "start" / "python.md").read_text()
    value = getattr(cw, name)
    assert f"`{name}" in reference, f"docs/start/python.md says nothing of {name}"
    if inspect.isfunction(value):
        written = re.search(rf"\*\*`{name}\(([^`]*)\)`\*\*", reference)
        assert written, f"docs/start/python.md has no heading **`{name}(…)`**"
        arguments = [text.split("=")[0].strip().lstrip("*") for text in re.split(r",\s", written[1])]
        assert [one for one in arguments if one] == list(inspect.signature(value).parameters)
    elif value.__module__.startswith("cems_workbench.api"):
        members = [key for key, member in vars(value).items() if not key.startswith("_") and _public(member)]
        lacking = [key for key in members if f"`{key}" not in reference and f".{key}" not in reference]
        assert not lacking, f"docs/start/python.md says nothing of {', '.join(lacking)} of {name}"


def _public(member: object) -> bool:
    return inspect.isfunction(member) or isinstance(member, property)
