"""What `import cems_workbench` offers, that it loads nothing heavy, and its marks of stability."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest

import cems_workbench as cw
from cems_workbench import _HOME
from cems_workbench.api.open_store import ExperimentalWarning, deprecated, experimental

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


def test_experimental_function_warns_on_first_use_only() -> None:
    @experimental(since="0.1.0")
    def double(value: int) -> int:
        """Twice the value.

        Args:
            value: any number.
        """
        return 2 * value

    with pytest.warns(ExperimentalWarning, match=r"double is experimental since 0\.1\.0: it may change") as caught:
        assert double(2) == 4
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert double(value=3) == 6
    assert inspect.getdoc(double) == (
        "Twice the value.\n\nArgs:\n    value: any number.\n\nExperimental since 0.1.0: may change in any version."
    )
    assert list(inspect.signature(double).parameters) == ["value"]


def test_marked_class_stays_a_class() -> None:
    @experimental(since="0.1.0")
    @dataclass(frozen=True, slots=True)
    class Pair:
        """Two numbers."""

        first: int
        second: int = 2

    with pytest.warns(ExperimentalWarning, match="Pair is experimental"):
        pair = Pair(1)
    assert pair == Pair(1, 2) and isinstance(pair, Pair)
    assert inspect.getdoc(Pair) == "Two numbers.\n\nExperimental since 0.1.0: may change in any version."


def test_deprecated_method_names_its_replacement() -> None:
    class Report:
        def best(self) -> str:
            return "best"

        @deprecated(since="0.2.0", use="Report.best", removed_in="0.4.0")
        def top(self) -> str:
            """The best one."""
            return self.best()

    with pytest.warns(FutureWarning, match=r"Report\.top is deprecated since 0\.2\.0 .* removed in 0\.4\.0: use Rep"):
        assert Report().top() == "best"
    assert "Deprecated since 0.2.0, removed in 0.4.0: use `Report.best`." in (Report.top.__doc__ or "")


@pytest.mark.parametrize("name", cw.__all__)
def test_mark_of_the_public_api_is_named_in_its_page(name: str) -> None:
    from tests.unit.test_api_exports import ROOT

    page = (ROOT / "docs" / "start" / "python.md").read_text()
    value = getattr(cw, name)
    for key, member in {"": value, **(vars(value) if inspect.isclass(value) else {})}.items():
        note = (inspect.getdoc(member) or "").rpartition("\n")[2]
        for mark in ("Experimental", "Deprecated"):
            if note.startswith(f"{mark} since"):
                rows = [line.lower() for line in page.splitlines() if f"`{key or name}" in line]
                assert any(mark.lower() in row for row in rows), (
                    f"python.md does not mark {name}.{key} as {mark.lower()}"
                )
