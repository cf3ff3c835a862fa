"""The terminal: tables, lines of progress, and what to type next."""

from __future__ import annotations

import inspect
import json
import re
import shlex
import sys
import time
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, get_origin, get_type_hints

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.analysis.losses_of_set import MAX_ROWS
from cems_workbench.cli import options
from cems_workbench.cli.ci import WRITTEN_GUARD
from cems_workbench.cli.measuring import CI_GUARD, WATCH_GUARD
from cems_workbench.cli.options import _layout, described_in, print_table, progress_bar, say_left_out
from cems_workbench.cli.terminal import (
    ProgressLines,
    literal,
    progress_lines,
    put_json,
    request_options,
    say_next,
    say_wrapped,
)
from cems_workbench.command_words import command_line, program, words_of
from cems_workbench.pipeline.gather import Request
from workbench_fidelity.nearest import MAX_SCORES
from workbench_fidelity.parameters import MAX_CONFIGS

OPTIONS = described_in(Path(options.__file__).parent)


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


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@given(TEXTS, TEXTS)
def test_words_come_back_from_the_shell_as_they_were(query: str, memory_id: str) -> None:
    words = words_of("why", query, memory_id, options=["--store", "a b"])
    assert shlex.split(command_line(words))[3:] == words
    assert words.index(query) < words.index("--store") or words.index("--") < words.index(query)


def test_an_argument_that_begins_with_a_dash_is_no_option() -> None:
    assert words_of("search", "--now", options=["--store", "s"]) == ["search", "--store", "s", "--", "--now"]


def test_at_most_two_commands_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    say_next(None, ["memory", "m1"], ["search", "a b"], ["app"])
    assert capsys.readouterr().out == (
        "next: python -m cems_workbench memory m1\nnext: python -m cems_workbench search 'a b'\n"
    )


@pytest.mark.parametrize("text", ["two\nlines", "bell\a", "\u202eturned"])
def test_text_that_cannot_be_typed_is_not_proposed(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    say_next(["search", text])
    assert capsys.readouterr().out == ""


def test_the_program_is_named_as_it_was_called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "orig_argv", [".venv/bin/python", "-m", "cems_workbench", "search"])
    assert program() == [".venv/bin/python", "-m", "cems_workbench"]
    script = tmp_path / "cems-workbench"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "orig_argv", ["python", str(script), "search"])
    monkeypatch.setattr(sys, "argv", [str(script), "search"])
    assert program() == [str(script)]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program() == ["cems-workbench"]


def test_a_request_is_made_again_by_its_options() -> None:
    moment = datetime(2026, 9, 1, tzinfo=UTC)
    request = Request("q", "-org/a", moment, True, ("two words",), "words", {"lexical": "a OR b"})
    assert request_options(request, [2]) == [
        "--project=-org/a",
        "--only-project",
        "--as-of=2026-09-01T00:00:00+00:00",
        "--variant=two words",
        "--searched=words",
        "--engine-query=lexical=a OR b",
        "--without-variant=2",
    ]


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_line_has_count_rate_and_what_is_left(clock: Clock) -> None:
    lines = ProgressLines(clock)
    assert lines.line() is None
    lines.report("gathering", 0, 1200)
    assert lines.line() == "gathering: 0 of 1,200"
    clock.now = 10.0
    lines.report("gathering", 25, 1200)
    assert lines.line() == "gathering: 25 of 1,200, 2.5 a second, about 8 min left"
    clock.now = 20.0  # nothing was reported: the same count, and the rate falls
    assert lines.line() == "gathering: 25 of 1,200, 1.2 a second, about 16 min left"


def test_what_was_finished_before_a_resume_is_not_in_the_rate(clock: Clock) -> None:
    lines = ProgressLines(clock)
    lines.report("gathering", 100, 129)
    clock.now = 40.0
    lines.report("gathering", 102, 129)
    assert lines.line() == "gathering: 102 of 129, one every 20 s, about 9 min left"


def test_finished_work_is_not_named(clock: Clock) -> None:
    lines = ProgressLines(clock)
    lines.report("searching", 3, 3)
    assert lines.line() is None


def test_lines_come_while_the_work_says_nothing() -> None:
    said: list[str] = []
    with progress_lines(said.append, first_after_s=0.01, every_s=0.02) as progress:
        progress("reranking", 1, 2)
        deadline = time.monotonic() + 10
        while len(said) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert len(said) >= 3 and set(said) == {"reranking: 1 of 2"}


@pytest.mark.parametrize(("quiet", "lines"), [(False, 1), (True, 0)], ids=["text", "json"])
def test_a_command_says_lines_on_stderr_unless_it_prints_json(quiet, lines, capsys, monkeypatch):
    monkeypatch.setattr(options, "progress_lines", partial(progress_lines, first_after_s=0.05))
    assert not sys.stderr.isatty()
    with progress_bar(quiet) as progress:
        progress("embedding memories", 3, 9)
        time.sleep(0.3)
    out, err = capsys.readouterr()
    assert out == "" and err.splitlines() == ["embedding memories: 3 of 9"] * lines


CLI = Path(options.__file__).parent
FIDELITY, SUPERSESSION = (CLI.parents[1] / "plugins" / f"workbench_{name}" for name in ("fidelity", "supersession"))


@pytest.mark.parametrize("folder", [CLI, FIDELITY, SUPERSESSION], ids=lambda folder: folder.name)
def test_options_json_has_a_row_of_every_option_and_no_other(folder: Path) -> None:
    package = "cems_workbench.cli" if folder == CLI else folder.name
    typer.main.get_command(import_module("cems_workbench.cli.main").commands)  # raises for an option without a row
    described = described_in(folder)
    sources = "".join(path.read_text("utf-8") for path in folder.glob("*.py"))
    unread = [row for row in described.get("shared", ()) if not re.search(rf": (\w+\.)?{row}\b", sources)]
    modules = {path.stem.rstrip("_"): path.stem for path in folder.glob("*.py")}
    for of in described.keys() - {"shared"}:
        module, _, name = of.partition(".")
        command = getattr(import_module(f"{package}.{modules[module]}"), name)
        hints = get_type_hints(inspect.unwrap(command), include_extras=True)
        unread += [f"{of}: {row}" for row in described[of] if row not in hints or get_origin(hints[row]) is Annotated]
    assert not unread


@pytest.mark.parametrize(
    ("folder", "of", "row", "field", "value"),
    [
        (FIDELITY, "command.fidelity_command", "trials", "help", MAX_CONFIGS),
        (FIDELITY, "command.fidelity_command", "scores", "help", MAX_SCORES),
        (CLI, "evaluate.evaluate_command", "shown", "max", MAX_ROWS),
        (CLI, "measuring.Guards", "no_loss", "help", f"ci check: {CI_GUARD}, of watch: {WATCH_GUARD}"),
        (CLI, "shared", "WrittenNoLossOption", "help", f"default: {WRITTEN_GUARD})"),
    ],
)
def test_an_option_says_the_figures_of_the_code(folder: Path, of: str, row: str, field: str, value: object) -> None:
    assert str(value) in str(described_in(folder)[of][row][field])


@pytest.mark.parametrize(
    ("more", "said"), [(0, "2 more rows; --json lists them all"), (9, "11 more rows; --json lists the first 52")]
)
def test_rows_left_out_that_are_not_in_json_either_are_not_promised(
    capsys: pytest.CaptureFixture[str], more: int, said: str
) -> None:
    say_left_out([f"line {k}" for k in range(52)], more=more)
    assert capsys.readouterr().err.splitlines()[-1] == f"left out: {said}"
