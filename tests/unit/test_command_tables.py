"""Tables of the command line on a narrow terminal: numbers and ranges stay whole, and nothing is left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.cli.options import _layout, print_table


def test_a_wide_table_goes_on_below_with_its_first_column(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    columns = ["type", *(f"nDCG@{k}" for k in range(10, 24))]
    print_table(columns, [["temporal", *(k / 97 for k in range(14))], ["exact", *(k / 89 for k in range(14))]])
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert printed.split().count("temporal") > 1
    assert {f"{k / 97:.4f}" for k in range(14)} | {f"{k / 89:.4f}" for k in range(14)} <= set(printed.split())


@given(st.lists(st.floats(-1e6, 1e6).map(lambda value: f"{value:+.4f}"), min_size=1, max_size=12))
def test_every_column_is_as_wide_as_its_numbers(numbers: list[str]) -> None:
    groups = _layout(["n"] * len(numbers), [[number] for number in numbers], 80)
    assert {i for group, _ in groups for i in group} == set(range(len(numbers)))
    for group, widths in groups:
        assert sum(widths) + 2 * (len(widths) - 1) <= 80
        assert all(width >= len(numbers[i]) for i, width in zip(group, widths, strict=True))
