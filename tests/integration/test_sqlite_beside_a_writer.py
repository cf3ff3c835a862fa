"""A SQLite file read while another program writes to it: nothing is lost, nothing is left beside it, and it can always be read."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from cems_workbench.errors import InputError
from cems_workbench.sources.address import parse
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.source import EngineQuery, Source, SourceError
from tests.sqlite_writer import Journal, hammering, make_notes
from tests.thoroughly import first_of
from workbench_stores.sqlite.file import DatabaseFile


@contextmanager
def opened(path: Path, options: str = "") -> Iterator[Source]:
    with closing(open_source(parse(f"sqlite:{quote(str(path))}{options}"))) as source:
        yield source


def ids(source: Source) -> list[str]:
    with source.snapshot() as snapshot:
        return [each.memory.id for batch in snapshot.batches(lambda ids, _: ids) for each in batch.taken]


@pytest.mark.parametrize("journal", first_of(("wal", "delete")))
def test_a_writer_that_hammers_loses_nothing(tmp_path: Path, journal: Journal) -> None:
    path = tmp_path / "notes.db"
    make_notes(path, 1_000, 16, journal)
    with hammering(path) as written, opened(path) as source:
        found = ids(source)
        assert len(found) == len(set(found)) >= 1_000
        (nearest,) = source.search(EngineQuery("", np.ones(16, np.float32), {"vector": 5}))
        assert len(nearest.hits) == 5
    assert [each.name for each in tmp_path.iterdir()] == ["notes.db"]
    with closing(sqlite3.connect(path)) as owner:
        assert owner.execute("SELECT count(*) FROM notes").fetchone() == (1_000 + written.rows,)
        assert owner.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_short_steps_read_all_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "notes.db"
    make_notes(path, 5_000, 16, "delete")
    monkeypatch.setattr(DatabaseFile, "_asked", busy(DatabaseFile._asked))
    with hammering(path) as written, opened(path) as source:
        info, found = source.probe(), ids(source)
        # Rows above the last were added meanwhile.
        assert {str(i) for i in range(1, 5_001)} <= set(found) and len(found) == len(set(found))
        assert info.vectors >= 5_000 and any("short steps" in note for note in info.notes)
    assert written.rows and [each.name for each in tmp_path.iterdir()] == ["notes.db"]


def busy(asked):  # type: ignore[no-untyped-def]
    """The answers of the copying process, except that no copy succeeds."""
    return lambda self, command, *rest: {"problem": "busy"} if command == "copy" else asked(self, command, *rest)


def test_an_owner_that_is_open_keeps_its_files(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    make_notes(path, 10, 4)
    with closing(sqlite3.connect(path)) as owner:
        owner.execute(
            "INSERT INTO notes (uid, body, embedding) VALUES ('late', 'only in the WAL', x'0000803f0000803f0000803f0000803f')"
        )
        owner.commit()
        before = (path.read_bytes(), sorted(each.name for each in tmp_path.iterdir()))
        with opened(path) as source:
            assert len(ids(source)) == 11
        assert (path.read_bytes(), sorted(each.name for each in tmp_path.iterdir())) == before
        owner.execute("UPDATE notes SET body = 'x'")
        owner.commit()
    assert [each.name for each in tmp_path.iterdir()] == ["notes.db"]


def test_a_transaction_that_is_not_committed_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    make_notes(path, 10, 4, "delete")
    with closing(sqlite3.connect(path, isolation_level=None)) as owner:
        owner.execute("PRAGMA cache_size=1")
        owner.execute("BEGIN EXCLUSIVE")
        owner.executemany("INSERT INTO notes (uid, body) VALUES (?, ?)", [(f"u{i}", "x" * 3_000) for i in range(500)])
        with opened(path) as source:
            assert len(ids(source)) == 10
        owner.execute("ROLLBACK")


def test_what_a_crash_left_is_recovered_in_the_copy_alone(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    (tmp_path / "crashed").mkdir()
    path = tmp_path / "live" / "notes.db"
    make_notes(path, 10, 4, "delete")
    with closing(sqlite3.connect(path, isolation_level=None)) as owner:
        owner.execute("PRAGMA cache_size=1")
        owner.execute("BEGIN EXCLUSIVE")
        owner.execute("UPDATE notes SET body = 'half'")
        owner.executemany("INSERT INTO notes (uid, body) VALUES (?, ?)", [(f"u{i}", "x" * 3_000) for i in range(500)])
        for each in path.parent.iterdir():
            shutil.copy(each, tmp_path / "crashed")
        owner.execute("ROLLBACK")
    crashed = tmp_path / "crashed" / "notes.db"
    before = {each.name: each.read_bytes() for each in crashed.parent.iterdir()}
    assert "notes.db-journal" in before
    with opened(crashed) as source, source.snapshot() as snapshot:
        (batch,) = snapshot.batches(lambda ids, _: ids)
    assert len(batch.taken) == 10 and all(each.memory.content != "half" for each in batch.taken)
    assert {each.name: each.read_bytes() for each in crashed.parent.iterdir()} == before


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_folder_that_cannot_be_written_to(tmp_path: Path, journal: Journal) -> None:
    folder = tmp_path / "read only"
    folder.mkdir()
    make_notes(folder / "notes.db", 10, 4, journal)
    folder.chmod(0o500)
    try:
        with opened(folder / "notes.db") as source:
            assert len(ids(source)) == 10
    finally:
        folder.chmod(0o700)


def test_paths_are_taken_as_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["my notes.db", "50%25.db", "ü.db"]
    for name in names:
        make_notes(tmp_path / name, 1, 4)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for address in (
        "sqlite:my notes.db",
        "sqlite:~/my%20notes.db",
        f"sqlite://{tmp_path}/my notes.db",
        "sqlite:50%25.db",
        "sqlite:ü.db",
    ):
        with closing(open_source(parse(address))) as source:
            assert source.probe().memories == 1, address


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty: it has no table yet"),
        (b"just a text, and not a short one", "is not a SQLite file"),
        (np.random.default_rng(0).bytes(4_096), "an encrypted one looks like that"),
        (b"SQLite format 3\0" + bytes([16, 0, 1, 1, 0, 64, 32, 32]) + bytes(4_072), "is damaged or encrypted"),
    ],
)
def test_what_is_no_database_is_said(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "notes.db").write_bytes(content)
    with pytest.raises((InputError, SourceError), match=message), opened(tmp_path / "notes.db"):
        pass


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("sqlite:/no/such/file.db", "there is no file /no/such/file.db"),
        ("sqlite:/tmp", "is a folder"),
        ("sqlite://host/file.db", "a SQLite file has no host"),
        ("sqlite:", "names no file"),
    ],
)
def test_an_address_of_no_file_is_said(address: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_source(parse(address))
