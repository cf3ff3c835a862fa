"""Retire memories in the store of another memory system, or put them back. Written by CEMS Workbench, which it does not need.

    python FILE            print what would change
    python FILE --apply    write FILE.undo.json, then change it
    python FILE --undo     put back what FILE.undo.json has

mem0 (Qdrant, PostgreSQL, Chroma) gets an `expiration_date` in the past, which its searches leave out; items of LangGraph are deleted with
their vectors; a note gets `superseded_by` in its front matter. Stop the program that has the store open. Passwords are read as the
clients read them: PGPASSWORD, QDRANT_API_KEY. Needs the store's client: qdrant-client, psycopg or chromadb; nothing for notes and SQLite.

Source: mem0ai 2.2.1, `_payload_is_expired`, which 2.0.8 does not have and 2.0.10 has; langgraph-checkpoint-sqlite 3.1.2 and -postgres
3.2.0, tables store and store_vectors.
"""

import base64
import json
import os
import re
import shutil
import sys
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

CHANGES: dict[str, Any] = {}
LEAVES_OUT = (2, 0, 10)
"""The first mem0ai whose searches leave out expired memories."""
EXPIRED = {"expiration_date": (datetime.now(UTC) - timedelta(days=1)).strftime("%Y-%m-%d")}
OWN_OPTIONS = ("table", "user", "namespace", "omit_expired", "schema", "distance")


FRONT = re.compile(
    rb"\A(\xef\xbb\xbf)?---[ \t]*(\r?\n)(.*?)^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE
)


class Notes:
    """A folder of Markdown notes; a saved row is the file. Hidden folders and files outside the folder are left alone."""

    def __init__(self, place: str) -> None:
        self.files: dict[str, Path] = {}
        root = Path(place).resolve(strict=True)
        for path in sorted(each for each in root.rglob("*") if each.suffix.lower() in (".md", ".markdown")):
            own = path.relative_to(root)
            if path.is_file() and path.resolve() == path and not any(part.startswith(".") for part in own.parts):
                front = FRONT.match(path.read_bytes())
                named = re.search(rb"^permalink:[ \t]*[\"']?([^\r\n\"']+)", front[3], re.MULTILINE) if front else None
                name = named[1].decode("utf-8", "replace").strip() if named else own.with_suffix("").as_posix()
                self.files.setdefault(name, path)

    def saved(self, key: str) -> Any:
        return [base64.b64encode(self.files[key].read_bytes()).decode()] if key in self.files else []

    def retire(self, key: str, successor: str | None) -> None:
        text = self.files[key].read_bytes()
        line, front = b"superseded_by: " + json.dumps(successor, ensure_ascii=False).encode(), FRONT.match(text)
        if front is None:
            end = b"\r\n" if b"\r\n" in text else b"\n"
            text = end.join([b"---", line, b"---", text])
        else:
            at, known = front.start(3), re.search(rb"^superseded_by:[^\r\n]*", front[3], re.MULTILINE)
            start, stop = (at + known.start(), at + known.end()) if known else (at, at)
            text = text[:start] + line + (b"" if known else front[2]) + text[stop:]
        self._write(key, text)

    def restore(self, key: str, rows: Any) -> None:
        self._write(key, base64.b64decode(rows[0]))

    def _write(self, key: str, text: bytes) -> None:
        path = self.files[key]
        part = path.with_name(f"{path.name}.part")
        part.write_bytes(text)
        shutil.copymode(path, part)
        part.replace(path)

    def close(self) -> None:
        """Nothing is open."""


class Sqlite:
    """LangGraph's SqliteStore; a saved row is (table, rowid, values by column), bytes as base64."""

    def __init__(self, place: str) -> None:
        import sqlite3

        self.database = sqlite3.connect(f"{Path(place).absolute().as_uri()}?mode=rw", uri=True)
        tables = [name for (name,) in self.database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        self.tables = [name for name in ("store", "store_vectors") if name in tables]

    def saved(self, key: str) -> Any:
        found = []
        for table in self.tables:
            rows = self.database.execute(
                f"SELECT rowid AS rowid_, * FROM {table} WHERE prefix || '/' || key = ?", [key]
            )
            names = [each[0] for each in rows.description]
            found += [[table, dict(zip(names, map(_packed, row), strict=True))] for row in rows]
        return _of_one(found, "store")

    def retire(self, key: str, successor: str | None) -> None:
        for table in reversed(self.tables):
            self.database.execute(f"DELETE FROM {table} WHERE prefix || '/' || key = ?", [key])

    def restore(self, key: str, rows: Any) -> None:
        self.retire(key, None)
        for table, values in rows:
            number, own = values["rowid_"], {name: value for name, value in values.items() if name != "rowid_"}
            if not self.database.execute(f"SELECT 1 FROM {table} WHERE rowid = ?", [number]).fetchall():
                own["rowid"] = number
            names, marks = ", ".join(own), ", ".join("?" * len(own))
            self.database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(map(_unpacked, own.values())))

    def close(self) -> None:
        self.database.commit()
        self.database.close()


class Postgres:
    """LangGraph's or mem0's tables; a saved row is (table, the row in PostgreSQL's text form)."""

    def __init__(self, place: str) -> None:
        import psycopg
        from psycopg import sql

        address, _, query = place.partition("?")
        options = dict(parse_qsl(query))
        own = urlencode({name: value for name, value in options.items() if name not in OWN_OPTIONS})
        self.sql, self.database = sql, psycopg.connect(address + (f"?{own}" if own else ""))
        self.mem0 = CHANGES["kind"] == "mem0"
        self.on = "id::text = %s" if self.mem0 else "prefix || '/' || key = %s"
        names = ["id", "vector", "payload"] if self.mem0 else ["prefix", "key"]
        found = self.database.execute(
            "SELECT table_schema, table_name FROM information_schema.columns JOIN information_schema.tables USING (table_schema, "
            "table_name) WHERE column_name = ANY(%s) AND table_type = 'BASE TABLE' GROUP BY 1, 2 HAVING count(*) = %s ORDER BY 2",
            [names, len(names)],
        )
        schema = options.get("table", "").rpartition(".")[0]
        self.tables = [sql.Identifier(*name) for name in found if schema in ("", name[0])]

    def _run(self, text: str, table: Any, *values: Any) -> Any:
        return self.database.execute(self.sql.SQL(text).format(t=table), values)

    def saved(self, key: str) -> Any:
        text = f"SELECT t::text FROM {{t}} t WHERE {self.on}"
        rows = [self._run(text, table, key).fetchall() for table in self.tables]
        listed = [[number, row] for number, found in enumerate(rows) for (row,) in found]
        return _of_one(listed, 0)

    def retire(self, key: str, successor: str | None) -> None:
        for table in reversed(self.tables):
            if self.mem0:
                self._run(
                    "UPDATE {t} SET payload = payload || %s::jsonb WHERE id::text = %s", table, json.dumps(EXPIRED), key
                )
            else:
                self._run(f"DELETE FROM {{t}} WHERE {self.on}", table, key)

    def restore(self, key: str, rows: Any) -> None:
        for table in reversed(self.tables):
            self._run(f"DELETE FROM {{t}} WHERE {self.on}", table, key)
        for number, row in rows:
            self._run("INSERT INTO {t} SELECT (%s::{t}).*", self.tables[number], row)

    def close(self) -> None:
        self.database.commit()
        self.database.close()


class Qdrant:
    """mem0's collection in Qdrant; a saved row is the payload."""

    def __init__(self, place: str) -> None:
        from qdrant_client import QdrantClient

        if place.startswith("http"):
            folder, _, name = place.rpartition("/")
            self.client = QdrantClient(folder, api_key=os.environ.get("QDRANT_API_KEY"))
        else:
            folder, name = _in_folder(place, "meta.json")
            self.client = QdrantClient(path=folder)
        self.name = name or self.client.get_collections().collections[0].name

    def saved(self, key: str) -> Any:
        return [point.payload for point in self.client.retrieve(self.name, [key]) if "data" in (point.payload or {})]

    def retire(self, key: str, successor: str | None) -> None:
        self.client.set_payload(self.name, EXPIRED, [key])

    def restore(self, key: str, rows: Any) -> None:
        self.client.overwrite_payload(self.name, rows[0], [key])

    def close(self) -> None:
        self.client.close()


class Chroma:
    """mem0's collection in a folder of Chroma; a saved row is the metadata."""

    def __init__(self, place: str) -> None:
        import chromadb

        folder, name = _in_folder(place, "chroma.sqlite3")
        client = chromadb.PersistentClient(folder)
        self.collection = client.get_collection(name or client.list_collections()[0].name, embedding_function=None)

    def saved(self, key: str) -> Any:
        return list(self.collection.get(ids=[key], include=["metadatas"])["metadatas"] or [])

    def retire(self, key: str, successor: str | None) -> None:
        self.collection.update(ids=[key], metadatas=[EXPIRED])

    def restore(self, key: str, rows: Any) -> None:
        self.collection.update(ids=[key], metadatas=[{**dict.fromkeys(EXPIRED), **rows[0]}])

    def close(self) -> None:
        """Each call writes."""


def _in_folder(place: str, marker: str) -> tuple[str, str]:
    """The folder that has this file, and the collection behind it; empty if the place is the folder. Creates nothing."""
    for folder, name in ((Path(place), ""), (Path(place).parent, Path(place).name)):
        if (folder / marker).is_file():
            return str(folder), name
    raise FileNotFoundError(f"there is no {marker}")


def _of_one(rows: Any, first: Any) -> Any:
    """The rows if at most one is of the first table: `prefix/key` may be that of several items."""
    if sum(table == first for table, _ in rows) > 1:
        raise ValueError("its id is that of several items")
    return rows


def _packed(value: Any) -> Any:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _unpacked(value: Any) -> Any:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value


SYSTEMS: dict[str, Any] = {"notes": Notes, "sqlite": Sqlite, "postgresql": Postgres, "qdrant": Qdrant, "chroma": Chroma}


def main(file: str, options: list[str]) -> str:
    """Apply, undo or print the changes; returns a line about them. What is refused ends with 1."""
    kept = Path(f"{file}.undo.json")
    if set(options) - {"--apply", "--undo"} or len(options) > 1:
        sys.exit(f"{' '.join(options)}: allowed is --apply or --undo")
    if options == ["--apply"] and kept.exists():
        sys.exit(f"{kept} exists: put that back with --undo first")
    if options == ["--undo"] and not kept.exists():
        sys.exit(f"{kept} is missing: nothing was applied by this file")
    if CHANGES["kind"] == "mem0" and options != ["--undo"]:
        try:
            version = metadata.version("mem0ai")
        except metadata.PackageNotFoundError:
            print("mem0ai is not installed here: only 2.0.10 and later leave out expired memories")
        else:
            if tuple(map(int, re.findall(r"\d+", version)[:3])) < LEAVES_OUT:
                sys.exit(f"mem0ai {version} returns expired memories, 2.0.10 and later do not: nothing was changed")
    system = SYSTEMS[CHANGES["system"]](CHANGES["place"])
    return undo(system, kept) if options == ["--undo"] else apply(system, kept, options == ["--apply"])


def apply(system: Any, kept: Path, changing: bool) -> str:
    """Retire what is there, each noted in the undo file before and after it, so that a failure in between can be undone."""
    done = 0
    try:
        for change in CHANGES["retire"]:
            key, before = change["id"], system.saved(change["id"])
            print(f"{key}: {change['text']!r} {'-> ' + repr(change['by_text']) if before else 'is not there'}")
            if before and changing:
                _note(kept, key, before)
                system.retire(key, change["by"])
                _note(kept, key, system.saved(key))
            done += bool(before)
        system.close()
    except Exception as error:
        raise RuntimeError(
            f"{error}; {done} were retired before it: --undo puts them back" if changing else error
        ) from error
    return f"{done} retired; --undo puts them back" if changing else f"{done} would be retired; --apply does it"


def undo(system: Any, kept: Path) -> str:
    """Put back what is as it was left; the rest stays in the undo file."""
    noted: dict[str, list[Any]] = {}
    for line in kept.read_text("utf-8").splitlines():
        key, rows = json.loads(line)
        noted.setdefault(key, []).append(rows)
    back, left = 0, {}
    for key, (before, *after) in noted.items():
        now = system.saved(key)
        if now == before or [now] == after:
            if now != before:
                system.restore(key, before)
            back += 1
        else:
            left[key] = [before, *after]
    system.close()
    kept.unlink()
    for key, states in left.items():
        for rows in states:
            _note(kept, key, rows)
    return f"{back} put back" + (f"; changed since, and left in {kept}: {', '.join(left)}" if left else "")


def _note(kept: Path, key: str, rows: Any) -> None:
    with kept.open("a", encoding="utf-8") as file:
        file.write(json.dumps([key, rows]) + "\n")
        file.flush()
        os.fsync(file.fileno())


if __name__ == "__main__":
    try:
        print(main(sys.argv[0], sys.argv[1:]))
    except Exception as error:
        sys.exit(f"{CHANGES.get('place')}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
