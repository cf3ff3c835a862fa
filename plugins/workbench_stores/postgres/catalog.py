"""Metadata of a database: versions, tables and columns, settings, and which vector index a search statement uses.

The index is the one that PostgreSQL itself plans to use: EXPLAIN of the very statement. The planner looks through views, joins and
partitions, and knows partial indexes and those over expressions. It is asked twice: as it searches now, and with sorting discouraged,
which shows an index that it may use another time (with more rows, or a lower LIMIT).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from cems_workbench.errors import InputError
from cems_workbench.formats.base.files import data_beside
from cems_workbench.sources.source import Distance, EngineQuery, Setting, SourceError, Trial
from workbench_stores.postgres.connection import SETTING_OPTIONS, Database, Reader

VECTOR_TYPES = ("vector", "halfvec")
OPERATORS: Mapping[Distance, str] = {"cosine": "<=>", "l2": "<->", "ip": "<#>"}
_UNITS: Mapping[str, str] = data_beside(__file__, "names.json")["units"]
_CHOICES: Mapping[str, Mapping[str, tuple[str, ...]]] = data_beside(__file__, "names.json")["tries"]
SETTINGS = SETTING_OPTIONS
"""Settings that a trial may change."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its type, the dimension of a vector type (None if it states none), and whether the role may read it."""

    name: str
    type: str
    dimension: int | None
    readable: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view; `kind` is pg_class.relkind: r table, p partitioned, v view, m materialized view, f foreign table."""

    oid: int
    schema: str
    name: str
    kind: str
    columns: Mapping[str, Column]

    def __str__(self) -> str:
        return self.name if self.schema == "public" else f"{self.schema}.{self.name}"

    @property
    def sql(self) -> sql.Identifier:
        """The name as SQL, with its schema."""
        return sql.Identifier(self.schema, self.name)

    @property
    def has_blocks(self) -> bool:
        """Whether it has a separate file, so that rows can be read by ctid."""
        return self.kind in "rm"

    @property
    def vectors(self) -> list[Column]:
        """Columns with vectors."""
        return [column for column in self.columns.values() if column.type in VECTOR_TYPES]


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """An index over a vector column: method (such as hnsw), definition, and the distance that it orders by."""

    method: str
    definition: str
    distance: Distance


def refuse_unless_readable(reader: Reader, table: Table, plain: str, columns: Collection[str] | None = None) -> None:
    """Raise SourceError, which says how to allow it, if the role may not read these columns (all unless given) of a table."""
    if not all(table.columns[name].readable for name in columns or table.columns):
        grant = f"GRANT SELECT ON {table} TO {reader.role}"
        raise SourceError(f"{plain}: {reader.role} may not read {table}; to allow it: {grant}")


def engine(reader: Reader, database: Database) -> str:
    """Product and versions; loads pgvector's library, and sets what the address says of its settings for this
    transaction. Raises SourceError if it is not installed."""
    found = reader.rows(
        "SELECT current_setting('server_version'), (SELECT extversion FROM pg_extension WHERE extname = 'vector')"
    )
    version, extension = found[0]
    if extension is None:
        raise SourceError(
            f"{database.address.plain}: the database {database.address.path or reader.role!r} has no extension vector, so no vectors; "
            "is it the right database?"
        )
    reader.rows("SELECT '[1]'::vector IS NULL")
    for name in SETTINGS:
        if name in database.address.options:
            reader.set(name, database.address.options[name])
    return f"PostgreSQL {version.split()[0]}, pgvector {extension}"


def tables_with_vectors(reader: Reader) -> list[Table]:
    """Every table and view outside the system's schemas that has a vector column, by name."""
    rows = reader.rows(
        "SELECT DISTINCT c.oid::int8, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = a.atttypid "
        "WHERE c.relkind = ANY('{r,p,v,m,f}') AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped "
        "AND t.typname = ANY(%(types)s) AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' ORDER BY 2, 3",
        {"types": list(VECTOR_TYPES)},
    )
    return [table_of(reader, oid) for oid, _, _ in rows]


def table(reader: Reader, name: str) -> Table | None:
    """The table of this name, with or without its schema; None if there is none."""
    schema, _, last = name.rpartition(".")
    rows = reader.rows(
        "SELECT c.oid::int8 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = ANY('{r,p,v,m,f}') "
        "AND c.relname = %(name)s "
        "AND CASE WHEN %(schema)s::text = '' THEN pg_table_is_visible(c.oid) ELSE n.nspname = %(schema)s::text END",
        {"name": last, "schema": schema},
    )
    return table_of(reader, rows[0][0]) if rows else None


def table_of(reader: Reader, oid: int) -> Table:
    """The table with an oid of pg_class."""
    schema, name, kind = reader.row(
        "SELECT n.nspname, c.relname, c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.oid = %(oid)s::oid",
        {"oid": oid},
    )
    rows = reader.rows(
        "SELECT a.attname, t.typname, a.atttypmod, has_column_privilege(a.attrelid, a.attnum, 'SELECT') "
        "FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
        "WHERE a.attrelid = %(oid)s::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        {"oid": oid},
    )
    columns = {
        column: Column(column, type, modifier if type in VECTOR_TYPES and modifier > 0 else None, readable)
        for column, type, modifier, readable in rows
    }
    return Table(oid, schema, name, kind, columns)


def _index_named(reader: Reader, names: Sequence[str]) -> VectorIndex | None:
    """The first index of these names, which a plan uses, that is over vectors."""
    rows = reader.rows(
        "SELECT am.amname, pg_get_indexdef(i.indexrelid), o.opcname FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid "
        "JOIN pg_am am ON am.oid = x.relam LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
        "JOIN pg_opclass o ON o.oid = i.indclass[0] WHERE am.amname IN ('hnsw', 'ivfflat', 'diskann') "
        "AND x.relname = ANY(%(names)s) ORDER BY i.indexrelid",
        {"names": list(names)},
    )
    for method, definition, operators in rows:
        for distance in OPERATORS:
            if f"_{distance}_" in f"_{operators}_":
                return VectorIndex(method, definition.partition(" USING ")[2], distance)
    return None


def settings(reader: Reader, index: VectorIndex | None) -> tuple[Setting, ...]:
    """The settings of searches by this index, with values worth trying; none without an index."""
    found = []
    for name, tries in _CHOICES.get(index.method if index else "", {}).items():
        (value,) = reader.row("SELECT current_setting(%(name)s, true)", {"name": name})
        if value is not None:
            found.append(Setting(name, value, _UNITS[name], tuple(each for each in tries if each != value)))
    return tuple(found)


def prepare(
    reader: Reader, query: EngineQuery, trial: Trial, dimension: int | None, plain: str, others: Collection[str] = ()
) -> None:
    """Apply a trial's settings to this transaction, but for `others`. Raises SourceError for a wrong dimension,
    InputError for an unknown setting."""
    if dimension is not None and len(query.vector) != dimension:
        raise SourceError(f"{plain}: vectors there have {dimension} numbers, that of the query {len(query.vector)}")
    for name, value in trial.settings.items():
        if name not in (*SETTINGS, *others):
            known = ", ".join((*SETTINGS, *others))
            raise InputError(f"{plain}: {name!r} is not a setting of a vector search; settings: {known}")
        if name in SETTINGS:
            reader.set(name, value)


def stated_note(options: Mapping[str, str], client_sets: str, index: VectorIndex | None) -> str | None:
    """What a note says of settings by the address, else of what the library sets for itself; None: nothing."""
    stated = [f"{name}={options[name]}" for name in SETTINGS if name in options]
    if stated:
        return f"{', '.join(stated)}: by the address; live lists use it"
    if client_sets and index is not None:
        return f"{client_sets}, which the database does not record; ?hnsw.ef_search=N in the address says it"
    return None


def dimension(reader: Reader, table: Table, column: Column, condition: sql.Composable | None = None) -> int | None:
    """The dimension of the column's type, else the most frequent of 1,000 vectors of rows that meet the condition."""
    if column.dimension is not None:
        return column.dimension
    query = sql.SQL(
        "SELECT vector_dims(v) FROM (SELECT {0} AS v FROM {1} m WHERE {0} IS NOT NULL AND {2} LIMIT 1000) s GROUP BY 1 "
        "ORDER BY count(*) DESC, 1 LIMIT 1"
    )
    where = sql.SQL("TRUE") if condition is None else condition
    rows = reader.rows(query.format(sql.Identifier(column.name), table.sql, where))
    return rows[0][0] if rows else None


def has_rows(reader: Reader, table: Table) -> bool:
    """Whether a table has a row; True for one that the role may not read."""
    if not any(column.readable for column in table.columns.values()):
        return True
    (found,) = reader.row(sql.SQL("SELECT EXISTS (SELECT FROM {})").format(table.sql))
    return bool(found)


PLANNED_ROWS = 40
"""LIMIT of the statements that are planned."""
FOREIGN = "unknown: the rows are of another server, which may search them by an index"
"""The index line of a search that a foreign server answers."""
_DISCOURAGED = ("enable_seqscan", "enable_sort", "enable_bitmapscan")

Statement = Callable[[Distance], "sql.Composed"]
"""The search statement for a distance, with its parameters still named."""


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The distance of searches, and the vector index that they can use. `used` is whether one of PLANNED_ROWS rows uses
    it now; `other` is an index that orders by another distance; `foreign` is whether another server answers."""

    distance: Distance
    index: VectorIndex | None
    used: bool = False
    other: VectorIndex | None = None
    foreign: bool = False

    @property
    def index_line(self) -> str | None:
        """What `SourceInfo.index` says: None only if every search is exact."""
        return self.index.definition if self.index else FOREIGN if self.foreign else None

    def notes(self, rows: int) -> list[str]:
        """What a user should know of it, a line each, where the source has so many rows."""
        found = []
        # A table of so few rows is listed whole either way.
        if self.index is not None and not self.used and rows > PLANNED_ROWS:
            unused = f"PostgreSQL does not use the index for a search of {PLANNED_ROWS} rows now (EXPLAIN)"
            found.append(f"{unused}: such a search is exact")
        if self.other is not None:
            orders = f"the index {self.other.definition} orders by {self.other.distance}"
            found.append(f"{orders}, not by {self.distance}, so it is not used")
        return found


def plan(reader: Reader, statement: Statement, values: Mapping[str, Any], declared: Distance | None) -> SearchPlan:
    """The plan of searches by `statement`; without a declared distance it is that of an index that a search can use, else cosine."""
    order: list[Distance] = [declared] if declared else []
    order += [each for each in OPERATORS if each not in order]
    usable: dict[Distance, VectorIndex] = {}
    foreign = False
    with _sorting_discouraged(reader):
        for each in order:
            nodes = _nodes(reader, statement(each), values)
            foreign = foreign or any(node["Node Type"] == "Foreign Scan" for node in nodes)
            if (index := _vector_index(reader, nodes)) is not None:
                usable[each] = index
                break
    distance = declared if declared is not None else next(iter(usable)) if usable else "cosine"
    index = usable.pop(distance, None)
    used = index is not None and _vector_index(reader, _nodes(reader, statement(distance), values)) is not None
    return SearchPlan(distance, index, used, next(iter(usable.values()), None), foreign)


def _nodes(reader: Reader, statement: sql.Composed, values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    (plans,) = reader.row(sql.SQL("EXPLAIN (FORMAT JSON) {}").format(statement), values)
    return list(_flat(plans[0]["Plan"]))


def _flat(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for each in node.get("Plans", ()):
        yield from _flat(each)


def _vector_index(reader: Reader, nodes: Sequence[Mapping[str, Any]]) -> VectorIndex | None:
    """The first vector index that a plan scans in its order."""
    names = [node["Index Name"] for node in nodes if "Index Name" in node]
    return _index_named(reader, names) if names else None


@contextmanager
def _sorting_discouraged(reader: Reader) -> Iterator[None]:
    """Statements are planned as if sorting all rows cost too much; the settings are restored."""
    before = {name: reader.row("SELECT current_setting(%(name)s)", {"name": name})[0] for name in _DISCOURAGED}
    for name in _DISCOURAGED:
        reader.set(name, "off")
    yield
    for name, value in before.items():
        reader.set(name, value)
