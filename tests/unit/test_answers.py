"""benchmarks/answers.py: what differs between two recordings is named, and what differs between two runs is not recorded."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from benchmarks.answers import compare, normalised


def recorded(folder: Path, **answers: str) -> Path:
    for name, text in answers.items():
        path = folder / "commands" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_missing_new_and_different_answers_are_counted_and_shown(tmp_path, capsys):
    before = recorded(tmp_path / "a", same="x\n", gone="x\n", changed="one\ntwo\n")
    after = recorded(tmp_path / "b", same="x\n", added="x\n", changed="one\nthree\n")
    assert compare(before, before, 9) == 0
    assert compare(before, after, 9) == 3
    said = capsys.readouterr().out
    for line in (
        "missing: commands/gone.txt",
        "new: commands/added.txt",
        "    -two",
        "    +three",
        "3 of 4 answers differ",
    ):
        assert line in said
    assert compare(before, after, 9, "changed") == 1


def test_times_of_today_paths_and_durations_are_replaced_and_others_stay(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    text = f'{tmp_path}/x at {now:%Y-%m-%dT%H:%M:%S}+00:00, as of 2026-09-01, in 2.1 s\n"elapsed_ms": 3.25,\n'
    assert normalised(text, tmp_path) == 'HERE/x at TIME, as of 2026-09-01, in N s\n"elapsed_ms": N,\n'
