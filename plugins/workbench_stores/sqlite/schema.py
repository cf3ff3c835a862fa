"""The schema of a SQLite file, read from sqlite_master: no virtual table is opened for it, so none needs its module; and its FTS5 tables.

FTS5 is asked through Python's own SQLite. The score is -bm25(), so that greater is better, as in the workbench's list of that name.

Source: https://www.sqlite.org/fts5.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from cems_workbench.formats.base.files import data_beside
from cems_workbench.sources.source import SourceError
from workbench_stores.sqlite.file import Reader

TableKind = Literal["table", "view", "virtual", "shadow"]
SHADOWS: Mapping[str, tuple[str, ...]] = data_beside(__file__, "shadows.json")
"""Endings of the tables behind a virtual table of each module."""
_VIRTUAL = re.compile(
    r"CREATE\s+VIRTUAL\s+TABLE\s+.*?\bUSING\s+[\"'`\[]?(\w+)[\"'`\]]?\s*(?:\((.*)\))?\s*;?\s*$", re.I | re.S
)
_WITHOUT_ROWID = re.compile(r"\)[^)]*\bWITHOUT\s+ROWID\b[^)]*$", re.I)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.S)
_QUOTED_OR_COMMENT = re.compile(r"(\"(?:[^\"]|\"\")*\"|'(?:[^']|'')*')|--[^\n]*|/\*.*?\*/", re.S)


def quoted(name: str) -> str:
    """A name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def json_at(expression: str, keys: str) -> str:
    """SQL for the value at dotted keys of JSON in an expression; NULL if it is none."""
    text = f"CAST({expression} AS TEXT)"
    place = ("$" + "".join(f'."{key}"' for key in keys.split("."))).replace("'", "''")
    return f"(CASE WHEN json_valid({text}) THEN json_extract({text}, '{place}') END)"


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `type` is as declared, in lower case and perhaps empty, `key` its place in the primary key, 0 if it is not part of it."""

    name: str
    type: str
    key: int = 0


@dataclass(frozen=True)
class Table:
    """A table, view or virtual table. Columns of a virtual table are those that its module declares, none if they are not known."""

    name: str
    kind: TableKind
    sql: str
    columns: Mapping[str, Column] = field(default_factory=dict)
    module: str = ""
    """Of a virtual table, in lower case."""
    arguments: tuple[str, ...] = ()
    """Of a virtual table."""
    unique: tuple[str, ...] = ()
    """Columns that are unique by themselves, the primary key first."""

    def __str__(self) -> str:
        return self.name

    @property
    def quoted(self) -> str:
        """The name as SQL."""
        return quoted(self.name)

    @cached_property
    def rowid(self) -> str | None:
        """The name of its rowid as SQL; None for a view and WITHOUT ROWID."""
        if self.kind == "view" or _WITHOUT_ROWID.search(_COMMENT.sub("", self.sql)):
            return None
        names = {name.lower() for name in self.columns}
        own = [column.name for column in self.columns.values() if column.key]
        if self.kind == "table" and len(own) == 1 and self.columns[own[0]].type == "integer":
            return quoted(own[0])
        return next((name for name in ("rowid", "_rowid_", "oid") if name not in names), None)

    @property
    def key(self) -> str | None:
        """An expression that is unique, never null and has an index, for reading in parts; None if there is none."""
        return self.rowid or (quoted(self.unique[0]) if self.unique and self.kind == "table" else None)


@dataclass(frozen=True)
class Schema:
    """All tables by name; names are compared as SQLite does, without case."""

    tables: Mapping[str, Table]

    def table(self, name: str) -> Table | None:
        """The table of this name, None if there is none."""
        return self.tables.get(name) or next(
            (table for each, table in self.tables.items() if each.lower() == name.lower()), None
        )

    def has(self, name: str, columns: Sequence[str] = ()) -> bool:
        """Whether there is a table of this name with at least these columns."""
        table = self.table(name)
        return table is not None and all(column in table.columns for column in columns)

    def virtual(self, module: str) -> list[Table]:
        """The virtual tables of a module."""
        return [table for table in self.tables.values() if table.module == module]

    @property
    def own(self) -> list[Table]:
        """Tables and views that are not behind a virtual table, and then the FTS5 tables that have the texts themselves."""
        tables = [table for table in self.tables.values() if table.kind in ("table", "view")]
        return tables + [table for table in self.virtual("fts5") if has_texts(table)]


def read_schema(reader: Reader) -> Schema:
    """The schema. Raises SourceError."""
    found = reader.rows(
        "SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
    )
    virtual: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name, _, sql in found:
        if match := _VIRTUAL.match(sql or ""):
            plain = _QUOTED_OR_COMMENT.sub(lambda found: found[1] or " ", match[2] or "")
            virtual[name] = match[1].lower(), tuple(split_arguments(plain))
    tables = {}
    for name, kind, sql in found:
        if name in virtual:
            module, arguments = virtual[name]
            columns = {each: Column(each, "") for each in _fts_columns(arguments)} if module.startswith("fts") else {}
            tables[name] = Table(name, "virtual", sql, columns, module, arguments)
        else:
            rows = reader.rows(f"PRAGMA table_xinfo({quoted(name)})")
            columns = {row[1]: Column(row[1], (row[2] or "").lower(), row[5]) for row in rows if row[6] != 1}
            shadow = any(
                re.fullmatch(rf"{re.escape(owner)}_(?:{'|'.join(SHADOWS.get(module, ()))})", name)
                for owner, (module, _) in virtual.items()
                if module in SHADOWS
            )
            what: TableKind = "view" if kind == "view" else "shadow" if shadow else "table"
            unique = () if what == "view" else _unique(reader, name, columns)
            tables[name] = Table(name, what, sql or "", columns, unique=unique)
    return Schema(tables)


def _unique(reader: Reader, name: str, columns: Mapping[str, Column]) -> tuple[str, ...]:
    primary = [column.name for column in columns.values() if column.key]
    found = primary if len(primary) == 1 else []
    for index in reader.rows(f"PRAGMA index_list({quoted(name)})"):
        # An index with a condition says nothing of the other rows.
        if index[2] and not index[4]:
            over = reader.rows(f"PRAGMA index_info({quoted(index[1])})")
            if len(over) == 1 and over[0][2] is not None and over[0][2] not in found:
                found.append(over[0][2])
    return tuple(found)


def split_arguments(text: str) -> list[str]:
    """The arguments of a virtual table, without blanks around them."""
    parts, depth, quote, start = [], 0, "", 0
    for place, each in enumerate(text):
        if quote:
            quote = "" if each == quote else quote
        elif each in "'\"`":
            quote = each
        elif each in "([":
            depth += 1
        elif each in ")]":
            depth -= 1
        elif each == "," and depth <= 0:
            parts.append(text[start:place].strip())
            start = place + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def unquoted(name: str) -> str:
    """A name or value without its quotes."""
    name = name.strip()
    for opening, closing in ('""', "''", "``", "[]"):
        if len(name) >= 2 and name[0] == opening and name[-1] == closing:
            return name[1:-1].replace(closing * 2, closing)
    return name


def options_of(arguments: Sequence[str]) -> dict[str, str]:
    """The arguments `name=value` of a virtual table, names in lower case."""
    pairs = (each.partition("=") for each in arguments if re.match(r"\w+\s*=", each))
    return {name.strip().lower(): unquoted(value) for name, _, value in pairs}


def has_texts(table: Table) -> bool:
    """Whether an FTS5 table has the texts itself, not those of another table or none."""
    return table.module == "fts5" and "content" not in options_of(table.arguments)


def _fts_columns(arguments: Sequence[str]) -> list[str]:
    """The columns of an FTS table; what follows a column's name, such as UNINDEXED, is no part of it."""
    names = []
    for each in arguments:
        if not re.match(r"\w+\s*=", each):
            quote = re.match(r"\"(?:[^\"]|\"\")*\"|'(?:[^']|'')*'|`[^`]*`|\[[^\]]*\]", each)
            names.append(unquoted(quote[0]) if quote else each.split()[0])
    return names


MOST_WORDS = 64
"""Words of a query that are searched for."""
_WORDS = re.compile(r"\w+")


def any_word(text: str) -> str | None:
    """A query that any of the words matches, each quoted: "deploy" OR "keys"."""
    words = [quoted(word) for word in dict.fromkeys(_WORDS.findall(text))][:MOST_WORDS]
    return " OR ".join(words) or None


def content_rowid(table: Table) -> str:
    """The column of the content table that is the rowid of an external-content table."""
    return options_of(table.arguments).get("content_rowid", "rowid")


def over(schema: Schema, table: Table) -> list[Table]:
    """The FTS5 tables whose external content is this table."""
    name = table.name.lower()
    return [each for each in schema.virtual("fts5") if options_of(each.arguments).get("content", "").lower() == name]


def reason_against(reader: Reader, table: Table) -> str | None:
    """Why this table cannot be searched here, such as a tokenizer that SQLite does not have; None if it can be."""
    try:
        reader.rows(f"SELECT rowid FROM {table.quoted} WHERE {table.quoted} MATCH '\"a\"' LIMIT 1")
    except SourceError as error:
        return str(error).removeprefix(f"{reader.plain}: ")
    return None
