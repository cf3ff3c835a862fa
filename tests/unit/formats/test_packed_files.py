"""Files as data sets are published: packed, and read as what is in them."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from cems_workbench.errors import InputError
from cems_workbench.formats import detect, read, read_path
from cems_workbench.formats.base import packed

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
    monkeypatch.setattr(packed, "MAX_FILE_BYTES", 1_000)
    for raw, said in [
        (whole[:-9], "cannot be unpacked: "),
        (gzip.compress(b"x" * 5_000), "unpacks to more than 0 MB; split it"),
        (b"PK\x03\x04 no zip", "cannot be unpacked: File is not a zip file"),
        (b"PAR1 no parquet", "cannot be unpacked: "),
        (b"\x28\xb5\x2f\xfd...", "is packed with zstd"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is no text, and in no known format"),
        (gzip.compress(b"a" * 257 + b"ustar" + b"x" * 90), "is an archive of files"),
    ]:
        path = tmp_path / "m.jsonl.gz"
        path.write_bytes(raw)
        with pytest.raises(InputError) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}: {said}") and "\n" not in str(caught.value)
