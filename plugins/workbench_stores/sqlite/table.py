"""Memories in any table or view with an id and a text in each row, and perhaps a vector.

A mapping in YAML names the columns; dots lead into those that hold JSON:

    table: notes
    id: uid
    text: body
    vector: embedding      # a column, or a vec0 table (with its column after a dot) whose rowid is the table's
    title: meta.subject    # any field of a memory
    distance: cosine       # or l2, ip; default: that of the vec0 table, else cosine
    dimension: 384         # only needed where BLOBs do not show how they are written

Without a mapping it is guessed by names, types and values, and a note shows the guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from cems_workbench.errors import InputError, did_you_mean, some
from cems_workbench.formats.base.memory_fields import NAMES, OPTIONAL_FIELDS, STATE_NAMES
from cems_workbench.formats.base.payload import NESTED, SAMPLE_ROWS, Names
from cems_workbench.sources.source import Distance
from workbench_stores.mapping import FIELD_NAMES, check_names, given_fields, no_column
from workbench_stores.sqlite import schema as tables
from workbench_stores.sqlite import vec0
from workbench_stores.sqlite.file import Reader
from workbench_stores.sqlite.layout import Fts5, Layout, Vectors
from workbench_stores.sqlite.vec0 import VectorForm, recognised

KIND = "sqlite"
REQUIRED = ("table", "id", "text")
OWN = ("vector", "distance", "dimension")
VECTOR_NAMES = ("embedding", "vector", "embeddings", "vec", "emb", "vectors")
ID_NAMES = ("id", "uuid", "key", "uid")
TEXT_TYPES = ("text", "varchar", "char", "clob", "string", "nvarchar", "")
MAX_LISTED = 12
"""Tables that a message lists."""
ALIAS = "m"


def mapped(reader: Reader, schema: tables.Schema, mapping: Mapping[str, Any]) -> Layout:
    """The layout of a mapping. Raises InputError if it does not fit the file."""
    check_names(mapping, (*REQUIRED, *OWN, *OPTIONAL_FIELDS), numbers=("dimension",))
    if missing := [name for name in REQUIRED if name not in mapping]:
        raise InputError(f"mapping: {', '.join(missing)} missing: table, id and text are required")
    table = schema.table(mapping["table"])
    if table is None:
        raise InputError(f"mapping: table: {reader.plain} has no {mapping['table']!r}; it has {listed(schema.own)}")
    check_readable(reader, table)
    given = given_fields(mapping, partial(_check_path, table))
    for name in ("id", "text"):
        _check_path(table, name, mapping[name])
    return table_layout(
        reader,
        schema,
        table,
        mapping["id"],
        mapping["text"],
        vectors_of(reader, schema, table, mapping.get("vector"), mapping.get("distance"), mapping.get("dimension")),
        given=given,
    )


def corrects(mapping: Mapping[str, Any]) -> bool:
    """Whether a mapping names fields alone, and so corrects what is guessed."""
    return all(name in OPTIONAL_FIELDS and isinstance(path, str) and path for name, path in mapping.items())


def _check_path(table: tables.Table, field: str, path: str) -> None:
    if path not in table.columns and split_path(table, path) is None:
        raise no_column(table, field, path, table.columns)


def guessed(
    reader: Reader, schema: tables.Schema, name: str | None, mapping: Mapping[str, Any] | None = None
) -> Layout:
    """The layout of a table by names, types and values, and fields that a mapping corrects. Raises InputError. If
    `name` is None it is the only table that looks like memories."""
    if name is None:
        candidates = [table for table in schema.own if _text_column(reader, table) is not None]
        with_vectors = [table for table in candidates if _vector_name(reader, schema, table) is not None]
        candidates = with_vectors or [table for table in candidates if table.kind != "virtual"] or candidates
        if len(candidates) != 1:
            raise InputError(_undecided(reader, schema, candidates))
        table = candidates[0]
    else:
        found = schema.table(name)
        if found is None:
            raise InputError(f"{reader.plain}: there is no table {name!r}; it has {listed(schema.own)}")
        table = found
    check_readable(reader, table)
    text = _text_column(reader, table)
    id_ = next(iter(table.unique), None) or next((each for each in ID_NAMES if each in table.columns), None)
    if text is None or (id_ is None and table.rowid is None):
        raise InputError(
            f"{reader.plain}: cannot tell which column of {table} is the {'text' if text is None else 'id'}; use a mapping "
            f"(table, id, text); it has {', '.join(table.columns)}"
        )
    vector = _vector_name(reader, schema, table)
    guess = {"table": table.name, "id": id_ or "rowid", "text": text} | ({"vector": vector} if vector else {})
    note = f"guessed by names and types; a mapping can correct it: {', '.join(f'{field}: {each}' for field, each in guess.items())}"
    return table_layout(
        reader,
        schema,
        table,
        id_,
        text,
        vectors_of(reader, schema, table, vector) if vector else None,
        given=given_fields(mapping or {}, partial(_check_path, table)),
        notes=(note,),
    )


def table_layout(
    reader: Reader,
    schema: tables.Schema,
    table: tables.Table,
    id: str | None,
    text: str,
    vectors: Vectors | None,
    *,
    kind: str = KIND,
    given: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    known: Sequence[str] = (),
) -> Layout:
    """The layout of one table with the alias `m`; `id` None is its rowid, `id` and `text` may be paths into JSON. What
    else it has is read if it is a field by name or holds JSON. An FTS5 table whose content it is gives the list
    fts5."""
    columns = {name: f"{ALIAS}.{tables.quoted(name)}" for name in _field_columns(table, given or {}, (id, text))}
    json_columns = _json_columns(reader, table)
    columns |= {name: f"{ALIAS}.{tables.quoted(name)}" for name in json_columns}
    outers = (*json_columns, *(f"{name}.{inner}" for name in json_columns for inner in NESTED))
    read = {id, text, *columns}
    vector_column = None
    if vectors is not None and vectors.value is not None:
        vector_column = next(
            (name for name in table.columns if vectors.value == f"{ALIAS}.{tables.quoted(name)}"), None
        )
    deleted = STATE_NAMES["deleted"]
    rowid = table.rowid
    name = path_expression(table, id) if id is not None else ""
    as_text = "(CASE typeof({0}) WHEN 'blob' THEN lower(hex({0})) ELSE {0} END)"
    unique = id is None or id in table.unique
    lexical, lexical_notes = _fts5(reader, schema, table)
    left = [name for name in table.columns if name not in read and name not in (vector_column, deleted)]
    form_note = (f"vectors: {vectors.form}",) if vectors is not None and vectors.value is not None else ()
    return Layout(
        kind=kind,
        source=f"{table.quoted} AS {ALIAS}",
        key=f"{ALIAS}.{table.key}" if table.key else None,
        id=f"{ALIAS}.{rowid}" if id is None else as_text.format(name),
        text=path_expression(table, text),
        columns=columns,
        json=frozenset(json_columns),
        names=Names(given or {}, outers),
        unique=unique,
        deleted=f"{ALIAS}.{tables.quoted(deleted)}" if deleted in table.columns else None,
        vectors=vectors,
        fts5=lexical,
        known=frozenset(each for each in (id, text, deleted, vector_column, *known) if each),
        unread=tuple(name for name in left if name not in known),
        more={name: f"{ALIAS}.{tables.quoted(name)}" for name in left},
        notes=(*notes, *form_note, *lexical_notes),
    )


def vectors_of(
    reader: Reader,
    schema: tables.Schema,
    table: tables.Table,
    name: str | None,
    distance: Distance | None = None,
    dimension: int | None = None,
) -> Vectors | None:
    """Where the vectors of a table's rows are, by a column's name or that of a vec0 table. Raises InputError."""
    if name is None:
        return None
    if name in table.columns or split_path(table, name) is not None:
        expression = path_expression(table, name)
        values = _sampled(reader, table, expression)
        form = recognised(values, dimension)
        if form is None:
            if not values:
                return None
            length = len(values[0]) if isinstance(values[0], bytes | str) else 0
            raise InputError(
                f"mapping: vector: {name} of {table} has no vectors that are read (float32, float64, float16 or int8 as BLOBs, or JSON "
                f"arrays); its first value has {length:,} bytes; `dimension:` can say how many numbers they are"
            )
        form = VectorForm(form.encoding, form.dimension, distance or "cosine")
        return Vectors(form, expression, stated=distance is not None)
    head, _, column_name = name.partition(".")
    virtual = schema.table(head)
    if virtual is None or virtual.module != "vec0":
        hint = did_you_mean(name, [*table.columns, *(each.name for each in schema.virtual("vec0"))])
        none = f"{table} has no column {name!r}, and there is no vec0 table of that name"
        raise InputError(f"mapping: vector: {none}{hint}")
    own = vec0.parsed(virtual)
    column = own.vector(column_name or None)
    assert column.form is not None
    form = VectorForm(column.form.encoding, column.form.dimension, distance or column.form.distance)
    if own.text_key:
        id_ = next(iter(table.unique), None) or own.key
        return Vectors(form, vec0=(own, column), vec0_id=f"{ALIAS}.{tables.quoted(id_)}")
    if table.rowid is None:
        raise InputError(f"mapping: vector: {table} has no rowid to find its rows in {own.name} by")
    return Vectors(form, vec0=(own, column), rowid=f"{ALIAS}.{table.rowid}")


def _sampled(reader: Reader, table: tables.Table, expression: str) -> list[Any]:
    """The first values of an expression that are not null."""
    source = f"{table.quoted} AS {ALIAS} WHERE {expression} IS NOT NULL"
    return [row[0] for row in reader.rows(f"SELECT {expression} FROM {source} LIMIT {SAMPLE_ROWS}")]


def path_expression(table: tables.Table, path: str) -> str:
    """SQL for a column, or a key in one that holds JSON, of the alias `m`."""
    if path in table.columns:
        return f"{ALIAS}.{tables.quoted(path)}"
    parts = split_path(table, path)
    assert parts is not None
    return tables.json_at(f"{ALIAS}.{tables.quoted(parts[0])}", parts[1])


def split_path(table: tables.Table, path: str) -> tuple[str, str] | None:
    """(column, keys with dots) of a path into a column without a dot in its name; None if there is no such column."""
    column, _, keys = path.partition(".")
    return (column, keys) if column in table.columns and keys else None


def check_readable(reader: Reader, table: tables.Table) -> None:
    """Raise InputError for a virtual table, but an FTS5 table that has the texts itself."""
    if table.kind != "virtual" or tables.has_texts(table):
        return
    what = {
        "vec0": "holds vectors only: name the table with the texts, and this one as `vector:` in a mapping",
        "fts5": "is an index: name the table whose texts it has",
        "fts4": "is an FTS4 index, which is not read",
        "fts3": "is an FTS3 index, which is not read",
    }.get(table.module, f"needs SQLite's module {table.module}, which is not loaded")
    raise InputError(f"{reader.plain}: {table} {what}; tables: see `?table=`")


def listed(tables: Sequence[tables.Table]) -> str:
    """Names in one line."""
    return some([table.name for table in tables], MAX_LISTED) or "no table"


def _undecided(reader: Reader, schema: tables.Schema, candidates: Sequence[tables.Table]) -> str:
    if candidates:
        several = f"has several tables that could be memories ({listed(candidates)})"
        return f"{reader.plain}: {several}; ?table=NAME chooses one"
    none = (
        "has no known layout and no table with a column that is the text of memories; use a mapping (table, id, text)"
    )
    return f"{reader.plain}: {none}; it has {listed(schema.own)}"


def _text_column(reader: Reader, table: tables.Table) -> str | None:
    """The column with the text, by name and type, else the only one of texts; None if it cannot be told."""
    ids = table.unique[:1]
    columns = [column for column in table.columns.values() if column.name not in ids]
    texts = [column.name for column in columns if column.type.partition("(")[0].strip() in TEXT_TYPES]
    likely = sorted(NAMES["content"], key=lambda name: name in ("data", "value"))
    lower = {name.lower(): name for name in reversed(texts)}
    return next((lower[name] for name in likely if name in lower), texts[0] if len(texts) == 1 else None)


def _vector_name(reader: Reader, schema: tables.Schema, table: tables.Table) -> str | None:
    """The column with vectors, by name and values; else the vec0 table whose rows are this table's."""
    lower = {name.lower(): name for name in table.columns}
    likely = [lower[name] for name in VECTOR_NAMES if name in lower]
    others = [name for name, column in table.columns.items() if "blob" in column.type or "vector" in column.type]
    others = [name for name in others if name not in likely]
    found = []
    for name in (*likely, *others):
        if recognised(_sampled(reader, table, f"{ALIAS}.{tables.quoted(name)}")) is not None:
            if name in likely:
                return name
            found.append(name)
    if len(found) == 1:
        return found[0]
    joined = [each for each in vec0.tables(schema) if _joins(reader, table, each)]
    return joined[0].name if len(joined) == 1 else None


def _joins(reader: Reader, table: tables.Table, vectors: vec0.Vec0Table) -> bool:
    """Whether the rows of a vec0 table are those of a table, seen in its first rows and its name."""
    if vectors.text_key:
        key = f"{ALIAS}.{tables.quoted(table.unique[0])}" if table.unique else None
    else:
        key = f"{ALIAS}.{table.rowid}" if table.rowid else None
    if key is None or not vectors.vectors:
        return False
    rows = reader.rows(
        f"SELECT count(*), count({key}) FROM (SELECT {'id' if vectors.text_key else 'rowid'} AS _k FROM {vectors.shadow('rowids')} "
        f"LIMIT {SAMPLE_ROWS}) LEFT JOIN {table.quoted} AS {ALIAS} ON {key} = _k"
    )
    there, known = rows[0]
    return bool(there) and there == known


def _field_columns(table: tables.Table, given: Mapping[str, str], without: Sequence[str | None]) -> list[str]:
    """The columns that may be a field of a memory by name, and those of a mapping."""
    heads = {path if path in table.columns else (split_path(table, path) or ("",))[0] for path in given.values()}
    return [
        name
        for name, column in table.columns.items()
        if name not in without and (name in heads or (name in FIELD_NAMES and "blob" not in column.type))
    ]


def _json_columns(reader: Reader, table: tables.Table) -> list[str]:
    """The columns that hold JSON objects, seen in the first rows; BLOBs too."""
    found = []
    for column in table.columns.values():
        kind = column.type.partition("(")[0].strip()
        if kind not in (*TEXT_TYPES, "json", "jsonb", "blob"):
            continue
        name = f"{ALIAS}.{tables.quoted(column.name)}"
        first = f"CAST(substr({name}, 1, 1) AS TEXT)"
        rows = reader.rows(
            f"SELECT count(*), total(CASE WHEN {first} = '{{' THEN json_valid(CAST({name} AS TEXT)) END) FROM "
            f"(SELECT {name} AS {tables.quoted(column.name)} FROM {table.quoted} AS {ALIAS} WHERE {name} IS NOT NULL "
            f"LIMIT {SAMPLE_ROWS}) AS {ALIAS}"
        )
        there, objects = rows[0]
        if there and objects == there:
            found.append(column.name)
    return found


def _fts5(reader: Reader, schema: tables.Schema, table: tables.Table) -> tuple[Fts5 | None, list[str]]:
    """The FTS5 table over a table's rows, and notes about those that are not searched."""
    notes = [
        f"{each.name} is an {each.module.upper()} index, which is not read"
        for each in schema.tables.values()
        if each.module in ("fts3", "fts4")
    ]
    for each in [table] if tables.has_texts(table) else tables.over(schema, table):
        if problem := tables.reason_against(reader, each):
            notes.append(f"the FTS5 table {each.name} cannot be searched here: {problem}")
            continue
        # It need not be the rowid, and then other rows have these numbers.
        named = tables.content_rowid(each)
        rowid = tables.quoted(named) if named.lower() in map(str.lower, table.columns) else table.rowid
        if rowid is not None:
            notes.append(f"the list fts5 is of {each.name}: any word of the query, ranked as the table says")
            return Fts5(each.name, f"{ALIAS}.{rowid}", tables.any_word), notes
    return None, notes
