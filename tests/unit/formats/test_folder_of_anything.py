"""A folder may hold anything: what is no regular file costs itself, in one line, and its neighbours are read."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import read, read_path

MEMORY = json.dumps({"id": "a", "content": "kept"}) + "\n"


def test_what_is_no_regular_file_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "memories.jsonl").write_text(MEMORY)
    os.mkfifo("pipe.jsonl")
    os.symlink("pipe.jsonl", "linked_pipe.jsonl")
    os.symlink("/dev/zero", "zero.jsonl")
    os.symlink("nowhere", "broken.jsonl")
    os.symlink("memories.jsonl", "linked.txt")
    with (tmp_path / "huge.jsonl").open("wb") as file:
        file.truncate(3_000_000_000)
    Path(os.fsdecode(b"caf\xe9.jsonl")).write_text(MEMORY)
    (tmp_path / "cut.json").write_text('[{"id": "b"')
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s.jsonl")
        parsed = read_path(tmp_path)
    assert [memory.id for memory in parsed[0].memories] == ["a"]
    said = {str(error).removeprefix(f"{tmp_path}/") for one in parsed for error in one.errors}
    assert said == {
        "pipe.jsonl: is a pipe; only regular files are read",
        "linked_pipe.jsonl: is a pipe; only regular files are read",
        "zero.jsonl: is a device; only regular files are read",
        "s.jsonl: is a socket; only regular files are read",
        "broken.jsonl: does not exist",
        "huge.jsonl: has 3,000 MB; at most 500 MB are read; split it",
        "caf?.jsonl: its name is not UTF-8; rename it",
    }
    assert any("cut.json" in line and "is not JSON" in line for line in parsed[0].skipped)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("x" * 5_000, "cannot be read: File name too long"),
        ("a/" * 3_000, "cannot be read: File name too long"),
        ("a\0b", "cannot be read"),
        ("/dev/zero", "is a device; only regular files are read"),
        (os.fsdecode(b"caf\xe9"), "its name is not UTF-8; rename it"),
    ],
)
def test_a_name_that_cannot_be_read_is_one_short_line(name: str, line: str) -> None:
    for reading in (read, read_path):
        with pytest.raises(InputError, match=line) as caught:
            reading(Path(name))
        assert len(str(caught.value)) < 500


def test_a_folder_whose_name_is_not_utf8_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    (folder / "memories.jsonl").write_text(MEMORY)
    with pytest.raises(InputError, match="its name is not UTF-8; rename it"):
        read_path(folder)


def test_a_folder_without_anything_to_read_says_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("a.jsonl", "b.jsonl", "README.md"):
        (tmp_path / "data" / name).write_text(MEMORY)
    for number in range(212):
        (tmp_path / f"{number}.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    (tmp_path / "setup.py").write_text("import setuptools\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / "LICENSE").write_text("Words.\n")
    (tmp_path / "run.txt").write_text("q1 Q0 d1 1 0.5 tag\n")
    with pytest.raises(InputError) as caught:
        read_path(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} has no file to read: 1 hidden: names that begin with a dot are not looked at; LICENSE: the format is not recognised; "
        "data: is a directory of 2 .jsonl, 1 .md; import it by its own path; run.txt: is a TREC run, qid Q0 docno rank score tag: what a "
        "system answered. fidelity FILE reads it, import does not; setup.py: the format is not recognised; 212 .png: is no text, and in no "
        "known format"
    )


def test_many_entries_that_are_not_read_share_a_line_each_entry_counted(tmp_path: Path) -> None:
    (tmp_path / "memories.jsonl").write_text(MEMORY)
    for number in range(40):
        (tmp_path / f"{number}.json").write_text(json.dumps({f"field {number}": 1}))
        (tmp_path / f"{number}.log").write_text("words\n")
    (tmp_path / "one.txt").write_text("words\n")
    assert read_path(tmp_path)[0].skipped == (
        "40 .log: the format is not recognised",
        "40 .json, such as 0.json: the format is not recognised: its first object has field 0",
        "one.txt: the format is not recognised",
    )


def test_files_that_cannot_be_read_are_named_beside_what_was_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"entities": [{"observations": 3}], "type": "entity"}')
    (tmp_path / "broken.jsonl").symlink_to("nowhere")
    (tmp_path / "words.txt").write_text("words\n")
    with pytest.raises(InputError) as caught:
        read_path(tmp_path, "qrels")
    assert "broken.jsonl: does not exist; " in str(caught.value)
    assert "a.json: its format is mcp-memory-server; words.txt: the format is not recognised" in str(caught.value)
