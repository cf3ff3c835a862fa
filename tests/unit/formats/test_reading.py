"""Which format a file is in, folders of anything, packed files, and what cannot be read.

Files as people have them, one case a file or folder in `cases/*.json`: the rows that are read of it, and what is said of the others.

A case has the lines of its file (`holds`; an object is a line of JSON) or of each file of its folder; `found` is what was read, without
the fields that are at their default, or `refused` is the line of the refusal. `report` is where the case was seen.
A reading that is meant to change: `python -m tests.unit.formats.test_reading` writes `found` and `refused` anew; read the difference.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import socket
import sqlite3
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from cems_workbench.errors import InputError
from cems_workbench.formats import FORMATS, detect, read, read_path
from cems_workbench.formats.base import files
from cems_workbench.formats.base.files import BLOCK_BYTES
from cems_workbench.progress import Cancelled
from cems_workbench.records import RowError
from workbench_fidelity.recordings import parse_recording

EMPTY = r"is empty|is not recognised|has no file"


def test_an_empty_file_is_an_input_error(write, subtests):
    for format in ["auto", *FORMATS]:
        for content in ["", " \n\r\n \n", "\ufeff"]:
            file = write("memories.jsonl", content)
            with subtests.test(format=format, content=content), pytest.raises(InputError, match=EMPTY):
                read(file, format)


def test_directories_missing_and_utf16_files_are_input_errors(tmp_path, write, subtests):
    for format in FORMATS:
        with subtests.test(format=format):
            with pytest.raises(InputError, match="is a directory"):
                read(tmp_path, format)
            with pytest.raises(InputError, match="does not exist"):
                read(tmp_path / "none.jsonl", format)
            with pytest.raises(InputError, match="UTF-16"):
                read(write("x.jsonl", '{"id": "a"}'.encode("utf-16")), format)


def test_reading_reports_its_progress_and_can_be_cancelled(write):
    path = write("m.jsonl", *({"id": str(number), "content": "x" * 300} for number in range(2_500)))
    seen = []
    read(path, progress=lambda label, done, total: seen.append((done, total)))
    assert seen[0][0] == 0
    assert seen[-1] == (path.stat().st_size,) * 2
    assert len(seen) == 2 + path.stat().st_size // BLOCK_BYTES

    def cancel(label: str, done: int, total: int) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        read(path, progress=cancel)


def test_a_sqlite_file_is_sent_to_connect(tmp_path):
    file = tmp_path / "memory.db"
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE memories (id TEXT, content TEXT)")
    with pytest.raises(InputError, match=rf"is a SQLite file: connect sqlite:{file} reads it"):
        detect(file)


BROKEN = st.lists(
    st.sampled_from(
        [b"", b" ", b"\xa0", "ä\u2028x".encode(), b"\xff", b"a\r", b"\xef\xbb\xbf", b"\x0b", b"a\x85b", b"plain", b"\r"]
    ),
    max_size=8,
).map(b"\n".join)


@given(raw=BROKEN, block=st.integers(1, 12), end=st.sampled_from([b"", b"\n", b"\r\n"]))
def test_a_block_of_lines_is_read_as_each_line_alone(raw: bytes, block: int, end: bytes) -> None:
    raw += end
    expected, wrong = [], []
    for number, line in enumerate(raw.removeprefix(files.BOM).split(b"\n"), 1):
        try:
            text = line.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            wrong.append(number)
            continue
        if text.strip():
            expected.append((number, text))
    errors: list[RowError] = []
    with tempfile.TemporaryDirectory() as home, patch.object(files, "BLOCK_BYTES", block):
        path = Path(home) / "file"
        path.write_bytes(raw)
        try:
            found = list(files.read_lines(path, errors))
        except InputError as error:
            assert "is empty" in str(error) and not expected and not wrong
            return
    assert (found, [error.row for error in errors]) == (expected, wrong)


ROWS = [{"id": "a", "content": "kept"}, {"id": "b", "content": 3}]
LINES = "".join(f"{json.dumps(row)}\n" for row in ROWS).encode()


@pytest.mark.parametrize(
    ("name", "pack"), [("m.jsonl.gz", gzip.compress), ("m.jsonl.bz2", bz2.compress), ("m.jsonl.xz", lzma.compress)]
)
def test_a_packed_file_is_read_as_what_is_in_it(tmp_path: Path, name: str, pack) -> None:
    path = tmp_path / name
    path.write_bytes(pack(LINES))
    parsed = read(path)
    assert (detect(path), [memory.id for memory in parsed.memories]) == ("memories-jsonl", ["a"])
    assert [(error.source, error.row) for error in parsed.errors] == [(str(path), 2)] and parsed.source == str(path)
    assert [memory.id for memory in read_path(tmp_path)[0].memories] == ["a"]


def test_a_zip_of_one_file_is_read_and_one_of_several_is_not(tmp_path: Path) -> None:
    path = tmp_path / "m.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data/m.jsonl", LINES)
    assert len(read(path).memories) == 1
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("data/n.jsonl", LINES)
    with pytest.raises(InputError, match="is a zip of 2 files; unpack it and import the folder"):
        read(path)


def test_parquet_is_read_by_the_names_of_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "test-00000-of-00001.parquet"
    parquet.write_table(pyarrow.table({"query-id": ["q1"], "corpus-id": ["d1"], "score": [2.0]}), path)
    [judgment] = read(path).judgments
    assert (judgment.qid, judgment.memory_id, judgment.grade) == ("q1", "d1", 2)
    when = datetime(2024, 1, 2, tzinfo=UTC)
    rows = pyarrow.table({"id": ["a"], "content": ["x"], "created_at": [when], "tags": [["t"]]})
    parquet.write_table(rows, path)
    [memory] = read(path).memories
    assert (memory.created_at, memory.tags) == (when, ("t",))


def test_what_cannot_be_unpacked_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gzip.compress(LINES)
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 1_000)
    for raw, said in [
        (whole[:-9], "cannot be unpacked: "),
        (gzip.compress(b"x" * 5_000), "unpacks to more than 0 MB; split it"),
        (b"PK\x03\x04 no zip", "cannot be unpacked: File is not a zip file"),
        (b"PAR1 no parquet", "cannot be unpacked: "),
        (b"\x28\xb5\x2f\xfd...", "is packed with zstd"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is neither text nor in a known format"),
        (gzip.compress(b"a" * 257 + b"ustar" + b"x" * 90), "is an archive of files"),
    ]:
        path = tmp_path / "m.jsonl.gz"
        path.write_bytes(raw)
        with pytest.raises(InputError) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}: {said}") and "\n" not in str(caught.value)


ONE_MEMORY = json.dumps({"id": "a", "content": "kept"}) + "\n"


def test_what_is_no_regular_file_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "memories.jsonl").write_text(ONE_MEMORY)
    os.mkfifo("pipe.jsonl")
    os.symlink("pipe.jsonl", "linked_pipe.jsonl")
    os.symlink("/dev/zero", "zero.jsonl")
    os.symlink("nowhere", "broken.jsonl")
    os.symlink("memories.jsonl", "linked.txt")
    with (tmp_path / "huge.jsonl").open("wb") as file:
        file.truncate(3_000_000_000)
    Path(os.fsdecode(b"caf\xe9.jsonl")).write_text(ONE_MEMORY)
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


def test_files_that_cannot_be_read_are_named_beside_what_was_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"entities": [{"observations": 3}], "type": "entity"}')
    (tmp_path / "broken.jsonl").symlink_to("nowhere")
    (tmp_path / "words.txt").write_text("words\n")
    with pytest.raises(InputError) as caught:
        read_path(tmp_path, "qrels")
    assert "broken.jsonl: does not exist; " in str(caught.value)
    assert "a.json: its format is mcp-memory-server; words.txt: the format is not recognised" in str(caught.value)


FILES = sorted((Path(__file__).parent / "cases").glob("*.json"))


def facts(value: Any, folder: Path) -> Any:
    """`value` as JSON has it: records by the fields that are not at their default, errors as their line, paths below `folder`."""
    if isinstance(value, RowError):
        return facts(str(value), folder)
    if is_dataclass(value):
        named = {each.name: (getattr(value, each.name), each) for each in fields(value)}
        return {name: facts(item, folder) for name, (item, each) in named.items() if item != default_of(each)}
    if isinstance(value, Mapping):
        return {str(key): facts(item, folder) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [facts(item, folder) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value.replace(f"{folder}/", "") if isinstance(value, str) else value


def default_of(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def text_of(lines: list[Any] | dict[str, str]) -> bytes:
    if isinstance(lines, dict):
        return lines["latin-1"].encode("latin-1")
    return "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines).encode()


def make(path: Path, holds: Any) -> None:
    """The file or folder of a case; a folder with nothing in it holds None."""
    if (isinstance(holds, dict) and "latin-1" not in holds) or holds is None:
        path.mkdir(parents=True, exist_ok=True)
        for name, inner in (holds or {}).items():
            make(path / name, inner)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text_of(holds))


def outcome(case: dict[str, Any], home: Path) -> dict[str, Any]:
    """`found` or `refused` of a case."""
    folder = home / "home"  # names of conversations have that of the folder around them
    try:
        if "recording" in case:
            return {
                "found": facts(
                    parse_recording(text_of(case["recording"]).decode(), case.get("name", "answers")), folder
                )
            }
        path = folder / case["path"]
        make(path, case["holds"])
        if case.get("detect"):
            return {"found": detect(path)}
        read_one = read_path if path.is_dir() else read
        found = facts(read_one(path, case.get("format", "auto")), folder)
    except InputError as error:
        return {"refused": facts(str(error), folder)}
    for parsed in found if isinstance(found, list) else [found]:
        parsed.pop("source")
        if not case.get("rows"):
            parsed.pop("extra", None)
    return {"found": found}


def all_cases() -> Iterable[Any]:
    for file in FILES:
        for name, cases in json.loads(file.read_text("utf-8")).items():
            for number, case in enumerate(cases, 1):
                yield pytest.param(case, id=f"{file.stem}: {name} {number} {case.get('path', '')}")


@pytest.mark.parametrize("case", list(all_cases()))
def test_file_is_read_as_its_case_says(case: dict[str, Any], tmp_path: Path) -> None:
    expected = {name: case[name] for name in ("found", "refused") if name in case}
    assert outcome(case, tmp_path) == expected


DEEPEST = {"holds": 4, "recording": 4, "found": 6}
"""How deep the lines of a file and the records of a folder are."""


def laid_out(value: Any, depth: int = 0, deepest: int = 5) -> str:
    """JSON with a line for each line of a file and each record, and no line broken below it."""
    whole = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if depth == deepest or len(whole) < 100 or not isinstance(value, dict | list):
        return whole if whole.isprintable() else json.dumps(value)
    inner = "  " * (depth + 1)
    items = (
        [
            f"{json.dumps(key)}: {laid_out(item, depth + 1, DEEPEST.get(key, 5) if isinstance(item, list) else deepest)}"
            for key, item in value.items()
        ]
        if isinstance(value, dict)
        else [laid_out(item, depth + 1, deepest) for item in value]
    )
    opened, closed = "{}" if isinstance(value, dict) else "[]"
    return f"{opened}\n{inner}" + f",\n{inner}".join(items) + f"\n{'  ' * depth}{closed}"


if __name__ == "__main__":
    for file in FILES:
        groups = json.loads(file.read_text("utf-8"))
        for case in (one for cases in groups.values() for one in cases):
            with tempfile.TemporaryDirectory() as home:
                told = outcome(case, Path(home))
            for name in ("found", "refused"):
                case.pop(name, None)
            case.update(told)
        file.write_text(laid_out(groups) + "\n", "utf-8")
