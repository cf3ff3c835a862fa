"""Directories that are read from a copy, and what an address may say."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from cems_workbench.errors import InputError
from cems_workbench.sources import server_or_directory
from cems_workbench.sources.address import parse
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.rows import usable_vector
from cems_workbench.sources.source import SourceError

ADDRESS = parse("chroma:/somewhere/notes", {})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "db" / "inner").mkdir(parents=True)
    (tmp_path / "db" / "chroma.sqlite3").write_bytes(b"1")
    (tmp_path / "db" / "inner" / "data.bin").write_bytes(b"22")
    return tmp_path / "db"


def test_a_copy_has_every_file_may_be_written_and_is_deleted(directory) -> None:
    (directory / "chroma.sqlite3").chmod(0o400)
    with server_or_directory.temporary_copy(ADDRESS, directory) as copy:
        assert (copy / "inner" / "data.bin").read_bytes() == b"22"
        assert (copy / "chroma.sqlite3").stat().st_mode & 0o200
        (copy / "chroma.sqlite3").write_bytes(b"changed")
    assert not copy.exists() and (directory / "chroma.sqlite3").read_bytes() == b"1"


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_a_directory_that_is_written_to_meanwhile_is_copied_again(directory, monkeypatch, writes) -> None:
    state, looked = server_or_directory._state, []

    def write_and_look(place: Path) -> object:
        if 0 < len(looked) <= writes:  # after the first look, so that each copy is older than the directory
            (directory / "inner" / "data.bin").write_bytes(b"x" * (len(looked) + 5))
        looked.append(place)
        return state(place)

    monkeypatch.setattr(server_or_directory, "_state", write_and_look)
    if writes >= server_or_directory.MAX_COPIES:
        with (
            pytest.raises(
                SourceError, match=r"^chroma:/somewhere/notes: it is written to all the time; connect to its server"
            ),
            server_or_directory.temporary_copy(ADDRESS, directory),
        ):
            raise AssertionError("there is no copy")
        return
    with server_or_directory.temporary_copy(ADDRESS, directory) as copy:
        assert (copy / "inner" / "data.bin").read_bytes() == b"x" * (writes + 5)


def test_a_copy_that_does_not_fit_the_disk_is_not_begun(directory, monkeypatch) -> None:
    monkeypatch.setattr(server_or_directory.shutil, "disk_usage", lambda place: SimpleNamespace(free=1))
    with (
        pytest.raises(SourceError, match=r"a copy of its 0\.0 GB is read, and"),
        server_or_directory.temporary_copy(ADDRESS, directory),
    ):
        raise AssertionError("there is no copy")


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("chroma://host/notes?usr=ann", "usr is no option of this address; it may be tenant, database, user"),
        ("qdrant://host/notes?name=x", "name is no option of this address; it may be vector"),
    ],
)
def test_an_option_that_is_none_is_refused_before_anything_is_asked(address, line) -> None:
    with pytest.raises(InputError, match=line):
        open_source(parse(address, {}))


@pytest.mark.parametrize(
    ("dimension", "lines"), [(None, []), (2, ["is missing: the row can be read and not found by its vector"])]
)
def test_only_a_source_with_vectors_lacks_one(dimension, lines) -> None:
    """A source without vectors said so of every row, and `connect` ended with 2 (a reader of extending.md, 29 November 2026)."""
    problems = []
    assert usable_vector("a", "vector", None, dimension, problems) is None
    assert [problem.reason for problem in problems] == lines
