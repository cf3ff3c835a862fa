"""A mapping of columns, given in YAML or guessed by names and types.

    table: public.notes
    id: note_id
    text: body             # or a key of a JSON column: value.content
    vector: embedding
    title: subject         # any field of a memory: a column, or column.key
    distance: cosine       # or l2, ip; default: that of the index

A mapping with id, text and vector is the whole layout: no other field is read. One without them corrects the layout that was recognised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from psycopg import sql

from cems_workbench.errors import InputError
from cems_workbench.formats.base.memory_fields import NAMES, OPTIONAL_FIELDS, STATE_NAMES
from cems_workbench.formats.base.payload import SAMPLE_ROWS, USER_NAMES, Names, used_names
from cems_workbench.sources.rows import payload_of
from workbench_stores.mapping import check_names, checked_distance, given_fields, no_column
from workbench_stores.postgres import catalog
from workbench_stores.postgres import layout as pg
from workbench_stores.postgres.catalog import Table
from workbench_stores.postgres.connection import Reader

REQUIRED = ("table", "id", "text", "vector")
_OF_THE_TABLE = ("id", "text", "vector")
_OTHER_FIELDS = {"owner", *USER_NAMES, *(name for field in OPTIONAL_FIELDS for name in NAMES[field])}
"""Names of columns that are rather another field than the text."""


def validate(mapping: Mapping[str, Any]) -> bool:
    """Whether the mapping is the whole layout; False: it corrects one. Raises InputError for names and values that no mapping may have."""
    check_names(mapping, (*REQUIRED, "distance", *OPTIONAL_FIELDS))
    whole = any(name in mapping for name in _OF_THE_TABLE)
    if whole and (missing := [name for name in REQUIRED if name not in mapping]):
        raise InputError(f"mapping: {', '.join(missing)} missing: table, id, text and vector are required together")
    return whole


def mapped_table(reader: Reader, name: str, plain: str) -> Table:
    """The table that a mapping names. Raises InputError if there is none."""
    table = catalog.table(reader, name)
    if table is None:
        tables = [str(each) for each in catalog.tables_with_vectors(reader)]
        raise InputError(f"mapping: table: {plain} has no {name!r}; tables with vectors: {', '.join(tables) or 'none'}")
    return table


def mapped(reader: Reader, mapping: Mapping[str, Any], table: Table, kind: str = "table") -> pg.Layout:
    """The layout of a whole mapping. Raises InputError if it does not fit the table."""
    for name in ("id", "vector"):
        if mapping[name] not in table.columns:
            raise no_column(table, name, mapping[name], table.columns)
    _check_path(table, "text", mapping["text"])
    vector = table.columns[mapping["vector"]]
    if vector.type not in catalog.VECTOR_TYPES:
        raise InputError(f"mapping: vector: {vector.name} is of type {vector.type}, not vector or halfvec")
    given = given_fields(mapping, partial(_check_path, table))
    states = [name for name in STATE_NAMES.values() if name in table.columns]
    layout = pg.table_layout(
        reader,
        kind,
        table,
        mapping["id"],
        mapping["text"],
        mapping["vector"],
        columns=[*dict.fromkeys([*(_head(table, path) for path in given.values()), *states])],
        given=given,
        closed=True,
    )
    distance = checked_distance(mapping.get("distance"), "mapping: distance")
    return replace(layout, names=Names(given, (), closed=True), distance=distance)


def corrected(layout: pg.Layout, mapping: Mapping[str, Any]) -> pg.Layout:
    """The layout with the fields and the distance of a mapping that is not a whole one. Raises InputError if it does not fit."""
    paths = [path for path in mapping.values() if isinstance(path, str)]
    more = {path: made for path in paths if (made := layout.more(path)) is not None}

    def check(field: str, path: str) -> None:
        if path not in more:
            _check_path(layout.table, field, path)

    given = given_fields(mapping, check)
    heads = [_head(layout.table, path) for path in given.values() if path not in more]
    heads = [head for head in heads if head not in layout.columns]
    return replace(
        layout,
        columns={**layout.columns, **pg.read_columns(layout.table, heads), **more},
        names=replace(layout.names, given={**layout.names.given, **given}),
        distance=checked_distance(mapping.get("distance"), "mapping: distance") or layout.distance,
    )


def _head(table: Table, path: str) -> str:
    return path if path in table.columns else pg.split_path(table, path)[0]


def _check_path(table: Table, field: str, path: str) -> None:
    try:
        _head(table, path)
    except KeyError:
        head = path.partition(".")[0]
        if "." in path and head in table.columns:
            kind = table.columns[head].type
            line = f"mapping: {field}: {path!r} leads into {head}, which is of type {kind}, not json or jsonb"
            raise InputError(line) from None
        raise no_column(table, field, path, table.columns) from None


def guessed(reader: Reader, table: Table, plain: str) -> pg.Layout:
    """A layout guessed by names and types. Raises InputError if that is ambiguous."""
    ids = [*pg.unique_columns(reader, table), *(name for name in ("id", "uuid", "key") if name in table.columns)]
    text = _text_column(table, ids)
    if text is None or text in _OTHER_FIELDS:
        text = _text_key(reader, table) or text
    if len(table.vectors) != 1 or not ids or text is None:
        unknown = "id" if not ids else "text" if text is None else "vector"
        raise InputError(
            f"{plain}: cannot tell which column of {table} is the {unknown}; use a mapping (table, id, text, vector); "
            f"it has {', '.join(table.columns)}"
        )
    vector = table.vectors[0].name
    made = pg.table_layout(reader, "table", table, ids[0], text, vector)
    return replace(made, guess=f"table: {table.schema}.{table.name}, id: {ids[0]}, text: {text}, vector: {vector}")


def _text_column(table: Table, ids: list[str]) -> str | None:
    """The column of the text; None if that is ambiguous."""
    columns = table.columns.values()
    texts = [column.name for column in columns if column.type in pg.TEXT_TYPES and column.name not in ids[:1]]
    # Last: `data` is the text in mem0, but rarely in other tables.
    likely = sorted(NAMES["content"], key=lambda name: name == "data")
    text = next((name for name in likely if name in texts), texts[0] if len(texts) == 1 else None)
    if text is not None or not ids:
        return text
    # LangChain's PGVectorStore makes every table as id, text, vector, then other columns.
    first = [*table.columns.values()][:3]
    if len(first) == 3 and first[0].name == ids[0] and first[1].name in texts and first[2].type in catalog.VECTOR_TYPES:
        return None if first[1].name in _OTHER_FIELDS else first[1].name
    return None


def _text_key(reader: Reader, table: Table) -> str | None:
    """The most frequent key of JSON columns that is called as a text is; None if the first rows have none."""
    columns = [column.name for column in table.columns.values() if column.type in pg.JSON_TYPES]
    if not columns:
        return None
    names = Names({}, pg.outers_of(table, columns))
    read = pg.read_columns(table, columns).values()
    query = sql.SQL("SELECT {} FROM {} WHERE {} LIMIT {}").format(
        sql.SQL(", ").join(read),
        sql.SQL("{} m").format(table.sql),
        sql.SQL(" AND ").join(map(pg.is_short, read)),
        sql.Literal(SAMPLE_ROWS),
    )
    payloads = [payload_of(columns, columns, row, "", []) for row in reader.rows(query)]
    return used_names(payloads, names).get("content")
