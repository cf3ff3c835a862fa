"""Retire memories in the store of another memory system, or put them back. Written by CEMS Workbench, which it does not need.

    python FILE            print what would change
    python FILE --apply    write FILE.undo.json, then change it
    python FILE --undo     put back what FILE.undo.json has

mem0 (Qdrant, PostgreSQL, Chroma) gets an `expiration_date` in the past, which its searches leave out; items of LangGraph are deleted with
their vectors; a note gets `superseded_by` in its front matter. Stop the program that has the store open. Passwords are read as the
clients read them: PGPASSWORD, QDRANT_API_KEY. Needs the store's client: qdrant-client, psycopg or chromadb; nothing for notes and SQLite.

Source: mem0ai 2.2.1, `_payload_is_expired`; langgraph-checkpoint-sqlite 3.1.2 and -postgres 3.2.0, tables store and store_vectors.
"""

import base64
import json
import os
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

CHANGES: dict[str, Any] = {}
EXPIRED = {"expiration_date": (datetime.now(UTC) - timedelta(days=1)).strftime("%Y-%m-%d")}
OWN_OPTIONS = ("table", "user", "namespace", "omit_expired", "schema", "distance")


class Notes:
    """A folder of Markdown notes; a saved row is the file."""

    def __init__(self, place: str) -> None:
        self.files = {}
        for path in sorted(each for each in Path(place).rglob("*") if each.suffix.lower() in (".md", ".markdown")):
            front = re.match(rb"\A(?:\xef\xbb\xbf)?---[ \t]*\r?\n.*?^---", path.read_bytes(), re.DOTALL | re.MULTILINE)
            named = re.search(rb"^permalink:[ \t]*[\"']?([^\r\n\"']+)", front[0], re.MULTILINE) if front else None
            self.files[named[1].decode().strip() if named else path.relative_to(place).with_suffix("").as_posix()] = (
                path
            )

    def saved(self, key: str) -> Any:
        return [base64.b64encode(self.files[key].read_bytes()).decode()] if key in self.files else []

    def retire(self, key: str, successor: str | None) -> None:
        text = self.files[key].read_bytes()
        end = b"\r\n" if b"\r\n" in text else b"\n"
        line = b"superseded_by: " + json.dumps(successor, ensure_ascii=False).encode() + end
        opened = re.match(rb"\A(?:\xef\xbb\xbf)?---[ \t]*\r?\n", text)
        at = opened.end() if opened else 0
        self.files[key].write_bytes(
            text[:at] + line + text[at:] if opened else b"---" + end + line + b"---" + end + text
        )

    def restore(self, key: str, rows: Any) -> None:
        self.files[key].write_bytes(base64.b64decode(rows[0]))

    def close(self) -> None:
        """Nothing is open."""


class Sqlite:
    """LangGraph's SqliteStore; a saved row is (table, rowid, values by column), bytes as base64."""

    def __init__(self, place: str) -> None:
        import sqlite3

        self.database = sqlite3.connect(f"{Path(place.partition('?')[0]).absolute().as_uri()}?mode=rw", uri=True)
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
        return found

    def retire(self, key: str, successor: str | None) -> None:
        for table in reversed(self.tables):
            self.database.execute(f"DELETE FROM {table} WHERE prefix || '/' || key = ?", [key])

    def restore(self, key: str, rows: Any) -> None:
        self.retire(key, None)
        for table, values in rows:
            names, marks = ", ".join(values).replace("rowid_", "rowid"), ", ".join("?" * len(values))
            self.database.execute(
                f"INSERT INTO {table} ({names}) VALUES ({marks})", list(map(_unpacked, values.values()))
            )

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
        return [[number, row] for number, found in enumerate(rows) for (row,) in found]

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

        folder, _, self.name = place.partition("?")[0].rpartition("/")
        scheme, _, rest = folder.partition(":")
        url = f"{'https' if 'https' in scheme else 'http'}:{rest}"
        key = os.environ.get("QDRANT_API_KEY")
        self.client = QdrantClient(url, api_key=key) if rest.startswith("//") else QdrantClient(path=rest)

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

        folder, _, name = place.partition("?")[0].rpartition("/")
        client = chromadb.PersistentClient(folder.partition(":")[2])
        self.collection = client.get_collection(name, embedding_function=None)

    def saved(self, key: str) -> Any:
        return list(self.collection.get(ids=[key], include=["metadatas"])["metadatas"] or [])

    def retire(self, key: str, successor: str | None) -> None:
        self.collection.update(ids=[key], metadatas=[EXPIRED])

    def restore(self, key: str, rows: Any) -> None:
        self.collection.update(ids=[key], metadatas=[{**dict.fromkeys(EXPIRED), **rows[0]}])

    def close(self) -> None:
        """Each call writes."""


def _packed(value: Any) -> Any:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _unpacked(value: Any) -> Any:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value


SYSTEMS: dict[str, Any] = {"notes": Notes, "sqlite": Sqlite, "postgresql": Postgres, "qdrant": Qdrant, "chroma": Chroma}


def main(file: str, options: list[str]) -> str:
    """Apply, undo or print the changes; returns a line about them."""
    kept = Path(f"{file}.undo.json")
    if set(options) - {"--apply", "--undo"} or len(options) > 1:
        return f"{' '.join(options)}: allowed is --apply or --undo"
    if options == ["--apply"] and kept.exists():
        return f"{kept} exists: put that back with --undo first"
    if options == ["--undo"] and not kept.exists():
        return f"{kept} is missing: nothing was applied by this file"
    system = SYSTEMS[CHANGES["system"]](CHANGES["place"])
    if options == ["--undo"]:
        before, after = json.loads(kept.read_text("utf-8"))
        back = {
            key: rows for key, rows in before.items() if system.saved(key) in (rows, after.get(key, system.saved(key)))
        }
        for key, rows in back.items():
            if system.saved(key) != rows:
                system.restore(key, rows)
        system.close()
        kept.rename(f"{kept}.done")
        left = [key for key in before if key not in back]
        return f"{len(back)} put back" + (f"; changed since, and left: {', '.join(left)}" if left else "")
    before = {}
    for change in CHANGES["retire"]:
        rows = system.saved(change["id"])
        print(f"{change['id']}: {change['text']!r} {'-> ' + repr(change['by_text']) if rows else 'is not there'}")
        if rows:
            before[change["id"]] = rows
    if options == ["--apply"]:
        kept.write_text(json.dumps([before, {}], ensure_ascii=False), "utf-8")
        for change in CHANGES["retire"]:
            if change["id"] in before:
                system.retire(change["id"], change["by"])
        kept.write_text(json.dumps([before, {key: system.saved(key) for key in before}], ensure_ascii=False), "utf-8")
    system.close()
    return (
        f"{len(before)} retired; --undo puts them back"
        if options
        else f"{len(before)} would be retired; --apply does it"
    )


if __name__ == "__main__":
    try:
        print(main(sys.argv[0], sys.argv[1:]))
    except Exception as error:
        sys.exit(f"{CHANGES.get('place')}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
