"""Schema migrations: the numbered .sql files, applied in order from the database's version on.

A new database starts at 0 and runs them all, so that old and new stores have the same tables. A released file never changes.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING
from uuid import uuid4

from cems_workbench.errors import StoreError
from cems_workbench.store.rows import CONTENT_VERSION, SCHEMA, STORE_ID, read_meta, write_meta

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.abc import Traversable

    import duckdb


@cache
def migrations(package: str = __package__) -> Mapping[int, Traversable]:
    """The SQL file of each schema version, of a store or in another package, by number, in order."""
    scripts = (file for file in files(package).iterdir() if file.name.endswith(".sql"))
    return {int(file.name[:4]): file for file in sorted(scripts, key=lambda file: file.name)}


def prepare(cursor: duckdb.DuckDBPyConnection, where: str) -> None:
    """Create the tables in a new database, migrate an older one, or check the schema of a current one. Runs inside the
    caller's transaction. Raises StoreError for a database of another program or an unknown schema; `where` names it."""
    tables = {row[0] for row in cursor.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if tables and "workbench_meta" not in tables:
        raise StoreError(f"{where} is a DuckDB database, but not one of CEMS Workbench")
    if not tables:
        migrate(cursor)
        write_meta(cursor, STORE_ID, uuid4().hex[:12])
        write_meta(cursor, CONTENT_VERSION, "0")
        cursor.execute("INSERT INTO content_marks VALUES (0, '')")
        return
    version = known_schema(read_meta(cursor, SCHEMA), f"store {where}")
    if version < max(migrations()):
        migrate(cursor, version)


def known_schema(version: str | None, where: str) -> int:
    """The number of a schema that can be read. Raises StoreError for any other; `where` names the store."""
    latest = max(migrations())
    if version is None or not 1 <= int(version) <= latest:
        raise StoreError(
            f"{where} has schema {version or 0}, this version reads {latest}: update cems-workbench, "
            "or import its inputs into a new store"
        )
    return int(version)


def migrate(cursor: duckdb.DuckDBPyConnection, version: int = 0, until: int | None = None) -> None:
    """Migrate from schema `version` to schema `until`, or the latest."""
    for number, script in migrations().items():
        if version < number <= (until or number):
            cursor.execute(script.read_text("utf-8"))
            write_meta(cursor, SCHEMA, str(number))
