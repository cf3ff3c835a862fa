"""Files are written atomically, and a failed write is one error line."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cems_workbench.errors import InputError
from cems_workbench.platform.atomic_write import output_path, write_atomically, write_text

PACKAGE = Path(__file__).parents[3] / "cems_workbench"
NOT_ATOMIC = {
    "store/search/directory/segment_directory.py": "what was verified of an index",
    "store/search/vectors/chroma.py": "the number of changes",
    "store/search/directory/index_directory.py": "a new index, in a directory that becomes current when complete",
    "store/search/postgres.py": "a new index",
    "serve/server.py": "the name of its process, for the system",
    "store/team/session.py": "claims on cards, worthless once their process has ended",
    "store/database.py": "the count of commits",
    "trace/sink.py": "spans, appended",
    "sources/sqlite/copying.py": "a private copy of a database, in a temporary directory",
    "jobs/traces.py": "rows of a file that is written atomically",
    "formats/base/files.py": "an unpacked copy, in a temporary directory",
}
WRITES = re.compile(r"\.write_(text|bytes)\(|open\([^)]*[\"'][wax]b?[\"']|np\.save\(|np\.savez\(|to_csv\(")


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Limit files of this process to `size` bytes: a real failure in the middle of a write, like a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_half_way_leaves_the_good_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "run.txt"
    write_text(path, "good")
    path.chmod(0o640)
    with pytest.raises(InputError) as caught, files_of_at_most(1_000):
        write_text(path, "x" * 100_000)
    assert str(caught.value) == f"{path}: cannot be written: File too large"
    assert path.read_text() == "good" and os.listdir(tmp_path) == ["run.txt"]
    write_text(path, "better")
    assert path.read_text() == "better" and path.stat().st_mode & 0o777 == 0o640
    with pytest.raises(InputError, match="is not UTF-8"):
        write_text(path, "half an emoji \ud83d")
    assert path.read_text() == "better"


def test_what_cannot_be_written_to_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, reason in (
        (tmp_path, "is a directory"),
        (tmp_path / ("x" * 300), "File name too long"),
        (tmp_path / "away" / "x", "No such file or directory"),
        (tmp_path / "file" / "x", "Not a directory"),
        (Path("/proc/nothing"), "cannot be written"),
    ):
        with pytest.raises(InputError, match=reason) as caught:
            write_text(path, "x")
        assert "\n" not in str(caught.value)
    write_text(tmp_path / ("y" * 250), "a name as long as names may be")


def test_links_are_followed_and_devices_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "text"
    write_text(Path(os.devnull), "text")
    assert not Path(os.devnull).is_file()


def test_a_folder_takes_its_name_when_it_is_whole(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), write_atomically(tmp_path / "set", directory=True) as part:
        (part / "one").touch()
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    with output_path(tmp_path / "set", directory=True) as part:
        (part / "one").touch()
    assert os.listdir(tmp_path) == ["set"]


def test_files_are_written_atomically() -> None:
    direct = set()
    for file in PACKAGE.rglob("*.py"):
        for line in file.read_text("utf-8").splitlines():
            if WRITES.search(line) and not re.search(r"\b(part|place)\.(open|write_)", line):
                direct.add(str(file.relative_to(PACKAGE)))
    # These write into a file that was opened atomically.
    assert direct - NOT_ATOMIC.keys() <= {"formats/base/format.py", "pipeline/text_pieces.py", "tuning/scorer.py"}, (
        "use platform/atomic_write.py"
    )
