"""The numbered .sql files: a store of an earlier number gains what the later files make, wholly or not at all."""

from __future__ import annotations

import duckdb
import pytest

from cems_workbench.errors import StoreError
from cems_workbench.records import Memory
from cems_workbench.store import Store
from cems_workbench.store.schema import migrations


@pytest.fixture
def stored(tmp_path, rows):
    """The directory of a store with a memory."""
    with Store.open(tmp_path / "s") as store:
        store.add(rows([Memory("a", "1")]))
    return tmp_path / "s"


def next_file(tmp_path, monkeypatch, text):
    """A further schema file, as a later version would have."""
    (tmp_path / "next.sql").write_text(text)
    known = {**migrations.migrations(), max(migrations.migrations()) + 1: tmp_path / "next.sql"}
    monkeypatch.setattr(migrations, "migrations", lambda: known)


@pytest.mark.parametrize("package", ["cems_workbench.store.schema", "workbench_team"])
def test_the_files_number_the_schemas_without_a_gap(package):
    known = migrations.migrations(package)
    assert list(known) == list(range(1, len(known) + 1))


def test_an_older_store_keeps_its_rows_and_gains_what_a_later_file_makes(stored, tmp_path, monkeypatch):
    next_file(tmp_path, monkeypatch, "ALTER TABLE memories ADD COLUMN colour VARCHAR; CREATE TABLE further (x INT)")
    for directory in (stored, stored, tmp_path / "new"):
        Store.open(directory).close()
        with duckdb.connect(str(directory / "workbench.duckdb")) as database:
            assert database.execute("FROM further").fetchall() == []
            assert database.execute("SELECT value FROM workbench_meta WHERE key = 'schema'").fetchall() == [("2",)]
    with duckdb.connect(str(stored / "workbench.duckdb")) as database:
        assert database.execute("SELECT id, colour FROM memories").fetchall() == [("a", None)]


def test_an_upgrade_that_fails_leaves_the_older_store_as_it_was(stored, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        next_file(tmp_path, patch, "DROP TABLE relations; SELECT nonsense FROM nowhere")
        with pytest.raises(duckdb.Error, match="nowhere"):
            Store.open(stored)
    with Store.open(stored) as store:
        assert (store.memories.get("a"), store.relations.read()) == (Memory("a", "1"), [])


@pytest.mark.parametrize("version", ["99", "0", None])
def test_an_unknown_schema_is_one_line_with_what_to_do(stored, version):
    with duckdb.connect(str(stored / "workbench.duckdb")) as database:
        database.execute("UPDATE workbench_meta SET value = ? WHERE key = 'schema'", [version or ""])
        if version is None:
            database.execute("DELETE FROM workbench_meta WHERE key = 'schema'")
    with pytest.raises(StoreError) as error:
        Store.open(stored)
    assert str(error.value) == (
        f"store {stored} has schema {version or 0}, this version reads 1: update cems-workbench, "
        "or import its inputs into a new store"
    )
