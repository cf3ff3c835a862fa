"""The evidence of a whole query set in one portable file: gathered once, replayed anywhere without a store or a model.

It is a DuckDB database. Queries are added one committed transaction at a time, so that what a killed gather finished is there and
a later one goes on after it. The header says what it was gathered with; a file of another store, another state of it, another
embedder or other gather parameters is not gone on with, and can be read all the same. `content_hash` covers everything that
replay can see, is written when the gather is complete and checked when the file is read.

The hash of an evidence file, over everything that replay can see of it.

Source: docs/architecture.md, "The one idea": evidence and config give the same numbers anywhere, so that a hash of both names a result.
"""

from __future__ import annotations

import gc
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench.config import PipelineConfig, dump_config, parse_config, with_values
from cems_workbench.errors import InputError
from cems_workbench.evaluation import evidence_rows
from cems_workbench.evaluation.evidence_rows import arrow, flat
from cems_workbench.parsing import MOST_CHARS, json_values, yaml_values
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.answered import answered
from cems_workbench.pipeline.needs import BEFORE, gather_parameters
from cems_workbench.records import Judgment, Query

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb


LATER = ("SELECT * FROM chunks ORDER BY member, seq", "SELECT * FROM edges ORDER BY qid, position")
"""What files of the first format have not."""


def content_hash(cursor: duckdb.DuckDBPyConnection) -> str:
    """SHA-256, in hex, of everything that replay can see of the file and of its queries; judgments are not part of it."""
    digest = hashlib.sha256()
    for select in (
        "SELECT * FROM queries ORDER BY position",
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
    content_hash: str
    complete: bool
    seconds: float
    """Time that gathering took, all queries together."""

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
        self._known = evidence_rows.Known(connection)

    @classmethod
    def create(
        cls, path: Path, header: Header, queries: Sequence[Query], judgments: Sequence[Judgment]
    ) -> EvidenceFile:
        """A new file with its query set. Raises InputError when it is there already or cannot be written."""
        if path.exists():
            raise InputError(f"{path} is there already")
        connection = _connect(path, read_only=False)
        try:
            with _transaction(connection):
                connection.execute(evidence_rows.TABLES)
                values = [("format", FORMAT), ("header", json.dumps(asdict(header), ensure_ascii=False))]
                connection.executemany("INSERT INTO meta VALUES (?, ?)", values)
                evidence_rows.write_query_set(connection, queries, judgments)
            return cls(path, connection)
        except BaseException:
            connection.close()
            path.unlink(missing_ok=True)
            raise

    @classmethod
    def resume(cls, path: Path, header: Header, queries: Sequence[Query]) -> EvidenceFile:
        """Open a file to go on with it. Raises InputError when it was gathered with something else, naming what."""
        connection = _connect(path, read_only=False)
        try:
            reason = mismatch(_header(connection, path), header)
            if reason is None and not evidence_rows.has_chunks(connection):
                reason = "an earlier version of the workbench made it"
            known = {query.qid: query for query in evidence_rows.read_query_set(connection)[0]}
            other = [query.qid for query in queries if known.get(query.qid) != query]
            if reason is None and (other or len(known) != len(queries)):
                what = f"{other[0]} is not in it, or differs" if other else f"it holds {len(known)} queries"
                reason = f"it is of another query set: {what}"
            if reason is not None:
                raise InputError(
                    f"{path} cannot be gone on with: {reason}. Name another file; this one can still be read"
                )
            return cls(path, connection)
        except BaseException:
            connection.close()
            raise

    def add(self, qid: str, evidence: Evidence, seconds: float) -> None:
        """Add the evidence of one query; it is on disk when this returns. `seconds` is what gathering it took."""
        with _transaction(self._connection):
            evidence_rows.write_evidence(self._connection, qid, evidence, seconds, self._known)
        self.finished.add(qid)

    def finish(self) -> str:
        """Mark the file as complete and return its content hash."""
        mark = content_hash(self._connection)
        with _transaction(self._connection):
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES ('content_hash', ?)", [mark])
        self._connection.execute("CHECKPOINT")
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
        with path.open("rb") as file:
            return file.read(12)[8:12] == b"DUCK"
    except OSError:
        return False


def read_evidence_file(path: Path) -> EvidenceSet:
    """Read a whole file, without a store or a model.

    Raises InputError when it is not an evidence file, is held by a gather, or was changed since it was complete.
    """
    import duckdb

    if not path.is_file():
        raise InputError(f"{path}: no such evidence file")
    connection = _connect(path, read_only=True)
    try:
        header = _header(connection, path)
        stated = _meta(connection, "content_hash")
        mark = content_hash(connection)
        if stated not in (None, mark):
            raise InputError(f"{path}: its content is not what was gathered (its hash differs); gather it again")
        queries, judgments = evidence_rows.read_query_set(connection)
        with _no_collections():
            evidences = evidence_rows.read_evidence(connection)
        seconds = connection.execute("SELECT coalesce(sum(seconds), 0) FROM evidence").fetchall()[0][0]
        return EvidenceSet(path, header, tuple(queries), tuple(judgments), evidences, mark, stated is not None, seconds)
    except duckdb.Error as error:
        raise InputError(f"{path} cannot be read as an evidence file: {str(error).splitlines()[0]}") from None
    finally:
        connection.close()


def read_header(path: Path) -> Header:
    """What a file was gathered with. Raises InputError as `read_evidence_file` does."""
    connection = _connect(path, read_only=True)
    try:
        return _header(connection, path)
    finally:
        connection.close()


def read_progress(path: Path) -> tuple[int, float]:
    """How many queries a file holds, and the seconds that gathering them took. Raises InputError as `read_header` does."""
    connection = _connect(path, read_only=True)
    try:
        _header(connection, path)
        rows = connection.execute("SELECT count(*), coalesce(sum(seconds), 0) FROM evidence").fetchall()
        return int(rows[0][0]), float(rows[0][1])
    finally:
        connection.close()


def replace_judgments(path: Path, judgments: Sequence[Judgment]) -> None:
    """Put these judgments into a file in place of those in it; its content hash, of which they are no part, stays.

    Raises InputError when the file is open elsewhere or cannot be written.
    """
    import duckdb

    connection = _connect(path, read_only=False)
    try:
        with _transaction(connection):
            evidence_rows.write_judgments(connection, judgments)
    except duckdb.Error as error:
        raise InputError(f"{path} cannot be written: {str(error).splitlines()[0]}") from None
    finally:
        connection.close()


def add_scores(path: Path, read: str, scored: Mapping[str, Evidence]) -> str:
    """Put the model scores of these queries, and their notes, into a file in place of those in it, and give its new content hash.

    `read` is the hash of the content that they were added to. It is one transaction: after it the file is what it was, or holds all of
    them under its new hash. Raises InputError when the file has changed since, is open elsewhere, or cannot be written.
    """
    import duckdb

    connection = _connect(path, read_only=False)
    try:
        with _transaction(connection):
            if content_hash(connection) != read:
                raise InputError(f"{path} was changed meanwhile; run it again, what was scored is in the store's cache")
            evidence_rows.replace_scores(connection, scored)
            mark = content_hash(connection)
            if _meta(connection, "content_hash") is not None:
                connection.execute("INSERT OR REPLACE INTO meta VALUES ('content_hash', ?)", [mark])
        connection.execute("CHECKPOINT")
        return mark
    except duckdb.Error as error:
        raise InputError(f"{path} cannot be written: {str(error).splitlines()[0]}") from None
    finally:
        connection.close()


def replace_relevant_from(path: Path, grade: int) -> None:
    """Write another relevance grade into the header of a file; its content hash stays. Raises as `replace_judgments` does."""
    import duckdb

    connection = _connect(path, read_only=False)
    try:
        header = asdict(replace(_header(connection, path), relevant_from=grade))
        connection.execute("UPDATE meta SET value = ? WHERE key = 'header'", [json.dumps(header, ensure_ascii=False)])
    except duckdb.Error as error:
        raise InputError(f"{path} cannot be written: {str(error).splitlines()[0]}") from None
    finally:
        connection.close()


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
        if not all(isinstance(text, str) for text in (header.config_yaml, header.created_at, header.query_set)):
            raise TypeError("header")
        return header
    except (duckdb.Error, TypeError, ValueError) as error:
        raise InputError(f"{path} is a DuckDB database, but not an evidence file") from error


def _meta(connection: duckdb.DuckDBPyConnection, key: str) -> str | None:
    rows = connection.execute("SELECT value FROM meta WHERE key = ?", [key]).fetchall()
    return str(rows[0][0]) if rows else None


def _connect(path: Path, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    import duckdb

    settings: dict[str, Any] = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    if read_only:  # a file of unknown origin may hold a view that reads other files
        settings["enable_external_access"] = False
    try:
        return duckdb.connect(str(path), read_only=read_only, config=settings)
    except duckdb.Error as error:
        text = str(error)
        if re.search(r"set lock|being used by another process|already open", text):
            raise InputError(f"{path} is held by another process, perhaps a gather that is still running") from None
        if "not a valid DuckDB database" in text:
            raise InputError(f"{path} is not an evidence file") from None
        raise InputError(f"{path} cannot be opened: {text.splitlines()[0]}") from None


@contextmanager
def _transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


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
