"""Opening `workbench.duckdb`, and the two ways to use it: a reading cursor and a writing transaction.

Every call works on a cursor of its own, because a DuckDB connection must not be shared by threads and the app has
many. Writers of this process queue on a lock; writers of other processes are kept out by DuckDB's file lock.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cems_workbench.errors import StoreError, StoreLockedError, one_line
from cems_workbench.store.schema.migrations import prepare

if TYPE_CHECKING:
    import duckdb

FILE_NAME = "workbench.duckdb"
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    # Nothing is fetched at run time: no extension is installed or loaded behind the user's back.
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    # The models need the rest; DuckDB spills to disk beyond this.
    "memory_limit": "2GB",
}
PASSING_BYTES = 64_000_000
"""While many rows pass through that nobody reads again soon few pages are kept besides the keys and the longest texts, and the log of what
was written is put into the file when it is half as large as that, not at every commit."""

CLOSING_SECONDS = 10.0


class Database:
    """An open `workbench.duckdb`."""

    def __init__(self, directory: Path) -> None:
        """Open or create the file in `directory`; raises StoreLockedError or StoreError."""
        self._directory = directory
        self._connection = connect(directory)
        self._memory = str(SETTINGS["memory_limit"])
        self._writing = threading.RLock()
        # A connection refuses a second call while one is under way, even cursor() beside close().
        self._calling = threading.Lock()
        try:
            with self.transaction() as cursor:
                prepare(cursor, str(directory))
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the file; committed work is already durable. Waits for queries that are under way, a few seconds at most.

        Raises StoreError when one of them is still running then.
        """
        import duckdb

        until = time.monotonic() + CLOSING_SECONDS
        with self._writing, self._calling:
            while True:
                try:
                    return self._connection.close()
                except duckdb.ResourceInUseException as error:  # a cursor of another thread is at work
                    if time.monotonic() > until:
                        raise StoreError("the store cannot be closed: another thread still reads from it") from error
                    time.sleep(0.01)

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor that sees one committed state from its first query on."""
        cursor = self._cursor()
        import duckdb

        try:
            cursor.execute("BEGIN")
            yield cursor
        except duckdb.Error as error:
            if _is_damage(error) or isinstance(error, duckdb.FatalException):
                raise _readable(error, self._directory) from error
            raise
        finally:
            cursor.close()

    @contextmanager
    def transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor whose changes are committed when the block ends, and none of them when it raises."""
        with self._writing:
            cursor = self._cursor()
            try:
                cursor.execute("BEGIN")
                yield cursor
                cursor.execute("COMMIT")
            except BaseException as error:
                # The block's error is the one to report: a rollback of an already aborted transaction may fail too.
                _rollback(cursor)
                if _is_damage(error):
                    raise _readable(error, self._directory) from error
                raise
            finally:
                cursor.close()

    @contextmanager
    def many_rows(self, beside: int) -> Iterator[Callable[[int], None]]:
        """While the block runs, writing many rows is quick and does not fill the memory with them.

        DuckDB keeps PASSING_BYTES and what it cannot do without, `beside` bytes, in memory; the function that is given allows it more
        as more of that comes. Raises StoreError when it, or what it has inside `whole_memory`, was not enough.
        """
        import duckdb

        cursor, allowed = self._cursor(), PASSING_BYTES + beside

        def allow(beside: int) -> None:
            nonlocal allowed
            if PASSING_BYTES + beside > allowed:
                allowed = PASSING_BYTES + beside
                self._memory = f"{allowed}B"
                cursor.execute(f"SET memory_limit = '{self._memory}'")
                cursor.execute(f"SET checkpoint_threshold = '{allowed // 2}B'")

        try:
            cursor.execute(f"SET checkpoint_threshold = '{allowed // 2}B'")
            with self._allowed(f"{allowed}B"):
                yield allow
                # Without it the next commit would do it, which reads what was written into the memory that is allowed then.
                with suppress(duckdb.TransactionException):  # another thread writes; a later commit does it
                    cursor.execute("CHECKPOINT")
        except (duckdb.OutOfMemoryException, duckdb.FatalException) as error:
            again = "start again" if isinstance(error, duckdb.FatalException) else "do it again"
            raise StoreError(
                "the store's database needed more memory than it is allowed while memories are written; "
                f"what was committed by then stays, {again} to go on"
            ) from error
        finally:
            with suppress(duckdb.FatalException):  # nothing can be set any more, only closed
                cursor.execute("RESET checkpoint_threshold")
            cursor.close()

    def whole_memory(self) -> AbstractContextManager[None]:
        """Inside `many_rows`, for what needs more memory than its rows do: all that the store may have, while the block runs."""
        return self._allowed(str(SETTINGS["memory_limit"]))

    @contextmanager
    def _allowed(self, memory: str) -> Iterator[None]:
        import duckdb

        # DuckDB says its limit in rounded units, so what it says cannot be set again.
        before, cursor = self._memory, self._cursor()
        try:
            self._memory = memory
            cursor.execute(f"SET memory_limit = '{memory}'")
            yield
        finally:
            self._memory = before
            # What cannot be let go of yet keeps the limit where it is until the next one is set.
            with suppress(duckdb.FatalException, duckdb.OutOfMemoryException):
                cursor.execute(f"SET memory_limit = '{before}'")
            cursor.close()

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        import duckdb

        try:
            with self._calling:
                return self._connection.cursor()
        except duckdb.ConnectionException as error:
            raise StoreError("the store is closed") from error


def _rollback(cursor: duckdb.DuckDBPyConnection) -> None:
    import duckdb

    try:
        cursor.execute("ROLLBACK")
    except duckdb.Error:
        return


def connect(directory: Path) -> duckdb.DuckDBPyConnection:
    """Connect to the database file of a store directory, with errors a user can act on."""
    import duckdb

    file = directory / FILE_NAME
    try:
        if file.exists() and not file.stat().st_size:  # DuckDB would make a new database of it
            raise StoreError(f"store {directory} is damaged: {FILE_NAME} is empty, nothing of it can be read; {SAFE}")
        return duckdb.connect(str(file), config=SETTINGS)
    except (duckdb.Error, OSError, RuntimeError, ValueError) as error:
        raise _readable(error, directory) from error


SAFE = "take it from a backup; evidence files and dictionaries beside it are as they were"
RESCUE = (
    "nothing was changed, and the other files of the store are as they were; doctor --rescue NEW_STORE writes every row "
    "that can be read into a new store"
)


def _is_damage(error: BaseException) -> bool:
    """Whether DuckDB says that a file cannot be read or written; a broken query raises others."""
    import duckdb

    # A block whose checksum is wrong is, by where it is met, an IOException or an Error of no kind of its own.
    kinds = duckdb.IOException, duckdb.InternalException, duckdb.SerializationException
    return (
        isinstance(error, kinds)
        or type(error) is duckdb.Error
        or (isinstance(error, duckdb.Error) and "Corrupt" in str(error))
    )


def _readable(error: BaseException, directory: Path) -> StoreError:
    """DuckDB's message about a file, as one line about the store."""
    text = str(error) or type(error).__name__
    if re.search(r"set lock|being used by another process|already open", text):
        holder = re.search(r"PID (\d+)", text)
        who = f" (PID {holder.group(1)})" if holder else ""
        return StoreLockedError(
            f"store {directory} is held by another process{who}; close the app or pass another --store"
        )
    if re.search(r"No space left|disk (is )?full", text):
        return StoreError(f"store {directory} cannot be written: the disk is full; what was stored before stays")
    if re.search(r"Permission denied|Read-only|Cannot open file|Is a directory", text):
        return StoreError(f"store {directory} cannot be opened: {_first_line(text)}")
    if "not a valid DuckDB database" in text:
        return StoreError(
            f"store {directory} is damaged or not a store: {FILE_NAME} is not a DuckDB database; {RESCUE}"
        )
    return StoreError(f"store {directory} is damaged: {FILE_NAME} cannot be read ({_first_line(text)}); {RESCUE}")


def _first_line(text: str) -> str:
    """What DuckDB says, without the account of its own state that follows."""
    return one_line(
        re.sub(r"^\{\"exception_type.*?\"exception_message\":\"|\"\}?$", "", text.strip().splitlines()[0]), 160
    )
