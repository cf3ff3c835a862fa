"""The database `workbench.duckdb`: read cursors and write transactions.

Each call has its own cursor, because threads must not share a DuckDB connection. Writers of this process queue on a lock; only one
process at a time has the file open (platform/process_lock.py).

Each transaction increments a counter in the database and, after the commit, in the file `workbench.commits`. A file ahead of the
database proves lost commits, which DuckDB does not report: it reads a truncated log up to the cut.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from cems_workbench.errors import StoreError, StoreLockedError, one_line
from cems_workbench.platform.process_lock import SharedLock
from cems_workbench.store import duckdb_file
from cems_workbench.store.rows import COMMITS, SCHEMA, STORE_ID, count_commit, read_content_version, read_meta
from cems_workbench.store.schema.migrations import prepare

if TYPE_CHECKING:
    import duckdb

    ChangeListener = Callable[[duckdb.DuckDBPyConnection], None]

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger(__name__)
FILE_NAME = "workbench.duckdb"
COMMITS_NAME = "workbench.commits"
LOCK_NAME = ".workbench.lock"
BULK_MEMORY_BYTES, BULK_LOG_SIZE = 64_000_000, "256MB"
"""During a bulk write few pages are cached besides the keys and the longest texts, and the log is checkpointed at this size, not at every
commit, because each checkpoint rewrites the last, partly filled row groups (200,000 rows with vectors: 12,300 per second with a log of
56 MB, 15,200 with this one, with the same memory)."""

CLOSE_TIMEOUT_S = 10.0


class _DatabaseFile:
    """A store's database file, shared by all its users in this process, and open while this process has the lock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lock = SharedLock(directory / LOCK_NAME, f"store {directory}", self._open, self._close)
        self.writing = threading.RLock()
        self.users = 0
        self.commits = 0
        """Number of transactions that this process has seen."""
        self.content: tuple[int, int] = (-1, 0)
        """The number of commits when the content version was last read, and that version."""
        self.listeners: list[ChangeListener] = []
        """Called with a cursor after other processes have written."""
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._identity: duckdb_file.FileId | None = None
        self._schema: str | None = None
        # A connection refuses concurrent calls, even cursor() during close().
        self._calling = threading.Lock()
        self.settings = {"memory_limit": duckdb_file.MEMORY_LIMIT}
        """Settings applied each time the file is opened."""

    def cursor(self) -> duckdb.DuckDBPyConnection:
        import duckdb

        try:
            with self._calling:
                if self._connection is None:
                    raise StoreError("the store is closed")
                return self._connection.cursor()
        except duckdb.ConnectionException as error:
            raise StoreError("the store is closed") from error

    def set(self, name: str, value: str | None) -> None:
        """Change or reset a setting, also for later openings of the file. Raises duckdb.Error."""
        if value is None:
            self.settings.pop(name, None)
        else:
            self.settings[name] = value
        with self._calling:
            if self._connection is not None:
                self._apply(name, value)

    def _apply(self, name: str, value: str | None) -> None:
        assert self._connection is not None
        with self._connection.cursor() as cursor:
            cursor.execute(f"RESET {name}" if value is None else f"SET {name} = '{value}'")

    def check_identity(self) -> None:
        """Raise StoreError if the file was removed or replaced: writes would be lost."""
        if duckdb_file.file_id(self.directory / FILE_NAME) != self._identity:
            raise StoreError(
                f"store {self.directory} was removed, moved or replaced while it was open; nothing was stored. "
                "Put it back or restart"
            )

    def _open(self) -> None:
        again = self._identity is not None
        if again:
            self.check_identity()
        # The catalog is checked once per process: whatever changed it since held the lock.
        self._connection = connect(self.directory, known=again)
        try:
            self._identity = self._identity or duckdb_file.file_id(self.directory / FILE_NAME)
            for name, value in self.settings.items():
                self._apply(name, value)
            if again:
                self._notify_changes()
        except BaseException:
            self._close()
            raise

    def _notify_changes(self) -> None:
        assert self._connection is not None
        with self._connection.cursor() as cursor:
            schema, commits = read_meta(cursor, SCHEMA), int(read_meta(cursor, COMMITS) or 0)
            if schema != self._schema:
                raise StoreError(f"store {self.directory} was migrated to schema {schema} by another version; restart")
            if commits != self.commits:
                for tell in self.listeners:
                    tell(cursor)
        self.commits = commits

    def remember(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Remember the state that other processes may change."""
        self._schema, self.commits = read_meta(cursor, SCHEMA), int(read_meta(cursor, COMMITS) or 0)

    def _close(self) -> None:
        with self._calling:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
                # Closing writes the log into the file, so its state is known only now.
                _checked_files.add_closed(self.directory / FILE_NAME, self._identity)

    def close(self) -> None:
        """Close the connection after waiting for running queries, at most CLOSE_TIMEOUT_S. Raises StoreError if one is still running."""
        # A transaction of another thread ends before the file is closed under it.
        with self.writing:
            self.lock.close(self._close_idle)

    def _close_idle(self) -> None:
        import duckdb

        until = time.monotonic() + CLOSE_TIMEOUT_S
        while True:
            try:
                return self._close()
            except duckdb.ResourceInUseException as error:  # another thread's cursor is in use
                if time.monotonic() > until:
                    raise StoreError("the store cannot be closed: another thread still reads from it") from error
                time.sleep(0.01)

    def rewrite(self) -> None:
        """Replace the file by a copy of its rows. Raises StoreError, and leaves the file as it was."""
        import duckdb

        path = self.directory / FILE_NAME
        fresh = path.with_name(f"{FILE_NAME}.new")
        self._close_idle()
        try:
            duckdb_file.copy(path, fresh)
            os.replace(fresh, path)
            self._identity = duckdb_file.file_id(path)
        except (duckdb.Error, OSError) as error:
            raise StoreError(f"{path} cannot be written again: {_first_line(str(error))}") from error
        finally:
            fresh.unlink(missing_ok=True)
            self._open()


_files: dict[Path, _DatabaseFile] = {}
_checked_files = duckdb_file.CheckedFiles()
_opening = threading.Lock()


class Database:
    def __init__(self, directory: Path) -> None:
        """Open or create the file in `directory`; raises StoreLockedError or StoreError."""
        import duckdb  # noqa: F401 (loaded before it is this process's turn)

        self.directory = directory
        place = directory.resolve()
        # Two stores opened at once on one directory must share one connection and one lock.
        with _opening:
            self._file = _files.setdefault(place, _DatabaseFile(directory))
            self._file.users += 1
        self._open = True
        self._listeners: list[ChangeListener] = []
        self.notice = ""
        """The loss found when it was opened, one line; empty if none."""
        try:
            with self._committed() as cursor:
                prepare(cursor, str(directory))
                self._file.remember(cursor)
            self._compare_commits()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file after waiting for running queries, at most CLOSE_TIMEOUT_S; commits are already durable.
        Raises StoreError if a query is still running."""
        with _opening:
            if not self._open:
                return
            if self._file.users == 1:
                self._file.close()
                _files.pop(self.directory.resolve(), None)
            # Only after the file is closed: if that fails, the store stays open and can be closed again.
            self._file.users -= 1
            self._file.listeners = [tell for tell in self._file.listeners if tell not in self._listeners]
            self._open = False

    def on_change(self, tell: ChangeListener) -> None:
        """Register a callback: it runs after other processes have written, before anything else is read."""
        self._listeners.append(tell)
        # A new list: another thread may be calling the previous one.
        self._file.listeners = [*self._file.listeners, tell]

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes out during the block, which makes several steps atomic; not for long work."""
        if not self._open:
            raise StoreError("the store is closed")
        with self._file.lock.acquire():
            yield

    def commits(self) -> int:
        """Number of committed transactions, of all processes."""
        with self.lock():
            return self._file.commits

    def cached_content_version(self) -> int:
        """Number of transactions that changed a memory; reread only after a commit of any process."""
        with self.lock():
            at, version = self._file.content
            if at != self._file.commits:
                at = self._file.commits
                version = self.read(read_content_version)
                self._file.content = at, version
            return version

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor that reads one committed state from its first query on."""
        import duckdb

        with self.lock():
            cursor = self._file.cursor()
            try:
                # All queries of the block then read the same state.
                cursor.execute("BEGIN")
                yield cursor
            except duckdb.Error as error:
                if _is_damage(error) or isinstance(error, duckdb.FatalException):
                    raise _store_error(error, self.directory) from error
                raise
            finally:
                cursor.close()

    def rows(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        with self.reading() as cursor:
            return cursor.execute(sql, values).fetchall()

    def read(
        self, function: Callable[Concatenate[duckdb.DuckDBPyConnection, P], T], *values: P.args, **named: P.kwargs
    ) -> T:
        """What a function reads with a cursor of one committed state."""
        with self.reading() as cursor:
            return function(cursor, *values, **named)

    def unreadable(self) -> dict[str, str]:
        """Read every value of every table; returns the error of each unreadable table by name."""
        import duckdb

        rows = self.rows("SELECT table_name FROM duckdb_tables() WHERE NOT temporary ORDER BY 1")
        found = {}
        for (table,) in rows:
            try:
                with self.reading() as cursor:
                    # A hash needs every value, so that no block is skipped, and keeps none in memory.
                    cursor.execute(f'SELECT bit_xor(hash(each)) FROM "{table}" AS each').fetchall()
            except (StoreError, duckdb.Error) as error:
                found[str(table)] = _first_line(str(error.__cause__ or error))
        return found

    @contextmanager
    def transaction(self, *, of_tables: bool = True) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor whose changes are committed at the end of the block, or rolled back if it raises. With `of_tables`
        the block may stage Arrow tables. Raises StoreError if the file was removed or replaced: writes would be
        lost."""
        if of_tables:
            import pyarrow  # noqa: F401 (takes long to load; not while others wait)

        with self.writing():
            with self._committed() as cursor:
                yield cursor
                # In the same transaction, so that a lost transaction takes its number along.
                number = count_commit(cursor)
            self._file.commits = number
            # Only after the commit: a number ahead of the database proves a loss.
            _write_commits(self.directory, f"{self._store_id} {number}")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Block other writers, of any process, during the block."""
        with self.lock(), self._file.writing:
            yield

    def rewrite(self) -> None:
        """Write the file again with its rows alone: DuckDB keeps the bytes of deleted ones. Other processes that have the store open must
        open it again. Raises StoreError if another thread still reads, or the copy cannot be written."""
        with self.writing():
            self._file.rewrite()

    def _compare_commits(self) -> None:
        """Report once if the database has fewer transactions than were committed."""
        with self.reading() as cursor:
            there, self._store_id = int(read_meta(cursor, COMMITS) or 0), read_meta(cursor, STORE_ID)
        of, written = read_commits(self.directory)
        # A database that lost its log before the first checkpoint has just been recreated, with another id.
        if written > there and (of == self._store_id or not there):
            count = "the last change" if written == there + 1 else f"the last {written - there} changes"
            self.notice = (
                f"{count} stored in {self.directory} lost: the log {FILE_NAME}.wal was truncated, damaged or removed, "
                f"or {FILE_NAME} is an older copy; earlier data is unchanged"
            )
            log.warning(self.notice)
            # The loss is reported once; the next opening finds equal numbers.
            _write_commits(self.directory, f"{self._store_id} {there}")

    @contextmanager
    def _committed(self) -> Iterator[duckdb.DuckDBPyConnection]:
        import duckdb

        with self.writing():
            cursor = self._file.cursor()
            try:
                cursor.execute("BEGIN")
                yield cursor
                self._file.check_identity()
                cursor.execute("COMMIT")
            except BaseException as error:
                # The block's error is the one to report: a rollback of an already aborted transaction may fail too.
                with suppress(duckdb.Error):
                    cursor.execute("ROLLBACK")
                # Memory that ran out during the commit is another error (with a single thread).
                if isinstance(error, duckdb.TransactionException) and "failed to pin block" in str(error):
                    raise duckdb.OutOfMemoryException(_first_line(str(error))) from error
                if _is_damage(error):
                    raise _store_error(error, self.directory) from error
                raise
            finally:
                cursor.close()

    @contextmanager
    def long_log(self) -> Iterator[None]:
        """During the block, write many rows without a checkpoint at every few commits; the next commit after it makes one."""
        import duckdb

        try:
            self._file.set("checkpoint_threshold", BULK_LOG_SIZE)
            yield
        finally:
            with suppress(duckdb.FatalException):  # the database can only be closed now
                self._file.set("checkpoint_threshold", None)

    @contextmanager
    def bulk_write(self, beside: int) -> Iterator[Callable[[int], None]]:
        """Write many rows quickly and with bounded memory during the block. DuckDB may use BULK_MEMORY_BYTES and
        `beside` bytes for data that must stay in memory; the yielded function raises the latter. Raises StoreError if
        that, or the limit inside `full_memory`, was not enough."""
        import duckdb

        allowed = BULK_MEMORY_BYTES + beside

        def allow(beside: int) -> None:
            nonlocal allowed
            if BULK_MEMORY_BYTES + beside > allowed:
                allowed = BULK_MEMORY_BYTES + beside
                self._file.set("memory_limit", f"{allowed}B")

        try:
            with self.long_log(), self._memory_limit(f"{allowed}B"):
                yield allow
                # Otherwise the next commit would checkpoint, and load the written rows within the limit of that moment.
                with (
                    suppress(duckdb.TransactionException),
                    self.lock(),
                ):  # another thread writes; a later commit checkpoints
                    self._file.cursor().execute("CHECKPOINT")
        except (duckdb.OutOfMemoryException, duckdb.FatalException) as error:
            again = "start again" if isinstance(error, duckdb.FatalException) else "do it again"
            raise StoreError(
                "the store's database exceeded its memory limit while writing memories; "
                f"committed batches are kept, {again} to continue"
            ) from error

    def full_memory(self) -> AbstractContextManager[None]:
        """Inside `bulk_write`: allow the full memory limit of the store during the block, for statements that need it."""
        return self._memory_limit(duckdb_file.MEMORY_LIMIT)

    @contextmanager
    def _memory_limit(self, memory: str) -> Iterator[None]:
        import duckdb

        # DuckDB reports its limit rounded, so the reported value cannot restore it.
        before = self._file.settings["memory_limit"]
        try:
            self._file.set("memory_limit", memory)
            yield
        finally:
            # DuckDB refuses a limit below the memory in use; the old limit then stays until the next one is set.
            with suppress(duckdb.FatalException, duckdb.OutOfMemoryException):
                self._file.set("memory_limit", before)


def _write_commits(directory: Path, text: str) -> None:
    """Write the counter in place. A missed write is harmless: an older number only detects fewer losses."""
    with suppress(OSError):
        file = os.open(directory / COMMITS_NAME, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            # Padded to one length: the file is overwritten in place and never truncated.
            os.write(file, f"{text:<40}\n".encode())
        finally:
            os.close(file)


def read_commits(directory: Path) -> tuple[str, int]:
    """The store id and the number of committed transactions in the file; 0 if it cannot be read."""
    try:
        # The file may be damaged or foreign: read little of it, and accept only its exact form.
        known = re.fullmatch(rb"(\w+) (\d{1,18}) *\n", (directory / COMMITS_NAME).read_bytes()[:100])
    except OSError:
        return "", 0
    return (known[1].decode(), int(known[2])) if known else ("", 0)


def connect(directory: Path, *, known: bool = False) -> duckdb.DuckDBPyConnection:
    """Connect to the database file of a store directory, with actionable errors; `known`: its catalog was checked
    before. The catalog of a new file, or of one unchanged since this process closed it, is not checked either."""
    import duckdb

    file = directory / FILE_NAME
    try:
        there = file.exists()
        known = known or _checked_files.contains(file)
        if there and not file.stat().st_size:  # DuckDB would create a new database in it
            raise StoreError(f"store {directory} is damaged: {FILE_NAME} is empty; {BACKUP_ADVICE}")
        connection = duckdb_file.open_file(
            file, memory_limit=duckdb_file.MEMORY_LIMIT, changing=("memory_limit", "checkpoint_threshold")
        )
    except (duckdb.Error, OSError, RuntimeError, ValueError) as error:
        raise _store_error(error, directory) from error
    if known or not there:
        return connection
    try:
        with duckdb_file.interrupt_after(connection, duckdb_file.CATALOG_TIMEOUT_S):
            found = duckdb_file.find_code(connection)
        if found is not None:
            raise StoreError(f"store {directory} is not opened: its database has {found}, which no store has")
    except duckdb.Error as error:
        connection.close()
        raise _store_error(error, directory) from error
    except BaseException:
        connection.close()
        raise
    return connection


BACKUP_ADVICE = "restore it from a backup; evidence files and dictionaries next to it are unchanged"
RECOVERY_ADVICE = "no file was changed; doctor --recover-to NEW_STORE writes every readable row into a new store"


DISK_FULL = r"No space left|disk (is )?full|File too large|quota exceeded"


def _is_damage(error: BaseException) -> bool:
    """Whether a DuckDB error is about an unreadable or unwritable file, not about a query."""
    import duckdb

    # A wrong block checksum is an IOException or a plain Error, depending on where it is detected.
    kinds = duckdb.IOException, duckdb.InternalException, duckdb.SerializationException
    return (
        isinstance(error, kinds)
        or re.search(DISK_FULL, str(error)) is not None
        or type(error) is duckdb.Error
        or (isinstance(error, duckdb.Error) and "Corrupt" in str(error))
    )


def _store_error(error: BaseException, directory: Path) -> StoreError:
    """DuckDB's message about a file, as one line about the store."""
    text = str(error) or type(error).__name__
    if re.search(r"set lock|being used by another process|already open", text):
        holder = re.search(r"PID (\d+)", text)
        who = f" (PID {holder.group(1)})" if holder else ""
        return StoreLockedError(
            f"store {directory} is held by another process{who}; end that one, or pass another --store"
        )
    if re.search(DISK_FULL, text):
        return StoreError(f"store {directory} cannot be written: the disk is full; earlier data is unchanged")
    if re.search(r"Permission denied|Read-only|Cannot open file|Is a directory", text):
        return StoreError(f"store {directory} cannot be opened: {_first_line(text)}")
    if "not a valid DuckDB database" in text:
        return StoreError(
            f"store {directory} is damaged or not a store: {FILE_NAME} is not a DuckDB database; {RECOVERY_ADVICE}"
        )
    return StoreError(
        f"store {directory} is damaged: {FILE_NAME} cannot be read ({_first_line(text)}); {RECOVERY_ADVICE}"
    )


def _first_line(text: str) -> str:
    """DuckDB's message without its stack trace."""
    return one_line(
        re.sub(r"^\{\"exception_type.*?\"exception_message\":\"|\"\}?$", "", text.strip().splitlines()[0]), 160
    )
