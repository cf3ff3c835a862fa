"""A SQLite file that another program may be writing to: read without a trace beside it, and without making its owner wait.

What is read is a private copy (`platform/sqlite_copy.py`): it is consistent, holds no lock while rows are read, works in a folder that
cannot be written to, and recovers what a crash left half done in the copy alone. It is made again when the file, its WAL or its journal
has changed.

A file in rollback-journal mode whose owner writes all the time cannot be copied as of one moment: a reader's lock keeps commits
waiting. It is then read itself, in steps of at most STEP_S (`Reader.stepped`), and rows may change between two steps. So is a file for
whose copy there is no room.

Nothing in the file is executed that is not SQLite's own: PRAGMA trusted_schema is off unless the schema cannot be read so, extensions
cannot be loaded, statements only read.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cems_workbench.errors import InputError, one_line
from cems_workbench.platform import sqlite_copy
from cems_workbench.sources.address import Address
from cems_workbench.sources.source import SourceError

Row = tuple[Any, ...]

MAGIC = b"SQLite format 3\0"
COPY_S = 5.0
"""Seconds in which a copy of one moment has to succeed; a single attempt may take longer."""
STEP_S = 0.005
"""Longest step of reading the owner's file itself."""
STEP_TRIES = 8
POLL_S = 0.0003
"""Between two attempts to take a lock."""
MOST_STEP_S = 0.012
"""After this a statement on the owner's file is interrupted."""
FIRST_STEP_ROWS = 64
MOST_STEP_ROWS = 4_000
MOST_KEYS = 50_000
"""Rows of a step that reads only keys."""
PROGRESS_STEPS = 2_000
"""Instructions of SQLite between two looks at the clock."""
MAX_ERROR_CHARS = 300
UNSAFE = ("load_extension", "fts3_tokenizer", "readfile", "writefile", "edit")
"""Functions that no schema may call."""


class TooLongError(SourceError):
    """A step that was ended because the owner would have had to wait."""


class Reader:
    """A connection that only reads. `stepped`: it reads the owner's file itself, so each request has to be short."""

    def __init__(self, connection: sqlite3.Connection, plain: str, timeout: float, stepped: bool) -> None:
        self.connection, self.plain, self.timeout, self.stepped = connection, plain, timeout, stepped
        self._end = self._started = self.held = 0.0
        """`held`: the seconds that the latest request took, without waiting for a lock."""
        connection.set_progress_handler(lambda: time.monotonic() > self._end, PROGRESS_STEPS)

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Statements within, of one moment and with the time limit; errors become one line. Raises SourceError."""
        self._end = time.monotonic() + self.timeout
        try:
            if self.stepped:
                self.connection.execute("BEGIN")
                _wait_for_lock(self.connection, self.timeout)
                # The limit is for how long the lock is held.
                self._end = time.monotonic() + MOST_STEP_S
            self._started = time.monotonic()
            yield
        except sqlite3.Error as error:
            kind = TooLongError if self.stepped and "interrupted" in str(error) else SourceError
            raise kind(f"{self.plain}: {self._reason(error)}") from None
        finally:
            if self.stepped and self.connection.in_transaction:
                self.connection.execute("COMMIT")
            self.held = time.monotonic() - self._started

    def _reason(self, error: sqlite3.Error) -> str:
        message = one_line(str(error), MAX_ERROR_CHARS)
        if "interrupted" not in message:
            return _opening(error)
        if self.stepped:
            busy = f"this request would keep it waiting for more than {MOST_STEP_S * 1000:.0f} ms"
            return f"its owner writes all the time, and {busy}; try again when it rests, or connect to a copy"
        return f"no answer in {self.timeout:g} s"

    def rows(self, statement: str, values: Mapping[str, Any] | Sequence[Any] = ()) -> list[Row]:
        """All rows of a statement. Raises SourceError."""
        for _ in range(STEP_TRIES - 1 if self.stepped else 0):
            # The time is that of the clock: a busy machine may have interrupted a short statement.
            with suppress(TooLongError):
                return self._rows(statement, values)
        return self._rows(statement, values)

    def _rows(self, statement: str, values: Mapping[str, Any] | Sequence[Any]) -> list[Row]:
        with self.limited():
            try:
                return self.connection.execute(statement, values).fetchall()
            except sqlite3.OperationalError as error:
                if not self._any_text_from_now_on(error):
                    raise
                return self.connection.execute(statement, values).fetchall()

    def _any_text_from_now_on(self, error: sqlite3.OperationalError) -> bool:
        """Whether it is of a text that is no UTF-8. All texts are read by `_text` then, a call each."""
        found = self.connection.text_factory is str and "decode to UTF-8" in str(error)
        if found:
            self.connection.text_factory = _text
        return found

    def row(self, statement: str, values: Mapping[str, Any] | Sequence[Any] = ()) -> Row:
        """The only row of a statement. Raises SourceError."""
        return self.rows(statement, values)[0]

    def pages(
        self, select: str, key: str | None, values: Mapping[str, Any] | None = None, page_bytes: int = 0
    ) -> Iterator[list[Row]]:
        """The rows of `select`, which has a WHERE and no ORDER BY, in pages; the first column is `key`, an expression
        with an index. A key that is None can only be read from a copy. A page has at most MOST_STEP_ROWS rows, and
        about `page_bytes` bytes if that is given. Raises SourceError."""
        if not self.stepped:
            yield from self._stream(select, values or {}, page_bytes)
            return
        if key is None:
            raise SourceError(
                f"{self.plain}: its owner writes all the time, and its rows cannot be read in parts: they have no key; "
                "try again when it rests, or connect to a copy"
            )
        cap = MOST_STEP_ROWS if page_bytes else MOST_KEYS
        most, last, refused = FIRST_STEP_ROWS, None, 0
        while True:
            after = "" if last is None else f" AND {key} > :last"
            statement = f"{select}{after} ORDER BY {key} LIMIT :most"
            try:
                page = self._rows(statement, {**(values or {}), "last": last, "most": most})
            except TooLongError:
                # As many rows took less before; the machine has other work too.
                refused += 1
                if most == 1 and refused > STEP_TRIES:
                    raise
                most = max(1, most // 8)
                continue
            refused = 0
            if page:
                yield page
            if len(page) < most:
                return
            last = page[-1][0]
            most = max(1, min(cap, 2 * most, int(most * STEP_S / 2 / max(self.held, 1e-6))))

    def _stream(self, select: str, values: Mapping[str, Any], page_bytes: int) -> Iterator[list[Row]]:
        size = FIRST_STEP_ROWS if page_bytes else MOST_STEP_ROWS
        with self.limited():
            cursor = self.connection.execute(select, values)
        with closing(cursor):
            done = 0
            while True:
                with self.limited():
                    try:
                        page = cursor.fetchmany(size)
                    except sqlite3.OperationalError as error:
                        if not self._any_text_from_now_on(error):
                            raise
                        # The page is lost with the error: a copy gives the same rows in the same order again.
                        cursor.execute(select, values)
                        for _ in range(done):
                            cursor.fetchone()
                        page = cursor.fetchmany(size)
                done += len(page)
                if page:
                    yield page
                if len(page) < size:
                    return
                if page_bytes:
                    looked = page[::16]
                    sizes = (len(each) for row in looked for each in row if isinstance(each, bytes | str))
                    mean = sum(sizes) / len(looked)
                    size = max(1, min(MOST_STEP_ROWS, 2 * size, int(page_bytes / max(mean, 1.0))))


def _text(stored: bytes) -> str:
    """A text; signs that are no UTF-8, which any program may have written, become U+FFFD."""
    return stored.decode(errors="replace")


class DatabaseFile:
    """The file of an address. `reading` may be called from any thread, one at a time."""

    def __init__(self, address: Address, timeout: float) -> None:
        """Look at it. Raises InputError for what is not a SQLite file, and SourceError if it cannot be read."""
        self.address, self.timeout = address, timeout
        self.plain = address.plain
        self.path = _existing(address)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._copied: list[Any] | None = None
        self._lock = threading.RLock()
        self.note = ""
        """How the file is read, if not from a copy."""
        self._check_header()

    def close(self) -> None:
        """Delete the copy."""
        with self._lock:
            if self._folder is not None:
                self._folder.cleanup()
                self._folder = None
            self._copied = None

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """A reader of the file as it is now. Raises SourceError."""
        with self._lock, ExitStack() as opened:
            copy = self._fresh_copy()
            stepped = copy is None
            connection = opened.enter_context(closing(self._connected(copy or self.path, stepped)))
            yield Reader(connection, self.plain, self.timeout, stepped)

    def _connected(self, path: Path, stepped: bool) -> sqlite3.Connection:
        # Recovering a copy after a crash writes to it.
        uri = f"file:{quote(str(path))}?mode={'ro' if stepped else 'rw'}"
        try:
            connection = sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None, check_same_thread=False)
            try:
                for setting in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0", "query_only=ON"):
                    connection.execute(f"PRAGMA {setting}").fetchall()
                _first_look(connection, self.timeout)
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise SourceError(f"{self.plain}: {_opening(error)}") from None
        return connection

    def _fresh_copy(self) -> Path | None:
        """The copy, made again if the file changed; None if the file itself has to be read."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="cems-workbench-sqlite-")
        copy = Path(self._folder.name) / "copy.db"
        if self._copied is not None and self._copied == sqlite_copy.state(str(self.path)):
            return copy
        self._copied = None
        for each in Path(self._folder.name).iterdir():
            each.unlink()
        need, free = (
            sum(each[1] for each in sqlite_copy.state(str(self.path)) if each),
            shutil.disk_usage(self._folder.name).free,
        )
        if need > free:
            self.note = (
                f"there is no room for a copy of its {need / 1e9:.1f} GB in {self._folder.name}, so the file itself is read in short "
                "steps: rows may change between two"
            )
            self._refuse_wal()
            return None
        found = self._asked("copy", self._folder.name, str(COPY_S))
        if problem := found.get("problem"):
            if problem != "busy":
                raise SourceError(f"{self.plain}: it cannot be read: {problem}")
            self.note = (
                "its owner writes all the time, so the file itself is read in short steps that never keep a commit waiting for long: "
                "rows may change between two"
            )
            self._refuse_wal()
            return None
        self._copied, self.note = found["copied"], ""
        return copy

    def _refuse_wal(self) -> None:
        # A connection of mode=ro to such a file would leave files beside it.
        if self._is_wal:
            why = self.note.partition(", so")[0]
            raise SourceError(f"{self.plain}: {why}, and it is in WAL mode: it cannot be read without a copy")

    def _check_header(self) -> None:
        found = self._asked("look")
        if problem := found.get("problem"):
            raise SourceError(f"{self.plain}: it cannot be read: {problem}")
        header = bytes.fromhex(found["header"])
        self._is_wal = header[18:20] == b"\2\2"
        if not header:
            # SQLite makes a file of no bytes for a database that nothing was written to.
            raise InputError(f"{self.plain}: the file is empty: it has no table yet")
        if header[:16] != MAGIC:
            hint = " (an encrypted one looks like that; write a plain copy with its program)" if _random(header) else ""
            raise InputError(f"{self.plain}: is not a SQLite file{hint}")

    def _asked(self, command: str, *rest: str) -> dict[str, Any]:
        script = sqlite_copy.__file__
        done = subprocess.run(  # noqa: S603 (a module of this package, no shell)
            [sys.executable, "-I", "-S", str(script), command, str(self.path), *rest],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SourceError(f"{self.plain}: it cannot be copied: {one_line(done.stderr[-MAX_ERROR_CHARS:])}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


def _wait_for_lock(connection: sqlite3.Connection, seconds: float) -> None:
    """Read something, which takes a reader's lock and rolls back what a crash left in a copy. SQLite's own waiting
    sleeps for up to 100 ms and never meets a moment between two commits."""
    end = time.monotonic() + seconds
    while True:
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(POLL_S)


def _first_look(connection: sqlite3.Connection, seconds: float) -> None:
    """Read the schema, whose functions may only be those that SQLite calls safe."""
    try:
        _wait_for_lock(connection, seconds)
    except sqlite3.DatabaseError as error:
        # A generated column over JSON: SQLite 3.40 calls its own json_extract() unsafe.
        if "unsafe use" not in str(error):
            raise
        connection.execute("PRAGMA trusted_schema=ON").fetchall()
        connection.set_authorizer(_allowed)
        _wait_for_lock(connection, seconds)


def _allowed(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    refused = action == sqlite3.SQLITE_ATTACH or (action == sqlite3.SQLITE_FUNCTION and second in UNSAFE)
    return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK


def _existing(address: Address) -> Path:
    if address.host:
        raise InputError(f"{address.plain}: a SQLite file has no host; write sqlite:/FOLDER/FILE (one slash)")
    path = Path(address.path).expanduser()
    # A name may have %41 in it, not "A".
    typed = Path(re.sub(r"^\w+:(//)?|\?.*$", "", address.plain)).expanduser()
    path = typed if typed.exists() and not path.exists() else path
    if not address.path:
        raise InputError(f"{address.plain}: names no file; write sqlite:/FOLDER/FILE")
    if path.is_dir():
        raise InputError(f"{address.plain}: {path} is a folder; name the SQLite file in it")
    if not path.exists():
        raise InputError(f"{address.plain}: there is no file {path}; blanks may stay, # and ? are written %23 and %3F")
    if not path.is_file():
        raise InputError(f"{address.plain}: {path} is no regular file")
    return path


def _random(header: bytes) -> bool:
    """Whether bytes look encrypted: hardly any is there twice, and many are no text."""
    varied, high = len(set(header)), sum(each >= 127 for each in header)
    return len(header) >= 64 and varied > len(header) // 2 and high > len(header) // 5


def _opening(error: sqlite3.Error) -> str:
    message = one_line(str(error), MAX_ERROR_CHARS)
    if "locked" in message:
        return "its owner keeps it locked and writes to it, so it cannot be read now"
    if "not a database" in message or "malformed" in message:
        return "is damaged or encrypted: SQLite does not read it"
    return message
