"""The script that `supersessions --script` writes: it retires memories in the system that they are from, and puts them back."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import postgres_server
import pytest

from cems_workbench.errors import InputError
from cems_workbench.records import Memory, ParsedInput, TakenMemory
from cems_workbench.store import Store
from cems_workbench.store.sources import ImportRows
from workbench_supersession.source_script import script_of

OLD, NEW = "8f14e45f-ceea-467f-9a39-000000000001", "8f14e45f-ceea-467f-9a39-000000000002"
TEXTS = {OLD: "Mira lives in Graz.", NEW: "Mira moved to Linz."}
Look = Callable[[], Any]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "opened") as opened:
        yield opened


def connected(store: Store, address: str, kind: str, old: str = OLD, new: str = NEW) -> None:
    """Both memories from a source of this kind, and an accepted pair."""
    source = store.sources.begin(address, {"kind": kind}, None, None, "", datetime(2026, 11, 1, tzinfo=UTC))
    taken = [TakenMemory(Memory(key, text), "1") for key, text in zip((old, new), TEXTS.values(), strict=True)]
    store.sources.put(source, ImportRows.of(taken))
    store.supersessions.decide(new, old, "accepted", "mira")


def write_script(store: Store, script: Path, notes: Path | None = None) -> int:
    text, count = script_of(store, notes)
    script.write_text(text, "utf-8")
    return count


def run(script: Path, *options: str) -> str:
    done = subprocess.run([sys.executable, str(script), *options], capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == bool(done.stderr)  # what is refused or fails is no success
    return (done.stdout + done.stderr).splitlines()[-1]


def sqlite_place(tmp_path: Path, _: pytest.FixtureRequest) -> tuple[str, str, Look, Look]:
    file = tmp_path / "store.db"

    def rows(sql: str) -> list[Any]:
        with closing(sqlite3.connect(file)) as database:
            found = database.execute(sql).fetchall()
            database.commit()
            return found

    rows("CREATE TABLE store (prefix TEXT, key TEXT, value BLOB, created_at TIMESTAMP, PRIMARY KEY (prefix, key))")
    rows("CREATE TABLE store_vectors (prefix TEXT, key TEXT, field_name TEXT, embedding BLOB)")
    for key, text in TEXTS.items():
        rows(f"""INSERT INTO store VALUES ('m', '{key}', CAST('{{"content": "{text}"}}' AS BLOB), '2026-01-01')""")
        rows(f"INSERT INTO store_vectors VALUES ('m', '{key}', 'content', x'00017fff')")
    everything = "SELECT rowid, {} FROM store_vectors UNION ALL SELECT rowid, {} FROM store ORDER BY 1, 2, 3, 4"
    columns = ("prefix, key, field_name, embedding", "prefix, key, value, created_at")
    return (
        f"sqlite:{file}?namespace=m",
        "langgraph",
        lambda: rows(everything.format(*columns)),
        lambda: [key for (key,) in rows("SELECT key FROM store")],
    )


def postgres_place(kind: str, request: pytest.FixtureRequest) -> tuple[str, str, Look, Look]:
    server: postgres_server.Server = request.getfixturevalue("postgres")
    name = f"retire_{kind}"
    with closing(server.connect()) as first:
        first.execute(f"DROP DATABASE IF EXISTS {name}")
        first.execute(f"CREATE DATABASE {name}")

    def rows(sql: str, *values: Any) -> list[Any]:
        with closing(server.connect(name)) as connection:
            done = connection.execute(sql, values)
            return done.fetchall() if done.description else []

    rows("CREATE EXTENSION vector")
    if kind == "mem0":
        rows("CREATE TABLE mem0 (id uuid PRIMARY KEY, vector vector(2), payload jsonb)")
        for key, text in TEXTS.items():
            rows("INSERT INTO mem0 VALUES (%s, '[0.1, 0.2]', %s)", key, json.dumps({"data": text, "user_id": "u"}))
        left = "SELECT id::text FROM mem0 WHERE payload ->> 'expiration_date' IS NULL OR payload ->> 'expiration_date' >= now()::text"
        tables = ["mem0"]
    else:
        rows(
            "CREATE TABLE store (prefix text, key text, value jsonb, expires_at timestamptz, PRIMARY KEY (prefix, key))"
        )
        rows(
            "CREATE TABLE store_vectors (prefix text, key text, field_name text, embedding vector(2), created_at timestamptz "
            "DEFAULT now(), FOREIGN KEY (prefix, key) REFERENCES store (prefix, key) ON DELETE CASCADE)"
        )
        for key, text in TEXTS.items():
            rows("INSERT INTO store VALUES ('m', %s, %s)", key, json.dumps({"content": text}))
            rows("INSERT INTO store_vectors VALUES ('m', %s, 'content', '[0.1, 0.2]')", key)
        left, tables = "SELECT key FROM store", ["store", "store_vectors"]

    def everything() -> list[Any]:
        return [sorted(rows(f"SELECT t::text FROM {table} t")) for table in tables]

    place = f"{server.address(name, 'postgres')}&namespace=m"
    return place, kind, everything, lambda: [key for (key,) in rows(left)]


def qdrant_place(tmp_path: Path, _: pytest.FixtureRequest) -> tuple[str, str, Look, Look]:
    client = pytest.importorskip("qdrant_client")
    models = client.models

    def rows() -> list[Any]:
        with closing(client.QdrantClient(path=str(tmp_path / "q"))) as opened:
            found = opened.scroll("mem0", with_payload=True, with_vectors=True)[0]
            return sorted([one.id, one.payload, one.vector] for one in found)

    with closing(client.QdrantClient(path=str(tmp_path / "q"))) as opened:
        opened.create_collection("mem0", models.VectorParams(size=2, distance=models.Distance.COSINE))
        points = [
            models.PointStruct(id=key, vector=[0.6, 0.8], payload={"data": text, "user_id": "u"})
            for key, text in TEXTS.items()
        ]
        opened.upsert("mem0", points)
    left = lambda: [key for key, payload, _ in rows() if "expiration_date" not in payload]  # noqa: E731
    return f"qdrant:{tmp_path}/q/mem0", "mem0", rows, left


def chroma_place(tmp_path: Path, _: pytest.FixtureRequest) -> tuple[str, str, Look, Look]:
    import chromadb

    client = chromadb.PersistentClient(str(tmp_path / "c"))
    collection = client.create_collection("mem0", embedding_function=None)
    metadata = [{"data": text, "user_id": "u"} for text in TEXTS.values()]
    collection.add(ids=list(TEXTS), embeddings=[[0.6, 0.8]] * 2, metadatas=metadata)

    def rows() -> Any:
        found = collection.get(include=["metadatas", "embeddings"])
        return found["ids"], found["metadatas"], found["embeddings"].tolist()

    left = lambda: [key for key, each in zip(*rows()[:2], strict=True) if "expiration_date" not in each]  # noqa: E731
    return f"chroma:{tmp_path}/c/mem0", "mem0", rows, left


PLACES: dict[str, Callable[[Path, pytest.FixtureRequest], tuple[str, str, Look, Look]]] = {
    "sqlite": sqlite_place,
    "postgresql-langgraph": lambda _, request: postgres_place("langgraph", request),
    "postgresql-mem0": lambda _, request: postgres_place("mem0", request),
    "qdrant": qdrant_place,
    "chroma": chroma_place,
}


@pytest.mark.parametrize("system", PLACES)
def test_the_older_memory_is_retired_where_it_is_from_and_put_back(
    system: str, store: Store, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place, kind, everything, left = PLACES[system](tmp_path, request)
    before, items = everything(), kind == "langgraph"
    connected(store, place, kind, *((f"m/{key}" for key in TEXTS) if items else TEXTS))
    script = tmp_path / "fix.py"
    assert write_script(store, script) == 1
    assert run(script) == "1 would be retired; --apply does it"
    assert (everything(), run(script, "--undo")[-32:]) == (before, "nothing was applied by this file")
    assert run(script, "--apply") == "1 retired; --undo puts them back"
    assert left() == [NEW]
    assert "put that back with --undo first" in run(script, "--apply")
    assert run(script, "--undo") == "1 put back"
    assert everything() == before


def test_a_note_names_its_successor_and_has_its_bytes_back(store: Store, tmp_path: Path) -> None:
    folder, script = tmp_path / "notes", tmp_path / "fix.py"
    folder.mkdir()
    files = {
        "old.md": b"\xef\xbb\xbf---\r\npermalink: home/old\r\n---\r\nMira lives in Graz.\r\n",
        "plain.md": b"Mira has no dog.",
        "new.md": b"---\nid: m312\n---\nMira moved to Linz, and has a dog.\n",
        "linked.md": b"See [[m312]].",
    }
    for name, text in files.items():
        (folder / name).write_bytes(text)
    with pytest.raises(InputError, match="no pair is accepted"):
        write_script(store, script)
    memories = [Memory(key, key) for key in ("home/old", "plain", "new")]
    store.add(ParsedInput(source="notes", format="markdown-notes", memories=tuple(memories)))
    for older in ("home/old", "plain"):
        store.supersessions.decide("new", older, "accepted", "mira")
    with pytest.raises(InputError, match="--notes FOLDER names a folder of Markdown notes"):
        write_script(store, script)
    write_script(store, script, folder)
    assert run(script, "--apply") == "2 retired; --undo puts them back"
    assert (folder / "old.md").read_bytes() == files["old.md"].replace(
        b"permalink", b'superseded_by: "new"\r\npermalink'
    )
    assert (folder / "plain.md").read_bytes() == b'---\nsuperseded_by: "new"\n---\nMira has no dog.'
    from workbench_tools.markdown_notes import read

    found = read(folder, lambda *_: None)
    edges = {(one.source_id, one.kind, one.target_id) for one in found.relations}
    replaced = {("home/old", "superseded_by", "new"), ("plain", "superseded_by", "new")}
    assert (edges, found.notes) == (replaced | {("linked", "links_to", "new")}, ())  # an id is one more name
    (folder / "plain.md").write_bytes(b"edited since")
    assert run(script, "--undo") == f"1 put back; changed since, and left in {script}.undo.json: plain"
    assert ((folder / "old.md").read_bytes(), (folder / "plain.md").read_bytes()) == (files["old.md"], b"edited since")


def test_a_failure_in_between_can_be_undone_and_edits_stay(store: Store, tmp_path: Path) -> None:
    folder, script = tmp_path / "notes", tmp_path / "fix.py"
    (folder / ".hidden").mkdir(parents=True)
    (folder / "bad.md").mkdir()
    outside = tmp_path / "outside.md"
    outside.write_text("elsewhere")
    (folder / "link.md").symlink_to(outside)
    (folder / "gone.md").symlink_to(tmp_path / "nowhere")
    texts = {"a": "---\nsuperseded_by: x\ntitle: A\n---\nA", "b": "---\na rule, never closed", "c": "C", "d": "D"}
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text)
    ids = [*texts, "link", "new", "newer"]
    store.add(ParsedInput(source="notes", format="markdown-notes", memories=tuple(Memory(key, key) for key in ids)))
    for newer, older in [*(("new", key) for key in ("a", "b", "c", "d", "link")), ("newer", "d")]:
        store.supersessions.decide(newer, older, "accepted", "mira")
    assert write_script(store, script, folder) == 5
    stuck = script.read_text().replace(
        "def _write(self, key: str, text: bytes) -> None:\n",
        "def _write(self, key: str, text: bytes) -> None:\n        if key == 'd' and b'by' in text:\n            raise OSError('full')\n",
    )
    script.write_text(stuck)
    assert "full; 3 were retired before it: --undo puts them back" in run(script, "--apply")
    assert (folder / "a.md").read_text() == '---\nsuperseded_by: "new"\ntitle: A\n---\nA'
    assert (folder / "b.md").read_text() == '---\nsuperseded_by: "new"\n---\n---\na rule, never closed'
    (folder / "c.md").write_text("mine")
    (folder / "d.md").write_text("mine too")
    assert run(script, "--undo").startswith("2 put back; changed since, and left in ")
    assert [(folder / f"{name}.md").read_text() for name in "abcd"] == [texts["a"], texts["b"], "mine", "mine too"]
    assert outside.read_text() == "elsewhere"
    assert json.loads((tmp_path / "fix.py.undo.json").read_text().splitlines()[0])[0] == "c"


def test_an_item_whose_id_is_anothers_is_left_and_a_taken_row_number_is_replaced(store: Store, tmp_path: Path) -> None:
    place, kind, _, left = sqlite_place(tmp_path, None)
    file, script = tmp_path / "store.db", tmp_path / "fix.py"
    connected(store, place, kind, f"m/{OLD}", f"m/{NEW}")
    write_script(store, script)
    assert run(script, "--apply") == "1 retired; --undo puts them back"
    with closing(sqlite3.connect(file)) as database:
        database.execute("INSERT INTO store (rowid, prefix, key, value) VALUES (1, 'm', 'other', 'x')")
        database.commit()
    assert run(script, "--undo") == "1 put back"
    assert sorted(left()) == sorted([OLD, NEW, "other"])
    with closing(sqlite3.connect(file)) as database:
        database.execute("INSERT INTO store (prefix, key, value) VALUES ('m', 'a/x', 'x'), ('m/a', 'x', 'y')")
        database.commit()
    connected(store, place, kind, "m/a/x", f"m/{NEW}")
    write_script(store, script)
    assert "its id is that of several items" in run(script, "--apply")


def test_nothing_is_written_for_a_source_of_which_nothing_is_known(store: Store, tmp_path: Path) -> None:
    connected(store, "lancedb:/folder", "lancedb")
    with pytest.raises(InputError, match="how to retire a memory in lancedb; known are mem0, LangGraph, notes"):
        write_script(store, tmp_path / "fix.py")
    assert not (tmp_path / "fix.py").exists()


def test_a_mem0_that_returns_expired_memories_is_left_alone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected(store, "qdrant:/nowhere/mem0", "mem0")
    write_script(store, script := tmp_path / "fix.py")
    installed = tmp_path / "site" / "mem0ai-2.0.8.dist-info" / "METADATA"
    installed.parent.mkdir(parents=True)
    installed.write_text("Metadata-Version: 2.1\nName: mem0ai\nVersion: 2.0.8\n", "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    assert run(script, "--apply") == (
        "mem0ai 2.0.8 returns expired memories, 2.0.10 and later do not: nothing was changed"
    )
    installed.write_text(installed.read_text("utf-8").replace("2.0.8", "2.0.10"), "utf-8")
    assert (
        run(script, "--apply").startswith("/nowhere/mem0: FileNotFoundError")
        and not Path(f"{script}.undo.json").exists()
    )
