"""Files are written whole or not at all, and every failure is one line; the limits are the machine's own."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cems_workbench.errors import InputError
from cems_workbench.platform.atomic_write import set_aside, write_text, written_whole

PACKAGE = Path(__file__).parents[2] / "cems_workbench"
ASIDE = {
    "store/search/vectors/chroma_directory.py": "the seal of an index",
    "store/search/directory/index_directory.py": "a new index, in a folder that becomes the current one when it is whole",
    "store/search/directory/column_file.py": "a file of a new index",
    "store/search/postgres/ts_rank_refresh.py": "a new index",
    "store/claims.py": "who looks at which card, which is worth nothing once its process has ended",
    "store/database.py": "the count of commits",
}
WRITES = re.compile(r"\.write_(text|bytes)\(|open\([^)]*[\"'][wax]b?[\"']|np\.save\(|np\.savez\(|to_csv\(")


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Files of this process may have that many bytes: a real failure in the middle of a write, as of a full disk."""
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
    with pytest.raises(InputError, match="is no UTF-8"):
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
    with pytest.raises(RuntimeError), set_aside(tmp_path / "set", folder=True) as part:
        (part / "one").touch()
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    with written_whole(tmp_path / "set", folder=True) as part:
        (part / "one").touch()
    assert os.listdir(tmp_path) == ["set"]


def test_whatever_writes_a_file_writes_it_aside() -> None:
    direct = set()
    for file in PACKAGE.rglob("*.py"):
        for line in file.read_text("utf-8").splitlines():
            if (
                WRITES.search(line)
                and not re.search(r"\b(part|place)\.(open|write_)", line)
                and file.name != "kept_scores.py"
            ):
                direct.add(str(file.relative_to(PACKAGE)))
    assert direct - ASIDE.keys() <= {"formats/base/dataset.py"}, (
        "use platform/atomic_write.py"
    )  # which writes the rows of a file that is set aside
