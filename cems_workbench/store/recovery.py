"""Recovery of a damaged store: readable rows are written to a new store.

The database is copied first; the original is never written. A subprocess reads each table in ranges of rows, because a damaged file can
crash DuckDB; an unreadable range is halved down to `MIN_RANGE_ROWS` rows, which then count as lost. Indexes are not recovered: they are
rebuilt from the memories.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cems_workbench.errors import StoreError
from cems_workbench.progress import Progress, silent
from cems_workbench.store.database import FILE_NAME, Database, read_commits
from cems_workbench.store.duckdb_file import find_code, open_file, run_in_subprocess
from cems_workbench.store.rows import COMMITS, SCHEMA, column, scalar

if TYPE_CHECKING:
    import duckdb

MIN_RANGE_ROWS = 128
RANGE_ROWS = 122_880
"""Rows in a DuckDB row group."""
SUBPROCESS_TIMEOUT_S = 600.0
DERIVED = ("embedded",)
LOG = "changes in the log"
"""Reported like a table if the log is unreadable; its lost rows are the lost transactions, such as labels."""
EXPANSIONS_FILE, TERMS_FILE = "expansions.yaml", "technical_terms.txt"
"""Names of files in a store: manual expansions, and its technical terms."""
FILES = (EXPANSIONS_FILE, TERMS_FILE, "evidence")
"""Further files of a store that cannot be rebuilt."""


@dataclass(frozen=True, slots=True)
class RecoveredTable:
    """Numbers of recovered and lost rows of a table; `lost` is None if unknown."""

    table: str
    read: int
    lost: int | None
    problem: str = ""


def recover(source: Path, target: Path, progress: Progress = silent) -> list[RecoveredTable]:
    """Write every readable row of the store in `source` to a new store in `target`. Raises StoreError if nothing is readable."""
    if not (source / FILE_NAME).is_file():
        raise StoreError(f"no store at {source}: there is no {FILE_NAME}")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StoreError(f"{target} is not empty; name a new directory")
    try:
        with tempfile.TemporaryDirectory(prefix="cems-rescue-") as place:
            return _rescued(source, target, Path(place), progress)
    except OSError as error:
        raise StoreError(f"the recovered store cannot be written: {error.strerror or error}") from error


def _rescued(source: Path, target: Path, place: Path, progress: Progress) -> list[RecoveredTable]:
    copy, sizes, log_problem = _readable_copy(source, place)
    read: dict[str, list[Path]] = {}
    results: list[RecoveredTable] = []
    for number, (table, rows) in enumerate(sizes.items()):
        progress("reading tables", number, len(sizes))
        if table not in DERIVED:
            folder = place / f"table{number}"
            folder.mkdir()
            read[table], result = _read_table(copy, table, rows, folder)
            results.append(result)
    progress("reading tables", len(sizes), len(sizes))
    if not any(result.read for result in results):
        raise StoreError(
            f"no row of {source / FILE_NAME} can be read: {results[0].problem if results else 'no tables'}"
        )
    rescued = _write(target, read)
    if log_problem:
        committed = read_commits(source)[1]
        results.append(RecoveredTable(LOG, 0, max(0, committed - rescued) if committed else None, log_problem))
    for name in FILES:
        # The rows matter more: a file that cannot be copied must not end the recovery.
        with suppress(OSError):
            found = source / name
            if found.is_dir():
                shutil.copytree(found, target / name, dirs_exist_ok=True)
            elif found.is_file():
                shutil.copy(found, target / name)
    return results


def _readable_copy(source: Path, place: Path) -> tuple[Path, dict[str, int], str]:
    """A copy that opens, the approximate number of rows per table, and why its log was dropped (empty if it was not)."""
    problem = ""
    log = source / f"{FILE_NAME}.wal"
    # DuckDB replays the log when it opens the file; without a damaged log the file itself may open.
    for with_log in (True, False) if log.is_file() else (False,):
        copy = place / ("with-log" if with_log else "without-log")
        copy.mkdir()
        shutil.copy(source / FILE_NAME, copy / FILE_NAME)
        if with_log:
            shutil.copy(log, copy / log.name)
        ended = run_in_subprocess(__name__, "tables", str(copy / FILE_NAME), seconds=SUBPROCESS_TIMEOUT_S)
        if not ended.problem:
            return copy / FILE_NAME, json.loads(ended.stdout), problem
        problem = ended.problem
    raise StoreError(f"no row of {source / FILE_NAME} can be read: {problem}")


def _read_table(copy: Path, table: str, rows: int, folder: Path) -> tuple[list[Path], RecoveredTable]:
    pending = [(start, min(start + RANGE_ROWS, rows)) for start in range(0, rows, RANGE_ROWS)]
    files: list[Path] = []
    read = lost = 0
    problem = ""
    while pending:
        ended = run_in_subprocess(
            __name__, "rows", str(copy), table, str(folder), json.dumps(pending), seconds=SUBPROCESS_TIMEOUT_S
        )
        # Ranges that the subprocess printed before a crash still count.
        results: dict[tuple[int, int], int | None] = {}
        for line in ended.stdout.splitlines():
            with suppress(ValueError, TypeError):
                start, end, count, why = json.loads(line)
                results[start, end] = count
                problem = why or problem
        problem = ended.problem or problem
        failed = [span for span in pending if results.get(span) is None]
        done = [span for span in pending if results.get(span) is not None]
        read += sum(results[span] or 0 for span in done)
        files += [folder / f"{start}-{end}.arrow" for start, end in done if results[start, end]]
        pending = []
        for place, (start, end) in enumerate(failed):
            tried = place == 0 or (start, end) in results  # ranges after a crash were not tried
            if not tried:
                pending.append((start, end))
            elif end - start <= MIN_RANGE_ROWS:
                lost += end - start
            else:
                # Halving isolates a damaged block.
                pending += [(start, (start + end) // 2), ((start + end) // 2, end)]
    return files, RecoveredTable(table, read, lost, problem if lost else "")


def _write(target: Path, read: Mapping[str, Sequence[Path]]) -> int:
    """Create a store with the recovered schema and insert the rows; opening it migrates the schema. Returns its number of commits."""
    import duckdb
    import pyarrow as pa

    from cems_workbench.store.schema.migrations import known_schema, migrate, migrations

    def rows(table: str) -> list[pa.Table]:
        return [pa.ipc.open_file(pa.memory_map(str(path))).read_all() for path in read[table]]

    known = (
        {row["key"]: row["value"] for part in rows("workbench_meta") for row in part.to_pylist()}
        if ("workbench_meta" in read)
        else {}
    )
    # The rows fit the schema of their version, not necessarily the present one.
    version = known_schema(known.get(SCHEMA, str(max(migrations()))), "the store")
    target.mkdir(parents=True, exist_ok=True)
    try:
        with open_file(target / FILE_NAME) as database:
            database.execute("BEGIN")
            migrate(database, until=version)
            for table in read:
                for part in rows(table):
                    _insert(database, table, part)
            database.execute("COMMIT")
            _advance(database)
    except duckdb.Error as error:
        raise StoreError(f"the recovered store cannot be written: {str(error).splitlines()[0]}") from error
    # Opening migrates the schema.
    Database(target).close()
    return int(known.get(COMMITS, 0))


def _insert(database: duckdb.DuckDBPyConnection, table: str, part: object) -> None:
    wanted = [row[1] for row in database.execute(f"PRAGMA table_info('{table}')").fetchall()]
    database.register("rescued", part)
    there = column(database, "DESCRIBE rescued")
    # By name: the recovered table may have other columns, or another order.
    columns = ", ".join(f'"{name}"' for name in wanted if name in there)
    # The new store has no vectors; their records would report them as lost.
    kept = " WHERE NOT starts_with(key, 'vectors:')" if table == "workbench_meta" else ""
    # A flipped bit can produce a duplicate key.
    either = "INSERT OR REPLACE" if table == "workbench_meta" else "INSERT OR IGNORE"
    keyed = scalar(
        database,
        "SELECT count(*) FROM duckdb_constraints() WHERE table_name = ? AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')",
        [table],
    )
    database.execute(f'{either if keyed else "INSERT"} INTO "{table}" ({columns}) SELECT {columns} FROM rescued{kept}')
    database.unregister("rescued")


def _advance(database: duckdb.DuckDBPyConnection) -> None:
    """Continue the sequences after the highest recovered id."""
    for table, sequence in database.execute(
        "SELECT table_name, regexp_extract(column_default, 'nextval\\(''([a-z_]+)''', 1) AS sequence "
        "FROM duckdb_columns() WHERE column_name = 'id' AND sequence <> ''"
    ).fetchall():
        highest = scalar(database, f'SELECT coalesce(max(id), 0) FROM "{table}"')
        # A sequence can only be advanced by calling it; the limit stops an id from a flipped bit.
        database.execute(f"SELECT max(nextval('{sequence}')) FROM range({min(int(highest), 10_000_000)})").fetchall()


def print_tables(file: str) -> None:
    """Print the tables of a database, each with its highest row number plus one, or an estimate."""
    import duckdb

    sizes: dict[str, int] = {}
    with open_file(file) as database:
        if found := find_code(database):
            raise StoreError(f"its database has {found}, which no store has")
        listed = database.execute(
            "SELECT table_name, estimated_size FROM duckdb_tables() WHERE NOT temporary"
        ).fetchall()
        for table, estimate in sorted(listed):
            # The exact number below may be unreadable.
            sizes[table] = int(estimate)
            with suppress(duckdb.Error):
                highest = database.execute(f'SELECT max(rowid) FROM "{table}"').fetchall()[0][0]
                sizes[table] = 0 if highest is None else int(highest) + 1
    print(json.dumps(sizes))


def print_rows(file: str, table: str, folder: str, spans: Sequence[Sequence[int]]) -> None:
    """Write each range of rows to a file, and print its number of rows or the error."""
    import duckdb
    import pyarrow as pa

    database = open_file(file)
    for start, end in spans:
        try:
            found: pa.Table = database.execute(
                f'SELECT * FROM "{table}" WHERE rowid >= {start} AND rowid < {end}'
            ).to_arrow_table()
            if found.num_rows:
                with (
                    pa.OSFile(f"{folder}/{start}-{end}.arrow", "wb") as sink,
                    pa.ipc.new_file(sink, found.schema) as out,
                ):
                    out.write_table(found)
            # Flushed: a crash in the next range must not lose this result.
            print(json.dumps([start, end, found.num_rows, ""]), flush=True)
        except (duckdb.Error, pa.ArrowException, RuntimeError, ValueError) as error:
            print(json.dumps([start, end, None, str(error).splitlines()[0]]), flush=True)
            try:
                database.execute("SELECT 1").fetchall()
            except duckdb.Error:  # an internal error invalidates the connection
                database.close()
                database = open_file(file)


if __name__ == "__main__":
    try:
        if sys.argv[1] == "tables":
            print_tables(sys.argv[2])
        else:
            print_rows(sys.argv[2], sys.argv[3], sys.argv[4], json.loads(sys.argv[5]))
    except Exception as problem:
        print((str(problem).splitlines() or [type(problem).__name__])[0], file=sys.stderr)
        sys.exit(1)
