"""LangGraph's SqliteStore: store(prefix, key, value) and store_vectors(prefix, key, field_name, embedding), a vector for each indexed text.

A memory is an item: its id is `prefix/key`, its fields are the keys of `value` and the columns of `store`, its author the last label of
the namespace unless the value has one. Each embedded text is a chunk. Nothing in the file says the distance: cosine, the library's
default. By l2 the library's own search has the farthest item first; here the nearest is first.

    ?namespace=a.b       items of this namespace and of those below it, as `store.search(("a", "b"))`
    ?omit_expired=true   without items past expires_at, which the library returns until it sweeps them
    ?distance=l2         what the store was set to, if not cosine

Source: langgraph-checkpoint-sqlite 3.1.2, run
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from cems_workbench.formats.base.memory_fields import NAMES
from cems_workbench.formats.base.payload import Names
from cems_workbench.sources.address import Address
from cems_workbench.sources.source import Distance
from workbench_stores.langgraph_value import OUTERS, WHOLE, content_of, embedded_text, in_order, steps
from workbench_stores.sqlite.file import Reader
from workbench_stores.sqlite.layout import Chunks, Layout, SqliteLayout, Vectors
from workbench_stores.sqlite.layouts._shared import chosen
from workbench_stores.sqlite.schema import Schema
from workbench_stores.sqlite.vectors import VectorForm

DISTANCES = ("cosine", "l2")
VECTORS = ("store_vectors", ("prefix", "key", "field_name", "embedding"))
WITHIN = "store_vectors AS o WHERE o.prefix = {0}.prefix AND o.key = {0}.key"
"""The rows of an item."""
FLAGS: Mapping[str, bool] = {"true": True, "false": False}


def recognises(schema: Schema) -> bool:
    """Whether a file has the store's tables."""
    return schema.has("store", ("prefix", "key", "value")) and (schema.has("store_migrations") or schema.has(*VECTORS))


def _value(raw: Any) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, TypeError, RecursionError):
        return None


def _text(raw: Any, name: str) -> str | None:
    return embedded_text(_value(raw), name)


def _content(raw: Any, names: str) -> str:
    value = _value(raw)
    texts = {name: text for name in sorted(json.loads(names), key=in_order) if (text := embedded_text(value, name))}
    return content_of(value, texts)


def read(reader: Reader, schema: Schema, address: Address) -> Layout:
    """The items, of all namespaces or one and those below it."""
    prefixes = [row[0] for row in reader.rows("SELECT DISTINCT prefix FROM store ORDER BY 1")]
    above = sorted({".".join(each.split(".")[:n]) for each in prefixes for n in range(1, len(each.split(".")) + 1)})
    namespace = chosen(address, "namespace", above)
    distance = chosen(address, "distance", DISTANCES)
    omit_expired = FLAGS[chosen(address, "omit_expired", tuple(FLAGS)) or "false"]
    # The texts are found in a JSON value by paths that SQL has no functions for.
    reader.connection.create_function("langgraph_text", 2, _text, deterministic=True)
    reader.connection.create_function("langgraph_content", 2, _content, deterministic=True)
    conditions = (
        ["(s.prefix = :namespace OR substr(s.prefix, 1, length(:namespace) + 1) = :namespace || '.')"]
        if namespace
        else []
    )
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
    names = "'[]'"
    chunks, embedded = None, list[str]()
    if schema.has(*VECTORS):
        names = f"(SELECT json_group_array(o.field_name) FROM {WITHIN.format('s')})"
        chunks, embedded = _chunks(reader, distance)
    keys = ", ".join(f"json_extract(CAST(s.value AS TEXT), '$.{name}')" for name in NAMES["author"])
    # What follows the last dot: the prefix without the longest beginning that ends with one.
    label = "CASE WHEN instr(s.prefix, '.') THEN replace(s.prefix, rtrim(s.prefix, replace(s.prefix, '.', '')), '') END"
    return Layout(
        kind=LAYOUT.name,
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
        known=frozenset(
            [
                *(f"{outer}.{name}" for outer in OUTERS for name in (*NAMES["content"], *NAMES["author"])),
                *(f"value.{steps(name)[0]}" for name in embedded if name != WHOLE),
            ]
        ),
        notes=tuple(notes),
    )


def _chunks(reader: Reader, distance: str | None) -> tuple[Chunks, list[str]]:
    """The embedded texts, and their field_names."""
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


LAYOUT = SqliteLayout("langgraph", "LangGraph", recognises, read, options=("namespace", "omit_expired", "distance"))
