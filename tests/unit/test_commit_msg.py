"""The commit-msg hook accepts imperative subjects of at most 72 characters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HOOK = Path(__file__).resolve().parents[2] / ".githooks" / "commit-msg"


def refusal(folder: Path, message: str) -> str:
    """What the hook says of a message; empty if it accepts it."""
    path = folder / "message"
    path.write_text(message, encoding="utf-8")
    run = subprocess.run([sys.executable, str(HOOK), str(path)], capture_output=True, text=True, check=False)
    assert (run.returncode == 0) == (run.stderr == "")
    return run.stderr


@pytest.mark.parametrize(
    "message",
    [
        "Move modules into packages named for what they hold",
        "docs: Add a page on hooks\n\nWhy it is needed.\n",
        "Embed texts in batches",
        'Revert "Added something that is long enough to be longer than the hook allows in a subject"',
        "Fix the count\n# Please enter the commit message\n",
    ],
)
def test_commit_subject_is_accepted(tmp_path: Path, message: str) -> None:
    assert refusal(tmp_path, message) == ""


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("", "empty"),
        ("Added a page", "not an imperative"),
        ("Words", "not an imperative"),
        ("The store counts its rows", "not an imperative"),
        ("Add a page.", "full stop"),
        ("add a page", "lower-case"),
        ("Add a page " + "and more " * 8, "at most 72"),
        ("Add a page\nof text", "second line"),
    ],
)
def test_commit_subject_is_refused(tmp_path: Path, message: str, reason: str) -> None:
    assert reason in refusal(tmp_path, message)
