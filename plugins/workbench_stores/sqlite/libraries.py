"""SQLite files of memory libraries, known by their tables; a file that each library wrote, or the library itself, was run.

engram (claude-memory)   EthanGabis/claude-memory at 10a2fe6, schema version 11
LangGraph                langgraph-checkpoint-sqlite 3.1.2
Letta                    letta 0.16.8, its ORM and managers on SQLite (its server of that version opens PostgreSQL only)
llm                      llm 0.36, embeddings.py (`Collection`)
mcp-memory-service       12.4.0, storage/sqlite_vec.py and storage/mixins/retrieve.py
Memori                   memorisdk 3.2.8, storage/migrations/_sqlite.py and search/_faiss.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from cems_workbench.errors import InputError
from cems_workbench.formats.base.files import data_beside
from cems_workbench.formats.base.memory_fields import NAMES
from cems_workbench.formats.base.payload import SAMPLE_ROWS, Names
from cems_workbench.sources.address import Address
from cems_workbench.sources.source import Distance
from workbench_stores.mapping import OUTERS, WHOLE, content_of, embedded_text, in_order, steps
from workbench_stores.sqlite.file import Reader
from workbench_stores.sqlite.layout import Chunks, Fts5, Layout, Vectors, chosen, layouts
from workbench_stores.sqlite.schema import Schema, quoted
from workbench_stores.sqlite.table import ALIAS, table_layout, vectors_of
from workbench_stores.sqlite.vec0 import VectorForm, recognised

RESERVED = frozenset(("OR", "AND", "NOT", "NEAR"))
NO_WORD = re.compile(r"[^a-zA-Z0-9\s]")
UNREAD: Mapping[str, Sequence[str]] = data_beside(__file__, "names.json")["unread"]
"""Columns that are read otherwise, or that no memory has a use for."""


def rows_note(reader: Reader, schema: Schema, table: str, what: str) -> list[str]:
    """A note with the number of rows of a table, if there are any: "3 beliefs are not taken"."""
    if not schema.has(table):
        return []
    (count,) = reader.row(f"SELECT count(*) FROM {quoted(table)}")
    return [f"{count:,} {what}"] if count else []


def engram_match(text: str) -> str | None:
    """The words that memory_recall asks for."""
    words = [word for word in NO_WORD.sub(" ", text).split() if word.upper() not in RESERVED]
    return " OR ".join(words) or None


def _engram(reader: Reader, schema: Schema, address: Address) -> Layout:
    """`episodes` with their embeddings, and episodes_fts over (summary, entities).

    The lexical list is that of memory_recall: the best by bm25 of the words, joined by OR. Words are of ASCII letters and digits, so
    `Gdańsk` is `Gda OR sk`. engram's recollections take the same rows, but those of the 50 lowest rowids, without stop words. Dates are
    milliseconds. Here: tags are the entities, the category is source_type. An episode has no project if its scope is global.
    """
    table = schema.tables["episodes"]
    vectors = vectors_of(reader, schema, table, "embedding", "cosine")
    given = {"last_accessed": "accessed_at", "tags": "entities", "category": "source_type"}
    layout = table_layout(reader, schema, table, "id", "summary", vectors, kind="engram", given=given)
    assert layout.key is not None
    notes = rows_note(reader, schema, "beliefs", "beliefs are not taken: conclusions from episodes")
    parts = "parts of Markdown notes are not taken: memory_search searches them apart"
    return replace(
        layout,
        # Its scope is not CEMS's: 'global' or 'project'.
        columns={name: value for name, value in layout.columns.items() if name != "scope"},
        known=layout.known | {"scope"},
        fts5=Fts5("episodes_fts", layout.key, engram_match),
        notes=(*notes, *rows_note(reader, schema, "chunks", parts)),
    )


WITHIN = "store_vectors AS o WHERE o.prefix = {0}.prefix AND o.key = {0}.key"
"""The rows of an item of LangGraph."""
VECTOR_COLUMNS = ("prefix", "key", "field_name", "embedding")


def _value(raw: Any) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, TypeError, RecursionError):
        return None


def _content(raw: Any, names: str) -> str:
    value = _value(raw)
    texts = {name: text for name in sorted(json.loads(names), key=in_order) if (text := embedded_text(value, name))}
    return content_of(value, texts)


def _langgraph(reader: Reader, schema: Schema, address: Address) -> Layout:
    """SqliteStore: store(prefix, key, value) and store_vectors(prefix, key, field_name, embedding), a vector for each indexed text.

    A memory is an item: its id is `prefix/key`, its fields are the keys of `value` and the columns of `store`, its author the last label
    of the namespace unless the value has one. Each embedded text is a chunk. Nothing in the file says the distance: cosine, the library's
    default. By l2 the library's own search has the farthest item first; here the nearest is first.

        ?namespace=a.b       items of this namespace and of those below it, as `store.search(("a", "b"))`
        ?omit_expired=true   without items past expires_at, which the library returns until it sweeps them
        ?distance=l2         what the store was set to, if not cosine
    """
    prefixes = [row[0] for row in reader.rows("SELECT DISTINCT prefix FROM store ORDER BY 1")]
    above = sorted({".".join(each.split(".")[:n]) for each in prefixes for n in range(1, len(each.split(".")) + 1)})
    namespace = chosen(address, "namespace", above)
    distance = chosen(address, "distance", ("cosine", "l2"))
    omit_expired = chosen(address, "omit_expired", ("true", "false")) == "true"
    # The texts are found in a JSON value by paths that SQL has no functions for.
    reader.connection.create_function(
        "langgraph_text", 2, lambda raw, name: embedded_text(_value(raw), name), deterministic=True
    )
    reader.connection.create_function("langgraph_content", 2, _content, deterministic=True)
    within = "(s.prefix = :namespace OR substr(s.prefix, 1, length(:namespace) + 1) = :namespace || '.')"
    conditions = [within] if namespace else []
    own, notes = schema.tables["store"].columns, []
    if "expires_at" in own:
        # As the library's sweep compares them.
        expired = "(s.expires_at IS NOT NULL AND s.expires_at < CURRENT_TIMESTAMP)"
        (count,) = reader.row(f"SELECT count(*) FROM store AS s WHERE {expired}")
        if omit_expired:
            conditions.append(f"NOT {expired}")
        elif count:
            notes.append(
                f"{count:,} items are past expires_at and not yet swept: the library returns them until then, and so do the live lists "
                "(valid until expires_at here); ?omit_expired=true leaves them out"
            )
    names, chunks, embedded = "'[]'", None, list[str]()
    if schema.has("store_vectors", VECTOR_COLUMNS):
        names = f"(SELECT json_group_array(o.field_name) FROM {WITHIN.format('s')})"
        chunks, embedded = _langgraph_chunks(reader, distance)
    keys = ", ".join(f"json_extract(CAST(s.value AS TEXT), '$.{name}')" for name in NAMES["author"])
    # What follows the last dot: the prefix without the longest beginning that ends with one.
    label = "CASE WHEN instr(s.prefix, '.') THEN replace(s.prefix, rtrim(s.prefix, replace(s.prefix, '.', '')), '') END"
    known = [f"{outer}.{name}" for outer in OUTERS for name in (*NAMES["content"], *NAMES["author"])]
    return Layout(
        kind="langgraph",
        source="store AS s",
        key="s.rowid",
        id="(s.prefix || '/' || s.key)",
        text=f"langgraph_content(s.value, {names})",
        columns={
            "author": f"COALESCE({keys}, {label})",
            "value": "s.value",
            **{name: f"s.{name}" for name in ("created_at", "updated_at", "expires_at") if name in own},
        },
        json=frozenset(("value",)),
        names=Names({"author": "author"}, OUTERS),
        condition=" AND ".join(conditions) or "1",
        values={"namespace": namespace} if namespace else {},
        chunks=chunks,
        known=frozenset((*known, *(f"value.{steps(name)[0]}" for name in embedded if name != WHOLE))),
        notes=tuple(notes),
    )


def _langgraph_chunks(reader: Reader, distance: str | None) -> tuple[Chunks, list[str]]:
    names = [row[0] for row in reader.rows("SELECT DISTINCT field_name FROM store_vectors ORDER BY 1")]
    widths = reader.rows(
        "SELECT length(embedding), count(*) FROM store_vectors WHERE embedding IS NOT NULL GROUP BY 1 ORDER BY 2 DESC LIMIT 1"
    )
    vectors = None
    if widths:
        form = VectorForm("float32", widths[0][0] // 4, cast(Distance, distance or "cosine"))
        vectors = Vectors(form, "v.embedding", stated=distance is not None)
    return Chunks(
        "store_vectors AS v JOIN store AS p ON p.prefix = v.prefix AND p.key = v.key",
        key="v.rowid",
        memory="p.rowid",
        number=f"(SELECT count(*) FROM {WITHIN.format('v')} AND o.field_name < v.field_name)",
        text="langgraph_text(p.value, v.field_name)",
        vectors=vectors,
    ), names


def _letta(reader: Reader, schema: Schema, address: Address) -> Layout:
    """`archival_passages`, whose embeddings are float32 BLOBs, filled up with zeros to 4,096 numbers.

    `embedding_config` says how many numbers the model makes; the rest is cut off, which changes no cosine. A passage with is_deleted stays
    in the table. Letta's own query of passages returns it all the same; here it counts as deleted, as with Letta on PostgreSQL. Here:
    project is the archive's name, author the organisation. source_passages, parts of files, are not taken.
    """
    stored = reader.rows(
        "SELECT width, model, bytes, count(*) FROM (SELECT json_extract(embedding_config, '$.embedding_dim') AS width, "
        "json_extract(embedding_config, '$.embedding_model') AS model, length(embedding) AS bytes FROM archival_passages "
        f"WHERE embedding IS NOT NULL LIMIT {SAMPLE_ROWS}) GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1"
    )
    vectors, model = None, None
    notes = rows_note(reader, schema, "source_passages", "parts of files are not taken: source_passages")
    if stored:
        width, model, size, _ = stored[0]
        value = f"{ALIAS}.embedding"
        if isinstance(width, int) and 0 < width * 4 < size:
            notes.append(
                f"vectors are filled up with zeros to {size // 4:,} numbers: cut to {width}, as embedding_config says"
            )
            value = f"substr({value}, 1, {width * 4})"
        else:
            width = size // 4
        vectors = Vectors(VectorForm("float32", width, "cosine"), value)
    given = {"project": "archive", "author": "organization_id"}
    table, known = schema.tables["archival_passages"], UNREAD["letta"]
    layout = table_layout(reader, schema, table, "id", "text", vectors, kind="letta", given=given, known=known)
    archive = f"{ALIAS}.archive_id"
    if schema.has("archives", ("id", "name")):
        archive = f"COALESCE((SELECT a.name FROM archives AS a WHERE a.id = {archive}), {archive})"
    kept = {name: value for name, value in layout.columns.items() if name != "embedding_config"}
    return replace(
        layout,
        columns=kept | {"archive": archive, "organization_id": f"{ALIAS}.organization_id"},
        json=layout.json - {"embedding_config"},
        model=model,
        notes=tuple(notes),
    )


def _llm(reader: Reader, schema: Schema, address: Address) -> Layout:
    """embeddings.db: `embeddings` (collection_id, id, embedding float32, content, metadata JSON) of several
    `collections` (name, model). `?collection=NAME` chooses one; ids are unique within one. llm compares by cosine.
    Raises InputError if the address names none of several, or one that is not there."""
    collections = {name: (key, model) for key, name, model in reader.rows("SELECT id, name, model FROM collections")}
    name = chosen(address, "collection", sorted(collections))
    if name is None:
        if len(collections) != 1:
            known = ", ".join(sorted(collections)) or "none"
            raise InputError(f"{address.plain}: has the collections {known}; ?collection=NAME chooses one")
        (name,) = collections
    key, model = collections[name]
    values = {"collection": key}
    sample = reader.rows(
        f"SELECT embedding FROM embeddings WHERE collection_id = :collection AND embedding IS NOT NULL LIMIT {SAMPLE_ROWS}",
        values,
    )
    vectors = None
    if (form := recognised([row[0] for row in sample])) is not None:
        vectors = Vectors(VectorForm(form.encoding, form.dimension, "cosine"), f"{ALIAS}.{quoted('embedding')}")
    table = schema.tables["embeddings"]
    layout = table_layout(reader, schema, table, "id", "content", vectors, kind="llm", known=UNREAD["llm"])
    others = [other for other in sorted(collections) if other != name]
    notes = (f"not taken: the collections {', '.join(others)}",) if others else ()
    return replace(
        layout,
        unique=True,
        condition=f"{ALIAS}.collection_id = :collection",
        values=values,
        model=model,
        notes=(*layout.notes, *notes),
    )


def _mcp_memory_service(reader: Reader, schema: Schema, address: Address) -> Layout:
    """`memories` by content_hash, with tags, metadata JSON and deleted_at, and vectors in the vec0 table
    memory_embeddings. A deleted memory keeps its row with deleted_at, and its vector is gone. Searches leave out what
    `superseded_by` names a successor of."""
    table = schema.tables["memories"]
    vectors = vectors_of(reader, schema, table, "memory_embeddings")
    kind = "mcp_memory_service"
    layout = table_layout(reader, schema, table, "content_hash", "content", vectors, kind=kind, known=UNREAD[kind])
    hidden = f"coalesce({ALIAS}.superseded_by, '') != ''" if "superseded_by" in table.columns else None
    return replace(layout, deleted=f"{ALIAS}.deleted_at IS NOT NULL", hidden=hidden)


def _memori(reader: Reader, schema: Schema, address: Address) -> Layout:
    """`memori_entity_fact` (uuid, entity_id, content, content_embedding float32), the facts of each `memori_entity`. A
    fact's author is its entity's external_id, whose facts Memori searches by cosine: `?user=ID` takes those."""
    table = schema.tables["memori_entity_fact"]
    vectors = vectors_of(reader, schema, table, "content_embedding", "cosine")
    layout = table_layout(reader, schema, table, "uuid", "content", vectors, kind="memori", known=UNREAD["memori"])
    times = {"created_at": f"{ALIAS}.date_created", "updated_at": f"{ALIAS}.date_updated"}
    return replace(
        layout,
        source=f"{layout.source} JOIN memori_entity AS e ON e.id = {ALIAS}.entity_id",
        columns={**layout.columns, "user_id": "e.external_id", **times},
    )


LIBRARIES = layouts(
    {
        "engram": _engram,
        "langgraph": _langgraph,
        "letta": _letta,
        "llm": _llm,
        "mcp_memory_service": _mcp_memory_service,
        "memori": _memori,
    }
)
