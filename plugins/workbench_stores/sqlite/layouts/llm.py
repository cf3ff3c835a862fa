"""llm's embeddings.db: `embeddings` (collection_id, id, embedding float32, content, metadata JSON) of several `collections` (name, model).

`?collection=NAME` chooses one; ids are unique within one. llm compares by cosine.

Source: llm 0.36, embeddings.py (`Collection`) and a file that it wrote.
"""

from __future__ import annotations

from dataclasses import replace

from cems_workbench.errors import InputError
from cems_workbench.sources.address import Address
from cems_workbench.sources.recognised import SAMPLE_ROWS
from workbench_stores.sqlite.file import Reader
from workbench_stores.sqlite.layout import Layout, SqliteLayout, Vectors
from workbench_stores.sqlite.schema import Schema, quoted
from workbench_stores.sqlite.table import ALIAS, table_layout
from workbench_stores.sqlite.vectors import VectorForm, recognised

COLUMNS = ("collection_id", "id", "embedding", "content", "content_hash", "metadata")


def recognises(schema: Schema) -> bool:
    """Whether a file has llm's tables of embeddings."""
    return schema.has("embeddings", COLUMNS) and schema.has("collections", ("id", "name", "model"))


def read(reader: Reader, schema: Schema, address: Address) -> Layout:
    """The rows of a collection. Raises InputError if the address names none of several, or one that is not there."""
    collections = {name: (key, model) for key, name, model in reader.rows("SELECT id, name, model FROM collections")}
    known = ", ".join(sorted(collections)) or "none"
    name = address.options.get("collection")
    if name is None:
        if len(collections) != 1:
            raise InputError(f"{address.plain}: has the collections {known}; ?collection=NAME chooses one")
        (name,) = collections
    if name not in collections:
        raise InputError(f"{address.plain}: there is no collection {name!r}; there are {known}")
    key, model = collections[name]
    values = {"collection": key}
    table = schema.tables["embeddings"]
    sample = reader.rows(
        f"SELECT embedding FROM embeddings WHERE collection_id = :collection AND embedding IS NOT NULL LIMIT {SAMPLE_ROWS}",
        values,
    )
    form = recognised([row[0] for row in sample])
    vectors = None
    if form is not None:
        vectors = Vectors(VectorForm(form.encoding, form.dimension, "cosine"), f"{ALIAS}.{quoted('embedding')}")
    known_columns = ("collection_id", "content_hash", "content_blob")
    layout = table_layout(reader, schema, table, "id", "content", vectors, kind=LAYOUT.name, known=known_columns)
    left = tuple(column for column in layout.unread if column not in known_columns)
    others = [other for other in sorted(collections) if other != name]
    notes = (f"not taken: the collections {', '.join(others)}",) if others else ()
    return replace(
        layout,
        unique=True,
        condition=f"{ALIAS}.collection_id = :collection",
        values=values,
        model=model,
        unread=left,
        notes=(*layout.notes, *notes),
    )


LAYOUT = SqliteLayout("llm", "llm (embeddings.db)", recognises, read, options=("collection",))
