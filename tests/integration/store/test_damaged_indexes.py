"""What is damaged: a database is one line and can be salvaged; what is derived is proven before it is used, and built anew.

A store whose vectors are on a real Chroma server: restarted, away, slow, emptied by somebody, and shared.
"""

from __future__ import annotations

import itertools
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import chroma_server
import numpy as np
import pytest

from benchmarks import faults
from cems_workbench.errors import StoreError
from cems_workbench.platform import http_limits
from cems_workbench.records import Judgment, Memory, Query
from cems_workbench.store import Store
from cems_workbench.store.recovery import recover
from cems_workbench.store.search import directory as segment_directory
from cems_workbench.store.search import entries, vector_segments
from cems_workbench.store.search.directory import PROOF, checksum
from cems_workbench.store.search.vector_files import VectorFiles
from tests.small_store import HashEmbedder, parsed
from tests.thoroughly import first_of

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    embedder, rows = HashEmbedder(), parsed
    with Store.open(tmp_path_factory.mktemp("built") / "whole") as store:
        memories = [Memory(f"m{i:02}", f"{WORDS[i % 10]} {WORDS[i % 7]} number{i}") for i in range(32)]
        store.add(rows(memories[:20]))
        store.indexes.refresh(embedder)
        store.add(rows(memories[20:]))
        store.memories.delete("m30")
        store.memories.delete("m05")
        store.indexes.refresh(embedder)
        return store.path, answers(store, embedder)


@pytest.fixture
def indexed(built, tmp_path):
    """A closed store of 30 memories with both indexes, and what it answers; the lexical one is in two segments, with memories deleted."""
    return shutil.copytree(built[0], tmp_path / "whole"), built[1]


def answers(store, embedder):
    indexes = store.indexes.open(embedder)
    return (
        indexes.lexical.search("alpha gamma number7", 30),
        indexes.vectors.search(np.ones(16), 30),
        dict(store.indexes.vocabulary()),
    )


def copy_of(indexed, folder: Path) -> Path:
    return Path(shutil.copytree(indexed[0], folder / f"copy{random.random()}"))


def repaired(path, embedder):
    """What a store finds wrong, and what it answers and says after a refresh."""
    with Store.open(path, create=False) as store:
        damaged = [state.name.split()[0] for state in store.indexes.states(embedder.model_id) if state.damaged]
        store.indexes.refresh(embedder)
        return damaged, answers(store, embedder), store.notices


def damage(path: Path, how: str, drawn: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if how == "removed":
        path.unlink()
        return
    if how == "flipped":
        content[drawn.randrange(len(content))] ^= 1 << drawn.randrange(8)
    path.write_bytes(
        {"emptied": b"", "halved": bytes(content[: len(content) // 2]), "random": drawn.randbytes(len(content))}.get(
            how, bytes(content)
        )
    )


@pytest.mark.parametrize("how", first_of(["flipped", "removed", "emptied"]))
def test_every_damaged_file_of_an_index_is_found_said_and_made_good(indexed, tmp_path, embedder, how):
    drawn = random.Random(19)
    whole, expected = indexed
    for index, notice in (("lexical", "rebuilt"), ("vectors", "were damaged")):
        names = sorted(path.relative_to(whole) for path in (whole / index).rglob("*") if path.is_file())
        names = [name for name in names if name.name != PROOF]
        assert len(names) == 4, "the manifest, two segments and what is deleted in the first"
        for name in names:
            path = copy_of(indexed, tmp_path)
            damage(path / name, how, drawn)
            damaged, found, notices = repaired(path, embedder)
            assert found == expected, name
            assert damaged == [index] and notice in notices[0], name


def test_the_vectors_of_a_damaged_segment_are_taken_from_chroma(indexed, embedder):
    with Store.open(indexed[0]) as store:
        assert store.indexes.catch_up_chroma(embedder.model_id) == ""
    (segment, *_) = sorted((indexed[0] / "vectors").rglob("*.segment"), key=lambda path: -path.stat().st_size)
    content = bytearray(segment.read_bytes())
    stored = vector_segments.VectorSegment(segment).vectors[3].tobytes()
    content[content.index(stored)] ^= 1
    segment.write_bytes(content)
    embedder.texts.clear()
    damaged, found, notices = repaired(indexed[0], embedder)
    assert (damaged, found[0], embedder.texts) == (["vectors"], indexed[1][0], [])
    assert found[1] == [(name, pytest.approx(score, abs=1e-6)) for name, score in indexed[1][1]]
    assert "19 were recovered from Chroma, 0 are embedded again" in notices[0]


@pytest.mark.parametrize("copied", [False, True], ids=("as they are", "copied"))
def test_files_are_read_again_only_after_a_change_or_on_request(built, tmp_path, embedder, monkeypatch, copied):
    read = []
    monkeypatch.setattr(segment_directory, "checksum", lambda path: read.append(path.name) or checksum(path))
    with Store.open(copy_of(built, tmp_path) if copied else built[0], create=False) as store:
        assert answers(store, embedder) == built[1]
        assert bool(read) == copied
        store.indexes.states(deep=True)
        assert len(read) == (12 if copied else 6)


def test_a_crash_between_files_and_records_loses_and_skips_nothing(indexed, embedder, rows, monkeypatch):
    with Store.open(indexed[0]) as store:
        store.add(rows([Memory("new", "omega"), Memory("m02", "alpha changed")]))
        store.memories.delete("m07")
        store.memories.update(replace(store.memories.read()["m09"], project="moved"))
        for number in range(4):
            with monkeypatch.context() as patch:
                left = itertools.count()
                save = VectorFiles._save
                patch.setattr(VectorFiles, "_save", lambda *each: 1 / 0 if next(left) == number else save(*each))  # noqa: B023
                with suppress(ZeroDivisionError):
                    store.indexes.refresh(embedder)
            store.indexes.refresh(embedder)
        found, notices = answers(store, embedder), store.notices
        with Store.open(indexed[0]) as again:
            again.indexes.rebuild(embedder)
            assert answers(again, embedder) == found and notices == ()


def test_lost_vectors_are_recovered_from_chroma_or_embedded(indexed, tmp_path, embedder):
    with Store.open(indexed[0]) as store:
        store.indexes.graph(embedder)
    for gone in (False, True):
        path = copy_of(indexed, tmp_path)
        shutil.rmtree(path / "vectors")
        if gone:
            damage(path / "chroma" / "chroma.sqlite3", "random", random.Random(1))
        embedder.texts.clear()
        damaged, found, notices = repaired(path, embedder)
        assert (damaged, len(embedder.texts)) == (["vectors"], 30 if gone else 0) and "they are gone" in notices[0]
        assert found[1] == [(name, pytest.approx(score, abs=1e-6)) for name, score in indexed[1][1]]


def test_a_removed_chroma_folder_is_written_again_and_one_of_garbage_on_request(indexed, embedder):
    with Store.open(indexed[0]) as store:
        expected = store.indexes.open(embedder).vectors.approximate(np.ones(16), 5)
    for removed in (False, True):
        if removed:
            shutil.rmtree(indexed[0] / "chroma")
        else:
            damage(indexed[0] / "chroma" / "chroma.sqlite3", "random", random.Random(1))
        with Store.open(indexed[0]) as store:
            if not removed:
                with pytest.raises(StoreError, match=r"file is not a database.*"):
                    store.indexes.graph(embedder)
                assert (
                    "moved to" in store.indexes.renew_chroma(embedder.model_id) and (indexed[0] / "chroma.1").is_dir()
                )
            assert store.indexes.open(embedder).vectors.approximate(np.ones(16), 5) == expected


def test_indexes_under_the_database_of_another_store_are_not_used(indexed, tmp_path, embedder, rows):
    with Store.open(tmp_path / "other") as other:
        other.add(rows([Memory("x", "alpha of another")]))
    shutil.copy(tmp_path / "other" / "workbench.duckdb", indexed[0])
    damaged, found, notices = repaired(indexed[0], embedder)
    assert damaged == ["lexical"] and "another store" in notices[0]
    assert [memory_id for memory_id, _ in found[0] + found[1]] == ["x", "x"]


def test_indexes_of_a_copy_that_went_another_way_are_not_used(indexed, tmp_path, embedder, rows):
    path = copy_of(indexed, tmp_path)
    for one, text in ((path, "alpha one"), (indexed[0], "alpha two")):
        with Store.open(one) as store:
            store.add(rows([Memory("new", text)]))
            store.indexes.refresh(embedder)
            there = answers(store, embedder)
    shutil.copy(indexed[0] / "workbench.duckdb", path)
    damaged, found, _ = repaired(path, embedder)
    assert (damaged, found) == (["lexical", "vectors"], there)


def test_an_index_of_a_copy_that_went_another_way_is_not_brought_up_to_date(indexed, tmp_path, embedder, rows):
    path = copy_of(indexed, tmp_path)
    for one, texts in ((path, ["alpha one"]), (indexed[0], ["alpha two", "alpha three"])):
        with Store.open(one) as store:
            for number, text in enumerate(texts):
                store.add(rows([Memory(f"new{number}", text)]))
                store.indexes.refresh(embedder)
            there = answers(store, embedder)
    # The index knows of one change, the database of two others; by number it is just one behind.
    shutil.copy(indexed[0] / "workbench.duckdb", path)
    damaged, found, notices = repaired(path, embedder)
    assert (damaged, found) == (["lexical", "vectors"], there)
    assert any("other content than the store has had" in line for line in notices)


def test_what_a_killed_process_left_of_a_segment_is_no_damage_and_goes(indexed, embedder, rows):
    left = indexed[0] / "lexical" / "0123456789ab.segment"
    left.write_bytes(b"half a segment")
    with Store.open(indexed[0], create=False) as store:
        assert not any(state.damaged for state in store.indexes.states(embedder.model_id))
        store.memories.delete("m01")
        store.indexes.refresh(embedder)
        assert not left.exists() and store.notices == ()


def test_a_change_reads_and_writes_only_what_changed(indexed, embedder, rows, monkeypatch):
    with Store.open(indexed[0], create=False) as store:
        before = {path.name: path.stat().st_mtime_ns for path in (indexed[0] / "lexical").glob("*.segment")}
        read = []
        documents_of = entries.documents_of
        monkeypatch.setattr(
            entries, "documents_of", lambda db, ids, *rest: read.append(ids) or documents_of(db, ids, *rest)
        )
        store.add(rows([Memory("m02", "alpha changed")]))
        store.indexes.refresh(embedder)
        after = {path.name: path.stat().st_mtime_ns for path in (indexed[0] / "lexical").glob("*.segment")}
        assert read == [["m02"]]
        assert before.items() < after.items() and len(after) == len(before) + 1
        assert store.indexes.open(embedder).lexical.search("changed", 5)[0][0] == "m02"
        assert store.indexes.vocabulary()["changed"] == 1


def test_indexes_that_vanish_while_the_store_is_open_are_noticed(indexed, embedder):
    with Store.open(indexed[0]) as store:
        store.indexes.open(embedder)
        assert not store.indexes.files_changed()
        shutil.rmtree(indexed[0] / "lexical")
        assert store.indexes.files_changed()
        store.indexes.refresh(embedder)
        assert answers(store, embedder) == indexed[1]


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


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    with Store.open(folder / "open") as store:
        store.add(parsed([Memory(f"m{n}", f"text {n}") for n in range(3)], queries=[Query("q1", "a query")]))
    with Store.open(folder / "open") as store:
        for n in range(3):
            store.labels.give(Judgment("q1", f"m{n}", n, "Ann"))
        return shutil.copytree(folder / "open", folder / "store")


@pytest.fixture
def with_log(killed, tmp_path):
    """A copy of a store that was killed: its last three labels are in its log alone."""
    return shutil.copytree(killed, tmp_path / "store")


def cut(log, size: int) -> None:
    log.write_bytes(log.read_bytes()[:size])


@pytest.mark.parametrize(
    ("damage", "kept", "said"),
    [
        (lambda log: None, 3, []),
        (lambda log: log.with_name("workbench.commits").unlink(), 3, []),
        (lambda log: log.with_name("workbench.commits").write_bytes(b"\0" * 41), 3, []),
        (lambda log: cut(log, log.stat().st_size - 1), 2, ["the last change stored in"]),
        (lambda log: cut(log, 0), 0, ["the last 6 changes stored in"]),
        (lambda log: log.unlink(), 0, ["the last 6 changes stored in"]),
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
    assert (found["memories"].read, found["changes in the log"].lost) == (3, 6)


@pytest.mark.parametrize("file", ["workbench.duckdb", "workbench.duckdb.wal", "workbench.commits"])
@pytest.mark.parametrize("way", first_of(faults.WAYS, 2))
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


TEXTS = {"a": "alpha", "b": "beta", "c": "gamma"}


class Server:
    """A Chroma server at one address that can be stopped and started again on its data."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = chroma_server.free_port()
        self._running = ExitStack()
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.process = self._running.enter_context(chroma_server.process(self.directory, self.port))

    def stop(self) -> None:
        self._running.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path / "server")
    yield started
    started.stop()


@pytest.fixture
def opened(server: Server, tmp_path: Path, embedder, rows) -> Iterator[Store]:
    """A store on the server, with vectors of three memories."""
    with Store.open(tmp_path / "store", chroma_url=server.url) as store:
        store.add(rows([Memory(name, text) for name, text in TEXTS.items()]))
        assert store.indexes.refresh(embedder).embedded == 3 and caught_up(store, embedder) == ""
        yield store


def caught_up(store: Store, embedder) -> str:
    return store.indexes.catch_up_chroma(embedder.model_id)


def nearest(store: Store, embedder, text: str) -> str:
    return store.indexes.open(embedder).vectors.search(embedder.encode([text])[0], 1)[0][0]


@pytest.mark.thorough
def test_a_restart_is_not_noticed(server, opened, embedder):
    assert nearest(opened, embedder, "beta") == "b"
    server.stop()
    server.start()
    assert nearest(opened, embedder, "beta") == "b" and opened.indexes.refresh(embedder).embedded == 0
    assert not opened.indexes.notices


@pytest.mark.thorough
def test_while_it_is_away_searches_go_on_and_it_gets_what_it_lacks_afterwards(server, opened, embedder, rows):
    server.stop()
    assert nearest(opened, embedder, "beta") == "b"
    opened.add(rows([Memory("d", "delta")]))
    assert opened.indexes.refresh(embedder).embedded == 1
    said = caught_up(opened, embedder)
    assert f"127.0.0.1:{server.port}" in said and "\n" not in said
    assert nearest(opened, embedder, "delta") == "d"
    with pytest.raises(StoreError, match=f"127.0.0.1:{server.port}"):
        opened.indexes.open(embedder).vectors.approximate(np.ones(16), 1)
    server.start()
    assert caught_up(opened, embedder) == ""
    assert held(server) == {"a", "b", "c", "d"}


@pytest.mark.thorough
def test_one_that_hangs_is_given_up(server, opened, embedder, rows, monkeypatch):
    monkeypatch.setattr(http_limits, "RESPONSE_TIMEOUT_S", 1.0)
    with Store.open(opened.path, chroma_url=server.url) as store:
        store.memories.delete("a")
        store.indexes.refresh(embedder)
        server.process.send_signal(signal.SIGSTOP)
        try:
            said = caught_up(store, embedder)
            assert f"127.0.0.1:{server.port}" in said and "did not answer in time" in said
        finally:
            server.process.send_signal(signal.SIGCONT)
        assert nearest(store, embedder, "beta") == "b" and caught_up(store, embedder) == ""


def held(server: Server) -> set[str]:
    import chromadb

    client = chromadb.HttpClient("127.0.0.1", server.port)
    (collection,) = client.list_collections()
    return set(client.get_collection(collection.name).get(include=[])["ids"])


def test_what_somebody_took_away_there_is_written_again_on_request_and_a_collection_always(server, opened, embedder):
    import chromadb

    client = chromadb.HttpClient("127.0.0.1", server.port)
    (collection,) = client.list_collections()
    client.get_collection(collection.name).delete(ids=["b"])
    opened.memories.delete("a")
    assert opened.indexes.refresh(embedder).embedded == 0
    said = caught_up(opened, embedder)
    assert "2 records, and 3 were written here" in said and "reindex --chroma" in said and held(server) == {"a", "c"}
    assert opened.indexes.renew_chroma(embedder.model_id) == "" and held(server) == {"b", "c"}
    client.delete_collection(collection.name)
    opened.memories.delete("c")
    opened.indexes.refresh(embedder)
    assert caught_up(opened, embedder) == "" and held(server) == {"b"}


@pytest.mark.thorough
def test_two_workbenches_share_it(server, opened, embedder, rows, tmp_path):
    with Store.open(tmp_path / "another", chroma_url=server.url) as another:
        another.add(rows([Memory("b", "something else")]))
        another.indexes.refresh(embedder)
        assert len(another.indexes.open(embedder).vectors) == 1
    assert len(opened.indexes.open(embedder).vectors) == 3 and nearest(opened, embedder, "beta") == "b"
    # The same store in another process: what that adds is found here.
    program = (
        "import sys; from tests.small_store import HashEmbedder; from cems_workbench.store import Store\n"
        "from cems_workbench.records import Memory, ParsedInput\n"
        "with Store.open(sys.argv[1], chroma_url=sys.argv[2]) as store:\n"
        "    store.add(ParsedInput('more', 'test', memories=(Memory('d', 'delta'),)))\n"
        "    print(store.indexes.refresh(HashEmbedder()).embedded)\n"
    )
    command = [sys.executable, "-c", program, str(opened.path), server.url]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert said.stdout == "1\n"
    assert nearest(opened, embedder, "delta") == "d" and opened.indexes.refresh(embedder).embedded == 0
