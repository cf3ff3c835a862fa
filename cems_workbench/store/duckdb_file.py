"""Safe opening of untrusted DuckDB files, as data and never as code; a file that may be damaged is read in a subprocess.

A DuckDB database can contain code: views and macros that read other files, triggers, computed columns, macros that shadow functions.
So external access and extensions are disabled, the configuration is locked, and the catalog is checked before any row is read: only
tables of plain columns, and in an evidence file exactly the expected ones (`differences`). See
docs/internals/decisions/0015-untrusted-databases.md. A crash of the library ends only the subprocess.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench.errors import one_line, short
from cems_workbench.platform.waiting import call_after

if TYPE_CHECKING:
    import duckdb


ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class SubprocessResult:
    """A subprocess's output, and its error (empty on success)."""

    stdout: str
    problem: str = ""


def run_in_subprocess(module: str, *arguments: str, seconds: float) -> SubprocessResult:
    """Run a module of this package with arguments, for at most `seconds`."""
    path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
    try:
        ended = subprocess.run(  # noqa: S603 (a module of this package, no shell)
            [sys.executable, "-X", "faulthandler=0", "-m", module, *arguments],
            capture_output=True,
            timeout=seconds,
            env={**os.environ, "PYTHONPATH": path},
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as late:
        return SubprocessResult((late.stdout or b"").decode("utf-8", "replace"), f"timed out after {seconds:g} s")
    except OSError as error:
        return SubprocessResult("", f"cannot start a process: {error.strerror}")
    printed = ended.stdout.decode("utf-8", "replace")
    if ended.returncode == 0:
        return SubprocessResult(printed)
    # The process was ended by a signal.
    if ended.returncode < 0:
        return SubprocessResult(
            printed, f"the library that reads it crashes ({signal.Signals(-ended.returncode).name})"
        )
    lines = ended.stderr.decode("utf-8", "replace").strip().splitlines()
    return SubprocessResult(printed, lines[-1] if lines else f"exit code {ended.returncode}")


MEMORY_LIMIT = "2GB"
"""The models need the rest; DuckDB spills to disk beyond this."""
CATALOG_TIMEOUT_S = 60.0
"""Time limit of a catalog check."""
SETTINGS: Mapping[str, Any] = {
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
    "lock_configuration": True,
}


def open_file(
    path: Path | str, *, read_only: bool = False, memory_limit: str = MEMORY_LIMIT, changing: Sequence[str] = ()
) -> duckdb.DuckDBPyConnection:
    """Open or create a DuckDB file. Only the settings in `changing` can be changed later. Raises duckdb.Error."""
    import duckdb

    # The configuration is locked, so later changes must be allowed by name at the start.
    settings = {**SETTINGS, "memory_limit": memory_limit, "allowed_configs": list(changing)}
    return duckdb.connect(str(path), read_only=read_only, config=settings)


def copy(path: Path, fresh: Path) -> None:
    """Write a checked file's tables to a new file, without the bytes of deleted rows. Raises duckdb.Error and OSError."""
    import duckdb

    fresh.unlink(missing_ok=True)
    with duckdb.connect(config={"memory_limit": MEMORY_LIMIT, "autoinstall_known_extensions": False}) as connection:
        for name, file, how in (("old", path, " (READ_ONLY)"), ("new", fresh, "")):
            connection.execute("ATTACH '{}' AS {}{}".format(str(file).replace("'", "''"), name, how))
        connection.execute("COPY FROM DATABASE old TO new")


FileId = tuple[int, int]
"""The identity of a file, independent of its name: device and inode."""
FileState = tuple[tuple[int, int, int, int, int], ...]
"""Device, inode, size and times of a file and of its log."""


class CheckedFiles:
    """The files that passed the catalog check in this process, with their state at that time. A check takes as long as
    opening a file, because it lists all of DuckDB's functions. It is skipped for an unchanged file, and for one that
    this process had open for writing, since no other process can have changed it."""

    def __init__(self) -> None:
        self._states: dict[Path, FileState] = {}

    def contains(self, path: Path) -> bool:
        """Whether the file was checked in its current state."""
        known = self._states.get(path)
        return known is not None and known == file_state(path)

    def add(self, path: Path, seen: FileState) -> None:
        """Record that a file was checked in this state."""
        self._states[path] = seen

    def add_closed(self, path: Path, opened: FileId | None) -> None:
        """Record the state of a file after it was closed, unless another file has replaced the `opened` one."""
        seen = file_state(path)
        # Another file under this name was never checked.
        if seen is not None and seen[0][:2] == opened:
            self._states[path] = seen


def file_id(path: Path) -> FileId | None:
    """The device and inode of a file; None if it is missing."""
    try:
        known = path.stat()
    except OSError:
        return None
    return known.st_dev, known.st_ino


def file_state(path: Path) -> FileState | None:
    """The state of a file with its log; None if it is missing."""
    found = []
    # A change may be in the log alone.
    for each in (path, path.with_name(f"{path.name}.wal")):
        try:
            known = each.stat()
        except (OSError, ValueError):
            if each is path:
                return None
            continue
        found.append((known.st_dev, known.st_ino, known.st_size, known.st_mtime_ns, known.st_ctime_ns))
    return tuple(found)


def find_code(cursor: duckdb.DuckDBPyConnection) -> str | None:
    """The first catalog entry that is code, as a phrase; None if there is none."""
    for what, select in _CODE:
        found = cursor.execute(select).fetchone()
        if found is not None:
            return f"{what} {short(found[0])}"
    return None


# Functions are called by their full name: a macro of the file may shadow the short one.
_CODE = (
    ("a view", "SELECT view_name FROM system.main.duckdb_views() WHERE NOT internal"),
    ("a macro", "SELECT function_name FROM system.main.duckdb_functions() WHERE NOT internal"),
    ("a trigger", "SELECT trigger_name FROM system.main.duckdb_triggers()"),
    ("a type", "SELECT type_name FROM system.main.duckdb_types() WHERE NOT internal"),
    ("a schema", "SELECT schema_name FROM system.main.duckdb_schemas() WHERE NOT internal"),
    (
        "a computed column",
        "SELECT c.table_name || '.' || c.column_name FROM system.main.duckdb_columns() AS c "
        "JOIN system.main.duckdb_tables() AS t USING (database_name, schema_name, table_name) "
        "WHERE NOT c.internal AND contains(t.sql, 'GENERATED ALWAYS AS') AND c.column_default IS NOT NULL",
    ),
)

Columns = frozenset[tuple[str, str, bool]]
"""(name, type, may be null) of the columns of a table."""


def differences(cursor: duckdb.DuckDBPyConnection, tables: Mapping[str, Columns]) -> str | None:
    """The first difference of the catalog from these tables, as a phrase; None if there is none."""
    found = find_code(cursor)
    if found is not None:
        return f"it has {found}"
    there = columns(cursor)
    for name in sorted(there.keys() | tables.keys()):
        if name not in tables:
            return f"it has a table {short(name)}"
        for column in sorted(tables[name] - there.get(name, frozenset())):
            return (
                f"its table {name} lacks the column {_column_text(column)}"
                if name in there
                else f"it has no table {name}"
            )
        for column in sorted(there.get(name, frozenset()) - tables[name]):
            return f"its table {name} has a column {_column_text(column)}"
    for what, select in _OTHER_OBJECTS:
        beside = cursor.execute(select).fetchone()
        if beside is not None:
            return f"it has {what} {short(beside[0])}"
    return None


_OTHER_OBJECTS = (
    ("a sequence", "SELECT sequence_name FROM system.main.duckdb_sequences()"),
    ("an index", "SELECT index_name FROM system.main.duckdb_indexes()"),
    (
        "a constraint",
        "SELECT constraint_text FROM system.main.duckdb_constraints() "
        "WHERE constraint_type NOT IN ('NOT NULL', 'PRIMARY KEY')",
    ),
    (
        "a default of the column",
        "SELECT table_name || '.' || column_name FROM system.main.duckdb_columns() "
        "WHERE NOT internal AND column_default IS NOT NULL",
    ),
)


def columns(cursor: duckdb.DuckDBPyConnection) -> dict[str, Columns]:
    found: dict[str, set[tuple[str, str, bool]]] = {}
    for table, column, kind, nullable in cursor.execute(
        "SELECT table_name, column_name, data_type, is_nullable FROM system.main.duckdb_columns() WHERE NOT internal"
    ).fetchall():
        found.setdefault(table, set()).add((column, kind, nullable))
    return {table: frozenset(own) for table, own in found.items()}


@cache
def columns_of(script: str) -> Mapping[str, Columns]:
    """The columns of the tables that a script creates."""
    import duckdb

    # DuckDB names types its own way, so the script's types are read back from its catalog.
    with duckdb.connect(config={**SETTINGS}) as empty:
        empty.execute(script)
        return columns(empty)


def _column_text(column: tuple[str, str, bool]) -> str:
    name, kind, nullable = column
    return f"{short(name)} ({one_line(kind, 60)}{'' if nullable else ', never empty'})"


def interrupt_after(connection: duckdb.DuckDBPyConnection, seconds: float) -> AbstractContextManager[None]:
    """Interrupt the connection if the block takes longer; DuckDB then raises InterruptException."""
    return call_after(seconds, connection.interrupt)
