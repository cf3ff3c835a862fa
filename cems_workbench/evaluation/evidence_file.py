"""The evidence of a whole query set in one portable file: gathered once, replayed anywhere without a store or a model.

It is a DuckDB database. Queries are added one committed transaction at a time, so that what a killed gather finished is there and
a later one goes on after it. The header says what it was gathered with; a file of another store, another state of it, another
embedder or other gather parameters is not gone on with, and can be read all the same.

Two hashes are written when the gather is complete, and checked when the file is read: `replay_hash`, over everything that replay can see,
and `content_hash`, over that, the judgments on its queries, the relevance grade and the config: everything that moves a figure measured on
the file. Who measures with other judgments names them by the same hash of those.

Source: docs/architecture.md, "The one idea": evidence and config give the same numbers anywhere, so that a hash of both names a result.
"""

from __future__ import annotations

import gc
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench.config import PipelineConfig, dump_config, parse_config, with_values
from cems_workbench.errors import InputError, one_line
from cems_workbench.evaluation import evidence_rows
from cems_workbench.evaluation.evidence_rows import arrow, flat
from cems_workbench.parsing import MOST_CHARS, json_values, yaml_values
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.answered import answered
from cems_workbench.pipeline.needs import BEFORE, gather_parameters
from cems_workbench.records import Judgment, Query
from cems_workbench.store.database import FULL
from cems_workbench.store.duckdb_file import CHECK_SECONDS, columns_of, differences, open_file, within
from cems_workbench.store.duckdb_file import columns as duckdb_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb


LATER = ("SELECT * FROM chunks ORDER BY member, seq", "SELECT * FROM edges ORDER BY qid, position")
"""What files of the first format have not."""


def replay_hash(cursor: duckdb.DuckDBPyConnection) -> str:
    """SHA-256, in hex, of everything that replay can see of the file and of its queries; judgments are not part of it."""
    digest = hashlib.sha256()
    for select in (
        "SELECT position, qid, query, project, as_of, type FROM queries ORDER BY position",
        "SELECT * FROM memories ORDER BY number",
        "SELECT * EXCLUDE (seconds) FROM evidence ORDER BY qid",
        "SELECT * FROM lists ORDER BY qid, position",
        "SELECT * FROM scores ORDER BY qid, role, model, member",
        "SELECT * FROM texts ORDER BY number",
        *(LATER if evidence_rows.has_chunks(cursor) else ()),
    ):
        table = arrow(cursor, select)
        for name in table.column_names:
            digest.update(f"\x00{name}\x00".encode())
            digest.update(_bytes(table[name]))
    return digest.hexdigest()


def content_hash(replayed: str, judgments: Iterable[Judgment], queries: Iterable[Query], header: Header) -> str:
    """SHA-256, in hex, of what is replayed (`replay_hash`), of the judgments on these queries, of which of them were said to
    have an answer or none, and of what the header says to figures."""
    queries = list(queries)
    asked = {query.qid for query in queries}
    said = sorted((query.qid, query.answerable) for query in queries if query.answerable is not None)
    rows = sorted(
        (one.qid, one.memory_id, one.judge, one.kind, one.grade) for one in judgments if one.qid in asked
    )  # fmt: skip
    parts = [replayed, header.relevant_from, header.config_yaml, rows, *([said] if said else [])]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _bytes(column: Any) -> bytes:
    import pyarrow as pa

    if pa.types.is_list(column.type):
        values, starts = flat(column)
        return bytes(values.tobytes() + starts.tobytes())
    if pa.types.is_floating(column.type) and not column.null_count:
        return bytes(column.to_numpy().tobytes())
    return "\x1f".join("\x00" if value is None else str(value) for value in column.to_pylist()).encode()


FORMAT = "cems-workbench-evidence-set/2"
READABLE = (FORMAT, "cems-workbench-evidence-set/1")
"""The first had no chunks, edges and tokens; it is read, and not gone on with."""


@dataclass(frozen=True, slots=True)
class Header:
    """What the evidence was gathered with."""

    query_set: str
    store_id: str
    content_version: int
    embedder: str
    config_yaml: str
    created_at: str
    project_only: bool = False
    relevant_from: int = 1
    """The lowest grade that counts as relevant, as the query set says."""

    @property
    def config(self) -> PipelineConfig:
        """The config whose gather parameters were used; what it does not state was as it was before that was a parameter."""
        config = parse_config(self.config_yaml, "the evidence file's config")
        stated = yaml_values(self.config_yaml, "the evidence file's config")
        return with_values(
            config, {path: value for path, value in BEFORE.items() if not _states(stated, path.split("."))}
        )

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
    """An evidence file as it was read. `queries` are all of the set, `evidences` those that were gathered, in their order."""

    path: Path
    header: Header
    queries: tuple[Query, ...]
    judgments: tuple[Judgment, ...]
    evidences: Mapping[str, Evidence]
    replay_hash: str
    complete: bool
    seconds: float
    """Time that gathering took, all queries together."""
    proves_judgments: bool = True
    """False where an earlier version of the workbench made the file: then its hash is of what replay can see alone."""

    @property
    def content_hash(self) -> str:
        """The hash of all that moves a figure, with the judgments of the file."""
        return content_hash(self.replay_hash, self.judgments, self.queries, self.header)

    @property
    def unproved(self) -> str:
        """What the file's hash does not say, in words; empty where it says all."""
        if self.proves_judgments:
            return ""
        return "an earlier version made this evidence file: its hash does not prove that its judgments are as they were"

    @property
    def answered(self) -> str:
        """By whom and when the lists were answered, where that was a running system; else empty."""
        return answered(*self.evidences.values())

    @property
    def seconds_per_query(self) -> float | None:
        """Time that gathering a query took on average; None when there is none."""
        return self.seconds / len(self.evidences) if self.evidences else None


class EvidenceFile:
    """An evidence file that is being gathered; close it, or use it in a `with`."""

    def __init__(self, path: Path, connection: duckdb.DuckDBPyConnection) -> None:
        self.path = path
        self._connection = connection
        self.header = _header(connection, path)
        self.finished = {row[0] for row in connection.execute("SELECT qid FROM evidence").fetchall()}
        self._known = evidence_rows.Known(connection, str(path))

    @classmethod
    def create(
        cls, path: Path, header: Header, queries: Sequence[Query], judgments: Sequence[Judgment]
    ) -> EvidenceFile:
        """A new file with its query set. Raises InputError when it is there already or cannot be written."""
        if path.exists():
            raise InputError(f"{path} is there already")
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
        """Open a file to go on with it. Raises InputError when it was gathered with something else, naming what."""
        connection = _connect(path, read_only=False)
        try:
            evidence_rows.require_whole(connection, str(path))
            reason = mismatch(_header(connection, path), header)
            if reason is None and not evidence_rows.has_chunks(connection):
                reason = "an earlier version of the workbench made it"
            known = {query.qid: query for query in evidence_rows.read_query_set(connection, str(path))[0]}
            other = [query.qid for query in queries if known.get(query.qid) != query]
            if reason is None and (other or len(known) != len(queries)):
                what = f"{other[0]} is not in it, or differs" if other else f"it holds {len(known)} queries"
                reason = f"it is of another query set: {what}"
            if reason is not None:
                raise InputError(
                    f"{path} cannot be gone on with: {reason}. Name another file; this one can still be read"
                )
            evidence_rows.read_evidence(connection, str(path))  # what could not be read in the end is not gone on with
            return cls(path, connection)
        except BaseException as error:
            connection.close()
            raise _said(error, path) from error

    def add(self, qid: str, evidence: Evidence, seconds: float) -> None:
        """Add the evidence of one query; it is on disk when this returns. `seconds` is what gathering it took."""
        with _transaction(self._connection, self.path):
            evidence_rows.write_evidence(self._connection, qid, evidence, seconds, self._known)
        self.finished.add(qid)

    def finish(self) -> str:
        """Mark the file as complete and return its content hash."""
        with _transaction(self._connection, self.path):
            mark = _write_hashes(self._connection, self.path)
        _checkpoint(self._connection)
        return mark

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    def __enter__(self) -> EvidenceFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_evidence_file(path: Path) -> bool:
    """Is this a file with evidence of a query set? It is looked at, not only its name."""
    try:
        if not path.is_file():  # a pipe would be waited for
            return False
        with path.open("rb") as file:
            return file.read(12)[8:12] == b"DUCK"
    except (OSError, ValueError):
        return False


def read_evidence_file(path: Path) -> EvidenceSet:
    """Read a whole file, without a store or a model.

    Raises InputError when it is not an evidence file, is held by a gather, was changed since it was complete, or holds what is no
    evidence, naming the table and column or the field.
    """
    with _opened(path) as connection:
        header = _header(connection, path)
        _ = header.config
        evidence_rows.require_whole(connection, str(path))
        stated, whole = _meta(connection, REPLAYED), _meta(connection, WHOLE)
        mark = replay_hash(connection)
        if stated not in (None, mark):
            raise InputError(f"{path}: its content is not what was gathered (its hash differs); gather it again")
        queries, judgments = evidence_rows.read_query_set(connection, str(path))
        with _no_collections():
            evidences = evidence_rows.read_evidence(connection, str(path))
        seconds = connection.execute("SELECT coalesce(sum(seconds), 0) FROM evidence").fetchall()[0][0]
        if whole not in (None, content_hash(mark, judgments, queries, header)):
            raise InputError(
                f"{path}: its judgments or its header are not what was written (its hash differs); gather it again"
            )
        complete = stated is not None
        return EvidenceSet(
            path,
            header,
            tuple(queries),
            tuple(judgments),
            evidences,
            mark,
            complete,
            seconds,
            not complete or whole is not None,
        )


def read_header(path: Path) -> Header:
    """What a file was gathered with. Raises InputError as `read_evidence_file` does."""
    with _opened(path) as connection:
        return _header(connection, path)


def read_progress(path: Path) -> tuple[int, float]:
    """How many queries a file holds, and the seconds that gathering them took. Raises InputError as `read_header` does."""
    with _opened(path) as connection:
        _header(connection, path)
        rows = connection.execute("SELECT count(*), coalesce(sum(seconds), 0) FROM evidence").fetchall()
        return int(rows[0][0]), float(rows[0][1])


def replace_judgments(path: Path, judgments: Sequence[Judgment]) -> None:
    """Put these judgments into a file in place of those in it, and write its new content hash.

    Raises InputError when the file is open elsewhere or cannot be written.
    """
    with _opened(path, read_only=False) as connection, _transaction(connection, path):
        evidence_rows.write_judgments(connection, judgments, str(path))
        if _meta(connection, REPLAYED) is not None:
            _write_hashes(connection, path)


def add_scores(path: Path, read: str, scored: Mapping[str, Evidence]) -> str:
    """Put the model scores of these queries, and their notes, into a file in place of those in it, and give its new content hash.

    `read` is the `replay_hash` that they were added to. It is one transaction: after it the file is what it was, or holds all of
    them under its new hash. Raises InputError when the file has changed since, is open elsewhere, or cannot be written.
    """
    with _opened(path, read_only=False) as connection:
        with _transaction(connection, path):
            if replay_hash(connection) != read:
                raise InputError(f"{path} was changed meanwhile; run it again, what was scored is in the store's cache")
            evidence_rows.replace_scores(connection, scored, str(path))
            mark = _write_hashes(connection, path, complete=_meta(connection, REPLAYED) is not None)
        _checkpoint(connection)
    return mark


def replace_relevant_from(path: Path, grade: int) -> None:
    """Write another relevance grade into the header of a file, and its new content hash. Raises as `replace_judgments` does."""
    with _opened(path, read_only=False) as connection, _transaction(connection, path):
        header = asdict(replace(_header(connection, path), relevant_from=grade))
        connection.execute("UPDATE meta SET value = ? WHERE key = 'header'", [json.dumps(header, ensure_ascii=False)])
        if _meta(connection, REPLAYED) is not None:
            _write_hashes(connection, path)


def mismatch(had: Header, wanted: Header) -> str | None:
    """Why a file cannot be gone on with, or be taken for evidence of the present store; None when it can."""
    if had.store_id != wanted.store_id:
        return f"it was gathered from another store ({had.store_id or 'unknown'}; this one is {wanted.store_id})"
    if had.content_version != wanted.content_version:
        return (
            f"the store has changed since: its content was version {had.content_version} "
            f"and is {wanted.content_version} now"
        )
    if had.embedder != wanted.embedder:
        return f"it was gathered with the embedder {had.embedder}, and {wanted.embedder} is set now"
    if had.project_only != wanted.project_only:
        return f"it was gathered {'within each project' if had.project_only else 'over all projects'}"
    old, new = gather_parameters(had.config), gather_parameters(wanted.config)
    differ = [f"{key} was {old.get(key)!r} and is {new[key]!r}" for key in new if old.get(key) != new[key]]
    return f"other gather parameters: {'; '.join(differ[:3])}" if differ else None


def config_text(config: PipelineConfig) -> str:
    """The config as the header keeps it."""
    return dump_config(config)


def _states(values: Any, path: Sequence[str]) -> bool:
    """Whether nested values have something at a path."""
    for name in path:
        if not isinstance(values, Mapping) or name not in values:
            return False
        values = values[name]
    return True


def _header(connection: duckdb.DuckDBPyConnection, path: Path) -> Header:
    import duckdb

    try:
        found = _meta(connection, "format")
        if found not in READABLE:
            raise InputError(f"{path}: format {found!r} is not known; this version reads {', '.join(READABLE)}")
        header = Header(**json_values(_meta(connection, "header") or "{}", f"{path}: header", 4 * MOST_CHARS))
        if any(not isinstance(getattr(header, name), kind) for name, kind in _HEADER.items()):
            raise TypeError("header")
        _ = header.moment
        return header
    except (duckdb.Error, TypeError, ValueError) as error:
        raise InputError(f"{path} is a DuckDB database, but not an evidence file") from error


def _write_hashes(connection: duckdb.DuckDBPyConnection, path: Path, *, complete: bool = True) -> str:
    """The content hash of what stands in the file; written where the file is complete. The caller's is the transaction."""
    replayed = replay_hash(connection)
    queries, judgments = evidence_rows.read_query_set(connection, str(path))
    whole = content_hash(replayed, judgments, queries, _header(connection, path))
    if complete:
        for key, value in ((REPLAYED, replayed), (WHOLE, whole)):
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [key, value])
    return whole


REPLAYED, WHOLE = "content_hash", "whole_hash"
"""Where the hashes stand in `meta`; the first is called as it was when there was no other."""

_HEADER = {
    "query_set": str, "store_id": str, "content_version": int, "embedder": str, "config_yaml": str, "created_at": str,
    "project_only": bool, "relevant_from": int,
}  # fmt: skip


def _meta(connection: duckdb.DuckDBPyConnection, key: str) -> str | None:
    rows = connection.execute("SELECT value FROM meta WHERE key = ?", [key]).fetchall()
    return str(rows[0][0]) if rows else None


def _connect(path: Path, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Open a file as data. Raises InputError for one that is none, before a row of it is read or written."""
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
    try:
        connection = open_file(path, read_only=read_only)
    except (duckdb.Error, OSError, RuntimeError, ValueError) as error:
        raise _unreadable(error, path) from None
    try:
        with within(connection, CHECK_SECONDS):
            _require_data(connection, path, new=not read_only)
    except duckdb.Error as error:
        connection.close()
        raise _unreadable(error, path) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _require_data(connection: duckdb.DuckDBPyConnection, path: Path, *, new: bool) -> None:
    """Raises InputError where the file is anything but the tables of an evidence file, or holds more than is read into memory."""
    tables = duckdb_columns(connection)
    if not tables and new:
        return
    if "meta" not in tables:
        raise InputError(f"{path} is a DuckDB database, but not an evidence file")
    optional = evidence_rows.SECOND if "chunks" in tables else evidence_rows.LATER
    problem = differences(connection, columns_of(evidence_rows.TABLES), optional)
    if problem is not None:
        raise InputError(f"{path} is not taken for an evidence file: {problem}")
    size = 0
    for table, own in tables.items():
        widths = ["200", *(f"coalesce({_WIDTHS[kind].format(name)}, 0)" for name, kind, _ in own if kind in _WIDTHS)]
        (rows,) = connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0]
        if rows <= MOST_BYTES / 200:
            (rows,) = connection.execute(
                f"SELECT coalesce(sum({' + '.join(widths)}), 0) / 200 FROM {table}"
            ).fetchall()[0]
        size += 200 * rows
        if size > MOST_BYTES:
            raise InputError(
                f"{path}: its table {table} holds more than the {MOST_BYTES:,} bytes that are read into memory"
            )


_WIDTHS = {"VARCHAR": "strlen({})", "INTEGER[]": "4 * len({})", "DOUBLE[]": "8 * len({})", "FLOAT[]": "4 * len({})"}
READ_SECONDS = 600.0
MOST_BYTES = 2_000_000_000
"""Of the values of an evidence file, 200 bytes for each row besides its texts and arrays."""


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
    if re.search(FULL, text):
        return InputError(f"{path} cannot be written: the disk is full; what was committed before stays")
    return InputError(f"{path} cannot be read or written: {one_line(text.splitlines()[0])}")


@contextmanager
def _opened(path: Path, *, read_only: bool = True) -> Iterator[duckdb.DuckDBPyConnection]:
    """A file for as long as the block runs, and no longer than `READ_SECONDS`. Raises InputError for all that DuckDB says of it."""
    connection = _connect(path, read_only=read_only)
    try:
        with within(connection, READ_SECONDS):
            yield connection
    except Exception as error:
        raise _said(error, path) from error
    finally:
        connection.close()


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
    """The error of a block: DuckDB's as one line, any other as it is."""
    import duckdb

    return _unreadable(error, path) if isinstance(error, duckdb.Error) else error


def _checkpoint(connection: duckdb.DuckDBPyConnection) -> None:
    """Put what was committed into the file itself; where that cannot be done it is in the log beside it."""
    import duckdb

    with suppress(duckdb.Error):
        connection.execute("CHECKPOINT")


@contextmanager
def _no_collections() -> Iterator[None]:
    """A million small objects, all of which stay: looking for garbage among them would take longer than making them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
