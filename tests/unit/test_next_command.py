"""The last line of a command: what to type next, quoted so that a shell gives back the same words."""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.cli.terminal import request_options, say_next
from cems_workbench.command_words import command_line, program, words_of
from cems_workbench.pipeline.gather import Request

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
