"""Stability marks: the note in the docstring, one warning on first use, and nothing else changed."""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass

import pytest

import cems_workbench as cw
from cems_workbench.api.open_store import ExperimentalWarning, deprecated, experimental


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
