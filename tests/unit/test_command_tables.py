"""Tables of the command line on a narrow terminal: numbers and ranges stay whole, and nothing is left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.cli.options import _layout, print_table
from cems_workbench.cli.terminal import literal, put_json, say_wrapped


def test_a_wide_table_goes_on_below_with_its_first_column(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    columns = ["type", *(f"nDCG@{k}" for k in range(10, 24))]
    print_table(columns, [["temporal", *(k / 97 for k in range(14))], ["exact", *(k / 89 for k in range(14))]])
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert printed.split().count("temporal") > 1
    assert {f"{k / 97:.4f}" for k in range(14)} | {f"{k / 89:.4f}" for k in range(14)} <= set(printed.split())


def test_words_below_a_table_are_wrapped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = "better by nDCG@10: " + ", ".join(f"a-long-query-id-{k}" for k in range(20))
    say_wrapped(text)
    printed = capsys.readouterr().out.splitlines()
    assert max(map(len, printed)) <= 80
    assert " ".join(printed) == text


@given(st.lists(st.floats(-1e6, 1e6).map(lambda value: f"{value:+.4f}"), min_size=1, max_size=12))
def test_every_column_is_as_wide_as_its_numbers(numbers: list[str]) -> None:
    groups = _layout(["n"] * len(numbers), [[number] for number in numbers], 80)
    assert {i for group, _ in groups for i in group} == set(range(len(numbers)))
    for group, widths in groups:
        assert sum(widths) + 2 * (len(widths) - 1) <= 80
        assert all(width >= len(numbers[i]) for i, width in zip(group, widths, strict=True))


def test_an_id_of_3000_letters_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["memory", "text"], [["x" * 3_000, "short words " * 30]])
    printed = capsys.readouterr().out
    assert printed.count("x") == 160 + printed.count("text") - 1 and printed.count("short") == 30


@given(st.text())
def test_no_text_acts_on_a_terminal_and_letters_stay(text: str) -> None:
    shown = literal(text)
    assert len(shown) == len(text) and not set("\x1b\x07\x08\r\x7f\x9b\u202e\u2066\u2028") & set(shown)
    assert all(was == now or now == "\ufffd" for was, now in zip(text, shown, strict=True))
    assert literal("naïve 漢字 👩\u200d🚀\n") == "naïve 漢字 👩\u200d🚀\n"


def test_json_keeps_the_values_in_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    values = {"a\x9b": "\x1b[31m \u202e \U000e0001 é 🙂 \ud800"}
    put_json(values)
    printed = capsys.readouterr().out
    assert json.loads(printed) == values and not set("\x9b\x1b\u202e\U000e0001\ud800") & set(printed)


def test_the_command_line_writes_in_one_place() -> None:
    folder = Path(__file__).resolve().parents[2] / "cems_workbench" / "cli"
    for path in folder.glob("*.py"):
        if path.name != "terminal.py":
            text = path.read_text()
            for other in ("typer.echo", "click.echo", "secho(", " print(", "stdout.write", "stderr.write"):
                assert other not in text, f"{path.name} writes past terminal.py: {other}"
