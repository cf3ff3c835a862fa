"""Whether a deleted memory is gone: every place of a store is searched for its text; a receipt says what was searched and what holds it.

    tables          every table of the store, of its transcript, of the team's database and of each evidence file: rows with the text,
                    as it is, as in JSON or in lower case, and rows that only name the memory by its id or by the hash of its text
    indexes         whether the files of the lexical index have its words, and those of the vectors its vector, deleted or not
    Chroma          the records of each of the store's collections
    lists           whether a search for its own text returns it, by any list
    paraphrases     the memories and turns nearest to the text that say the same (workbench_transcripts/coverage.py)
    files           every file below the store's folder, byte by byte: freed pages of a database too, as long as they are not compressed

A text below MIN_CHARS characters is only compared with whole values. The receipt has no text of the memory: it has its SHA-256, and that of
each file that was searched. Copies elsewhere, such as backups, exports and the system that the memory came from, are not searched.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench import __version__
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError, WorkbenchError, counted, nearest
from cems_workbench.evaluation import evidence_file
from cems_workbench.jobs.query_set_evidence import evidence_files
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Memory
from cems_workbench.results import Result, Table
from cems_workbench.store.database import Database
from workbench_audit import audit
from workbench_transcripts.coverage import compared, point_of
from workbench_transcripts.transcript import transcript_folder

if TYPE_CHECKING:
    import duckdb

MIN_CHARS = 12
SEARCHED_CHARS = 2_000
"""Characters of the text that the lists are searched for."""
BLOCK = 1 << 20
Rows = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]

ADVICE = {
    "memories": "the row is kept so that Restore can bring it back",
    "memories_before": "kept to undo an import",
    "chunks_before": "kept to undo an import",
    "recorded_answers": "imports --undo of those answers removes it",
    "transcript": "what was said; delete the folder transcript to forget it",
    "reply_cache": "what a chat model was sent",
    "evidence": "delete the file; what needs it is gathered again",
    "lexical": "reindex writes the index anew",
    "vectors": "reindex writes the index anew",
    "chroma": "reindex --chroma writes the collection anew",
    "paraphrase": "read it, and delete it too if it should go",
    "list": "reindex",
    "file": "its rows, as above, or freed pages that were not written over",
}
"""What to do, by table or kind of place."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place that was searched. `searched` are its rows, records or bytes, `holds` how many of them have the text, `names` how many only
    name the memory; `problem` says why it could not be searched."""

    kind: str
    name: str
    searched: int
    holds: int = 0
    names: int = 0
    sha256: str = ""
    problem: str = ""

    @property
    def advice(self) -> str:
        """What to do about it; empty where nothing is held."""
        of = "transcript" if self.name.startswith("transcript ") else self.name if self.name in ADVICE else self.kind
        return ADVICE.get(of, "") if self.holds else ""

    def to_json(self) -> dict[str, Any]:
        """As plain values, those that are not empty."""
        values = {
            name: getattr(self, name) for name in ("kind", "name", "searched", "holds", "names", "sha256", "problem")
        }
        return {name: one for name, one in (values | {"advice": self.advice}).items() if one or name == "holds"}


@dataclass(frozen=True, eq=False, repr=False)
class Receipt(Result):
    """What was searched for a memory, and what still holds its text; `known` says where its text was taken from."""

    memory_id: str
    store: Path
    text_sha256: str
    known: str
    made_at: datetime
    places: tuple[Place, ...]
    remarks: tuple[str, ...] = ()

    @property
    def holding(self) -> list[Place]:
        """The places that hold the text or a paraphrase."""
        return [one for one in self.places if one.holds]

    @property
    def forgotten(self) -> bool:
        """Whether every place was searched and none holds the text."""
        return not self.holding and not any(one.problem for one in self.places)

    @property
    def title(self) -> str:
        """Of what."""
        return f"{self.memory_id} in {self.store}, {self.made_at:%Y-%m-%d %H:%M} UTC"

    @property
    def lines(self) -> list[str]:
        """Whether it is gone."""
        files = [one for one in self.places if one.kind == "file"]
        rows = sum(one.searched for one in self.places if one.kind in ("table", "evidence"))
        where = f"{counted(len(self.places), 'places')}: {rows:,} rows of tables, {counted(len(files), 'files')} byte by byte"
        unread = sum(bool(one.problem) for one in self.places)
        if self.forgotten:
            return [f"forgotten: none of {where} holds the text of {self.memory_id} or says the same"]
        said = [f"not forgotten: {len(self.holding):,} of {where} hold the text of {self.memory_id} or say the same"]
        return said + ([f"{counted(unread, 'places')} could not be searched"] if unread else [])

    @property
    def tables(self) -> tuple[Table, ...]:
        """What holds it, and what only names it."""
        held = tuple((one.kind, one.name, one.searched, one.holds, one.advice) for one in self.holding)
        named = tuple(
            (one.kind, one.name, one.searched, one.names) for one in self.places if one.names and not one.holds
        )
        broken = tuple((one.kind, one.name, one.problem) for one in self.places if one.problem)
        return (
            Table(("kind", "place", "searched", "hold it", "what to do"), held, "what still holds it"),
            Table(
                ("kind", "place", "searched", "name it"), named, "what only names it, by its id or the hash of its text"
            ),
            Table(("kind", "place", "problem"), broken, "what could not be searched"),
        )

    @property
    def notes(self) -> list[str]:
        """The hashes, and what was not searched."""
        return [f"text: SHA-256 {self.text_sha256}, from {self.known}; receipt: SHA-256 {self.sha256}", *self.remarks]

    def _content(self) -> dict[str, Any]:
        of: dict[str, Any] = {
            "memory_id": self.memory_id,
            "store": str(self.store),
            "made_at": self.made_at.isoformat(),
            "by": f"cems_workbench {__version__}",
        }
        of |= {"text_sha256": self.text_sha256, "text_from": self.known, "remarks": self.remarks}
        return of | {"forgotten": self.forgotten, "places": [one.to_json() for one in self.places]}

    @property
    def sha256(self) -> str:
        """The hash of the receipt without this hash, as JSON with sorted keys."""
        return hashlib.sha256(json.dumps(self._content(), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The receipt as plain values."""
        return self._content() | {"sha256": self.sha256}


def receipt_of(
    memory_id: str,
    resources: Resources,
    config: PipelineConfig,
    *,
    text: str | None = None,
    transcript: Resources | None = None,
    progress: Progress = silent,
) -> Receipt:
    """Search every place of a store for a memory. `text` is its text where the store has no row of it any more.

    Raises InputError for an id that no row has and no text, naming the nearest; what `progress` raises.
    """
    resources.refresh(progress)
    store, now, remarks = resources.store, datetime.now(UTC), []
    own = Database(store.path)
    try:
        found, known, sha = _stored(memory_id, own)
        if text is None and found is None:
            close = nearest(memory_id, store.memories.ids())
            hint = f"; did you mean {close}?" if close else ""
            raise InputError(f"{memory_id[:80]}: no row of the store has its text; pass it with --text FILE{hint}")
        content = text if text is not None else found or ""
        known = "the text that was passed" if text is not None else known
        if not content.strip():
            raise InputError("text: it is empty; pass what the memory said")
        if len(content) < MIN_CHARS:
            remarks.append(
                f"a text of fewer than {MIN_CHARS} characters is only compared with whole values, and in no file"
            )
        search = _Search(memory_id, content, sha)
        places = [*_databases(search, resources, own, progress), *_indexes(search, resources)]
    finally:
        own.close()
    places += _lists(search, resources, config)
    for kind, of in (("memories", resources), ("transcript", transcript)):
        places += _paraphrases(search, kind, of, resources) if of is not None else []
    places += _files(search, store.path, progress)
    digest = hashlib.sha256(content.encode()).hexdigest()
    remarks.append("backups, exports and the system that the memory came from were not searched")
    return Receipt(memory_id, store.path, digest, known, now, tuple(places), tuple(remarks))


def _stored(memory_id: str, own: Database) -> tuple[str | None, str, str]:
    """The text of a memory, which row it is from, and the hash that caches know it by."""
    live = own.rows("SELECT content, deleted_at, text_sha FROM memories WHERE id = ?", [memory_id])
    if live:
        content, deleted, sha = live[0]
        return content, f"the row deleted {deleted:%Y-%m-%d %H:%M}" if deleted else "a row that is not deleted", sha
    before = own.rows("SELECT content, input FROM memories_before WHERE id = ? ORDER BY input DESC", [memory_id])
    return (before[0][0], f"what import {before[0][1]} replaced", "") if before else (None, "", "")


@dataclass(frozen=True, slots=True)
class _Search:
    """What is looked for."""

    memory_id: str
    text: str
    sha: str

    @property
    def forms(self) -> list[str]:
        """The forms of the text within a longer one; none of a short text."""
        written = [self.text, json.dumps(self.text)[1:-1], json.dumps(self.text, ensure_ascii=False)[1:-1]]
        written += [one.casefold() for one in written]
        return [*dict.fromkeys(written)] if len(self.text) >= MIN_CHARS else []

    def count(self, rows: Rows, table: str, columns: Sequence[tuple[str, str]]) -> tuple[int, int, int]:
        """The rows of a table, those with the text, and those that only name the memory."""
        has, names, values, named = list[str](), list[str](), list[Any](), list[Any]()
        for name, kind in columns:
            column = f'"{name}"'
            if "STRUCT" in kind:
                column = f"array_to_string(list_transform({column}, lambda x: concat_ws(chr(31), x.memory_id, x.content)), chr(30))"
            elif kind.upper() not in ("VARCHAR", "TEXT", "CHARACTER VARYING"):
                continue
            for form in self.forms:
                has.append(f"strpos({column}, ?) > 0")
                values.append(form)
            has.append(f"{column} = ?")
            names.append(f"{column} IN (?, ?)")
            values.append(self.text)
            named += [self.memory_id, self.sha or self.memory_id]
        if not has:
            return int(rows(f'SELECT count(*) FROM "{table}"', [])[0][0]), 0, 0
        own, other = " OR ".join(has), " OR ".join(names)
        sql = f'SELECT CASE WHEN {own} THEN 2 WHEN {other} THEN 1 ELSE 0 END AS holds, count(*) FROM "{table}" GROUP BY holds'
        found: dict[int, int] = dict(rows(sql, [*values, *named]))
        return sum(found.values()), found.get(2, 0), found.get(1, 0)

    def tables(self, rows: Rows, kind: str, where: str) -> Iterator[Place]:
        """The tables of a database."""
        known: dict[str, list[tuple[str, str]]] = {}
        own = "FROM information_schema.columns WHERE table_schema = current_schema()"
        sql = f"SELECT table_name, column_name, data_type {own} ORDER BY 1, 2"
        for table, column, of in rows(sql, []):
            known.setdefault(table, []).append((column, of))
        for table, columns in known.items():
            yield Place(kind, f"{where} {table}".strip(), *self.count(rows, table, columns))


def _databases(search: _Search, resources: Resources, own: Database, progress: Progress) -> Iterator[Place]:
    progress("searching tables", 0, 1)
    yield from search.tables(own.rows, "table", "")
    if resources.store.team.place:
        with resources.store.team.reading() as session:
            yield from search.tables(lambda sql, values: [*session.rows(sql, values)], "table", "team")
    folder = transcript_folder(resources.store.path)
    if folder.exists():
        turns = Database(folder)
        try:
            yield from search.tables(turns.rows, "table", "transcript")
        finally:
            turns.close()
    files = evidence_files(resources)
    for place, path in enumerate(files):
        progress("searching evidence", place, len(files))
        try:
            with evidence_file.opened(path) as connection:
                tables = [*search.tables(partial(_rows, connection), "evidence", "")]
        except InputError as error:
            yield Place("evidence", path.name, 0, problem=str(error))
        else:
            yield Place(
                "evidence",
                path.name,
                *(sum(getattr(one, name) for one in tables) for name in ("searched", "holds", "names")),
            )


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    return connection.execute(sql, values).fetchall()


def _indexes(search: _Search, resources: Resources) -> Iterator[Place]:
    indexes = resources.indexes
    yield Place(
        "lexical", "lexical index", indexes.lexical.document_count, int(indexes.lexical.keeps(search.memory_id))
    )
    yield Place("vectors", "vectors", len(indexes.vectors), int(indexes.vectors.keeps(search.memory_id)))
    text = search.text if search.forms else ""
    try:
        for name, records, holds in resources.store.indexes.held_in_chroma(search.memory_id, text):
            yield Place("chroma", name, records, holds)
    except WorkbenchError as error:
        yield Place("chroma", "Chroma", 0, problem=str(error))


def _lists(search: _Search, resources: Resources, config: PipelineConfig) -> Iterator[Place]:
    evidence = gather_lists(Request(search.text[:SEARCHED_CHARS]), config, resources)
    for one in evidence.lists:
        yield Place("list", one.name, len(one.hits), sum(hit.memory_id == search.memory_id for hit in one.hits))


def _paraphrases(search: _Search, kind: str, of: Resources, resources: Resources) -> Iterator[Place]:
    """The memories or turns that say the same; the place of each is its id."""
    vector = resources.embedder.encode([search.text])[0]
    reading = audit.reading_of(of)
    point = point_of(Memory(search.memory_id, search.text), "", "", reading)
    near = {
        key: one
        for key, one in audit.nearest(search.text, [vector], of).items()
        if key != search.memory_id or of is not resources
    }
    cosines = {key: cosine for key, cosine, _ in reversed(of.cosines(vector, [*near]))}
    same = [
        key for key, one in near.items() if compared(point, one, cosines.get(key, 0.0), reading).coverage == "covers"
    ]
    yield Place("nearest", kind, len(near))
    for key in same:
        yield Place("paraphrase", f"{'turn ' if kind == 'transcript' else ''}{key}", 1, 1)


def _files(search: _Search, folder: Path, progress: Progress) -> Iterator[Place]:
    """Each file of a folder, with its hash."""
    forms = [form.encode() for form in search.forms]
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    longest = max(map(len, forms), default=1)
    for place, path in enumerate(files):
        progress("searching files", place, len(files))
        digest, size, found, rest = hashlib.sha256(), 0, False, b""
        try:
            with path.open("rb") as file:
                while block := file.read(BLOCK):
                    digest.update(block)
                    size += len(block)
                    block = rest + block
                    found |= any(form in block for form in forms)
                    rest = block[1 - longest :] if longest > 1 else b""
        except OSError as error:
            yield Place("file", str(path.relative_to(folder)), size, problem=error.strerror or "cannot be read")
            continue
        yield Place("file", str(path.relative_to(folder)), size, int(found), sha256=digest.hexdigest())
