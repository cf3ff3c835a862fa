"""The evidence of a whole query set in one portable file: gathered once, replayed anywhere without a store or a model.

It is a DuckDB database. Queries are added one committed transaction at a time, so that what a killed gather finished is there and
a later gather resumes after it. The header says what it was gathered with; a file of another store, another state of it, another
embedder or other gather parameters is not resumed, but can be read.

Two hashes are written when the gather is complete, and checked when the file is read: `replay_hash`, over everything that replay can see,
and `content_hash`, over that, the judgments on its queries, the relevance grade and the config: everything that moves a figure measured on
the file. Who measures with other judgments names them by the same hash of those.

Source: docs/internals/architecture.md, "The one idea": evidence and config give the same numbers on any machine, so a hash of both
identifies a result.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cems_workbench.config import PipelineConfig, parse_config
from cems_workbench.errors import InputError, one_line
from cems_workbench.evaluation import evidence_rows
from cems_workbench.evaluation.evidence_rows import arrow
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.list_sources import provenance
from cems_workbench.pipeline.missing_evidence import gather_parameters
from cems_workbench.pipeline.recorded import RECORDED
from cems_workbench.platform import start_up
from cems_workbench.platform.parsing import MAX_CHARS, is_duckdb, json_values
from cems_workbench.platform.typed_json import reader
from cems_workbench.records import Judgment, Query
from cems_workbench.store import duckdb_file
from cems_workbench.store.database import DISK_FULL
from cems_workbench.store.rows import column, scalar

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb


HASHED_WHOLE = 20_000
"""Rows of a table that are read at once; a longer table is read column by column, this many rows at a time."""


def replay_hash(cursor: duckdb.DuckDBPyConnection) -> str:
    """SHA-256, in hex, of everything that replay can see of the file and of its queries; judgments are not part of it."""
    digest = hashlib.sha256()
    for table, (columns, order) in evidence_rows.KEYS["replayed"].items():
        rows = scalar(cursor, f"SELECT count(*) FROM {table}")
        if rows <= HASHED_WHOLE:
            whole = arrow(cursor, f"SELECT {columns} FROM {table} ORDER BY {order}")
            for name in whole.column_names:
                _hash_column(digest, name, whole.schema.field(name).type, whole[name].chunks, whole[name].null_count)
            continue
        for field in arrow(cursor, f"SELECT {columns} FROM {table} LIMIT 0").schema:
            nulls = scalar(cursor, f"SELECT count(*) FROM {table} WHERE {field.name} IS NULL")
            parts = cursor.sql(f"SELECT {field.name} FROM {table} ORDER BY {order}").to_arrow_reader(HASHED_WHOLE)
            _hash_column(digest, field.name, field.type, (batch.column(0) for batch in parts), nulls)
    return digest.hexdigest()


def _hash_column(digest: Any, name: str, kind: Any, parts: Iterable[Any], nulls: int) -> None:
    """Add a column, which comes in parts, to a digest; how it is cut makes no difference."""
    import pyarrow as pa

    digest.update(f"\x00{name}\x00".encode())
    if pa.types.is_list(kind):
        lengths = [np.zeros(1, dtype=np.int64)]
        for part in parts:
            digest.update(part.flatten().to_numpy(zero_copy_only=False).tobytes())
            lengths.append(part.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64))
        digest.update(np.cumsum(np.concatenate(lengths)).tobytes())
    elif pa.types.is_floating(kind) and not nulls:
        for part in parts:
            digest.update(part.to_numpy(zero_copy_only=False).tobytes())
    else:
        between = ""
        for part in parts:
            if len(part):
                words = ("\x00" if value is None else str(value) for value in part.to_pylist())
                digest.update((between + "\x1f".join(words)).encode())
                between = "\x1f"


def content_hash(replayed: str, judgments: Iterable[Judgment], queries: Iterable[Query], header: Header) -> str:
    """SHA-256, in hex, of what is replayed (`replay_hash`), of the judgments on these queries, of which of them were said to
    have an answer or none, and of what the header says to figures."""
    queries = list(queries)
    asked = {query.qid for query in queries}
    said = sorted((query.qid, query.answerable) for query in queries if query.answerable is not None)
    rows = sorted((one.qid, one.memory_id, one.judge, one.kind, one.grade) for one in judgments if one.qid in asked)
    return _hash_judged(replayed, [rows], said, header)


def _hash_judged(
    replayed: str, rows: Iterable[Sequence[tuple[object, ...]]], said: Sequence[tuple[str, bool]], header: Header
) -> str:
    """`content_hash` of judgments that are sorted and come in parts; it is that of [replayed, …, rows, said] as JSON."""
    head = json.dumps([replayed, header.relevant_from, header.config_yaml])
    digest = hashlib.sha256(f"{head[:-1]}, [".encode())
    between = ""
    for part in rows:
        if part:
            digest.update((between + json.dumps(part)[1:-1]).encode())
            between = ", "
    digest.update(f"], {json.dumps(said)}]".encode())
    return digest.hexdigest()


def _hash_of_file(cursor: duckdb.DuckDBPyConnection, replayed: str, header: Header) -> str:
    """`content_hash` of a file's content, which is not read into memory."""
    said = cursor.execute("SELECT qid, answerable FROM queries WHERE answerable IS NOT NULL ORDER BY qid").fetchall()
    found = cursor.execute(
        "SELECT qid, memory_id, judge, kind, grade FROM judgments WHERE qid IN (SELECT qid FROM queries) ORDER BY ALL"
    )
    return _hash_judged(replayed, iter(lambda: found.fetchmany(HASHED_WHOLE), []), said, header)


FORMAT = "cems-workbench-evidence-set/2"


@dataclass(frozen=True, slots=True)
class Header:
    """What the evidence was gathered with."""

    query_set: str
    store_id: str
    content_version: int
    embedder: str
    config_yaml: str
    """As `portable_yaml` writes it; part of the content hash."""
    created_at: str
    only_project: bool = False
    relevant_from: int = 1
    """The lowest grade that counts as relevant, as the query set says."""

    @property
    def config(self) -> PipelineConfig:
        """The config whose gather parameters were used."""
        return parse_config(self.config_yaml, "the evidence file's config")

    @property
    def config_hash(self) -> str:
        """SHA-256, in hex, of the config as YAML."""
        return hashlib.sha256(self.config_yaml.encode()).hexdigest()

    @property
    def moment(self) -> datetime:
        """When the gather began: the `as_of` of queries that have none."""
        return datetime.fromisoformat(self.created_at)


@dataclass(frozen=True, slots=True)
class EvidenceSet:
    """An evidence file that was read. `queries` are all of the set, `evidences` those that were gathered, in their order."""

    path: Path
    header: Header
    queries: tuple[Query, ...]
    judgments: tuple[Judgment, ...]
    evidences: Mapping[str, Evidence]
    replay_hash: str
    complete: bool
    seconds: float
    """Time that gathering took, all queries together."""

    @property
    def content_hash(self) -> str:
        """The hash of all that moves a figure, with the judgments of the file."""
        return content_hash(self.replay_hash, self.judgments, self.queries, self.header)

    @property
    def answered(self) -> str:
        """By whom and when the lists were answered, where that was a running system; else empty."""
        return provenance(*(one.notes for one in self.evidences.values()))

    @property
    def external(self) -> bool:
        """Whether its queries are external traces, whose stages no config changes."""
        return any(evidence.external for evidence in self.evidences.values())

    @property
    def seconds_per_query(self) -> float | None:
        """Time that gathering a query took on average; None when there is none."""
        return self.seconds / len(self.evidences) if self.evidences else None


class EvidenceFile(AbstractContextManager["EvidenceFile"]):
    """An evidence file that is being gathered; close it, or use it in a `with`."""

    def __init__(self, path: Path, connection: duckdb.DuckDBPyConnection) -> None:
        self.path = path
        self._connection, self._file = connection, duckdb_file.file_id(path)
        self.header = _header(connection, path)
        self.finished = set(column(connection, "SELECT qid FROM evidence"))
        self._known = evidence_rows.Known(connection, str(path))

    @classmethod
    def create(
        cls, path: Path, header: Header, queries: Sequence[Query], judgments: Sequence[Judgment]
    ) -> EvidenceFile:
        """A new file with its query set. Raises InputError when it already exists or cannot be written."""
        if path.exists():
            raise InputError(f"{path} already exists")
        connection = _connect(path, read_only=False)
        try:
            with _transaction(connection, path):
                connection.execute(evidence_rows.TABLES)
                values = [("format", FORMAT), ("header", json.dumps(asdict(header), ensure_ascii=False))]
                connection.executemany("INSERT INTO meta VALUES (?, ?)", values)
                evidence_rows.write_query_set(connection, queries, judgments, str(path))
            return cls(path, connection)
        except BaseException as error:
            connection.close()
            path.unlink(missing_ok=True)
            raise _said(error, path) from error

    @classmethod
    def resume(cls, path: Path, header: Header, queries: Sequence[Query]) -> EvidenceFile:
        """Open a file to resume it. Raises InputError when it was gathered with something else, naming what."""
        connection = _connect(path, read_only=False)
        try:
            evidence_rows.require_whole(connection, str(path))
            reason = mismatch(_header(connection, path), header)
            known = {query.qid: query for query in evidence_rows.read_query_set(connection, str(path))[0]}
            other = [query.qid for query in queries if known.get(query.qid) != query]
            if reason is None and (other or len(known) != len(queries)):
                what = f"{other[0]} is not in it, or differs" if other else f"it holds {len(known)} queries"
                reason = f"it is of another query set: {what}"
            if reason is not None:
                raise InputError(f"{path} cannot be resumed: {reason}. Name another file; this one can still be read")
            for portion in evidence_rows.cut(connection, PORTION_QUERIES, PORTION_BYTES):
                evidence_rows.read_evidence(connection, str(path), portion)  # a file that cannot be read is not resumed
            return cls(path, connection)
        except BaseException as error:
            connection.close()
            raise _said(error, path) from error

    def add(self, qid: str, evidence: Evidence, seconds: float) -> None:
        """Add the evidence of one query; it is on disk when this returns. `seconds` is what gathering it took."""
        with _transaction(self._connection, self.path):
            evidence_rows.write_evidence(self._connection, qid, evidence, seconds, self._known)
        self.finished.add(qid)

    @contextmanager
    def writing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A transaction that adds rows without checks (`evidence_rows.insert`); the reader validates them."""
        with _transaction(self._connection, self.path):
            yield self._connection

    def use_config(self, config: str) -> None:
        """Write another config, as YAML, into the header."""
        with self.writing() as cursor:
            self.header = replace(self.header, config_yaml=config)
            _write_header(cursor, self.header)

    def finish(self) -> str:
        """Mark the file as complete and return its content hash."""
        with _transaction(self._connection, self.path):
            mark = _write_hashes(self._connection, self.path)
        _checkpoint(self._connection)
        return mark

    def close(self) -> None:
        """Release the file."""
        _release(self._connection, self.path, self._file)

    def __exit__(self, *_: object) -> None:
        self.close()


def is_evidence_file(path: Path) -> bool:
    """Is this a file with evidence of a query set? It is looked at, not only its name."""
    try:
        if not path.is_file():  # a pipe would be waited for
            return False
        with path.open("rb") as file:
            return is_duckdb(file.read(12))
    except (OSError, ValueError):
        return False


def read_evidence_file(path: Path) -> EvidenceSet:
    """Read a whole file, without a store or a model. Raises InputError when it is not an evidence file, is held by a
    gather, was changed since it was complete, or holds what is no evidence, naming the table and column or the
    field."""
    with closing(PortionedFile(path, whole=True)) as file:
        return file.read(evidence_rows.ALL)


def _proved(connection: duckdb.DuckDBPyConnection, path: Path, header: Header) -> tuple[str, str, bool]:
    """The hash of what is replayed and that with the judgments, and whether the file is complete, which is when it
    states both. Raises InputError where the file states other hashes."""
    stated, whole = _meta(connection, REPLAYED), _meta(connection, WHOLE)
    mark = replay_hash(connection)
    if stated not in (None, mark):
        raise InputError(f"{path}: its content is not what was gathered (its hash differs); gather it again")
    content = _hash_of_file(connection, mark, header)
    if stated is not None and whole != content:
        raise InputError(
            f"{path}: its judgments or its header are not what was written (its hash differs); gather it again"
        )
    return mark, content, stated is not None


def read_some(path: Path, qids: Collection[str], wanted: Header) -> Mapping[str, Evidence] | None:
    """The evidence of some queries of a complete file that was gathered as `wanted` says, by qid; None if it is not
    such a file. Its time is about that of those queries: the file is taken as the gather left it, without the hash of
    all of it. Raises InputError for a file that is no evidence."""
    with opened(path) as connection:
        header = _header(connection, path)
        if _meta(connection, REPLAYED) is None or mismatch(header, wanted) is not None:
            return None
        chosen = evidence_rows.choose(connection, qids)
        with duckdb_file.interrupt_after(connection, READ_TIMEOUT_S), start_up.paused():
            return evidence_rows.read_evidence(connection, str(path), chosen)


class PortionedFile:
    """An evidence file that is read some queries at a time, in memory that does not grow with the file; close it."""

    def __init__(self, path: Path, *, whole: bool = False) -> None:
        """Raises InputError as `read_evidence_file` does, for size only if it is to be read as a `whole`; errors within a query are raised
        when it is read."""
        self.path = path
        memory = duckdb_file.MEMORY_LIMIT if whole else STREAM_LIMIT
        self._connection = connection = _connect(path, read_only=True, whole=whole, memory_limit=memory)
        try:
            self.header = _header(connection, path)
            _ = self.header.config
            with duckdb_file.interrupt_after(connection, READ_TIMEOUT_S if whole else HASH_TIMEOUT_S):
                evidence_rows.require_whole(connection, str(path))
                self.replay_hash, self.content_hash, self.complete = _proved(connection, path, self.header)
                self._portions = [] if whole else evidence_rows.cut(connection, PORTION_QUERIES, PORTION_BYTES)
            self.gathered, self.seconds = _progress(connection)
            self.queries = int(scalar(connection, "SELECT count(*) FROM queries"))
            """How many queries the file is of; not all may have been gathered."""
            self.highest_grade = int(scalar(connection, "SELECT coalesce(max(grade), 0) FROM judgments"))
            notes = column(connection, "SELECT notes FROM evidence LIMIT 1")
            limit = evidence_rows.MAX_JSON_BYTES
            self.external = bool(notes) and RECORDED in json_values(notes[0], f"{path}: notes", limit)
            """Whether the first query that was gathered is an external trace: those of a file are alike."""
        except BaseException as error:
            connection.close()
            raise _said(error, path) from error

    def qids_of(self, text: str) -> list[str]:
        """The ids of the queries with these words or this id, in their order."""
        wanted = "SELECT qid FROM queries WHERE qid = ? OR query = ? ORDER BY position"
        return column(self._connection, wanted, [text, text])

    def qids(self, table: str) -> Iterator[str]:
        """The ids of the queries in a table: `queries`, all that the file is of; `evidence`, those that were gathered."""
        found = self._connection.cursor().execute(f"SELECT qid FROM {table}")
        while rows := found.fetchmany(10_000):
            yield from (qid for (qid,) in rows)

    def portions(self) -> Iterator[EvidenceSet]:
        """The queries in their order, some at a time, each portion as the evidence of a separate set; the hash is that
        of the file. Raises InputError for a query that is not as evidence is."""
        for portion in self._portions:
            yield self.read(portion)

    def of_queries(self, qids: Collection[str]) -> EvidenceSet:
        """Those of the queries that are among these, at any position, as a separate set. Raises InputError as `portions` does."""
        try:
            chosen = evidence_rows.choose(self._connection, qids)
        except Exception as error:
            raise _said(error, self.path) from error
        return self.read(chosen)

    def read(self, portion: evidence_rows.Portion) -> EvidenceSet:
        """Some of its queries as a separate set. Raises InputError as `portions` does."""
        try:
            with duckdb_file.interrupt_after(self._connection, READ_TIMEOUT_S), start_up.paused():
                queries, judgments = evidence_rows.read_query_set(self._connection, str(self.path), portion)
                evidences = evidence_rows.read_evidence(self._connection, str(self.path), portion)
        except Exception as error:
            raise _said(error, self.path) from error
        share = len(evidences) / self.gathered if self.gathered else 0.0
        return EvidenceSet(
            self.path,
            self.header,
            tuple(queries),
            tuple(judgments),
            evidences,
            self.replay_hash,
            self.complete,
            self.seconds * share,
        )

    def close(self) -> None:
        """Release the file."""
        self._connection.close()


def read_header(path: Path) -> Header:
    """What a file was gathered with. Raises InputError as `read_evidence_file` does."""
    with opened(path) as connection:
        return _header(connection, path)


def read_progress(path: Path) -> tuple[int, float]:
    """How many queries a file holds, and the seconds that gathering them took. Raises InputError as `read_header` does."""
    with opened(path) as connection:
        _header(connection, path)
        return _progress(connection)


def _progress(connection: duckdb.DuckDBPyConnection) -> tuple[int, float]:
    count, seconds = connection.execute("SELECT count(*), coalesce(sum(seconds), 0) FROM evidence").fetchall()[0]
    return int(count), float(seconds)


def replace_judgments(path: Path, judgments: Sequence[Judgment]) -> None:
    """Replace the judgments of a file, and write its new content hash. Raises InputError when the file is open
    elsewhere or cannot be written."""
    with opened(path, read_only=False) as connection, _transaction(connection, path):
        evidence_rows.write_judgments(connection, judgments, str(path))
        if _meta(connection, REPLAYED) is not None:
            _write_hashes(connection, path)


def add_scores(path: Path, read: str, scored: Mapping[str, Evidence]) -> str:
    """Replace the model scores and notes of these queries in a file, and return its new content hash. `read` is the
    `replay_hash` that they were added to. It is one transaction: after it the file is what it was, or holds all of them
    under its new hash. Raises InputError when the file has changed since, is open elsewhere, or cannot be written."""
    with opened(path, read_only=False) as connection:
        with _transaction(connection, path):
            if replay_hash(connection) != read:
                raise InputError(
                    f"{path} has changed since it was read; run the command again: the scores are in the store's cache"
                )
            evidence_rows.replace_scores(connection, scored, str(path))
            mark = _write_hashes(connection, path, complete=_meta(connection, REPLAYED) is not None)
        _checkpoint(connection)
    return mark


def replace_relevant_from(path: Path, grade: int) -> None:
    """Write another relevance grade into the header of a file, and its new content hash. Raises as `replace_judgments` does."""
    with opened(path, read_only=False) as connection, _transaction(connection, path):
        _write_header(connection, replace(_header(connection, path), relevant_from=grade))
        if _meta(connection, REPLAYED) is not None:
            _write_hashes(connection, path)


def _write_header(connection: duckdb.DuckDBPyConnection, header: Header) -> None:
    text = json.dumps(asdict(header), ensure_ascii=False)
    connection.execute("UPDATE meta SET value = ? WHERE key = 'header'", [text])


def differences(was: Header, now: Header) -> list[str]:
    """What two gathers differ in but their time, a line each, most important first."""
    lines = []
    if was.store_id != now.store_id:
        lines.append(f"another store: {was.store_id or 'unknown'}, then {now.store_id or 'unknown'}")
    elif was.content_version != now.content_version:
        lines.append(f"content of the store: version {was.content_version}, then {now.content_version}")
    if was.embedder != now.embedder:
        lines.append(f"embedder: {was.embedder or 'that of another system'}, then {now.embedder or 'that of another system'}")
    if was.only_project != now.only_project:
        lines.append(f"within each project only: {was.only_project}, then {now.only_project}")
    old, new = gather_parameters(was.config), gather_parameters(now.config)
    return lines + [f"{path}: {old.get(path)}, then {new[path]}" for path in new if old.get(path) != new[path]]


def mismatch(had: Header, wanted: Header) -> str | None:
    """Why a file cannot be resumed or used as evidence of the current store; None when it can."""
    return "; ".join(differences(had, wanted)[:3]) or None


def _header(connection: duckdb.DuckDBPyConnection, path: Path) -> Header:
    import duckdb

    try:
        found = _meta(connection, "format")
        if found != FORMAT:
            raise InputError(f"{path}: format {found!r} is not known; this version reads {FORMAT}; gather it again")
        header: Header = reader(Header)(
            json_values(_meta(connection, "header") or "{}", f"{path}: header", 4 * MAX_CHARS)
        )
        _ = header.moment
        return header
    except (duckdb.Error, TypeError, ValueError) as error:
        raise InputError(f"{path} is a DuckDB database, but not an evidence file") from error


def _write_hashes(connection: duckdb.DuckDBPyConnection, path: Path, *, complete: bool = True) -> str:
    """The content hash of the file, written if the file is complete. The transaction is the caller's."""
    replayed = replay_hash(connection)
    whole = _hash_of_file(connection, replayed, _header(connection, path))
    if complete:
        for key, value in ((REPLAYED, replayed), (WHOLE, whole)):
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [key, value])
    return whole


REPLAYED, WHOLE = "content_hash", "whole_hash"
"""The keys of `replay_hash` and `content_hash` in `meta`."""


def _meta(connection: duckdb.DuckDBPyConnection, key: str) -> str | None:
    return next(map(str, column(connection, "SELECT value FROM meta WHERE key = ?", [key])), None)


def _connect(
    path: Path, *, read_only: bool, whole: bool = False, memory_limit: str = duckdb_file.MEMORY_LIMIT
) -> duckdb.DuckDBPyConnection:
    """Open a file as data. Raises InputError for one that is none, before a row of it is read or written, and for one that is to be read
    as a `whole` and is too large for that."""
    import duckdb

    try:
        there = path.exists()
        if there and not path.is_file():  # a pipe would be waited for
            raise InputError(f"{path} is not a file")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    if read_only and not there:
        raise InputError(f"{path}: no such evidence file")
    if not read_only and there:  # opening to write changes a file, and this may be somebody's database
        _connect(path, read_only=True).close()
    known, seen = _looked_at.contains(path), duckdb_file.file_state(path)
    try:
        connection = duckdb_file.open_file(path, read_only=read_only, memory_limit=memory_limit)
    except (duckdb.Error, OSError, RuntimeError, ValueError) as error:
        raise _unreadable(error, path) from None
    try:
        with duckdb_file.interrupt_after(connection, duckdb_file.CATALOG_TIMEOUT_S):
            if not known:
                _require_data(connection, path, new=not read_only)
                if read_only and seen is not None and duckdb_file.file_state(path) == seen:
                    _looked_at.add(path, seen)
            if whole:
                _require_room(connection, path)
    except BaseException as error:
        connection.close()
        raise _said(error, path) from None
    return connection


_looked_at = duckdb_file.CheckedFiles()


def _release(connection: duckdb.DuckDBPyConnection, path: Path, opened: duckdb_file.FileId | None) -> None:
    """Close a file that was open to be written: nobody else can have put anything into it."""
    connection.close()
    _looked_at.add_closed(path, opened)


def _require_data(connection: duckdb.DuckDBPyConnection, path: Path, *, new: bool) -> None:
    tables = duckdb_file.columns(connection)
    if not tables and new:
        return
    if "meta" not in tables:
        raise InputError(f"{path} is a DuckDB database, but not an evidence file")
    problem = duckdb_file.differences(connection, duckdb_file.columns_of(evidence_rows.TABLES))
    if problem is not None:
        raise InputError(
            f"{path} is not taken for an evidence file: {problem}; if another version made it, gather it again"
        )


def _require_room(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    size = 0
    for table, own in duckdb_file.columns(connection).items():
        width = evidence_rows.ROW_BYTES * scalar(connection, f"SELECT count(*) FROM {table}")
        if width <= MAX_FILE_BYTES:  # else its rows are not looked at: a few kilobytes can say twelve million of them
            width = scalar(connection, f"SELECT coalesce(sum({evidence_rows.width(own)}), 0) FROM {table}")
        size += width
        if size > MAX_FILE_BYTES:
            raise InputError(
                f"{path}: its table {table} holds more than the {MAX_FILE_BYTES:,} bytes that are read into memory; "
                "`evaluate` and `compare` read a file of any size"
            )


READ_TIMEOUT_S = 600.0
HASH_TIMEOUT_S = 3600.0
"""The longest that the hash of a file of any size may take."""
MAX_FILE_BYTES = 2_000_000_000
"""Of the values of an evidence file that is read as a whole, 200 bytes for each row besides its texts and arrays."""
PORTION_QUERIES = 2048
"""Queries that are read at a time where a file is not read as a whole."""
PORTION_BYTES = 64_000_000
"""Of the rows of those queries, counted as `MAX_FILE_BYTES`; where they hold more, fewer are read."""
STREAM_LIMIT = "400MB"
"""Memory of DuckDB while a file is read a portion at a time."""


def _unreadable(error: BaseException, path: Path) -> InputError:
    """What DuckDB says of a file, as one line."""
    import duckdb

    text = str(error) or type(error).__name__
    if isinstance(error, duckdb.InterruptException):
        return InputError(f"{path} takes too long to be read, and is left alone")
    if re.search(r"set lock|being used by another process|already open", text):
        return InputError(f"{path} is held by another process, perhaps a gather that is still running")
    if "not a valid DuckDB database" in text:
        return InputError(f"{path} is not an evidence file")
    if re.search(DISK_FULL, text):
        return InputError(f"{path} cannot be written: the disk is full; what was committed before stays")
    return InputError(f"{path} cannot be read or written: {one_line(text.splitlines()[0])}")


@contextmanager
def opened(path: Path, *, read_only: bool = True, whole: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """A file for as long as the block runs, and no longer than `READ_TIMEOUT_S`. Raises InputError for all that DuckDB says of it."""
    connection, file = _connect(path, read_only=read_only, whole=whole), duckdb_file.file_id(path)
    try:
        with duckdb_file.interrupt_after(connection, READ_TIMEOUT_S):
            yield connection
    except Exception as error:
        raise _said(error, path) from error
    finally:
        if read_only:
            connection.close()
        else:
            _release(connection, path, file)


@contextmanager
def _transaction(connection: duckdb.DuckDBPyConnection, path: Path) -> Iterator[None]:
    import duckdb

    connection.execute("BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException as error:
        with suppress(duckdb.Error):  # an error that closed the database leaves nothing to take back
            connection.execute("ROLLBACK")
        raise _said(error, path) from error


def _said(error: BaseException, path: Path) -> BaseException:
    """The error of a block: DuckDB's as one line, any other unchanged."""
    import duckdb

    return _unreadable(error, path) if isinstance(error, duckdb.Error) else error


def _checkpoint(connection: duckdb.DuckDBPyConnection) -> None:
    """Checkpoint committed rows into the file; if that fails they stay in the log next to it."""
    import duckdb

    with suppress(duckdb.Error):
        connection.execute("CHECKPOINT")
