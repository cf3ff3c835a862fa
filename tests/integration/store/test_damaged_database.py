"""A damaged database is one line, never a traceback, and what can be read of it is written into a new store."""

from __future__ import annotations

import random
import shutil

import pytest

from benchmarks import faults
from cems_workbench.errors import StoreError
from cems_workbench.records import Judgment, Memory, Query
from cems_workbench.store import Store
from cems_workbench.store.recovery import recover
from tests.small_store import parsed


@pytest.fixture(scope="module")
def several_blocks(tmp_path_factory):
    """a closed store of 2,500 memories whose texts take several blocks, a query and a judgment."""
    drawn, path = random.Random(19), tmp_path_factory.mktemp("filled") / "store"
    memories = [Memory(f"m{i:04}", f"text{i:04} {drawn.randbytes(500).hex()}") for i in range(2500)]
    with Store.open(path) as store:
        store.add(parsed(memories, queries=[Query("q1", "a query")], judgments=[Judgment("q1", "m2499", 3, "test")]))
    return path


@pytest.fixture
def filled(several_blocks, tmp_path):
    """A copy of it."""
    return shutil.copytree(several_blocks, tmp_path / "store")


def flip_a_bit_of_a_text(path) -> None:
    """Of the fullest blocks, which hold texts, the first that reading memories needs: others hold what a search looks in."""
    whole = (path / "workbench.duckdb").read_bytes()
    blocks = range(12_288, len(whole), 262_144)
    for start in sorted(blocks, key=lambda start: -len(whole[start : start + 262_144].strip(b"\0"))):
        content = bytearray(whole)
        content[min(start + 200_000, len(whole) - 1)] ^= 1
        (path / "workbench.duckdb").write_bytes(content)
        try:
            with Store.open(path) as store:
                store.memories.read()
        except StoreError:
            return
    raise AssertionError("no block is needed to read the memories")


@pytest.mark.thorough
def test_a_damaged_block_is_one_line_and_costs_only_its_own_rows_in_a_rescue(filled, tmp_path):
    with Store.open(filled) as store:
        assert store.unreadable() == {}
    flip_a_bit_of_a_text(filled)
    with Store.open(filled) as store, pytest.raises(StoreError, match=r"damaged.*doctor --recover-to") as error:
        store.memories.read()
    with Store.open(filled) as store:
        found = store.unreadable()
        assert set(found) == {"memories"} and "checksum" in found["memories"]
    assert "\n" not in str(error.value)
    found = {one.table: one for one in recover(filled, tmp_path / "new")}
    lost = found["memories"].lost
    assert 0 < lost < 2500 and found["memories"].read + lost == 2500
    assert (found["judgments"].read, found["judgments"].lost) == (1, 0)
    with Store.open(tmp_path / "new", create=False) as store:
        assert store.memories.count() == 2500 - lost and "m2499" in store.memories.read()
        assert store.judgments.read()[0].grade == 3


@pytest.mark.parametrize("content", [b"", b"\0" * 5000, b"garbage" * 2000])
def test_a_database_that_is_none_is_one_line_and_so_is_its_rescue(filled, tmp_path, content):
    (filled / "workbench.duckdb").write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        Store.open(filled)
    with pytest.raises(StoreError, match="no row of"):
        recover(filled, tmp_path / "new")
    assert (filled / "workbench.duckdb").read_bytes() == content


def test_a_rescue_writes_into_a_new_directory_only(filled):
    with pytest.raises(StoreError, match="not empty"):
        recover(filled, filled)


@pytest.fixture
def with_log(tmp_path, rows):
    """A copy of a store that was killed: its last three labels are in its log alone."""
    with Store.open(tmp_path / "open") as store:
        store.add(rows([Memory(f"m{n}", f"text {n}") for n in range(3)], queries=[Query("q1", "a query")]))
    with Store.open(tmp_path / "open") as store:
        for n in range(3):
            store.labels.give(Judgment("q1", f"m{n}", n, "Ann"))
        return shutil.copytree(tmp_path / "open", tmp_path / "store")


def cut(log, size: int) -> None:
    log.write_bytes(log.read_bytes()[:size])


@pytest.mark.parametrize(
    ("damage", "kept", "said"),
    [
        (lambda log: None, 3, []),
        (lambda log: log.with_name("workbench.commits").unlink(), 3, []),
        (lambda log: log.with_name("workbench.commits").write_bytes(b"\0" * 41), 3, []),
        (lambda log: cut(log, log.stat().st_size - 1), 2, ["the last change stored in"]),
        (lambda log: cut(log, 0), 0, ["the last 3 changes stored in"]),
        (lambda log: log.unlink(), 0, ["the last 3 changes stored in"]),
    ],
)
def test_a_log_that_lost_labels_is_said_once_and_a_whole_one_never(with_log, damage, kept, said):
    damage(with_log / "workbench.duckdb.wal")
    with Store.open(with_log) as store:
        assert [grade.grade for grade in store.judgments.read()] == list(range(kept))
        assert [line[: line.find(" in ") + 3] for line in store.notices] == said
    with Store.open(with_log) as store:
        assert store.notices == ()


@pytest.mark.thorough
def test_a_rescue_without_a_damaged_log_says_how_many_changes_that_costs(with_log, tmp_path):
    log = with_log / "workbench.duckdb.wal"
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    found = {one.table: one for one in recover(with_log, tmp_path / "new")}
    assert (found["memories"].read, found["changes in the log"].lost) == (3, 3)


@pytest.mark.parametrize("file", ["workbench.duckdb", "workbench.duckdb.wal", "workbench.commits"])
@pytest.mark.parametrize("way", faults.WAYS)
def test_whatever_happens_to_a_file_of_the_database_other_labels_are_said(with_log, file, way):
    """`python -m benchmarks.faults` does the same to every file of a store, with every command and the page."""
    faults.damage(with_log / file, way, random.Random(19))
    try:
        with Store.open(with_log, create=False) as store:
            assert [grade.grade for grade in store.judgments.read()] == [0, 1, 2] or store.notices
    except StoreError as error:
        assert "\n" not in str(error) and ("damaged" in str(error) or "no store" in str(error))


def test_what_is_written_when_the_store_is_gone_or_another_is_refused(with_log, tmp_path):
    store = Store.open(with_log)
    with_log.rename(tmp_path / "elsewhere")
    for _ in ("gone", "another"):
        with pytest.raises(StoreError, match=r"removed, moved or replaced while it was open; nothing was stored"):
            store.labels.give(Judgment("q1", "m0", 3, "Ann"))
        if not with_log.exists():
            shutil.copytree(tmp_path / "elsewhere", with_log)
    shutil.rmtree(with_log)
    (tmp_path / "elsewhere").rename(with_log)
    assert store.labels.give(Judgment("q1", "m0", 3, "Ann"))
    store.close()
    with Store.open(with_log) as store:
        assert [grade.grade for grade in store.judgments.read()] == [3, 1, 2] and not store.notices
