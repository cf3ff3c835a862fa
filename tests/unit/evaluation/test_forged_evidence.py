"""Evidence files that somebody forged: each is refused by one line that says what is wrong, and nothing of it is run or written."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from sets import QUERIES, evidence_file

from benchmarks.forged_evidence import FORGED, forge
from cems_workbench.errors import InputError, StoreError
from cems_workbench.evaluation.evidence_file import EvidenceFile, read_evidence_file, read_header, replace_judgments
from cems_workbench.store import Store
from tests.thoroughly import partly, some


def one_line_of(read: Callable[[], object]) -> str:
    """What is said instead of reading; empty where it is read."""
    began = time.process_time()
    try:
        read()
    except InputError as error:
        took = time.process_time() - began
        return "" if "\n" in str(error) or len(str(error)) > 500 or took > 10 else str(error)
    return ""


@partly
def test_no_forged_file_is_taken_for_evidence(tmp_path: Path) -> None:
    whole, path = evidence_file(tmp_path), tmp_path / "forged.evidence"
    header = read_header(whole)
    taken = []
    for name, (script, words) in some(FORGED.items(), 8):
        forge(whole, path, script)
        said = one_line_of(lambda: read_evidence_file(path))
        if str(path) not in said or words not in said:
            taken.append(f"{name}: {said}")
    for name in some(FORGED, 24):
        forge(whole, path, FORGED[name][0])
        before = path.read_bytes()
        if not one_line_of(lambda: EvidenceFile.resume(path, header, QUERIES)) or path.read_bytes() != before:
            taken.append(f"{name} was gone on with")
    assert not taken


def test_a_file_is_looked_at_again_when_somebody_changed_it_and_only_then(tmp_path, monkeypatch):
    path = evidence_file(tmp_path)
    read_evidence_file(path)
    with monkeypatch.context() as patch:
        patch.setattr("cems_workbench.evaluation.evidence_file.differences", lambda *_: pytest.fail("looked at again"))
        read_evidence_file(path)
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE VIEW beside AS SELECT 1")
    assert "it has a view 'beside'" in one_line_of(lambda: read_evidence_file(path))


def test_the_database_of_others_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "sales.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE TABLE judgments (x INTEGER)")
    before = path.read_bytes()
    assert "not an evidence file" in one_line_of(lambda: replace_judgments(path, ()))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "ALTER TABLE relations RENAME TO kept; CREATE VIEW relations AS SELECT * FROM read_text('/etc/hostname')",
            "a view 'relations'",
        ),
        ("CREATE TRIGGER undo AFTER INSERT ON relations FOR EACH STATEMENT DELETE FROM memories", "a trigger 'undo'"),
    ],
)
def test_a_store_whose_database_was_given_code_is_not_opened(script: str, words: str, tmp_path: Path) -> None:
    Store.open(tmp_path / "store").close()
    with duckdb.connect(str(tmp_path / "store" / "workbench.duckdb")) as database:
        database.execute(script)
    with pytest.raises(StoreError, match=f"its database has {words}, which no store has"):
        Store.open(tmp_path / "store")


def test_a_database_that_was_put_in_the_place_of_an_open_one_is_looked_at(tmp_path: Path) -> None:
    Store.open(tmp_path / "other").close()
    with duckdb.connect(str(tmp_path / "other" / "workbench.duckdb")) as database:
        database.execute("CREATE VIEW beside AS SELECT 1")
    with Store.open(tmp_path / "store"):
        (tmp_path / "other" / "workbench.duckdb").replace(tmp_path / "store" / "workbench.duckdb")
    with pytest.raises(StoreError, match="its database has a view 'beside'"):
        Store.open(tmp_path / "store")
